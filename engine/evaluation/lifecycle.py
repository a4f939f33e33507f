"""inactive -> pending -> firing -> holding -> resolved, for many rows over blocks of slots.

`for` and `hold` are counted in slots: with `for` of n slots a row fires at its (n+1)th true
slot, and with `hold` of h slots it resolves at its (h+1)th false one. Unknown slots are
skipped: they neither count nor reset. A row that leaves (owner changed, gone, no longer
selected) resolves at once; one that was unknown for a whole day is lost from sight.

Rows rarely change their truth, so the work is done on runs of equal truth, not on slots.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from stoploss.engine.evaluation.kleene import FALSE, OUTSIDE, TRUE, UNKNOWN, Bools, Truths
from stoploss.engine.evaluation.runs import Runs

INACTIVE, PENDING, FIRING, HOLDING = 0, 1, 2, 3
STATES = ("inactive", "pending", "firing", "holding")

Slots = npt.NDArray[np.int64]
NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class Transition:
    """A row begins or ends an episode.

    `event` is fired, resolved, left (the row ended or is no longer selected) or lost;
    `since` is the first true slot of the episode.
    """

    row: int
    slot: int
    event: str
    since: int


@dataclass(slots=True)
class Lifecycle:
    """The carried state of the rows of one policy.

    Attributes:
        true_run: true slots since the last false one, unknown skipped.
        false_run: false slots since the last true one, unknown skipped.
        since: first true slot of the running stretch, or of the episode while firing.
        firing: whether an episode is running (firing or holding).
        fired: the slot in which it fired.
        known: the newest slot that was not unknown.
        truth: the truth of the newest slot.
    """

    pending_slots: int
    hold_slots: int
    lost_slots: int
    true_run: Slots
    false_run: Slots
    since: Slots
    firing: Bools
    fired: Slots
    known: Slots
    truth: Truths

    @classmethod
    def empty(cls, pending_slots: int, hold_slots: int, lost_slots: int) -> Lifecycle:
        """A lifecycle without rows; slots count in the policy's resolution."""
        zero = np.zeros(0, dtype=np.int64)
        none = np.zeros(0, dtype=np.bool_)
        truth = np.zeros(0, dtype=np.int8)
        return cls(pending_slots, hold_slots, lost_slots, zero, zero, zero, none, zero, zero, truth)

    def widen(self, rows: int, slot: int) -> None:
        """Add rows that begin at `slot`."""
        extra = rows - len(self.truth)
        if extra <= 0:
            return
        for item in fields(self)[3:]:
            old = getattr(self, item.name)
            fill = {"since": NO_SLOT, "fired": NO_SLOT, "known": slot - 1, "truth": OUTSIDE}.get(item.name, 0)
            setattr(self, item.name, np.concatenate([old, np.full(extra, fill, dtype=old.dtype)]))

    def states(self) -> npt.NDArray[np.int8]:
        """The state of every row at the newest slot."""
        pending = np.where(self.true_run > 0, PENDING, INACTIVE)
        return np.where(self.firing, np.where(self.false_run > 0, HOLDING, FIRING), pending).astype(np.int8)

    def advance(self, first: int, truth: Truths) -> list[Transition]:
        """Take the truths of the next block (slots x rows); returns what began or ended in it."""
        settled = self._mark_lost(first, truth)
        hot = (settled == TRUE).any(axis=0) | (self.true_run > 0) | self.firing
        transitions: list[Transition] = []
        if hot.any():
            rows = np.flatnonzero(hot)
            block = settled if len(rows) == len(hot) else settled[:, rows]
            transitions = self._advance_rows(first, block, rows)
            # A row that is outside although its truth is unknown has been lost from sight.
            transitions = [
                replace(item, event="lost")
                if item.event == "left" and truth[item.slot - first, item.row] == UNKNOWN
                else item
                for item in transitions
            ]
        self.false_run[~hot] = 0
        known = settled != UNKNOWN
        newest = first + len(truth) - 1 - np.argmax(known[::-1], axis=0)
        np.copyto(self.known, newest, where=known.any(axis=0))
        self.truth = settled[-1].copy()
        return transitions

    def _mark_lost(self, first: int, truth: Truths) -> Truths:
        """Rows are outside from the slot on in which they have been unknown for a day."""
        last = first + len(truth) - 1
        if not len(self.known) or (last - self.known).max() < self.lost_slots:
            return truth
        index = np.arange(first, last + 1, dtype=np.int64)[:, None]
        known = np.where(truth == UNKNOWN, self.known, index)
        known = np.maximum.accumulate(known, axis=0)
        return np.where((truth == UNKNOWN) & (index - known >= self.lost_slots), np.int8(OUTSIDE), truth)

    def _advance_rows(self, first: int, truth: Truths, rows: npt.NDArray[np.intp]) -> list[Transition]:
        """The state machine of some rows, as arithmetic on their runs of equal truth."""
        runs = Runs(first, truth)
        is_true, is_false, outside = runs.value == TRUE, runs.value == FALSE, runs.value == OUTSIDE
        true_before = runs.counted(is_true, is_false | outside, self.true_run[rows])
        false_before = runs.counted(is_false, is_true | outside, self.false_run[rows])
        carried = np.where(self.true_run[rows] > 0, self.since[rows], NO_SLOT)
        stretch = runs.latest(np.where(is_true & (true_before == 0), runs.start, NO_SLOT), carried)
        # The slot of a run in which its row would begin or end an episode, if it does at all.
        begins = is_true & (true_before + runs.length > self.pending_slots)
        ends = (is_false & (false_before + runs.length > self.hold_slots)) | outside
        skipped = np.where(
            is_true,
            np.maximum(0, self.pending_slots - true_before),
            np.where(is_false, np.maximum(0, self.hold_slots - false_before), 0),
        )
        acts = np.flatnonzero(begins | ends)
        before = runs.previous(begins[acts], acts, self.firing[rows])
        transitions = []
        for run in acts[before != begins[acts]]:
            row = int(rows[runs.row[run]])
            slot = int(runs.start[run] + skipped[run])
            if begins[run]:
                event = "fired"
                self.since[row], self.fired[row] = stretch[run], slot
            else:
                event = "resolved" if is_false[run] else "left"
            transitions.append(Transition(row, slot, event, int(self.since[row])))
        last = runs.last
        self.true_run[rows] = _after(true_before, runs.length, is_true, is_false | outside)[last]
        self.false_run[rows] = _after(false_before, runs.length, is_false, is_true | outside)[last]
        self.firing[rows] = runs.final(begins[acts], acts, self.firing[rows])
        idle = ~self.firing[rows]
        self.since[rows[idle]] = np.where(self.true_run[rows] > 0, stretch[last], NO_SLOT)[idle]
        return transitions


def _after(before: Slots, length: Slots, counted: Bools, broken: Bools) -> Slots:
    """A count at the end of each run."""
    return np.where(counted, before + length, np.where(broken, 0, before))
