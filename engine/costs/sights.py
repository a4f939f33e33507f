"""What was seen of a resource slot by slot, read as arrays over one frame."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from stoploss.engine.evaluation.kleene import Bools, Floats
from stoploss.engine.history.frame import BAD, Frame, Plane
from stoploss.engine.model import ResourceId


class Sights:
    """Series of one frame, carried forward from a reading as far as its cadence reaches."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._index = np.arange(frame.slots)
        self._places: dict[str, dict[ResourceId, int]] = {}
        self._fresh: dict[ResourceId, Bools] | None = None

    def has(self, signal: str, resource: ResourceId) -> bool:
        """Whether there is any valid reading of a signal of a resource."""
        found = self._place(signal, resource)
        return found is not None and bool(_valid(*found).any())

    def fresh(self, resource: ResourceId) -> Bools:
        """Per slot: any reading of the resource, bad ones too, is fresh."""
        if self._fresh is None:
            self._fresh = {}
            for plane in self.frame.planes.values():
                newest = np.maximum.accumulate(np.where(plane.status > 0, self._index[:, None], -1), axis=0)
                reach = (newest >= 0) & (self._index[:, None] - newest < plane.cadence)
                for at, item in enumerate(plane.series):
                    known = self._fresh.get(item)
                    self._fresh[item] = reach[:, at] if known is None else known | reach[:, at]
        found = self._fresh.get(resource)
        return np.zeros(self.frame.slots, np.bool_) if found is None else found

    def numbers(self, signal: str, resource: ResourceId, *, whole: bool = False) -> Floats:
        """Values carried forward, NaN where none is fresh.

        With `whole` a value lasts until the next one, however far that is, and the first one
        also serves the slots before it.
        """
        found = self._place(signal, resource)
        if found is None:
            return np.full(self.frame.slots, np.nan)
        plane, at = found
        valid = _valid(plane, at)
        newest = np.maximum.accumulate(np.where(valid, self._index, -1))
        if whole and valid.any():
            return np.asarray(plane.values[np.where(newest < 0, int(np.argmax(valid)), newest), at])
        fresh = (newest >= 0) & (self._index - newest < plane.cadence[at])
        # A bad reading ends what was known.
        bad = np.maximum.accumulate(np.where(plane.status[:, at] >= BAD, self._index, -1))
        return np.where(fresh & (bad <= newest), plane.values[np.maximum(newest, 0), at], np.nan)

    def gained(self, signal: str, resource: ResourceId) -> Floats:
        """What a counter gained in each slot, resets handled."""
        found = self._place(signal, resource)
        if found is None or found[0].increase is None:
            return np.zeros(self.frame.slots)
        return found[0].increase[:, found[1]]

    def cadence(self, signal: str, resource: ResourceId) -> int:
        """Slots between two looks at a signal; 1 where there is none."""
        found = self._place(signal, resource)
        return 1 if found is None else int(found[0].cadence[found[1]])

    def is_word(self, signal: str, resource: ResourceId, words: Collection[str]) -> Bools:
        """Per slot: the fresh word of a state is one of these."""
        numbers = self.numbers(signal, resource)
        plane = self.frame.planes.get(signal)
        wanted = [at for at, word in enumerate(plane.words if plane else ()) if word in words]
        return np.isin(numbers, wanted)

    def read(self, signal: str, resource: ResourceId) -> tuple[npt.NDArray[np.intp], Floats]:
        """The slots (from 0) with a valid reading, and what was read."""
        found = self._place(signal, resource)
        if found is None:
            return np.zeros(0, np.intp), np.zeros(0)
        slots = np.flatnonzero(_valid(*found))
        return slots, found[0].values[slots, found[1]]

    def _place(self, signal: str, resource: ResourceId) -> tuple[Plane, int] | None:
        plane = self.frame.planes.get(signal)
        if plane is None:
            return None
        if signal not in self._places:
            self._places[signal] = {item: at for at, item in enumerate(plane.series)}
        at = self._places[signal].get(resource)
        return None if at is None else (plane, at)


def _valid(plane: Plane, at: int) -> Bools:
    status = plane.status[:, at]
    return np.asarray((status > 0) & (status < BAD))
