"""Goodput: what the paid time of a job bought, every second in exactly one class.

A slot is classed by what was known in it. Some things show only later: that a start was over, that
an attempt failed, that no evaluation got better. Then the slots are classed anew, and the totals
as of that later slot change; what was known before stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from stoploss.engine.costs.sights import Sights
from stoploss.engine.costs.use import Accrual, Key, Stream
from stoploss.engine.evaluation.kleene import Bools, Floats
from stoploss.engine.model import ResourceId

CLASSES = (
    "useful",
    "idle",
    "starting",
    "redone",
    "failed",
    "waiting for data",
    "waiting for the network",
    "past best",
    "unknown",
)
USEFUL, IDLE, STARTING, REDONE, FAILED, DATA, NETWORK, PAST_BEST, UNKNOWN = range(len(CLASSES))
HIDDEN = (IDLE, STARTING, REDONE, FAILED, DATA, NETWORK)
"""Classes of computing that bought nothing: the hidden category."""

_ENDED = ("ended", "failed", "suspended")
_BEFORE = ("queued", "setup", "loading", "compiling")
_NEEDED = ("evaluating", "checkpointing", "finishing")
_LOST = tuple(number for number in range(len(CLASSES)) if number not in (FAILED, IDLE))
_FAILURES = ("failed", "out-of-memory", "gpu-out-of-memory", "node-failure")

Ints = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class JobGoodput:
    """The classes of one job's slots.

    Attributes:
        weights: (working or idle GPUs, class, slot) -> share of the slot; adds up to 1 over classes.
        hours: (class, slot) -> GPU-hours since the frame's start as known in that slot.
        money: the same in money; GPUs without a price count 0.
    """

    weights: Floats
    hours: Floats
    money: Floats


@dataclass(frozen=True, slots=True)
class Row:
    """An amount in every slot of one key, category and class."""

    key: Key
    category: str
    goodput: str
    gpu_hours: Floats
    money: Floats


def classify(accrual: Accrual) -> dict[str, JobGoodput]:
    """The classes of every job with use."""
    sights = Sights(accrual.frame)
    streams: dict[str, list[Stream]] = {job: [] for job in accrual.jobs}
    for stream in accrual.streams:
        if stream.key.job in streams and stream.key.category == "compute":
            streams[stream.key.job].append(stream)
    return {job: _Job(accrual, sights, job, mine).result() for job, mine in streams.items()}


def rows(accrual: Accrual, classes: Mapping[str, JobGoodput]) -> list[Row]:
    """All use split by class; computing that bought nothing is the hidden category."""
    found = []
    for stream in accrual.streams:
        key, job = stream.key, classes.get(stream.key.job or "")
        for at, name in enumerate(CLASSES):
            nobody = float(at == (IDLE if key.idle else UNKNOWN))
            share = np.full(len(stream.money), nobody) if job is None else job.weights[int(key.idle), at]
            if share.any():
                hidden = key.category == "compute" and at in HIDDEN
                category = "hidden" if hidden else key.category
                found.append(Row(key, category, name, stream.gpu_hours * share, stream.money * share))
    return [row for row in found if row.gpu_hours.any() or row.money.any() or row.key.missing]


@dataclass(frozen=True, slots=True)
class _Event:
    """At the slot `at` it shows that some slots belong to another class, or did not belong there.

    `restores` is the failure whose slots before the step `resumed` are what they were before it.
    """

    at: int
    order: int
    slots: Ints
    sources: tuple[int, ...] = ()
    target: int = UNKNOWN
    restores: int | None = None
    resumed: float = 0.0


class _Job:
    def __init__(self, accrual: Accrual, sights: Sights, job: str, streams: Iterable[Stream]) -> None:
        self.sights, self.job, self.slots = sights, ResourceId("job", job), accrual.frame.slots
        self.first = accrual.begun.get(job, accrual.frame.first) - accrual.frame.first
        self.known = accrual.known.get(job, np.zeros(self.slots, np.bool_))
        self.hours, self.money = np.zeros((2, self.slots)), np.zeros((2, self.slots))
        for stream in streams:
            self.hours[int(stream.key.idle)] += stream.gpu_hours
            self.money[int(stream.key.idle)] += stream.money
        self.steps, self.step_values = sights.read("train.step", self.job)
        self.step = sights.numbers("train.step", self.job, whole=True)
        self.moving = self._moving()
        self.starts, self.failures = self._attempts()
        self.weights = self._base()
        self.as_of = tuple(
            np.cumsum((self.weights * amounts[:, None]).sum(axis=0), axis=1)
            for amounts in (self.hours, self.money)
        )

    def result(self) -> JobGoodput:
        """Class every slot, then class anew in the order in which things became known."""
        events = [*self._starting(), *self._failing(), *self._evaluating()]
        before: dict[int, Floats] = {}
        for event in sorted(events, key=lambda event: (event.at, event.order)):
            slots = event.slots
            if event.restores is not None:
                # What the next attempt went on from was not lost.
                kept = (self.step[slots] > 0) & (self.step[slots] < event.resumed)
                if kept.any():
                    kept[: int(np.argmax(kept))] = True
                    self._put(slots[kept], before[event.restores][:, :, kept], event.at)
                continue
            if event.target == FAILED:
                before[event.at] = self.weights[:, :, slots].copy()
            self._move(slots, event.sources, event.target, event.at)
        return JobGoodput(self.weights, *self.as_of)

    def _put(self, slots: Ints, weights: Floats, at: int) -> None:
        """Class some slots anew, as known from the slot `at` on."""
        moved = weights - self.weights[:, :, slots]
        for total, amounts in zip(self.as_of, (self.hours, self.money), strict=True):
            gained = (moved * amounts[:, None, slots]).sum(axis=(0, 2))
            for row in np.flatnonzero(gained).tolist():
                total[row, at:] += gained[row]
        self.weights[:, :, slots] = weights

    def _move(self, slots: Ints, sources: tuple[int, ...], target: int, at: int) -> None:
        weights = self.weights[:, :, slots]
        moved = weights[:, sources].sum(axis=1)
        if not moved.any():
            return
        weights[:, sources] = 0.0
        weights[:, target] += moved
        self._put(slots, weights, at)

    # ---- what a slot shows by itself -----------------------------------------------------

    def _moving(self) -> Bools:
        """Slots that are covered by a step that was done, as far as was known in them."""
        moving = np.zeros(self.slots, np.bool_)
        gained = self.sights.gained("train.step", self.job)
        if not len(self.steps):
            return moving
        done = np.flatnonzero(gained > 0)
        if self.step_values[0] > 0:
            # A counter's first reading gains nothing, and yet shows that steps were done.
            done = np.concatenate([self.steps[:1], done])
        # A step may take longer than a slot: it moves for as long as steps took before, twice over.
        usual = float(self.sights.cadence("train.step", self.job))
        for at, slot in enumerate(done):
            gap = max(usual, float(done[at] - done[at - 1]) if at else usual)
            moving[slot : slot + int(2 * gap)] = True
        return moving

    def _base(self) -> Floats:
        weights = np.zeros((2, len(CLASSES), self.slots))
        share, net = self._waits()
        known = np.where(self.moving, 1.0, 0.0)
        again = self._redone() & self.moving
        rest = 1.0 - share - net
        weights[0, DATA], weights[0, NETWORK] = share, net
        weights[0, REDONE] = np.where(again, rest, 0.0)
        weights[0, USEFUL] = np.where(again, 0.0, rest * known)
        weights[0, UNKNOWN] = np.where(again, 0.0, rest * (1.0 - known))
        weights[1, IDLE] = 1.0
        phases = [
            (self.sights.is_word("job.phase", self.job, _NEEDED), USEFUL),
            (self.sights.is_word("job.phase", self.job, _BEFORE), STARTING),
            (self.sights.is_word("job.state", self.job, ("queued",)), STARTING),
            (self.sights.is_word("job.state", self.job, _ENDED), IDLE),
            (~self.known, UNKNOWN),
        ]
        for mask, at in phases:
            weights[:, :, mask] = 0.0
            weights[:, at, mask] = 1.0
        return weights

    def _waits(self) -> tuple[Floats, Floats]:
        """Shares of each slot spent waiting for data and for the network."""
        data = self.sights.numbers("data.wait_share", self.job)
        step_time = self.sights.numbers("train.step_time", self.job)
        with np.errstate(divide="ignore", invalid="ignore"):
            measured = self.sights.numbers("train.data_time", self.job) / step_time
        data = np.where(np.isfinite(data), data, np.where(np.isfinite(measured), measured, 0.0))
        data = np.clip(data, 0.0, 1.0)
        network = np.nan_to_num(self.sights.numbers("train.comm_share", self.job))
        return data, np.clip(network, 0.0, 1.0 - data)

    def _redone(self) -> Bools:
        """Slots whose step had been reached before, in work that was not lost with a failed attempt."""
        again = np.zeros(self.slots, np.bool_)
        reached, base, lost = -np.inf, -np.inf, False
        for start, end in pairwise([*self.starts, self.slots]):
            inside = (self.steps >= start) & (self.steps < end)
            values, slots = self.step_values[inside], self.steps[inside]
            if lost and len(values):
                # What the failed attempt had reached beyond the resume is lost, not done again.
                reached = max(base, float(values[0]))
            base = reached
            before = np.maximum.accumulate(np.concatenate([[reached], values]))
            for at, slot in enumerate(slots.tolist()):
                until = int(slots[at + 1]) if at + 1 < len(slots) else end
                again[slot:until] = values[at] < before[at]
            reached = float(before[-1])
            lost = any(start <= failure < end for failure in self.failures)
        return again

    # ---- what shows only later -----------------------------------------------------------

    def _attempts(self) -> tuple[list[int], list[int]]:
        """First slots of the attempts, and the slots in which one was seen to have failed."""
        failed = self.sights.is_word("job.state", self.job, ("failed",))
        failed |= self.sights.is_word("job.exit_reason", self.job, _FAILURES)
        edges = np.diff(np.concatenate([[False], failed]).astype(np.int8))
        failures = np.flatnonzero(edges > 0).tolist()
        again = set(np.flatnonzero(self.sights.gained("job.attempts", self.job) > 0).tolist())
        again |= {slot for slot in np.flatnonzero(edges < 0).tolist() if self.known[slot]}
        return [self.first, *sorted(slot for slot in again if slot > self.first)], failures

    def _first_step(self, start: int, end: int) -> int | None:
        """The slot in which an attempt was seen to have done a step; by its place among the readings."""
        for at in np.flatnonzero((self.steps >= start) & (self.steps < end)).tolist():
            before = self.step_values[at - 1] if at else 0.0
            if self.step_values[at] != before:
                return int(self.steps[at])
        return None

    def _starting(self) -> Iterator[_Event]:
        for start, end in pairwise([*self.starts, self.slots]):
            first = self._first_step(start, end)
            if first is not None and first > start:
                slots = np.arange(start, first)
                yield _Event(first, 0, slots[self.known[slots]], (UNKNOWN, IDLE), STARTING)

    def _failing(self) -> Iterator[_Event]:
        for failure, following in pairwise([*self.failures, self.slots]):
            start = max([slot for slot in self.starts if slot <= failure], default=None)
            if start is None:
                continue
            slots = np.arange(start, failure)
            yield _Event(failure, 1, slots, _LOST, FAILED)
            again = min([slot for slot in self.starts if slot > failure], default=None)
            first = None if again is None else self._first_step(again, following)
            if first is not None:
                yield _Event(first, 2, slots, restores=failure, resumed=float(self.step[first]))

    def _evaluating(self) -> Iterator[_Event]:
        """Between the best evaluation and a later one that is not better nothing was gained."""
        best = last = None
        for slot, _, better in evaluations(self.sights, self.job):
            if best is not None and last is not None:
                if better:
                    yield _Event(slot, 3, np.arange(best + 1, last + 1), (PAST_BEST,), USEFUL)
                else:
                    yield _Event(slot, 3, np.arange(last + 1, slot + 1), (USEFUL,), PAST_BEST)
            best, last = (slot if better else best), slot


def evaluations(sights: Sights, job: ResourceId) -> list[tuple[int, float, bool]]:
    """Every new evaluation: its slot, its value, and whether it is the best so far.

    A value that is repeated at the next look is no new evaluation. The validation loss decides
    where there is one, else the metric, which is better when higher.
    """
    name, sign = ("eval.loss", 1.0) if sights.has("eval.loss", job) else ("eval.metric", -1.0)
    slots, values = sights.read(name, job)
    found: list[tuple[int, float, bool]] = []
    best = np.inf
    for at, (slot, value) in enumerate(zip(slots.tolist(), values.tolist(), strict=True)):
        if at and value == values[at - 1]:
            continue
        better = sign * value < best
        best = min(best, sign * value)
        found.append((int(slot), float(value), better))
    return found
