"""Which steps are watched, as the ledger tells: what was done, what was said of it, what was taken back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from stoploss.engine.execution.deeds import UNDO, deeds, order_of
from stoploss.engine.execution.watch_pace import pace_of
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import ResourceId
from stoploss.engine.planning.model import WATCHED, Standing, Watched
from stoploss.engine.planning.pace import Pace

LASTS = timedelta(hours=24)
"""How long a step is watched."""
SETTLES = timedelta(days=3)
"""How long after a step it is still said what it brought, where that could not be said in time."""
REMEMBERED = timedelta(days=7)
"""How long a step that backfired is not done again, and can still be taken back."""
BACKFIRED = "backfired"


@dataclass(frozen=True, slots=True)
class Watching:
    """A step that was done and may cost more than it saves.

    Attributes:
        intent: what was done; `since`: when it was.
        note: what was said of it at last, else None.
        undoing: the newest try to take it back: its result, or its intent while that is open.
        undone: it was taken back.
        followed: the line of a later watched step on the same resource, else None.
    """

    intent: Entry
    since: datetime
    note: Entry | None = None
    undoing: Entry | None = None
    undone: bool = False
    followed: int | None = None

    @property
    def resource(self) -> ResourceId:
        """What was acted on."""
        assert self.intent.resource is not None, "only what was done to something is watched"
        return self.intent.resource

    @property
    def before(self) -> Pace | None:
        """The pace of its job before it."""
        return pace_of((self.intent.evidence or {}).get("pace"))

    @property
    def job(self) -> str | None:
        """Whose money per step is watched."""
        if self.resource.kind == "job":
            return self.resource.id
        return None if self.before is None else self.before.job

    @property
    def backfired(self) -> bool:
        """Whether it was found to make things dearer."""
        return self.note is not None and self.note.evidence.get("state") == BACKFIRED


def watching(ledger: Ledger, *, now: datetime) -> tuple[Watching, ...]:
    """The steps that are watched, or backfired lately; the oldest first.

    Raises:
        StoreError: the ledger cannot be read.
    """
    notes = _notes(ledger.entries(kinds=("note",), since=now - REMEMBERED))
    begun = [e for e in ledger.entries(kinds=("intent",), since=now - SETTLES) if e.action in WATCHED]
    remembered = [note for note in notes.values() if note.evidence["state"] == BACKFIRED]
    episodes = sorted({entry.episode or "" for entry in (*begun, *remembered)})
    if not episodes:
        return ()
    undoings = _undoings(ledger.entries(kinds=("intent", "result"), episodes=episodes))
    found = []
    for deed in deeds(ledger, episodes).values():
        intent = deed.intent
        if intent.action not in WATCHED or not deed.done or order_of(intent) is None:
            continue
        line = intent.seq or 0
        one = Watching(intent, deed.at, notes.get(line), undoings.get(line), deed.undone is not None)
        if one.backfired or deed.at >= now - SETTLES:
            found.append(one)
    return _followed(sorted(found, key=lambda item: item.intent.seq or 0))


def with_watched(standing: Standing, ledger: Ledger, *, now: datetime) -> Standing:
    """The standing with what is watched, and what backfired.

    Raises:
        StoreError: the ledger cannot be read.
    """
    found = watching(ledger, now=now)
    return replace(
        standing,
        watched={
            item.resource: Watched(
                item.resource, item.intent.policy or "", item.job, item.since, item.since + LASTS
            )
            for item in found
            if not item.undone and item.followed is None
        },
        backfired={
            (item.resource, item.intent.action or ""): f"line {item.intent.seq} backfired: {item.note.why}"
            for item in found
            if item.backfired and item.note is not None
        },
    )


def _notes(entries: Iterable[Entry]) -> dict[int, Entry]:
    """What was said of each step at last, by the line of its intent."""
    return {
        int(entry.evidence["line"]): entry
        for entry in entries
        if entry.action in WATCHED and isinstance(entry.evidence, Mapping) and "line" in entry.evidence
    }


def _undoings(entries: Iterable[Entry]) -> dict[int, Entry]:
    """The newest try to take each step back, by the line of its intent."""
    tried: dict[int, int] = {}
    newest: dict[int, Entry] = {}
    for entry in entries:
        if entry.action == UNDO and entry.kind == "intent":
            tried[entry.seq or 0] = int(entry.evidence["line"])
            newest[int(entry.evidence["line"])] = entry
        elif entry.intent in tried:
            newest[tried[entry.intent]] = entry
    return newest


def _followed(found: Sequence[Watching]) -> tuple[Watching, ...]:
    """Each with the line of the next one on the same resource that still stands."""
    newest = {item.resource: item.intent.seq for item in found if not item.undone}
    return tuple(
        replace(
            item,
            followed=None if newest.get(item.resource, 0) == item.intent.seq else newest.get(item.resource),
        )
        for item in found
    )
