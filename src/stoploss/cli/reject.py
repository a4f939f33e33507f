"""`stoploss reject`: let one step not be done."""

from __future__ import annotations

import click

from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN


@click.command()
@click.argument("request", metavar="ID")
@click.option("--reason", required=True, help="Why; it is written into the ledger.")
@states.options
def reject(request: str, reason: str, state: str | None, files: tuple[str, ...]) -> int:
    """Reject the request ID, or take its approval back; it is not asked again in its episode."""
    from stoploss.engine import clock
    from stoploss.engine.people import People
    from stoploss.reports import ledger_table

    place = states.place(state, files)
    with states.ledger(place.url, create=False) as opened:
        answered = People(opened).reject(request, who=states.person(), now=clock.now(), reason=reason)
    click.echo(ledger_table.answer(answered, place.zone), nl=False)
    return CLEAN
