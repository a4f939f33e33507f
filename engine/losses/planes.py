"""Curves of jobs out of the planes of a frame, and what is concluded of them back into planes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from stoploss.engine.history.frame import (
    BAD,
    MINUS_INFINITY,
    NOT_A_NUMBER,
    PLUS_INFINITY,
    VALID,
    Bytes,
    Floats,
    Frame,
    Plane,
)
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Signal

CURVES = (
    "train.loss",
    "eval.loss",
    "eval.metric",
    "train.grad_norm",
    "train.lr",
    "train.loss_scale",
    "train.step_time",
)
"""Signals that a verdict is made of."""

STEP, PLANNED = "train.step", "train.steps_planned"

_NON_FINITE = {NOT_A_NUMBER: math.nan, PLUS_INFINITY: math.inf, MINUS_INFINITY: -math.inf}


@dataclass(slots=True)
class Series:
    """The columns of one concluded signal over all frames.

    Attributes:
        order: resource -> its place, which it keeps.
        words: word -> its number.
        own: resources that have a recorded reading.
        cadence: resource -> slots between two readings.
    """

    words: dict[str, int]
    order: dict[ResourceId, int] = field(default_factory=dict)
    own: set[ResourceId] = field(default_factory=set)
    cadence: dict[ResourceId, int] = field(default_factory=dict)


class Out:
    """One signal of one frame while it is written."""

    def __init__(self, series: Series, slots: int, recorded: Plane | None) -> None:
        self.series, self.slots = series, slots
        self.columns: dict[ResourceId, tuple[Floats, Bytes]] = {}
        self.limits: dict[ResourceId, int] = dict.fromkeys(series.own, 0)
        if recorded is None:
            return
        target = [series.words.setdefault(word, len(series.words)) for word in recorded.words]
        for at, resource in enumerate(recorded.series):
            values, status = self.column(resource)
            values[:], status[:] = recorded.values[:, at], recorded.status[:, at]
            if target:
                good = status == VALID
                values[good] = [target[int(value)] for value in values[good]]
            series.cadence[resource] = int(recorded.cadence[at])
            if status.any():
                self.limits.setdefault(resource, int((status > 0).argmax()))
                series.own.add(resource)

    def column(self, resource: ResourceId) -> tuple[Floats, Bytes]:
        """Values and status of a resource, in order of slots."""
        if resource not in self.columns:
            self.series.order.setdefault(resource, len(self.series.order))
            self.columns[resource] = np.full(self.slots, np.nan), np.zeros(self.slots, np.uint8)
        return self.columns[resource]

    def write(self, resource: ResourceId, row: int, status: int, value: float | str = math.nan) -> None:
        """Conclude something of a slot, unless something was recorded by then."""
        if row < self.limits.get(resource, self.slots):
            values, states = self.column(resource)
            states[row] = status
            values[row] = self.series.words[value] if isinstance(value, str) else value

    def plane(self, signal: Signal) -> Plane | None:
        """The plane, None where there is no series."""
        series = self.series
        if not series.order:
            return None
        values = np.full((self.slots, len(series.order)), np.nan)
        status = np.zeros(values.shape, np.uint8)
        for resource, (numbers, states) in self.columns.items():
            values[:, series.order[resource]], status[:, series.order[resource]] = numbers, states
        cadence = np.array([series.cadence.get(resource, 1) for resource in series.order], np.int32)
        words = tuple(series.words) if signal.is_text else ()
        return Plane(signal, tuple(series.order), values, status, cadence, None, words)


class Inputs:
    """The curves of the jobs of one frame."""

    def __init__(self, frame: Frame) -> None:
        self._planes = {name: frame.planes[name] for name in (*CURVES, STEP, PLANNED) if name in frame.planes}
        self._places = {
            name: {resource: at for at, resource in enumerate(plane.series)}
            for name, plane in self._planes.items()
        }
        members = (job for name in CURVES if name in self._planes for job in self._planes[name].series)
        self.jobs = tuple(dict.fromkeys(job for job in members if job.kind == "job"))

    def _columns(self, job: ResourceId) -> Iterator[tuple[str, Floats, Bytes]]:
        for name in CURVES:
            at = self._places.get(name, {}).get(job)
            if at is not None:
                plane = self._planes[name]
                yield name, plane.values[:, at], plane.status[:, at]

    def rows(self, job: ResourceId) -> list[int]:
        """The rows in which a curve of the job was read, or could not be."""
        looked = np.zeros(1, bool)
        for _, _, status in self._columns(job):
            looked = looked | (status > 0)
        return np.flatnonzero(looked).tolist()

    def cadence(self, job: ResourceId) -> int:
        """Slots between two readings of the job's curves."""
        return min(
            int(self._planes[name].cadence[self._places[name][job]]) for name, _, _ in self._columns(job)
        )

    def bad(self, job: ResourceId, row: int) -> int | None:
        """The status of the first curve that could not be read, where none could be."""
        states = [int(status[row]) for _, _, status in self._columns(job)]
        return None if any(0 < state < BAD for state in states) else next(s for s in states if s >= BAD)

    def value(self, name: str, job: ResourceId, row: int) -> float | None:
        """The reading of another signal in a row."""
        at = self._places.get(name, {}).get(job)
        if at is None or self._planes[name].status[row, at] != VALID:
            return None
        return float(self._planes[name].values[row, at])

    def values(self, job: ResourceId, row: int) -> Iterator[tuple[str, float]]:
        """The curves that were read in a row, with their values; non-finite ones as logged."""
        for name, values, status in self._columns(job):
            code = int(status[row])
            if 0 < code < BAD:
                yield name, _NON_FINITE.get(code, float(values[row]))
