"""Watches what steps bring: says what was promised and got, and takes back what made things dearer.

All that it knows is in the ledger and in what is measured, so a restart changes nothing. A step is judged
from half an hour after it on, by two looks five minutes apart; what is unknown decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from stoploss.engine.execution.deeds import order_of
from stoploss.engine.execution.watch_pace import Judgement, judge, said
from stoploss.engine.execution.watching import BACKFIRED, LASTS, Watching, watching
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.planning.watched import APART, Sighted

if TYPE_CHECKING:
    from stoploss.engine.audit import Audit

WHO = "stoploss"
SETTLING = timedelta(minutes=30)
"""How long a step is left to settle before it is judged."""


@dataclass(frozen=True, slots=True)
class Backfired:
    """A step that made things dearer and stays, which people are to know.

    Attributes:
        intent: what was done.
        words: what was promised, and what came of it.
        why: why it was not taken back.
    """

    intent: Entry
    words: str
    why: str


class Watch:
    """Looks at every watched step once per instant."""

    def __init__(
        self, ledger: Ledger, take_back: Callable[[Entry, str], bool], now: Callable[[], datetime]
    ) -> None:
        self._ledger, self._take_back, self._now = ledger, take_back, now

    def look(self, result: Audit) -> tuple[tuple[Backfired, ...], bool]:
        """What people are to know of, and whether something was taken back; not while stoploss is paused.

        Raises:
            StoreError: the ledger cannot be read or written.
        """
        told, acted = [], False
        for item in watching(self._ledger, now=result.at):
            if item.undone:
                continue
            seen = Sighted() if item.followed else result.watched.get(item.resource, Sighted())
            words = self._judged(item, seen, result.at)
            if words is None or seen.ended or item.followed:
                continue
            why = self._stays(item, seen, result)
            if why is None:
                acted = self._take_back(item.intent, f"it backfired: {words}") or acted
            elif why:
                told.append(Backfired(item.intent, words, why))
        return tuple(told), acted

    def _judged(self, item: Watching, seen: Sighted, at: datetime) -> str | None:
        """Say what a step has brought where it is time to; returns the words where it has backfired."""
        if item.note is not None:
            return item.note.why if item.backfired else None
        age = at - item.since
        found = judge(item.before, seen.now, item.intent.promised)
        if age <= LASTS and not seen.ended and not item.followed and _worse(item, seen, found, age):
            self._note(item, seen, found, BACKFIRED)
            return found.words
        if item.followed:
            words = f"{found.words}; line {item.followed} followed on the same, so it is not told apart"
            self._note(item, seen, Judgement("unknown", None, words), "unknown")
        elif seen.ended or age >= LASTS:
            self._note(item, seen, found, found.state)
        return None

    def _stays(self, item: Watching, seen: Sighted, result: Audit) -> str | None:
        """Why a step that backfired stays; None: it is taken back now. Nothing to say: that goes on."""
        undoing = item.undoing
        if undoing is not None:
            return "" if undoing.kind == "intent" else f"it could not be taken back: {undoing.why}"
        known = order_of(item.intent)
        if known is None or not known[1].undoable:
            return "it cannot be taken back"
        policy = next((p for p in result.policies if p.name == item.intent.policy), None)
        if policy is None or policy.mode != "enforce":
            return "its policy is gone" if policy is None else f"its policy is in mode {policy.mode}"
        if _interrupts(item.intent):
            return "taking it back would end what runs there"
        age = result.at - item.since
        if not _worse(item, seen, judge(item.before, seen.now, item.intent.promised), age) or age > LASTS:
            return "it was not dearer any more, or not known, when it could have been taken back"
        return seen.spared

    def _note(self, item: Watching, seen: Sighted, found: Judgement, state: str) -> None:
        intent = item.intent
        self._ledger.append(
            Entry(
                at=self._now(),
                kind="note",
                episode=intent.episode,
                policy=intent.policy,
                policy_hash=intent.policy_hash,
                resource=intent.resource,
                action=intent.action,
                target=intent.target,
                why=found.words,
                evidence={
                    "line": intent.seq,
                    "state": state,
                    "pace_before": said(item.before),
                    "pace_now": said(seen.now),
                },
                promised=intent.promised,
                got=found.got,
                currency=seen.now.currency if seen.now else intent.currency,
                who=WHO,
            )
        )


def _worse(item: Watching, seen: Sighted, found: Judgement, age: timedelta) -> bool:
    """Whether two looks agree that a step makes things dearer."""
    if age < SETTLING + APART or found.state != "worse":
        return False
    return judge(item.before, seen.earlier, item.intent.promised).state == "worse"


def _interrupts(intent: Entry) -> bool:
    """Whether taking it back ends work: an instance is stopped to change its type."""
    kind = intent.resource.kind if intent.resource is not None else ""
    return kind == "instance" and intent.action == "downscale" and "replicas" not in intent.parameters
