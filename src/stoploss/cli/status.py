"""`stoploss status`: whether the daemon runs, and how it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN, DEGRADED, UserError

if TYPE_CHECKING:
    from datetime import datetime

    from stoploss.engine.vitals import Vitals

LATE = 3
"""Intervals without a tick after which the daemon is said to be late."""


@click.command()
@states.options
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(state: str | None, files: tuple[str, ...], format_: str) -> int:
    """Say whether the daemon runs on a state, when it ticked, and what is wrong.

    Exit status: 0 it runs and is well, 2 bad input, 4 it does not run, is late, or something is wrong.
    """
    from stoploss.daemon.lock import StateLock
    from stoploss.engine import clock
    from stoploss.engine.history.store_errors import StoreError
    from stoploss.engine.people import People
    from stoploss.engine.vitals import load_vitals
    from stoploss.reports import status as report

    place = states.place(state, files)
    now = clock.now()
    try:
        vitals = load_vitals(place.url)
        running = StateLock(place.url).held_elsewhere()
    except (StoreError, OSError) as error:
        raise UserError(str(error)) from None
    with states.ledger(place.url, read_only=True) as opened:
        people = People(opened)
        pause = people.paused()
        waiting = sum(request.state(now) == "waiting" for request in people.requests())
    told = report.Told(running, vitals, None if pause is None else pause.reason, waiting, _late(vitals, now))
    if format_ == "json":
        click.echo(json.dumps(report.as_json(told), indent=2, ensure_ascii=False))
    else:
        click.echo(report.as_text(told, now, place.zone), nl=False)
    well = running and vitals is not None and not vitals.problems and not told.late
    return CLEAN if well else DEGRADED


def _late(vitals: Vitals | None, now: datetime) -> bool:
    if vitals is None or vitals.last_tick is None:
        return False
    return (now - vitals.last_tick).total_seconds() > LATE * vitals.interval + 60
