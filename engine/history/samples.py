"""Looks of live collectors as a frame, folded by the same code as recorded signals."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping

import numpy as np

from stoploss.engine.history.assemble import Extras, LookEvent, assemble
from stoploss.engine.history.frame import Frame, sealed_slot
from stoploss.engine.history.material import build
from stoploss.engine.history.rows import Block, Rows
from stoploss.engine.model import Look, ResourceId
from stoploss.rules.catalogue import Catalogue


class SampleBuffer:
    """Keeps what collectors saw, and folds it on demand.

    Series, words and reasons are numbered by first appearance, so that a later frame keeps
    the columns of an earlier one.
    """

    def __init__(self, catalogue: Catalogue, every: Mapping[str, float] | None = None) -> None:
        """Start empty.

        Args:
            catalogue: the signals that may be taken.
            every: collector -> seconds between two of its looks; where it is missing, the
                median gap is taken.
        """
        self._catalogue = catalogue
        self.every = dict(every or {})
        self._rows = Rows()
        self._times, self._values, self._intervals = array("d"), array("d"), array("d")
        self._series, self._states, self._sets = array("i"), array("i"), array("i")
        self._looks: dict[str, list[LookEvent]] = {}
        self._gone: list[tuple[ResourceId, float]] = []
        self._absent: set[ResourceId] = set()
        self._sealed = -math.inf
        self._late = 0

    def add(self, collector: str, look: Look, *, slot_time: float) -> None:
        """Take one successful look.

        Its samples are filed under `slot_time`, the scheduled instant of the look in seconds
        since the epoch. A known resource of a kind in `look.inventories` that is not among the
        samples is gone from then on.

        Raises:
            ValueError: a sample's signal is not in the catalogue; nothing of the look is taken.
        """
        foreign = sorted({sample.signal for sample in look.samples} - self._catalogue.keys())
        if foreign:
            raise ValueError(f"collector {collector} gave {foreign[0]}, which is not in the catalogue")
        rows = self._rows
        seen = {sample.resource for sample in look.samples}
        for sample in look.samples:
            signal = self._catalogue[sample.signal]
            value, state = rows.encode(signal, sample.reading)
            self._times.append(slot_time)
            self._series.append(rows.series(signal, sample.resource))
            self._values.append(value)
            self._states.append(state)
            self._sets.append(rows.label_set(sample.labels.items()) if sample.labels else -1)
            self._intervals.append(self.every.get(collector, math.nan))
        if slot_time <= self._sealed:
            self._late += len(look.samples)
        self._absent -= seen
        for resource in rows.resources:
            if resource.kind in look.inventories and resource not in seen and resource not in self._absent:
                self._gone.append((resource, slot_time))
                self._absent.add(resource)
        self._looks.setdefault(collector, []).append(LookEvent(slot_time))

    def add_failure(self, collector: str, time: float, reason: str) -> None:
        """Note that a collector's look at `time` (seconds since the epoch) failed, and why."""
        self._looks.setdefault(collector, []).append(LookEvent(time, reason or "failed"))

    @property
    def resources(self) -> tuple[ResourceId, ...]:
        """Everything of which a sample was ever taken."""
        return tuple(self._rows.resources)

    def forget(self, before: float) -> None:
        """Forget samples and looks before an instant, in seconds since the epoch.

        What is left begins anew there: the first sample of a counter gains nothing, and a resource is as old
        as its first sample that is left. To be called with an instant that nothing open goes back to.
        """
        keep = [at for at, time in enumerate(self._times) if time >= before]
        for name in ("_times", "_values", "_intervals", "_series", "_states", "_sets"):
            column: array[float] = getattr(self, name)
            setattr(self, name, array(column.typecode, (column[at] for at in keep)))
        self._looks = {
            name: left
            for name, looks in self._looks.items()
            if (left := [x for x in looks if x.time >= before])
        }
        self._gone = [(resource, time) for resource, time in self._gone if time >= before]

    def frame(self, resolution: float, until: float | None = None) -> Frame:
        """The slots that ended by `until` (default: through the newest look).

        What is added later for a slot that was given out as ended counts as late, and stays.

        Raises:
            FrameTooLarge: the looks span more slots than memory should be asked for.
        """
        block = Block(
            np.array(self._times),
            np.array(self._series, np.int32),
            np.array(self._values),
            np.array(self._states, np.int32),
            np.array(self._sets, np.int32),
            np.array(self._intervals),
        )
        extras = Extras(
            {name: tuple(looks) for name, looks in self._looks.items()},
            tuple(self._gone),
            self.every,
            self._late,
        )
        frame = assemble(build(self._rows, [block], ordered=False), extras, resolution, until)
        if until is not None:
            self._sealed = max(self._sealed, sealed_slot(until, resolution) * resolution)
        return frame
