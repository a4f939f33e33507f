"""Takes a step back that remembers how things were."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from stoploss.engine.execution.deeds import UNDO, order_of, result_of
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import Action, Outcome, Refused
from stoploss.engine.people_schema import DecisionError


def undoable(ledger: Ledger, name: str) -> Entry:
    """The intent that a name means: the number of its line or of its result's, its episode or its order.

    Where an episode has several, it is the newest that can be taken back.

    Raises:
        DecisionError: there is none, it was not done, cannot be taken back, or was taken back.
        StoreError: the ledger cannot be read.
    """
    entries = ledger.entries(kinds=("intent", "result"))
    results = {entry.intent: entry for entry in entries if entry.kind == "result"}
    meant = [entry for entry in entries if _meant(entry, name)]
    if not meant:
        raise DecisionError(
            f"nothing that was done goes by {name!r}; stoploss ledger list --kind intent shows it"
        )
    numbers = {entry.intent if entry.kind == "result" else entry.seq for entry in meant}
    taken_back = {
        (entry.evidence or {}).get("line")
        for entry in entries
        if entry.action == UNDO and entry.kind == "intent" and _done(results.get(entry.seq))
    }
    own = any(entry.action == UNDO for entry in meant)
    whys = ["it is a taking back itself" if own else "it is a notice, which cannot be taken back"]
    for entry in reversed(entries):
        if entry.kind != "intent" or entry.seq not in numbers or entry.action in ("alert", UNDO):
            continue
        known = order_of(entry)
        if entry.seq in taken_back:
            whys.append(f"line {entry.seq} was taken back already")
        elif known is None or results.get(entry.seq) is None or not _changed(results[entry.seq]):
            whys.append(f"line {entry.seq} was not done")
        elif not known[1].undoable:
            whys.append(f"{entry.action} of {entry.resource} (line {entry.seq}) cannot be taken back")
        else:
            return entry
    raise DecisionError(whys[-1])


def undo(
    ledger: Ledger,
    intent: Entry,
    action: Callable[[str], Action],
    *,
    who: str,
    reason: str | None,
    now: Callable[[], datetime],
) -> Outcome:
    """Take a step back: a line before, a line after, as with every act.

    Raises:
        StoreError: the ledger cannot be written.
    """
    known = order_of(intent)
    assert known is not None, "only what remembers how things were is taken back"
    order, found = known
    said = intent.evidence or {}
    line = ledger.append(
        Entry(
            at=now(),
            kind="intent",
            episode=intent.episode,
            policy=intent.policy,
            policy_hash=intent.policy_hash,
            resource=intent.resource,
            action=UNDO,
            target=intent.target,
            parameters=intent.parameters,
            why=reason,
            evidence={**said, "line": intent.seq, "of": intent.action},
            who=who,
        )
    )
    try:
        outcome = action(order.action).undo(order, found)
    except Refused as error:
        outcome = Outcome("failed", error.words, retry=True)
    except Exception as error:
        outcome = Outcome("unknown", f"it broke off ({type(error).__name__}); look before trying again")
    ledger.append(result_of(line, outcome, at=now()))
    return outcome


def _meant(entry: Entry, name: str) -> bool:
    order = (entry.evidence or {}).get("order", {}).get("id")
    return name in (str(entry.seq), entry.episode, order)


def _done(result: Entry | None) -> bool:
    return result is not None and result.verdict == "done"


def _changed(result: Entry) -> bool:
    """Whether something was, or may have been, changed."""
    return result.verdict == "done" or (result.evidence or {}).get("state") in ("failed", "unknown")
