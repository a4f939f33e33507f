"""One signal's recent past: a ring of slots, what covers them, and the newest valid value.

`SeriesState.push` takes a block of slots; window states and conditions then read the rings
at absolute slots. A ring keeps as many slots as the longest window plus one block.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from stoploss.engine.evaluation.kleene import Bools
from stoploss.engine.history.frame import BAD, Bytes, Floats, Ints, Plane
from stoploss.rules.catalogue import Signal

T = TypeVar("T", bound=np.generic)
NEVER = -(2**40)
"""A slot long before any."""


class Ring(Generic[T]):
    """The last `capacity` slots of an array of slots x series, addressed by absolute slot."""

    def __init__(self, capacity: int, columns: int, fill: T) -> None:
        self.fill = fill
        self.rows: npt.NDArray[T] = np.full((capacity, columns), fill, dtype=fill.dtype)

    def widen(self, columns: int) -> None:
        """Add series at the end; their past is empty."""
        extra = columns - self.rows.shape[1]
        if extra > 0:
            empty = np.full((self.rows.shape[0], extra), self.fill, dtype=self.fill.dtype)
            self.rows = np.concatenate([self.rows, empty], axis=1)

    def resize(self, capacity: int, last: int) -> None:
        """Keep `capacity` slots from now on, among them the newest up to `last`."""
        kept = min(capacity, self.rows.shape[0])
        newest = self.read(last - kept + 1, last).copy()
        self.rows = np.full((capacity, self.rows.shape[1]), self.fill, dtype=self.fill.dtype)
        self.push(last - kept + 1, newest)

    def push(self, first: int, block: npt.NDArray[T]) -> None:
        """Write the slots `first` and following over the oldest ones."""
        capacity, count = self.rows.shape[0], block.shape[0]
        at = first % capacity
        head = min(count, capacity - at)
        self.rows[at : at + head] = block[:head]
        if head < count:
            self.rows[: count - head] = block[head:]

    def read(self, first: int, last: int) -> npt.NDArray[T]:
        """The slots `first` to `last`, both included; a view where they lie in one piece."""
        capacity, count = self.rows.shape[0], last - first + 1
        at = first % capacity
        if at + count <= capacity:
            return self.rows[at : at + count]
        return np.concatenate([self.rows[at:], self.rows[: at + count - capacity]])


class SeriesState:
    """The carried state of one signal over all its series.

    After `push`, these describe the block (slots x series): `values`, `valid`, `covered`
    (the newest reading is valid and no older than the cadence) and, on demand, `filled` and
    `filled_at` (the newest valid value and its slot, however old).
    """

    def __init__(self, signal: Signal, capacity: int) -> None:
        self.signal = signal
        self._capacity = capacity
        self.columns = 0
        self.first = self.last = 0
        self.values_ring: Ring[np.float64] = Ring(capacity, 0, np.float64(np.nan))
        self.covered_ring: Ring[np.bool_] = Ring(capacity, 0, np.bool_(False))
        self.bad_ring: Ring[np.bool_] | None = None
        self.increase_ring: Ring[np.float64] | None = None
        self.words: tuple[str, ...] = ()
        self.cadence: Ints = np.ones(0, dtype=np.int32)
        self._look_slot = np.zeros(0, dtype=np.int64)
        self._look_valid = np.zeros(0, dtype=np.bool_)
        self._last_value = np.zeros(0, dtype=np.float64)
        self._last_slot = np.zeros(0, dtype=np.int64)
        self._filled: tuple[Floats, npt.NDArray[np.int64]] | None = None
        self.values: Floats = np.zeros((0, 0))
        self.valid: Bools = np.zeros((0, 0), dtype=np.bool_)
        self.covered: Bools = np.zeros((0, 0), dtype=np.bool_)
        self.sees_slot: npt.NDArray[np.int64] | None = None

    def rings(self) -> list[Ring[Any]]:
        """All rings of this signal."""
        every = (self.values_ring, self.covered_ring, self.bad_ring, self.increase_ring)
        return [ring for ring in every if ring is not None]

    def want_increase(self) -> None:
        """Keep what counters gained per slot."""
        self.increase_ring = self.increase_ring or Ring(self._capacity, self.columns, np.float64(0.0))

    def want_bad(self) -> None:
        """Keep where readings were bad."""
        self.bad_ring = self.bad_ring or Ring(self._capacity, self.columns, np.bool_(False))

    def widen(self, plane: Plane | None) -> None:
        """Take over new series, new words and the cadences of a frame's plane."""
        if plane is None:
            return
        columns = len(plane.series)
        extra = columns - self.columns
        self.words = plane.words
        self.cadence = plane.cadence
        if extra <= 0:
            return
        for ring in self.rings():
            ring.widen(columns)
        self._look_slot = np.concatenate([self._look_slot, np.full(extra, NEVER)])
        self._look_valid = np.concatenate([self._look_valid, np.zeros(extra, dtype=np.bool_)])
        self._last_value = np.concatenate([self._last_value, np.full(extra, np.nan)])
        self._last_slot = np.concatenate([self._last_slot, np.full(extra, NEVER)])
        self.columns = columns

    def push(self, first: int, slots: int, plane: Plane | None) -> None:
        """Take the next block; without a plane nobody read the signal in these slots."""
        if plane is None:
            values: Floats = np.full((slots, self.columns), np.nan)
            status: Bytes = np.zeros((slots, self.columns), dtype=np.uint8)
            increase = None
        else:
            values, status, increase = plane.values, plane.status, plane.increase
        self._settle()
        self.first, self.last = first, first + slots - 1
        self.values = values
        self.valid = (status > 0) & (status < BAD)
        self.covered = self._coverage(status)
        self.values_ring.push(first, values)
        self.covered_ring.push(first, self.covered)
        if self.bad_ring is not None:
            self.bad_ring.push(first, status >= BAD)
        if self.increase_ring is not None:
            gained = np.zeros(values.shape) if increase is None else increase
            self.increase_ring.push(first, gained)

    def _coverage(self, status: Bytes) -> Bools:
        """Whether the newest reading is valid and fresh; remembers the slot of that reading."""
        slots = status.shape[0]
        if self.signal.is_attribute:
            _, at = self.fill()
            self.sees_slot = at
            return np.asarray(at > NEVER)
        if slots and bool((self.cadence == 1).all()):
            # With one slot per look nothing is carried over, which saves most of the passes.
            self.sees_slot = None
            looked = status[-1] > 0
            self._look_slot[looked] = self.last
            self._look_valid[looked] = self.valid[-1][looked]
            return self.valid
        index = np.arange(self.first, self.last + 1, dtype=np.int64)[:, None]
        code = np.where(status > 0, 2 * index + self.valid, np.int64(2 * NEVER))
        carried = 2 * self._look_slot + self._look_valid
        if slots:
            np.maximum(code[0], carried, out=code[0])
        code = np.maximum.accumulate(code, axis=0)
        seen = code >> 1
        if slots:
            self._look_slot = seen[-1].copy()
            self._look_valid = (code[-1] & 1).astype(np.bool_)
        self.sees_slot = seen
        return np.asarray(((code & 1) == 1) & (index - seen < self.cadence))

    def fill(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """The newest valid value of every slot of the block, and the slot it was read in."""
        if self._filled is None:
            index = np.arange(self.first, self.last + 1, dtype=np.int64)[:, None]
            at = np.where(self.valid, index, np.int64(NEVER))
            if len(at):
                np.maximum(at[0], self._last_slot, out=at[0])
            at = np.maximum.accumulate(at, axis=0)
            row = np.clip(at - self.first, 0, None)
            values = np.where(
                at >= self.first, np.take_along_axis(self.values, row, axis=0), self._last_value
            )
            self._filled = (values, at)
        return self._filled

    def _settle(self) -> None:
        """Carry the newest valid value of the block before."""
        if not len(self.values):
            return
        if self._filled is not None:
            values, at = self._filled
            carried_value, carried_at = values[-1], at[-1]
        else:
            any_valid = self.valid.any(axis=0)
            row = len(self.valid) - 1 - np.argmax(self.valid[::-1], axis=0)
            newest = np.take_along_axis(self.values, row[None, :], axis=0)[0]
            width = len(row)
            carried_value = np.where(any_valid, newest, self._last_value[:width])
            carried_at = np.where(any_valid, row + self.first, self._last_slot[:width])
        self._last_value[: len(carried_value)] = carried_value
        self._last_slot[: len(carried_at)] = carried_at
        self._filled = None
