"""The newest slots of a store as one frame, which grows slot by slot and is cut at its beginning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from stoploss.engine.history.frame import Frame, Plane
from stoploss.engine.history.late import filled
from stoploss.engine.history.store import SampleStore
from stoploss.engine.model import ResourceId

MOST = 20_000_000
"""Values that are held beyond what windows need; with their status bytes that is 180 MB."""


class Window:
    """The slots of a store from `first` on, held in memory."""

    def __init__(self, store: SampleStore, slots: int, wished: int | None = None, ages: int = 0) -> None:
        """Read what is there.

        Args:
            store: of one resolution.
            slots: how many are held at least, where there are so many.
            wished: how many are held where they are not more than `MOST` values; `slots` by default.
            ages: for how many slots it is held who was there, where that is more.

        Raises:
            StoreError: it cannot be read.
        """
        self._store, self._least, self._ages = store, slots, ages
        self._wished = max(slots, wished or slots)
        self._frame: Frame | None = None
        last = store.last_slot
        if last is not None:
            # The newest slot alone tells how many columns there are.
            self._frame = store.read(last, last, since=last - slots)
            first = max(store.first_slot or last, last - self._slots + 1)
            self._frame = self._read(first, last, first)

    def _read(self, first: int, last: int, held: int) -> Frame:
        """Some slots, without what was over before the first that is `held`: no window reaches it."""
        return self._store.read(first, last, since=min(held, last - self._ages))

    @property
    def _slots(self) -> int:
        frame = self._frame
        width = sum(len(plane.series) for plane in frame.planes.values()) if frame else 0
        return max(self._least, min(self._wished, MOST // max(1, width)))

    @property
    def last(self) -> int | None:
        """The newest slot; None while there is none."""
        return None if self._frame is None else self._frame.last

    @property
    def frame(self) -> Frame | None:
        """All slots that are held; None while there is none."""
        return self._frame

    def hold(self, slots: int, ages: int = 0) -> None:
        """Hold so many slots at least, and who was there; older ones are read again where they are stored.

        Raises:
            StoreError: they cannot be read.
        """
        self._least, self._wished, self._ages = slots, max(slots, self._wished), ages
        frame = self._frame
        if (
            frame is not None
            and frame.slots < slots
            and (self._store.first_slot or frame.first) < frame.first
        ):
            first = max(self._store.first_slot or frame.first, frame.last - slots + 1)
            self._frame = self._read(first, frame.last, first)

    def append(self, frame: Frame) -> None:
        """Store the slots of a frame, and hold them; those that were stored before are replaced.

        Raises:
            StoreError: they cannot be written.
        """
        if not frame.slots:
            return
        self._store.append(frame)
        old = self._frame
        # Read back, as the store numbers words and reasons for good.
        new = self._read(frame.first, frame.last, frame.first if old is None else min(old.first, frame.first))
        if old is None:
            self._frame = new
            return
        kept = old.cut(old.first, min(old.last, frame.first - 1))
        if frame.first > kept.last + 1:
            kept = joined(kept, self._read(kept.last + 1, frame.first - 1, kept.first))
        self._frame = joined(kept, new)
        # Cut now and then: each cut that is kept copies everything.
        if self._frame.slots > self._slots * 5 // 4 + 16:
            self._frame = _copied(self._frame.cut(self._frame.last - self._slots + 1, self._frame.last))

    def fill(self, late: Frame, alone: Callable[[ResourceId], bool]) -> None:
        """Put what came late into slots that were stored, and into those that are held.

        Args:
            late: slots, made of all that one machine saw in them.
            alone: whether only this machine tells of a resource.

        Raises:
            StoreError: they cannot be written.
        """
        if not late.slots:
            return
        self._store.append(filled(self._store.read(late.first, late.last), late, alone))
        if self._frame is not None:
            self._frame = self._read(self._frame.first, self._frame.last, self._frame.first)

    def nodes(self, resource: ResourceId) -> tuple[str, ...] | None:
        """The machines that told of a resource, as far as that is stored; None of one that is not known."""
        presence = self._store.presence(resource)
        return None if presence is None else presence.nodes

    def prune(self, before_slot: int) -> None:
        """Forget slots before one, on disk, and what was over before that and before all that is held.

        Raises:
            StoreError: the store cannot be written.
        """
        frame = self._frame
        held = None if frame is None else min(frame.first, frame.last - self._ages)
        self._store.prune(before_slot, held)


def joined(before: Frame, after: Frame) -> Frame:
    """Two frames of one store as one; `after` begins where `before` ends, and knows all that is not over."""
    slots = before.slots + after.slots
    planes = {
        name: _plane(before.planes.get(name), plane, (before.slots, after.slots))
        for name, plane in after.planes.items()
    }
    looks = {
        name: np.concatenate([before.looks.get(name, np.zeros(before.slots, np.uint8)), row])
        for name, row in after.looks.items()
    }
    return replace(after, first=before.first, slots=slots, planes=planes, looks=looks)


def _plane(before: Plane | None, after: Plane, slots: tuple[int, int]) -> Plane:
    shape = slots[0], len(after.series)
    old = _Old(before, after)
    increase = None
    if after.increase is not None:
        increase = np.concatenate([old.part("increase", shape, 0.0), after.increase])
    return replace(
        after,
        values=np.concatenate([old.part("values", shape, np.nan), after.values]),
        status=np.concatenate([old.part("status", shape, 0), after.status]),
        increase=increase,
    )


class _Old:
    """The columns of a plane in the order of a later one's."""

    def __init__(self, before: Plane | None, after: Plane) -> None:
        self._before, self._after = before, after
        self._same = before is not None and before.series == after.series
        places = {} if before is None or self._same else {name: at for at, name in enumerate(before.series)}
        pairs = [(places[name], at) for at, name in enumerate(after.series) if name in places]
        self._from, self._to = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def part(self, name: str, shape: tuple[int, int], fill: float) -> npt.NDArray[np.generic]:
        """An array of the earlier plane; series that were not there are blank."""
        old = None if self._before is None else getattr(self._before, name)
        if self._same and old is not None:
            return np.asarray(old)
        out = np.full(shape, fill, dtype=getattr(self._after, name).dtype)
        if old is not None:
            out[:, self._to] = old[:, self._from]
        return out


def _copied(frame: Frame) -> Frame:
    """The same without holding the arrays that it is a part of."""
    planes = {
        name: replace(
            plane,
            values=plane.values.copy(),
            status=plane.status.copy(),
            increase=None if plane.increase is None else plane.increase.copy(),
        )
        for name, plane in frame.planes.items()
    }
    return replace(frame, planes=planes, looks={name: row.copy() for name, row in frame.looks.items()})
