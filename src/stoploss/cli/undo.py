"""`stoploss undo`: put back what a step changed."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN, DEGRADED

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoploss.engine.ledger import Ledger
    from stoploss.engine.ledger_schema import Entry
    from stoploss.engine.model import Action, Outcome
    from stoploss.rules.policy import PolicySet

ABANDONED = timedelta(hours=1)
"""After so long a try to take something back that has no result was broken off."""


@click.command()
@click.argument("name", metavar="ID")
@click.option("--reason", help="Why; it is written into the ledger.")
@click.option("--dry-run", is_flag=True, help="Look how it stands, say what would be done, change nothing.")
@states.options
def undo(name: str, reason: str | None, dry_run: bool, state: str | None, files: tuple[str, ...]) -> int:
    """Put back what a step changed. ID is a line of the ledger, a finding (f-…) or an order (o-…).

    Of a finding it is the newest step that can be taken back. What somebody else has changed since is
    left alone. How other systems are reached is said in the policy files. A pause does not stop it.

    Exit status: 0 it is as it was, 2 ID names nothing that can be taken back, 4 it could not be put back.
    """
    from stoploss.cli import loading
    from stoploss.engine import clock
    from stoploss.engine.execution.undoing import undo as take_back
    from stoploss.engine.execution.undoing import undoable
    from stoploss.reports import undone

    loaded = loading.policies(files, "undo --file")
    place = states.place(state, files)
    with states.ledger(place.url, read_only=dry_run, create=False) as opened:
        intent = undoable(opened, name)
        click.echo(undone.about(opened, intent, place.zone), nl=False)
        busy = _busy(opened, intent)
        if busy is not None:
            click.echo(undone.busy(busy, place.zone), nl=False)
            return DEGRADED
        action = _actions(loaded, opened.file)
        if dry_run:
            outcome = _look(intent, action)
            click.echo(undone.would(outcome), nl=False)
            return DEGRADED if outcome.state in ("skipped", "unknown") else CLEAN
        if sys.stderr.isatty():
            click.echo(f"putting {intent.resource} back; this may take some minutes", err=True)
        try:
            outcome = take_back(opened, intent, action, who=states.person(), reason=reason, now=clock.now)
        except KeyboardInterrupt:
            _broken_off(opened, intent)
            raise
        click.echo(undone.came(outcome), nl=False)
    return CLEAN if outcome.state == "done" else DEGRADED


def _actions(loaded: PolicySet, file: Path | None) -> Callable[[str], Action]:
    """What makes an action of this installation."""
    from stoploss import means
    from stoploss.engine.model import Refused

    folder = os.path.join("." if file is None else file.parent, means.FOLDER)
    known = means.actions_of(means.means_of(loaded, folder=folder, environ=os.environ))

    def action(name: str) -> Action:
        if name not in known:
            raise Refused(f"{name} cannot be carried out by this installation")
        return known[name]()

    return action


def _busy(opened: Ledger, intent: Entry) -> Entry | None:
    """What is being done to the same resource, as far as is written down."""
    from stoploss.engine import clock
    from stoploss.engine.execution.deeds import UNDO
    from stoploss.engine.planning.model import ALERT

    for entry in opened.open_intents():
        same = entry.resource == intent.resource and entry.action != ALERT
        ours = entry.action == UNDO and entry.evidence.get("line") == intent.seq
        if same and not (ours and clock.now() - entry.at > ABANDONED):
            return entry
    return None


def _look(intent: Entry, action: Callable[[str], Action]) -> Outcome:
    """How it stands now; changes nothing."""
    from stoploss.engine.execution.deeds import order_of
    from stoploss.engine.model import Outcome, Refused

    known = order_of(intent)
    assert known is not None, "only what remembers how things were is taken back"
    order, found = known
    try:
        return action(order.action).look(order, found)
    except Refused as error:
        return Outcome("unknown", error.words)
    except Exception as error:
        return Outcome("unknown", f"it cannot be looked at ({type(error).__name__})")


def _broken_off(opened: Ledger, intent: Entry) -> None:
    """Write down that nobody waited for it, so that it can be tried again at once."""
    from stoploss.engine import clock
    from stoploss.engine.execution.deeds import UNDO, result_of
    from stoploss.engine.model import Outcome

    words = f"stopped by {states.person()} while it was being put back; look before trying again"
    for entry in opened.open_intents():
        if entry.action == UNDO and entry.evidence.get("line") == intent.seq:
            opened.append(result_of(entry, Outcome("unknown", words), at=clock.now()))
