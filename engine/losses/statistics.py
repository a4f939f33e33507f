"""Means, scatter and trends of any stretch of a growing series, each from a few sums."""

from __future__ import annotations

import math
from array import array
from typing import NamedTuple

import numpy as np

from stoploss.engine.losses.clean import Floats

BLOCKS = 16


class Trend(NamedTuple):
    """Where a stretch is heading.

    Attributes:
        fall: how much lower the second half lies than the first; negative is a rise.
        error: standard error of `fall`.
        mean: mean of the stretch.
        points: records in it.
    """

    fall: float
    error: float
    mean: float
    points: int

    @property
    def score(self) -> float:
        """Standard errors by which the stretch falls; negative is a rise."""
        if self.error > 0:
            return self.fall / self.error
        return math.copysign(math.inf, self.fall) if self.fall else 0.0

    def flat(self, share: float, significance: float) -> bool:
        """Whether it falls by less than a share of its mean for certain, and does not fall by the test."""
        most = share * abs(self.mean)
        return (
            -most <= self.fall
            and self.fall + 2 * self.error <= most
            and (self.score < significance or self.fall < most / 20)
        )


class Sums:
    """Running sums of a series, of its squares and of the products of neighbours.

    They are kept of the differences to the first value, so that a small scatter on a large
    level keeps its digits.
    """

    __slots__ = ("_last", "_one", "_pair", "_two", "origin")

    def __init__(self) -> None:
        self.origin = self._last = 0.0
        self._one, self._two, self._pair = (array("d", [0.0]) for _ in range(3))

    def __len__(self) -> int:
        return len(self._one) - 1

    def add(self, value: float) -> None:
        """Take one value."""
        if len(self._one) == 1:
            self.origin = value
        centred = value - self.origin
        self._one.append(self._one[-1] + centred)
        self._two.append(self._two[-1] + centred * centred)
        self._pair.append(self._pair[-1] + centred * self._last)
        self._last = centred

    def extend(self, values: Floats) -> None:
        """Take many values; the same sums to the last bit as one after another."""
        if not len(values):
            return
        if len(self._one) == 1:
            self.origin = float(values[0])
        centred = values - self.origin
        before = np.concatenate(([self._last], centred[:-1]))
        parts = ((self._one, centred), (self._two, centred * centred), (self._pair, centred * before))
        for column, part in parts:
            column.frombytes(np.cumsum(np.concatenate(([column[-1]], part)))[1:].tobytes())
        self._last = float(centred[-1])

    def cut(self, count: int, last: float) -> None:
        """Keep the first `count` values, of which `last` is the last one."""
        for column in (self._one, self._two, self._pair):
            del column[count + 1 :]
        self._last = last - self.origin if count else 0.0

    def mean(self, start: int, end: int) -> float:
        """Mean of the values from `start` up to and without `end`."""
        return self.origin + (self._one[end] - self._one[start]) / (end - start)

    def deviation(self, start: int, end: int) -> float:
        """Standard deviation of a stretch; 0 for fewer than two values."""
        count = end - start
        if count < 2:
            return 0.0
        one = self._one[end] - self._one[start]
        return math.sqrt(max(0.0, (self._two[end] - self._two[start] - one * one / count) / (count - 1)))

    def neighbours(self, start: int, end: int) -> float:
        """Correlation of neighbours: 0 for independent noise, -1 for a saw, towards 1 for slow swings."""
        count = end - start
        if count < 3:
            return 0.0
        one = self._one
        total = one[end] - one[start]
        mean = total / count
        spread = (self._two[end] - self._two[start]) / count - mean * mean
        if spread <= 0:
            return 0.0
        # The first and the last value stand in one pair only.
        ends = one[start + 1] - one[start] + one[end] - one[end - 1]
        pairs = self._pair[end] - self._pair[start + 1]
        shared = (pairs - mean * (2 * total - ends)) / (count - 1) + mean * mean
        return max(-1.0, min(1.0, shared / spread))

    def trend(self, start: int, end: int) -> Trend:
        """A line through the means of sixteen blocks.

        The scatter of block means, not of records, gives the error: neighbouring records of a
        loss are not independent, and their own scatter would promise too much.
        """
        points = end - start
        blocks = min(BLOCKS, points // 2)
        if blocks < 3:
            return Trend(0.0, math.inf, self.mean(start, end) if points else 0.0, points)
        one, middle = self._one, (blocks - 1) / 2
        total = squares = product = 0.0
        low, below = start, one[start]
        for block in range(blocks):
            high = start + points * (block + 1) // blocks
            above = one[high]
            mean = (above - below) / (high - low)
            total += mean
            squares += mean * mean
            product += (block - middle) * mean
            low, below = high, above
        width = blocks * (blocks * blocks - 1) / 12
        slope = product / width
        rest = max(0.0, squares - total * total / blocks - slope * slope * width)
        error = math.sqrt(rest / (blocks - 2) / width)
        return Trend(-slope * blocks / 2, error * blocks / 2, self.origin + total / blocks, points)
