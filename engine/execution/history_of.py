"""What the ledger keeps of one thing: what was found, told, saved and done, and what people said of it.

Only what is written down is read; nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from stoploss.engine.execution.deeds import UNDO, order_of
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import ResourceId
from stoploss.engine.planning.model import ALERT

SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Told:
    """That somebody was told; `arrived` is None while nobody knows."""

    intent: Entry
    result: Entry | None = None

    @property
    def arrived(self) -> bool | None:
        """Whether it arrived."""
        return None if self.result is None else self.result.verdict == "done"

    @property
    def words(self) -> str:
        """How it went."""
        return "" if self.result is None else self.result.why or ""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that was verified: its path, its step where that is known, and when."""

    path: str
    step: int | None
    at: datetime
    line: int


@dataclass(frozen=True, slots=True)
class Undoing:
    """A try to take something back; `result` is None while it is open."""

    intent: Entry
    result: Entry | None = None


@dataclass(frozen=True, slots=True)
class Act:
    """Something that was begun, at one try.

    Attributes:
        intent, result: the lines before and after it; no result while it is open.
        judged: the line that says what it has brought.
        undoings: tries to take it back, the oldest first.
    """

    intent: Entry
    result: Entry | None = None
    judged: Entry | None = None
    undoings: tuple[Undoing, ...] = ()

    @property
    def state(self) -> str:
        """done, failed, skipped, undone, unknown, or open."""
        if self.result is None:
            return "open"
        return str((self.result.evidence or {}).get("state") or self.result.verdict)

    @property
    def words(self) -> str | None:
        """What was to be done, in the words of the target; None where it was refused."""
        known = order_of(self.intent)
        return None if known is None else known[1].words

    @property
    def order(self) -> str | None:
        """The id of its order."""
        known = order_of(self.intent)
        return None if known is None else known[0].id

    @property
    def labels(self) -> Mapping[str, str]:
        """Of what was acted on, as they were then."""
        known = order_of(self.intent)
        return {} if known is None else known[0].labels

    @property
    def relied_on(self) -> str | None:
        """The path of the checkpoint on which it relied."""
        known = order_of(self.intent)
        return None if known is None else known[0].saved

    @property
    def conditions(self) -> tuple[Mapping[str, Any], ...]:
        """The conditions of the policy, each with its value at that time."""
        return tuple((self.intent.evidence or {}).get("conditions", ()))

    @property
    def got(self) -> float | None:
        """Money per hour that it saved; None where that was not said."""
        return None if self.judged is None else self.judged.got

    @property
    def undone(self) -> Undoing | None:
        """The try by which it was taken back."""
        done = (item for item in self.undoings if item.result and item.result.verdict == "done")
        return next(done, None)

    @property
    def undoable(self) -> bool:
        """Whether it could be taken back now, as far as is written down."""
        known = order_of(self.intent)
        changed = self.state in ("done", "failed", "unknown")
        return known is not None and known[1].undoable and changed and self.undone is None


@dataclass(frozen=True, slots=True)
class History:
    """Everything about one finding.

    Attributes:
        line: the line by which it was asked for.
        lines: all of them, in their order.
        about: the act that is meant, else the newest; None where nothing was done.
        acts: what was done, the oldest first.
        told: whom it was tried to tell.
        over: lines that say who was told that it is over.
        decided: what was decided of steps, the oldest first.
        people: approvals, rejections, questions, and keeps of its job.
    """

    line: Entry
    lines: tuple[Entry, ...]
    about: Act | None
    acts: tuple[Act, ...]
    told: tuple[Told, ...]
    over: tuple[Entry, ...]
    decided: tuple[Entry, ...]
    people: tuple[Entry, ...]

    @property
    def resource(self) -> ResourceId | None:
        """What it is about."""
        return next((e.resource for e in self._nearest if e.resource is not None), None)

    @property
    def policy(self) -> str | None:
        """The policy's name."""
        return next((e.policy for e in self._nearest if e.policy is not None), None)

    @property
    def policy_hash(self) -> str | None:
        """The hash of what the policy said then."""
        return next((e.policy_hash for e in self._nearest if e.policy_hash is not None), None)

    @property
    def summary(self) -> str | None:
        """What the policy is about, as it was said then; None where nothing was done."""
        return None if self.about is None else self.about.intent.why

    @property
    def since(self) -> datetime | None:
        """Since when the policy was true; None where that was not written down."""
        for act in (self.about, *self.acts):
            known = None if act is None else order_of(act.intent)
            if known is not None and known[0].since:
                return datetime.fromtimestamp(known[0].since, UTC)
        told = next((said["order"]["since"] for said in self._told if "order" in said), None)
        return None if told is None else datetime.fromtimestamp(told, UTC)

    @property
    def conditions(self) -> tuple[Mapping[str, Any], ...]:
        """The conditions with their values when it was acted, else when it was told."""
        acted = (act.conditions for act in (self.about, *self.acts) if act and act.conditions)
        told = (tuple(said["conditions"]) for said in self._told if said.get("conditions"))
        return next(acted, None) or next(told, ())

    @property
    def saved(self) -> tuple[Saved, ...]:
        """Checkpoints that were verified, the oldest first."""
        return tuple(item for act in self.acts if (item := _saved(act)) is not None)

    @property
    def job(self) -> str | None:
        """The job that it is about, or that ran on what it is about."""
        return job_of(self.resource, self.acts)

    @property
    def currency(self) -> str | None:
        """Of its money."""
        return next((entry.currency for entry in reversed(self.lines) if entry.currency), None)

    @property
    def _told(self) -> tuple[Mapping[str, Any], ...]:
        """What lines of notices keep of the finding."""
        return tuple(
            line.evidence for line in self.lines if line.action == ALERT and isinstance(line.evidence, dict)
        )

    @property
    def _nearest(self) -> tuple[Entry, ...]:
        """Lines, those that are asked for first."""
        return (*((self.about.intent,) if self.about else ()), self.line, *self.lines)


