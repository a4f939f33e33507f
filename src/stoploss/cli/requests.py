"""`stoploss requests`: what waits for a person's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN, UserError
from stoploss.cli.explain_deed import Where

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from stoploss.engine.ledger import Ledger
    from stoploss.engine.ledger_schema import Entry
    from stoploss.engine.people_schema import Request
    from stoploss.reports.requests import Asked


@click.command()
@click.option("--all", "every", is_flag=True, help="Also those that were answered, or are too old.")
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
@states.options
def requests(every: bool, format_: str, state: str | None, files: tuple[str, ...]) -> int:
    """List the steps that wait for an approval, the dearest first, with the commands to paste.

    Exit status: 0, 2 where there is no ledger or it cannot be read.
    """
    from stoploss.reports import requests as report

    asked, place = _asked(state, files, every=every)
    if format_ == "json":
        click.echo(report.as_json(asked), nl=False)
    else:
        click.echo(report.as_text(asked, place.zone, Where(state, files).options, every=every), nl=False)
    return CLEAN


def without_id(command: str, state: str | None, files: tuple[str, ...]) -> UserError:
    """The error of a command that was given no request; the list of what waits is told on stderr.

    Raises:
        UserError: there is no ledger, or it cannot be read.
    """
    from stoploss.reports import requests as report

    asked, place = _asked(state, files, every=False)
    click.echo(report.as_text(asked, place.zone, Where(state, files).options), nl=False, err=True)
    return UserError(f"{command} needs the ID of a request")


def _asked(state: str | None, files: tuple[str, ...], *, every: bool) -> tuple[list[Asked], states.Place]:
    from stoploss.engine import clock
    from stoploss.engine.people import People

    now = clock.now()
    place = states.place(state, files)
    with states.ledger(place.url, read_only=True) as opened:
        found = [item for item in People(opened).requests() if every or item.state(now) == "waiting"]
        return _sorted(_known(opened, found, now)), place


def _sorted(asked: Iterable[Asked]) -> list[Asked]:
    """Those that wait first, the dearest before the others."""
    return sorted(asked, key=lambda item: (item.state != "waiting", -(item.per_hour or 0.0)))


def _known(opened: Ledger, found: Sequence[Request], now: datetime) -> Iterable[Asked]:
    """What the ledger knows beside the questions themselves."""
    from stoploss.reports.requests import Asked

    episodes = sorted({item.wanted.episode for item in found})
    lines = opened.entries(episodes=episodes)
    for item in found:
        wanted = item.wanted
        own = [entry for entry in lines if entry.episode == wanted.episode]
        same = [
            entry
            for entry in own
            if entry.promised is not None and (entry.action, entry.target) == (wanted.action, wanted.target)
        ]
        currencies = [entry.currency for entry in own if entry.currency]
        yield Asked(
            item,
            item.state(now),
            now,
            same[-1].promised if same else None,
            currencies[-1] if currencies else None,
            _team(opened, item, own),
        )


def _team(opened: Ledger, item: Request, own: Sequence[Entry]) -> str | None:
    """The team of the resource, where a line remembers its labels."""
    from stoploss.engine.execution.history_of import labels_in

    resource = item.wanted.resource
    if resource.kind == "team":
        return resource.id
    others = opened.entries(kinds=("intent",), resource=str(resource), last=20)
    for entry in (*reversed(own), *reversed(others)):
        team = labels_in(entry).get("team")
        if isinstance(team, str) and team not in ("", "?"):
            return team
    return None
