"""Why something was done, told from the ledger alone: `stoploss explain ID`, or of a resource."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN, UserError

if TYPE_CHECKING:
    from stoploss.engine.execution.history_of import History
    from stoploss.reports.deed_view import Hand
    from stoploss.rules.policy import PolicySet


@dataclass(frozen=True, slots=True)
class Where:
    """Where is looked.

    Attributes:
        state: the URL of the state; None is what the policy files say, else the default.
        files: policy files; none are those of this folder.
    """

    state: str | None = None
    files: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """The same as options of a command that is offered."""
        found = [part for name in self.files for part in ("--file", name)]
        return (*(("--state", shown(self.state)) if self.state else ()), *found)


def shown(url: str) -> str:
    """A URL as it may be printed; one that is none as it is."""
    from stoploss.engine.history.store_errors import StoreError, parsed
    from stoploss.engine.history.store_errors import shown as without_password

    try:
        return without_password(parsed(url))
    except StoreError:
        return url


def explain_deed(name: str, where: Where, format_: str, *, resource: bool = False) -> int:
    """Print what is kept of an id, or of the newest thing that was done to a resource.

    Raises:
        UserError: the ledger holds nothing of it, or cannot be read.
        click.exceptions.Exit: the policy files hold errors, and they alone say where the state is.
    """
    from stoploss.engine import clock
    from stoploss.engine.execution.history_find import NotKeptError, meant, newest_of
    from stoploss.engine.execution.history_of import history_of
    from stoploss.engine.people import People
    from stoploss.reports import deed, deed_json
    from stoploss.reports.deed_view import View

    place, loaded, files = _place(where)
    with states.ledger(place.url, read_only=True) as opened:
        try:
            line = newest_of(opened, name) if resource else meant(opened, name)
        except NotKeptError as error:
            raise UserError(str(error)) from None
        history = history_of(opened, line, whole=not resource and name[:2] in ("f-", "a-"))
        now = clock.now()
        waiting = tuple(
            request
            for request in People(opened).requests(episodes=[line.episode or ""])
            if request.state(now) == "waiting"
        )
    view = View(history, _hand(history, loaded, files), place.zone, waiting, where.options)
    if format_ == "json":
        click.echo(deed_json.as_json(view), nl=False)
    else:
        click.echo(deed.as_text(view), nl=False)
    return CLEAN


def _place(where: Where) -> tuple[states.Place, PolicySet | None, tuple[str, ...]]:
    """The state, the policies in hand (None where their files hold errors), and their files."""
    from stoploss.cli import loading
    from stoploss.rules.policy import Settings

    if not where.files and not os.path.exists(loading.DEFAULT_FILE):
        settings = Settings()
        return (
            states.Place(where.state or states.url_of(settings.state), ZoneInfo(settings.timezone)),
            None,
            (),
        )
    files = loading.policy_files(where.files, "explain --file")
    loaded = loading.load_files(files).policies
    if loaded is None and where.state is None:
        loaded = loading.policies(files, "explain --file")
    settings = loaded.settings if loaded is not None else Settings()
    url = where.state or states.url_of(settings.state)
    return states.Place(url, ZoneInfo(settings.timezone)), loaded, files


def _hand(history: History, loaded: PolicySet | None, files: tuple[str, ...]) -> Hand:
    """What the policy files say of the policy now."""
    from stoploss.engine.costs.derived import prepared
    from stoploss.engine.history.frame import Frame
    from stoploss.engine.ledger_schema import policy_hash
    from stoploss.reports.deed_view import Hand
    from stoploss.rules.catalogue import catalogue

    def none(resolution: float) -> Frame:
        raise AssertionError("nothing is looked at")

    told = ", ".join(files)
    if not files:
        return Hand("none", "there is no policy file here to compare it with (--file)")
    if loaded is None:
        return Hand("unread", f"{told} holds errors, so it is not compared; see stoploss validate")
    ready, _ = prepared(loaded, none, catalogue())
    policy = next((item for item in ready.policies if item.name == history.policy), None)
    if policy is None:
        return Hand("gone", f"{told} holds no policy of that name now")
    if history.policy_hash is None:
        return Hand("unknown", "its hash is not kept, so it is not compared")
    now = policy_hash(policy)
    if now == history.policy_hash:
        return Hand("same", f"{told} says the same now", policy.summary or None)
    return Hand("changed", f"{told} says something else now (hash {now})")