def history_of(ledger: Ledger, line: Entry, *, whole: bool = False) -> History:
    """Everything about the finding of a line; of a line without one, that line alone.

    Args:
        ledger: to be read.
        line: the line.
        whole: the finding is meant, and not what this line began or ended.

    Raises:
        StoreError: the ledger cannot be read.
    """
    lines = (line,) if line.episode is None else ledger.entries(episode=line.episode)
    results = {entry.intent: entry for entry in lines if entry.kind == "result"}
    intents = [entry for entry in lines if entry.kind == "intent"]
    judged = {_about(entry): entry for entry in lines if entry.kind == "note" and entry.action != ALERT}
    undoings: dict[int | None, list[Undoing]] = {}
    for entry in intents:
        if entry.action == UNDO:
            undoings.setdefault(_about(entry), []).append(Undoing(entry, results.get(entry.seq)))
    acts = tuple(
        Act(e, results.get(e.seq), judged.get(e.seq), tuple(undoings.get(e.seq, ())))
        for e in intents
        if acts_in(e)
    )
    job = job_of(next((e.resource for e in lines if e.resource), None), acts)
    keeps = _keeps(ledger, job, lines) if line.episode is not None else ()
    return History(
        line,
        tuple(lines),
        _meant_act(None if whole else line, acts),
        acts,
        tuple(Told(e, results.get(e.seq)) for e in intents if e.action == ALERT),
        tuple(e for e in lines if e.kind == "note" and e.action == ALERT),
        tuple(e for e in lines if e.kind == "decision" and request_in(e) is None),
        tuple(sorted((*filter(_of_people, lines), *keeps), key=lambda e: e.seq or 0)),
    )


def job_of(resource: ResourceId | None, acts: Iterable[Act]) -> str | None:
    """The job that a resource is, or that ran on it when it was acted on."""
    if resource is not None and resource.kind == "job":
        return resource.id
    return next((job for act in acts if (job := act.labels.get("job")) and job != "?"), None)


def _meant_act(line: Entry | None, acts: Sequence[Act]) -> Act | None:
    """The act that a line belongs to, else the newest that was done, else the newest."""
    numbers = {line.seq, line.intent, _about(line)} - {None} if line is not None else set()
    for act in acts:
        own = {act.intent.seq, act.result.seq if act.result else None}
        own |= {item.result.seq for item in act.undoings if item.result}
        if numbers & (own - {None}):
            return act
    done = [act for act in acts if act.state == "done"]
    return next(reversed(done or list(acts)), None)


def _saved(act: Act) -> Saved | None:
    if act.intent.action != SNAPSHOT or act.state != "done" or act.result is None:
        return None
    after = act.result.evidence.get("after") or {}
    path, step = after.get("path"), after.get("step")
    if not isinstance(path, str):
        return None
    return Saved(path, step if isinstance(step, int) else None, act.result.at, act.result.seq or 0)


def _keeps(ledger: Ledger, job: str | None, lines: Sequence[Entry]) -> tuple[Entry, ...]:
    """Keeps of a job that held when the finding began, or later."""
    if job is None or not lines:
        return ()
    found = ledger.entries(kinds=("keep",), resource=f"job {job}")
    return tuple(entry for entry in found if _until(entry) >= lines[0].at)


def _until(entry: Entry) -> datetime:
    try:
        return datetime.fromisoformat(str(entry.parameters.get("until")))
    except ValueError:
        return entry.at


def acts_in(entry: Entry) -> bool:
    """Whether a line begins something that is more than a notice."""
    return entry.kind == "intent" and entry.action not in (ALERT, UNDO)


def _of_people(entry: Entry) -> bool:
    return entry.kind in ("approval", "rejection", "keep") or request_in(entry) is not None


def _evidence(entry: Entry) -> Mapping[str, Any]:
    return entry.evidence if isinstance(entry.evidence, Mapping) else {}


def _about(entry: Entry) -> int | None:
    """The line that a line is about."""
    number = _evidence(entry).get("line")
    return number if isinstance(number, int) else None


def order_id(entry: Entry) -> str | None:
    """The id of the order of a line."""
    order = _evidence(entry).get("order")
    return order.get("id") if isinstance(order, Mapping) else None


def labels_in(entry: Entry) -> Mapping[str, Any]:
    """The labels that a line remembers of its resource."""
    order = _evidence(entry).get("order")
    return order.get("labels") or {} if isinstance(order, Mapping) else {}


def request_in(entry: Entry) -> str | None:
    """The id of the question that a line is about."""
    return _evidence(entry).get("request")
