"""One window of one series, as numbers and as words: its samples, or why it is not known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from stoploss.engine.evaluation.columns import Column
from stoploss.engine.evaluation.kleene import Bools, Floats, needed
from stoploss.engine.history.frame import BAD, FAILED, LOOKED, Frame, Plane
from stoploss.engine.history.nodes import keys_of
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Signal


class Why(StrEnum):
    """Why something is unknown; the first that applies is told."""

    UNPROVIDED = "unprovided"
    FAILED = "failed"
    BAD = "bad"
    YOUNG = "young"
    STALE = "stale"
    THIN = "thin"
    UNRELATED = "unrelated"
    UNREADABLE = "unreadable"
    UNDEFINED = "undefined"


UNREAD = frozenset({Why.FAILED, Why.BAD, Why.STALE, Why.UNREADABLE})
"""Something could not be read; the others are a matter of time, configuration or arithmetic."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why a value is unknown, as a code and in words; `samples` of `of` in cadence units."""

    why: Why
    text: str
    samples: int | None = None
    of: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The valid values of a known window (oldest first), and its coverage in cadence units."""

    values: Floats
    gained: Floats | None
    samples: int
    of: int


class Readings:
    """Windows of single series over one frame."""

    def __init__(
        self, frame: Frame, percent: int, nodes: Callable[[ResourceId], tuple[str, ...]] | None = None
    ) -> None:
        """Read a frame; `nodes` says which machines told of a resource, or of what names it."""
        self.frame, self.percent = frame, percent
        self._nodes = nodes or (lambda resource: ())
        self._places: dict[str, dict[ResourceId, int]] = {}
        self._covered: dict[tuple[str, int], Bools] = {}

    def place(self, signal: Signal, resource: ResourceId) -> tuple[Plane, int] | None:
        """The plane and column of a series, or None where there is none."""
        plane = self.frame.planes.get(signal.name)
        if plane is None:
            return None
        if signal.name not in self._places:
            self._places[signal.name] = {item: at for at, item in enumerate(plane.series)}
        at = self._places[signal.name].get(resource)
        return None if at is None else (plane, at)

    def covered(self, plane: Plane, at: int) -> Bools:
        """Per slot of the frame: the newest reading is valid and fresh."""
        key = (plane.signal.name, at)
        if key not in self._covered:
            status = plane.status[:, at]
            index = np.arange(len(status))
            newest = np.maximum.accumulate(np.where(status > 0, index, -1))
            valid = (status[np.maximum(newest, 0)] < BAD) & (newest >= 0)
            self._covered[key] = valid & (index - newest < plane.cadence[at])
        return self._covered[key]

    def newest_valid(self, plane: Plane, at: int, slot: int) -> int | None:
        """The slot of the newest valid sample up to `slot`."""
        status = plane.status[: slot - self.frame.first + 1, at]
        found = np.flatnonzero((status > 0) & (status < BAD))
        return int(found[-1]) + self.frame.first if len(found) else None

    def lookers(self, signal: Signal, resource: ResourceId) -> tuple[str, ...]:
        """The collectors of a signal that look at a resource, those of nodes as NODE/COLLECTOR."""
        return keys_of(signal.collector, self._nodes(resource), self.frame.looks)

    def looked(self, signal: Signal, resource: ResourceId, slot: int) -> bool:
        """Whether the collectors of a signal had looked at a resource in a slot."""
        keys = self.lookers(signal, resource)
        return bool(keys) and all(self._fresh(key, slot) for key in keys)

    def _fresh(self, key: str, slot: int) -> bool:
        looks = self.frame.looks[key]
        found = np.flatnonzero(looks[: max(0, slot - self.frame.first + 1)])
        if not len(found):
            return False
        age = slot - self.frame.first - int(found[-1])
        return bool(looks[found[-1]] == LOOKED) and age < self.frame.look_cadence.get(key, 1)

    def bare(self, signal: Signal, column: Column, slot: int) -> float | Unknown:
        """The newest fresh sample in the signal's unit, or why it is unknown."""
        found = self.place(signal, column.resource)
        if found is None:
            return self._unseen(signal, column.resource)
        plane, at = found
        row = self.newest_valid(plane, at, slot)
        if row is not None and (
            signal.is_attribute or (self.covered(plane, at)[slot - self.frame.first] and row >= column.start)
        ):
            return float(plane.values[row - self.frame.first, at])
        return self._why(plane, at, column, slot, 1)

    def window(self, signal: Signal, column: Column, slot: int, window: int) -> Reading | Unknown:
        """The window of `window` slots that ends at `slot`, or why it is not known."""
        found = self.place(signal, column.resource)
        if found is None:
            return self._unseen(signal, column.resource, window)
        plane, at = found
        low, high = max(0, slot - window + 1 - self.frame.first), slot - self.frame.first + 1
        covered = self.covered(plane, at)[low:high]
        status = plane.status[low:high, at]
        valid = (status > 0) & (status < BAD)
        enough = int(covered.sum()) >= needed(window, self.percent)
        if not (covered[-1] and enough and valid.any() and slot - column.start + 1 >= window):
            return self._why(plane, at, column, slot, window)
        samples, of = self.counts(plane, at, column, slot, window)
        gained = None if plane.increase is None else plane.increase[low:high, at]
        return Reading(plane.values[low:high, at][valid], gained, samples, of)

    def counts(self, plane: Plane, at: int, column: Column, slot: int, window: int) -> tuple[int, int]:
        """Covered slots since the column began, and slots of a window, in units of the cadence."""
        low = max(self.frame.first, column.start, slot - window + 1) - self.frame.first
        cadence = int(plane.cadence[at])
        covered = int(self.covered(plane, at)[low : slot - self.frame.first + 1].sum())
        return covered // cadence, math.ceil(window / cadence)

    def _unseen(self, signal: Signal, resource: ResourceId, window: int | None = None) -> Unknown:
        of = window
        samples = 0 if window else None
        remark = self.frame.remarks.get((signal.name, resource))
        if remark is not None:
            return Unknown(Why.UNDEFINED, f"{signal.name.partition('@')[0]}: {remark}", samples, of)
        looks = {key: self.frame.looks[key] for key in self.lookers(signal, resource)}
        if signal.name not in self.frame.planes and not any((row == LOOKED).any() for row in looks.values()):
            for key, row in looks.items():
                if (row == FAILED).any():
                    return self._failed(key, samples, of)
            return Unknown(Why.UNPROVIDED, f"no collector provides {signal.name}", samples, of)
        if signal.name not in self.frame.planes:
            return Unknown(Why.UNPROVIDED, f"no collector provides {signal.name}", samples, of)
        return Unknown(Why.UNPROVIDED, f"{signal.name}: never seen on this {resource.kind}", samples, of)

    def _failed(self, key: str, samples: int | None, of: int | None) -> Unknown:
        reason = self.frame.look_reasons.get(key, "no reason given")
        return Unknown(Why.FAILED, f"collector {key} failed: {reason}", samples, of)

    def _why(self, plane: Plane, at: int, column: Column, slot: int, window: int) -> Unknown:
        """The first reason that a series' window is unknown."""
        signal, row = plane.signal, slot - self.frame.first
        samples, of = self.counts(plane, at, column, slot, window)
        count = f"{samples} of {of} samples"
        for key in self.lookers(signal, column.resource):
            looks = self.frame.looks[key]
            looked = np.flatnonzero(looks[: row + 1])
            if len(looked) and looks[looked[-1]] == FAILED:
                return self._failed(key, samples, of)
        status = plane.status[: row + 1, at]
        read = np.flatnonzero(status)
        if len(read) and status[read[-1]] >= BAD:
            reason = self.frame.reasons[int(status[read[-1]]) - BAD]
            return Unknown(Why.BAD, f"{signal.name}: {reason}", samples, of)
        if slot - column.start + 1 < window:
            return Unknown(Why.YOUNG, f"{signal.name}: young, {count}", samples, of)
        if not self.covered(plane, at)[row]:
            return Unknown(Why.STALE, f"{signal.name}: {self._stale(read, slot)}, {count}", samples, of)
        need = math.ceil(needed(window, self.percent) / int(plane.cadence[at]))
        return Unknown(Why.THIN, f"{signal.name}: {count}, needs {need}", samples, of)

    def _stale(self, read: np.ndarray[tuple[int], np.dtype[np.intp]], slot: int) -> str:
        from datetime import UTC, datetime

        if not len(read):
            return "not seen yet"
        since = self.frame.time_of(int(read[-1]) + self.frame.first)
        return f"stale since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M} UTC"
