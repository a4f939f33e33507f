"""Window states over one signal: integer counts, sums without subtraction, extremes, ranks.

A window of w slots at slot t is (t-w, t]. Each state takes the block that its series has just
pushed and leaves an array of slots x series in `out`. Counts cost per series and slot, not per
window. Sums are van Herk's: prefix sums of the running stretch of w slots plus suffix sums of
the one before, so that nothing drifts and an infinity leaves together with its sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import bottleneck as bn
import numpy as np
import numpy.typing as npt

from stoploss.engine.evaluation.kleene import TOLERANCE, Bools, Floats, needed
from stoploss.engine.evaluation.series import SeriesState

Counts = npt.NDArray[np.int32]
Test = Callable[[Floats], Bools]


class State(Protocol):
    """A window over one series: `advance` moves it over the block just pushed."""

    def advance(self) -> None:
        """Move over the block."""


S = TypeVar("S", bound=State)
N = TypeVar("N", bound=np.generic)


class CountWindow:
    """How many slots of the window pass a test; the ring supplies what leaves."""

    def __init__(self, series: SeriesState, window: int) -> None:
        self.series, self.window = series, window
        self.counts: Counts = np.zeros(0, dtype=np.int32)
        self.out: Counts = np.zeros((0, 0), dtype=np.int32)

    def entering(self) -> Bools:
        """Which of the block's slots pass."""
        raise NotImplementedError

    def leaving(self, first: int, last: int) -> Bools:
        """Which of the slots `first` to `last`, now leaving, had passed."""
        raise NotImplementedError

    def advance(self) -> None:
        """Move over the block."""
        series, window = self.series, self.window
        self.counts = _grown(self.counts, series.columns)
        entering = self.entering().view(np.int8)
        leaving = self.leaving(series.first - window, series.last - window).view(np.int8)
        if len(entering) == 1:
            self.counts = self.counts + (entering[0] - leaving[0])
            self.out = self.counts[None, :]
            return
        out = np.subtract(entering, leaving).astype(np.int32)
        out[0] += self.counts
        np.cumsum(out, axis=0, out=out)
        self.out, self.counts = out, out[-1].copy()


class ValueCount(CountWindow):
    """Samples of the window that pass a test on their value; NaN must fail it."""

    def __init__(self, series: SeriesState, window: int, test: Test) -> None:
        super().__init__(series, window)
        self.test = test

    def entering(self) -> Bools:
        """Test the block's values."""
        return self.test(self.series.values)

    def leaving(self, first: int, last: int) -> Bools:
        """Test the leaving values again."""
        return self.test(self.series.values_ring.read(first, last))


class CoveredCount(CountWindow):
    """Covered slots of the window."""

    def entering(self) -> Bools:
        """The block's coverage."""
        return self.series.covered

    def leaving(self, first: int, last: int) -> Bools:
        """Coverage as it was."""
        return self.series.covered_ring.read(first, last)


class ValidCount(CountWindow):
    """Valid samples of the window."""

    def __init__(self, series: SeriesState, window: int, covered: CoveredCount) -> None:
        super().__init__(series, window)
        self.covered = covered

    def advance(self) -> None:
        """Move over the block; with one slot per look the covered slots are the valid ones."""
        if self.series.sees_slot is None:
            self.counts, self.out = self.covered.counts, self.covered.out
        else:
            super().advance()

    def entering(self) -> Bools:
        """The block's valid samples."""
        return self.series.valid

    def leaving(self, first: int, last: int) -> Bools:
        """The leaving samples that were valid."""
        return ~np.isnan(self.series.values_ring.read(first, last))


class BadCount(CountWindow):
    """Slots of the window whose reading was bad."""

    def entering(self) -> Bools:
        """The block's bad readings."""
        return self.leaving(self.series.first, self.series.last)

    def leaving(self, first: int, last: int) -> Bools:
        """The bad readings of earlier slots."""
        assert self.series.bad_ring is not None
        return self.series.bad_ring.read(first, last)


class KnownWindow:
    """Whether the window is known, age apart: newest slot covered, enough covered, one valid."""

    def __init__(self, series: SeriesState, covered: CoveredCount, valid: ValidCount, percent: int) -> None:
        self.series, self.covered, self.valid = series, covered, valid
        self.need = needed(covered.window, percent)
        self.out: Bools = np.zeros((0, 0), dtype=np.bool_)

    def advance(self) -> None:
        """Combine the counts of the block."""
        known = self.covered.out >= self.need
        known &= self.series.covered
        # With one slot per look a covered slot holds a valid sample.
        if self.series.sees_slot is not None:
            known &= self.valid.out > 0
        self.out = known


