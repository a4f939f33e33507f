"""One curve in the order of its steps: resumes replace what they redo, repeats count once."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def view(numbers: array[float]) -> Floats:
    """The numbers as an array that must not outlive the next append."""
    return np.frombuffer(numbers) if numbers else np.empty(0)


class Track:
    """The records of one curve that count, and what was left out.

    A record whose step is not beyond the last one replaces every record from that step on: the
    run went on from a checkpoint. A record that says the same as the one of its step is one that
    was read twice. A curve without steps counts its records instead.

    Attributes:
        steps, values, times: the records, steps strictly rising.
        sign: +1 where lower is better, -1 where higher is.
        resumes: times that steps went back.
        redone: records that were replaced.
        duplicates: records that were read again.
        bad: positions whose value is not finite.
        version: changes with every record that counts.
    """

    __slots__ = (
        "_best",
        "bad",
        "duplicates",
        "redone",
        "resumes",
        "sign",
        "steps",
        "times",
        "values",
        "version",
    )

    def __init__(self, sign: float = 1.0) -> None:
        self.steps, self.values, self.times = array("d"), array("d"), array("d")
        self._best = array("q")
        self.bad: list[int] = []
        self.sign = sign
        self.resumes = self.redone = self.duplicates = self.version = 0

    def __len__(self) -> int:
        return len(self.values)

    def extend(self, steps: Sequence[float], values: Sequence[float], times: Sequence[float]) -> int:
        """Take the next records; returns the first position that is new or was replaced.

        Raises:
            ValueError: the three differ in length.
        """
        if not len(steps) == len(values) == len(times):
            raise ValueError(f"a curve of {len(steps)} steps, {len(values)} values and {len(times)} times")
        if len(values) > 8:
            new = np.asarray(steps, dtype=np.float64)
            rising = np.diff(new, prepend=self.steps[-1] if self.steps else -math.inf) > 0
            if rising.all():
                return self._append_all(new, values, times)
        changed = len(self)
        for step, value, time in zip(steps, values, times, strict=True):
            changed = min(changed, self._add(step, value, time))
        return changed

    def _append_all(self, steps: Floats, values: Sequence[float], times: Sequence[float]) -> int:
        start = len(self)
        new = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(new)
        rated = np.where(finite, self.sign * new, math.inf)
        before = self._best[-1] if start else -1
        lowest = self.sign * self.values[before] if before >= 0 else math.inf
        floor = np.minimum.accumulate(np.concatenate(([lowest], rated)))
        places = np.where(rated < floor[:-1], np.arange(start, start + len(new)), before)
        self._best.frombytes(np.maximum.accumulate(places).astype(np.int64).tobytes())
        self.steps.frombytes(steps.tobytes())
        self.values.frombytes(new.tobytes())
        self.times.frombytes(np.asarray(times, dtype=np.float64).tobytes())
        self.bad.extend((start + np.flatnonzero(~finite)).tolist())
        self.version += len(new)
        return start

    def _add(self, step: float, value: float, time: float) -> int:
        count = len(self.values)
        if step != step:  # NaN: the log gives no steps
            step = self.steps[-1] + 1 if count else 0.0
        changed = count
        if count and step <= self.steps[-1]:
            changed = bisect_left(self.steps, step)
            if self.steps[changed] == step and self._same(changed, value, time):
                self.duplicates += 1
                return count
            self._cut(changed)
        best = self._best[changed - 1] if changed else -1
        if not math.isfinite(value):
            self.bad.append(changed)
        elif best < 0 or self.sign * value < self.sign * self.values[best]:
            best = changed
        self._best.append(best)
        self.steps.append(step)
        self.values.append(value)
        self.times.append(time)
        self.version += 1
        return changed

    def _same(self, place: int, value: float, time: float) -> bool:
        known, when = self.values[place], self.times[place]
        same = known == value or (known != known and value != value)
        return same and (when == time or when != when or time != time)

    def _cut(self, place: int) -> None:
        self.resumes += 1
        self.redone += len(self) - place
        for column in (self.steps, self.values, self.times, self._best):
            del column[place:]
        while self.bad and self.bad[-1] >= place:
            self.bad.pop()

    def best_before(self, place: int) -> int | None:
        """Position of the best finite record before a position; the earliest of equals."""
        best = self._best[place - 1] if place > 0 else -1
        return best if best >= 0 else None

    def bad_run(self) -> int:
        """How many of the newest records in a row are not finite."""
        run, count = 0, len(self)
        while run < len(self.bad) and self.bad[-1 - run] == count - 1 - run:
            run += 1
        return run

    def place(self, step: float) -> int:
        """Position of the first record at a step or after it."""
        return bisect_left(self.steps, step)

    def spacing(self) -> float:
        """Steps between the first two records; 1 where there are fewer."""
        return self.steps[1] - self.steps[0] if len(self) > 1 else 1.0

    def starts_late(self) -> bool:
        """Whether the log begins in the middle of a run, 32 records or more after its start."""
        return len(self) > 1 and self.steps[0] >= 32 * self.spacing()
