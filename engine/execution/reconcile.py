"""After a crash: what came of intents without a result. It is looked at, never blindly done again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from stoploss.engine.execution.deeds import UNDO, order_of, result_of
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import Action, Outcome, Refused
from stoploss.engine.people import People
from stoploss.engine.planning.model import ALERT


def reconcile(
    ledger: Ledger, action: Callable[[str], Action], *, now: Callable[[], datetime]
) -> tuple[Entry, ...]:
    """Write what came of every open intent; returns the results.

    What is half done is finished, unless stoploss is paused: it stays open then. A notice of which
    nobody knows whether it arrived counts as not told.

    Args:
        ledger: in which the intents are.
        action: the action of a name; raises `Refused` where there is none.
        now: the present instant.

    Raises:
        StoreError: the ledger cannot be read or written.
    """
    paused = People(ledger).paused() is not None
    results = []
    for intent in ledger.open_intents():
        outcome = _looked_at(intent, action, paused=paused)
        if outcome is not None:
            results.append(ledger.append(result_of(intent, outcome, at=now())))
    return tuple(results)


def _looked_at(intent: Entry, action: Callable[[str], Action], *, paused: bool) -> Outcome | None:
    if intent.action == ALERT:
        words = "interrupted: whether it arrived is not known; it is told again"
        return Outcome("failed", words, retry=True)
    known = order_of(intent)
    if known is None:
        return Outcome("undone", "interrupted before anything was done")
    order, found = known
    try:
        actor = action(order.action)
        outcome = actor.look(order, found)
        if intent.action == UNDO:
            return _of_undo(outcome)
        if outcome.state == "failed":
            if paused:
                return None
            finished = actor.act(order, found)
            return replace(finished, words=f"finished after an interruption: {finished.words}")
    except Refused as error:
        return Outcome("unknown", f"after an interruption it cannot be looked at: {error.words}")
    except Exception as error:
        return Outcome("unknown", f"after an interruption it cannot be looked at ({type(error).__name__})")
    return replace(outcome, words=f"seen after an interruption: {outcome.words}")


def _of_undo(outcome: Outcome) -> Outcome:
    """What came of taking a step back, told by how its matter stands."""
    if outcome.state == "undone":
        return Outcome("done", f"seen after an interruption: {outcome.words}", outcome.after)
    return Outcome("failed", f"not taken back: {outcome.words}", outcome.after, retry=True)