class SumWindow:
    """Sum of the valid values (or of a counter's increases) in the window."""

    def __init__(self, series: SeriesState, window: int, increase: bool) -> None:
        self.series, self.window, self.increase = series, window, increase
        self.prefix: Floats = np.zeros(0)
        self.suffix: Floats = np.zeros((window + 1, 0))
        self.out: Floats = np.zeros((0, 0))

    def _read(self, first: int, last: int) -> Floats:
        if self.increase:
            assert self.series.increase_ring is not None
            return self.series.increase_ring.read(first, last)
        values = self.series.values_ring.read(first, last)
        return np.where(np.isnan(values), 0.0, values)

    def advance(self) -> None:
        """Move over the block, one aligned stretch of w slots after the other."""
        series, window = self.series, self.window
        columns = series.columns
        self.prefix = _grown(self.prefix, columns)
        if self.suffix.shape[1] < columns:
            extra = np.zeros((window + 1, columns - self.suffix.shape[1]))
            self.suffix = np.concatenate([self.suffix, extra], axis=1)
        out = np.empty((series.last - series.first + 1, columns))
        at = series.first
        while at <= series.last:
            offset = at % window
            end = min(series.last, at + window - 1 - offset)
            stretch = out[at - series.first : end - series.first + 1]
            stretch[:] = self._read(at, end)
            if offset:
                stretch[0] += self.prefix
            np.cumsum(stretch, axis=0, out=stretch)
            self.prefix = stretch[-1].copy()
            with np.errstate(invalid="ignore"):  # inf - inf over one window is NaN, hence unknown
                stretch += self.suffix[offset + 1 : offset + 1 + len(stretch)]
            if end % window == window - 1:
                self._turn(end)
            at = end + 1
        self.out = out

    def _turn(self, end: int) -> None:
        """A stretch is complete: its suffix sums serve the next one."""
        # Row by row: a cumulative sum along reversed rows walks memory against its grain.
        rows = self._read(end - self.window + 1, end)
        with np.errstate(invalid="ignore"):
            for row in range(self.window - 1, -1, -1):
                np.add(rows[row], self.suffix[row + 1], out=self.suffix[row])


class ExtremeWindow:
    """Minimum or maximum of the valid values in the window; NaN where there is none."""

    def __init__(self, series: SeriesState, window: int, largest: bool) -> None:
        self.series, self.window, self.largest = series, window, largest
        self.out: Floats = np.zeros((0, 0))

    def advance(self) -> None:
        """Look at the block with the window before it."""
        first, last, window = self.series.first, self.series.last, self.window
        if first == last:
            rows = self.series.values_ring.read(last - window + 1, last)
            reduce = np.fmax.reduce if self.largest else np.fmin.reduce
            self.out = reduce(rows, axis=0)[None, :]
            return
        rows = self.series.values_ring.read(first - window + 1, last)
        move = bn.move_max if self.largest else bn.move_min
        self.out = move(rows, window=window, min_count=1, axis=0)[window - 1 :]


class QuantileWindow:
    """Nearest-rank quantile of the valid values; only for comparisons with something that varies."""

    def __init__(self, series: SeriesState, window: int, valid: ValidCount, thousandths: int) -> None:
        self.series, self.window, self.valid, self.thousandths = series, window, valid, thousandths
        self.out: Floats = np.zeros((0, 0))

    def advance(self) -> None:
        """Sort each slot's window."""
        series, window = self.series, self.window
        out = np.full((series.last - series.first + 1, series.columns), np.nan)
        for row, slot in enumerate(range(series.first, series.last + 1)):
            ordered = np.sort(series.values_ring.read(slot - window + 1, slot), axis=0)
            index = rank(self.valid.out[row], self.thousandths) - 1
            found = np.take_along_axis(ordered, np.clip(index, 0, None)[None, :], axis=0)[0]
            out[row] = np.where(index >= 0, found, np.nan)
        self.out = out


def rank(count: Counts, thousandths: int) -> Counts:
    """The nearest rank, from 1, of a quantile over `count` values; 0 over none."""
    return np.asarray(-(-thousandths * count.astype(np.int64) // 1000), dtype=np.int32)


def beyond(op: str, threshold: float) -> Test:
    """A test that a value lies on one side of a constant, ties within 1e-9 counted as equal."""
    slack = 0.0 if np.isinf(threshold) else TOLERANCE * abs(threshold)
    low, high = threshold - slack, threshold + slack
    match op:
        case "<":
            return lambda values: np.less(values, low)
        case "<=":
            return lambda values: np.less_equal(values, high)
        case ">":
            return lambda values: np.greater(values, high)
        case ">=":
            return lambda values: np.greater_equal(values, low)
    raise ValueError(op)


def _grown(row: npt.NDArray[N], columns: int) -> npt.NDArray[N]:
    """A row of carried state, with zeros for series that are new."""
    extra = columns - len(row)
    return np.concatenate([row, np.zeros(extra, dtype=row.dtype)]) if extra > 0 else row
