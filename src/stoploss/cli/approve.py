"""`stoploss approve`: let one step be done."""

from __future__ import annotations

import click

from stoploss.cli import requests
from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN


@click.command()
@click.argument("request", metavar="ID", required=False)
@click.option("--reason", help="Why; it is written into the ledger.")
@states.options
def approve(request: str | None, reason: str | None, state: str | None, files: tuple[str, ...]) -> int:
    """Approve the request ID: exactly its action, target and parameters, for 24 hours.

    Everything is checked again before the step is done. Without ID: tells what waits, and exits with 2.
    """
    from stoploss.engine import clock
    from stoploss.engine.people import People
    from stoploss.reports import ledger_table

    if request is None:
        raise requests.without_id("approve", state, files)
    place = states.place(state, files)
    with states.ledger(place.url, create=False) as opened:
        answered = People(opened).approve(request, who=states.person(), now=clock.now(), reason=reason)
    click.echo(ledger_table.answer(answered, place.zone), nl=False)
    return CLEAN
