"""A frame: samples of many series on one grid of slots, as arrays.

Slot k covers (k-1, k] x resolution since the epoch. Arrays are time-major: row i is slot
`first + i`, a column is a series. Recorded files, the store and live looks all become
frames; evaluation reads nothing else. Series tables only ever grow at their end, so a later
frame of the same source keeps the columns of an earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from stoploss.engine.model import LabelValue, ResourceId
from stoploss.rules.catalogue import Signal

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]

NONE, VALID, NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY = 0, 1, 2, 3, 4
"""Status of a slot: nobody read it; a valid value; a curve's non-finite value, stored as the worst."""
BAD = 16
"""Status BAD + i is a bad reading for the reason `Frame.reasons[i]`."""
MAX_REASONS = 256 - BAD

LOOKED, FAILED = 1, 2
"""Status of a collector in a slot; 0 is: it did not look."""


@dataclass(frozen=True, slots=True)
class LabelChange:
    """The labels of a resource from `slot` on, merged from all that was said up to then."""

    slot: int
    labels: Mapping[str, LabelValue]


@dataclass(frozen=True, slots=True)
class Presence:
    """Since when a resource is known, what labels it had when, and when it went.

    Attributes:
        first: the first slot in which any reading (bad ones too) of it was taken.
        changes: label changes by slot, the first at `first`; a resource without labels has
            one change with none.
        absences: (from, to) slots, `to` excluded and None while it lasts, in which an
            inventory was read that did not hold it.
        nodes: the machines that told of it, in order of names; "" is this one. Empty where
            no other machine ever did.
    """

    first: int
    changes: tuple[LabelChange, ...]
    absences: tuple[tuple[int, int | None], ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plane:
    """One signal over a frame: slots x series.

    Attributes:
        signal: the catalogue's entry.
        series: the resource of each column.
        values: valid values, NaN where there is none. A counter's is the last of the slot; a
            text is an index into `words`; a curve's non-finite value is the worst (+inf, or -inf
            where higher is better).
        status: NONE, VALID, a non-finite kind, or BAD + reason.
        increase: for counters, what was added in each slot since the sample before it,
            resets handled; 0 where there is no sample. None for other signals.
        cadence: slots between two looks of each series, at least 1.
        words: the texts that values index; empty for numbers.
    """

    signal: Signal
    series: tuple[ResourceId, ...]
    values: Floats
    status: Bytes
    cadence: Ints
    increase: Floats | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """All that was seen in the slots `first` to `first + slots - 1`.

    Attributes:
        resolution: seconds per slot.
        planes: signal name -> plane; a signal that was never seen has none.
        resources: every resource seen up to the frame's end, since its first sight.
        looks: collector -> per slot 0, LOOKED or FAILED; one of another machine is NODE/COLLECTOR.
        look_cadence: collector -> slots between two of its looks.
        look_reasons: collector -> why its newest failed look failed.
        reasons: bad-reading reasons, indexed by status - BAD.
        late: samples that came after their slot was sealed (counted, kept for backtests).
        remarks: (signal, resource) -> what is to be said of a reckoned series: which budget it is
            about, or why there is none.
    """

    resolution: float
    first: int
    slots: int
    planes: Mapping[str, Plane]
    resources: Mapping[ResourceId, Presence]
    looks: Mapping[str, Bytes] = field(default_factory=dict)
    look_cadence: Mapping[str, int] = field(default_factory=dict)
    look_reasons: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    late: int = 0
    remarks: Mapping[tuple[str, ResourceId], str] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The newest slot."""
        return self.first + self.slots - 1

    def time_of(self, slot: int) -> float:
        """The end of a slot, in seconds since the epoch."""
        return slot * self.resolution

    def cut(self, first: int, last: int) -> Frame:
        """The slots `first` to `last`, both included, as views of the same arrays."""
        low, high = first - self.first, last - self.first + 1
        if not 0 <= low <= high <= self.slots:
            raise IndexError(f"slots {first}..{last} lie outside {self.first}..{self.last}")
        planes = {
            name: replace(
                plane,
                values=plane.values[low:high],
                status=plane.status[low:high],
                increase=None if plane.increase is None else plane.increase[low:high],
            )
            for name, plane in self.planes.items()
        }
        looks = {name: row[low:high] for name, row in self.looks.items()}
        return replace(self, first=first, slots=high - low, planes=planes, looks=looks)


def slot_of(time: float, resolution: float) -> int:
    """The slot that holds an instant: slot k is (k-1, k] x resolution."""
    return math.ceil(time / resolution)


def sealed_slot(time: float, resolution: float) -> int:
    """The newest slot that has ended at an instant."""
    return math.floor(time / resolution)
