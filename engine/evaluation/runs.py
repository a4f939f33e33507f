"""A block of truths as runs of equal truth, with sums and maxima that stay within a row.

The runs of all rows lie behind each other, ordered by row and then by time. To keep rows
apart in one cumulative pass, each row's numbers are lifted by more than the row before can
reach.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stoploss.engine.evaluation.kleene import Bools, Truths

Longs = npt.NDArray[np.int64]
Index = npt.NDArray[np.intp]

NEVER = -(2**62)
"""Below any number of any row."""


class Runs:
    """The runs of a block of slots x rows.

    Attributes:
        row, start, length, value: of each run; `start` is its first slot.
        head, last: index of the first and the last run of each row.
    """

    def __init__(self, first: int, truth: Truths) -> None:
        slots, rows = truth.shape
        changes = np.empty((slots, rows), dtype=np.bool_)
        changes[0] = True
        np.not_equal(truth[1:], truth[:-1], out=changes[1:])
        at, row = np.nonzero(changes)
        if slots > 1:
            order = np.argsort(row, kind="stable")
            at, row = at[order], row[order]
        self.row: Index = row
        self.start: Longs = at + np.int64(first)
        self.value: Truths = truth[at, row]
        self.head: Index = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
        self.last: Index = np.concatenate([self.head[1:], [len(row)]]) - 1
        ends = np.concatenate([self.start[1:], [first + slots]])
        ends[self.last] = first + slots
        self.length: Longs = ends - self.start

    def counted(self, counts: Bools, breaks: Bools, carried: Longs) -> Longs:
        """Per run: slots of earlier `counts` runs of its row since the last `breaks` run.

        `carried` is what each row brings along from before the block.
        """
        added = np.where(counts, self.length, 0)
        total = np.cumsum(added)
        before = total - added
        lift = self.row * (int(total[-1]) + int(carried.max()) + 1)
        base = np.full(len(before), NEVER, dtype=np.int64)
        base[1:] = np.where(breaks[:-1], total[:-1] + lift[1:], NEVER)
        base[self.head] = before[self.head] - carried + lift[self.head]
        return np.asarray(before + lift - np.maximum.accumulate(base))

    def latest(self, slots: Longs, carried: Longs) -> Longs:
        """Per run: the newest slot that its row's runs up to it name; -1 names none."""
        lift = self.row * (int(max(slots.max(), carried.max())) + 2)
        named = slots + lift
        named[self.head] = np.maximum(slots[self.head], carried) + lift[self.head]
        return np.asarray(np.maximum.accumulate(named) - lift)

    def previous(self, flags: Bools, among: Index, carried: Bools) -> Bools:
        """Per run of `among`: the flag of the run of `among` before it in its row, else carried."""
        row = self.row[among]
        if not len(row):
            return flags
        before = np.concatenate([[False], flags[:-1]])
        head = np.concatenate([[True], row[1:] != row[:-1]])
        return np.where(head, carried[row], before)

    def final(self, flags: Bools, among: Index, carried: Bools) -> Bools:
        """Per row: the flag of its last run of `among`, else carried."""
        out = carried.copy()
        row = self.row[among]
        if len(row):
            tail = np.concatenate([row[1:] != row[:-1], [True]])
            out[row[tail]] = flags[tail]
        return out
