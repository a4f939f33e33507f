"""`stoploss reject`: let one step not be done."""

from __future__ import annotations

import click

from stoploss.cli import requests
from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN, UserError


@click.command()
@click.argument("request", metavar="ID", required=False)
@click.option("--reason", help="Why; it is written into the ledger. Required.")
@states.options
def reject(request: str | None, reason: str | None, state: str | None, files: tuple[str, ...]) -> int:
    """Reject the request ID, or take its approval back; it is not asked again in its episode.

    Without ID: tells what waits, and exits with 2.
    """
    from stoploss.engine import clock
    from stoploss.engine.people import People
    from stoploss.reports import ledger_table

    if request is None:
        raise requests.without_id("reject", state, files)
    if reason is None:
        raise UserError(f"reject needs a reason: stoploss reject {request} --reason '…'")
    place = states.place(state, files)
    with states.ledger(place.url, create=False) as opened:
        answered = People(opened).reject(request, who=states.person(), now=clock.now(), reason=reason)
    click.echo(ledger_table.answer(answered, place.zone), nl=False)
    return CLEAN
