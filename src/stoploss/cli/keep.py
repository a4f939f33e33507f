"""`stoploss keep`: nothing that ends or shrinks a job is done for a while."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN, UserError, read_option

if TYPE_CHECKING:
    from stoploss.engine.ledger import Ledger


@click.command()
@click.argument("job")
@click.option("--for", "span", required=True, metavar="DURATION", help="How long, such as 4h; 24h at most.")
@click.option("--reason", required=True, help="Why; it is written into the ledger.")
@click.option("--per-hour", metavar="MONEY", help="What the job costs, such as $28.80/h.")
@states.options
def keep(
    job: str, span: str, reason: str, per_hour: str | None, state: str | None, files: tuple[str, ...]
) -> int:
    """Keep JOB running: no step ends or shrinks it until then. Alerts go on.

    Prints what that costs: at --per-hour, else at what the newest decision on the job would have
    saved. The newest word counts, also where it is shorter.
    """
    from stoploss.engine import clock
    from stoploss.engine.people import People
    from stoploss.reports import ledger_table
    from stoploss.rules.units import parse_duration

    seconds = read_option("--for", span, parse_duration)
    given = None if per_hour is None else read_option("--per-hour", per_hour, _per_hour)
    place = states.place(state, files)
    with states.ledger(place.url) as opened:
        price = given or _promised(opened, job)
        try:
            length = timedelta(seconds=seconds)
        except OverflowError:
            length = timedelta.max
        kept = People(opened).keep(
            job,
            length,
            who=states.person(),
            now=clock.now(),
            reason=reason,
            per_hour=price[0] if price else None,
            currency=price[1] if price else None,
        )
    click.echo(ledger_table.kept(kept, price, place.zone), nl=False)
    return CLEAN


def _per_hour(text: str) -> tuple[float, str]:
    """Money per hour and its currency.

    Raises:
        UserError: it is something else.
        QuantityError: it is no quantity.
    """
    from stoploss.rules.units import SYMBOLS, parse_quantity

    quantity = parse_quantity(text)
    powers = dict(quantity.dimension.powers)
    currency = next((name for name in powers if name in SYMBOLS), None)
    if currency is None or powers != {currency: 1, "time": -1}:
        raise UserError(f"--per-hour {text}: it is no money per time; write $28.80/h")
    return quantity.value * 3600, currency


def _promised(opened: Ledger, job: str) -> tuple[float, str] | None:
    """What the newest decision on a job would have saved per hour; None where none says."""
    for entry in reversed(opened.entries(kinds=("decision",), resource=f"job {job}")):
        if entry.promised is not None and entry.currency is not None:
            return entry.promised, entry.currency
    return None
