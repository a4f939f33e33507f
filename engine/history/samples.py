"""Looks of live collectors as a frame, folded by the same code as recorded signals."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from stoploss.engine.history.assemble import Extras, LookEvent, assemble
from stoploss.engine.history.frame import Frame, sealed_slot
from stoploss.engine.history.material import build
from stoploss.engine.history.names import plain, storable
from stoploss.engine.history.nodes import key_of
from stoploss.engine.history.rows import Block, Columns, Rows
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
        self._telling: dict[ResourceId, set[str]] = {}
        self._told: dict[ResourceId, set[str]] = {}
        self._nodes: dict[ResourceId, tuple[str, ...]] = {}
        self._node_every: dict[str, float] = {}
        self._listed: set[tuple[str, str]] = set()
        self._spare = 0
        self._sealed = -math.inf
        self._late = 0

    def add(
        self, collector: str, look: Look, *, slot_time: float, node: str = "", every: float | None = None
    ) -> None:
        """Take one successful look.

        Its samples are filed under `slot_time`, the scheduled instant of the look in seconds
        since the epoch. A known resource of a kind in `look.inventories` that is not among the
        samples is gone from then on, unless another machine tells of it.

        Args:
            collector: its name.
            look: what it saw. Looks of one machine come in the order of their times.
            slot_time: when.
            node: of another machine that looked; empty for this one.
            every: seconds between two looks, for a node's collector.

        Raises:
            ValueError: a sample's signal is not in the catalogue; nothing of the look is taken.
        """
        look = storable(look)
        foreign = sorted({sample.signal for sample in look.samples} - self._catalogue.keys())
        if foreign:
            raise ValueError(f"collector {collector} gave {foreign[0]}, which is not in the catalogue")
        rows = self._rows
        if node:
            look = _named(look, node)
        interval = self.every.get(collector, math.nan) if not node else every or math.nan
        seen = {sample.resource for sample in look.samples}
        for sample in look.samples:
            signal = self._catalogue[sample.signal]
            value, state = rows.encode(signal, sample.reading)
            self._times.append(slot_time)
            self._series.append(rows.series(signal, sample.resource))
            self._values.append(value)
            self._states.append(state)
            self._sets.append(rows.label_set(sample.labels.items()) if sample.labels else -1)
            self._intervals.append(interval)
        if slot_time <= self._sealed:
            self._late += len(look.samples)
        self._note(node, seen)
        if look.inventories:
            self._miss(node, look.inventories, seen, slot_time)
        # What of another machine was read says nothing about collectors here: each is named.
        names = {collector, *(self._catalogue[item.signal].collector for item in look.samples if node)}
        for name in sorted(names):
            self._looks.setdefault(key_of(node, name), []).append(LookEvent(slot_time))
            if node and every:
                # Its own looks say how often; what another one reads for it may come less often.
                self._node_every[key_of(node, name)] = (
                    every if name == collector else (self._node_every.get(key_of(node, name), every))
                )

    def _note(self, node: str, seen: set[ResourceId]) -> None:
        """Remember which machines tell of a resource, and ever did."""
        for resource in seen:
            self._telling.setdefault(resource, set()).add(node)
            told = self._told.setdefault(resource, set())
            if node not in told:
                told.add(node)
                if told != {""}:
                    self._nodes[resource] = tuple(sorted(told))

    def _miss(self, node: str, kinds: Collection[str], seen: set[ResourceId], time: float) -> None:
        """What a machine lists no more it does not tell of; what none tells of is gone."""
        self._listed |= {(node, kind) for kind in kinds}
        for resource in self._rows.resources:
            if resource.kind in kinds and resource not in seen:
                telling = self._telling.get(resource, set())
                if node in telling:
                    telling.discard(node)
                    if not telling:
                        self._gone.append((resource, time))

    def add_failure(
        self, collector: str, time: float, reason: str, *, node: str = "", every: float | None = None
    ) -> None:
        """Note that a collector's look at `time` (seconds since the epoch) failed, and why."""
        key = key_of(node, collector)
        self._looks.setdefault(key, []).append(LookEvent(time, plain(reason or "failed")))
        if node and every:
            self._node_every[key] = every

    def note_late(self, samples: int) -> None:
        """Count samples that came after their slots were sealed, and went past this buffer."""
        self._late += samples

    def __len__(self) -> int:
        """How many readings are held."""
        return len(self._times)

    @property
    def resources(self) -> tuple[ResourceId, ...]:
        """Everything of which a sample was taken, but what is forgotten."""
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
        if self._rows.size > self._spare:
            self._renumber()

    def _renumber(self) -> None:
        """Let go of what no sample names any more; of what may be missed on a list its name stays."""
        columns = Columns(self._series, self._values, self._states, self._sets)
        listed = [name for name, nodes in self._telling.items() if self._is_listed(name, nodes)]
        self._rows = self._rows.only(columns, listed)
        # Not again before there is twice as much.
        self._spare = 2 * self._rows.size + 1000
        known = self._rows.resources
        self._telling = {name: nodes for name, nodes in self._telling.items() if name in known}
        self._told = {name: nodes for name, nodes in self._told.items() if name in known}
        self._nodes = {name: nodes for name, nodes in self._nodes.items() if name in known}
        self._node_every = {key: every for key, every in self._node_every.items() if key in self._looks}

    def _is_listed(self, resource: ResourceId, nodes: Collection[str]) -> bool:
        return any((node, resource.kind) in self._listed for node in nodes)

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
            {**self._node_every, **self.every},
            self._late,
            self._nodes,
        )
        frame = assemble(build(self._rows, [block], ordered=False), extras, resolution, until)
        if until is not None:
            self._sealed = max(self._sealed, sealed_slot(until, resolution) * resolution)
        return frame


def _named(look: Look, node: str) -> Look:
    """A look of a node, its collectors called NODE/COLLECTOR."""
    if not any(sample.resource.kind == "collector" for sample in look.samples):
        return look
    samples = tuple(
        replace(sample, resource=ResourceId("collector", key_of(node, sample.resource.id)))
        if sample.resource.kind == "collector"
        else sample
        for sample in look.samples
    )
    return replace(look, samples=samples)
