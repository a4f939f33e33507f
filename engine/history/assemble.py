"""Makes a frame from material: planes, looks, presence of resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from stoploss.engine.history.cadence import median_slots, whole_slots
from stoploss.engine.history.frame import (
    BAD,
    FAILED,
    LOOKED,
    VALID,
    Bytes,
    Floats,
    Frame,
    LabelChange,
    Presence,
    sealed_slot,
    slot_of,
)
from stoploss.engine.history.labels import label_changes
from stoploss.engine.history.material import Material
from stoploss.engine.history.slots import Longs, fold, slots_of
from stoploss.engine.model import ResourceId

SUCCESS = "collector.success"
PRESENT = "resource.present"
MAX_CELLS = 500_000_000
"""The most slots x series that a frame may have: about 4.5 GB."""


class FrameTooLarge(ValueError):
    """The signals span too many slots: one stray time, or too fine a resolution."""


@dataclass(frozen=True, slots=True)
class LookEvent:
    """A look of a collector: when, and why it failed if it did."""

    time: float
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Extras:
    """What live looks tell beside their readings.

    Attributes:
        looks: collector -> its looks.
        gone: (resource, time) of inventories that did not hold the resource.
        every: collector -> seconds between two looks.
        late: samples that came after their slot was sealed.
        nodes: resource -> the machines that told of it, where not only this one did. Of those the
            looks say all: their readings show nothing about the collectors of this machine.
    """

    looks: Mapping[str, tuple[LookEvent, ...]] = field(default_factory=dict)
    gone: tuple[tuple[ResourceId, float], ...] = ()
    every: Mapping[str, float] = field(default_factory=dict)
    late: int = 0
    nodes: Mapping[ResourceId, tuple[str, ...]] = field(default_factory=dict)


def assemble(material: Material, extras: Extras, resolution: float, until: float | None) -> Frame:
    """The slots that ended by `until` (default: through the newest reading) as a frame.

    Columns and cadences are the same whatever `until` is.

    Raises:
        FrameTooLarge: slots x series are more than memory should be asked for.
    """
    events = _look_events(material, extras)
    span = _span(material, events)
    if span is None:
        return Frame(resolution, 1, 0, {}, {}, late=extras.late)
    first, end = slot_of(span[0], resolution), slot_of(span[1], resolution)
    last = end if until is None else sealed_slot(until, resolution)
    width = sum(len(readings.resources) for readings in material.readings.values())
    last = max(last, first - 1)
    most = max((last - first + 1) * width, end - first + 1)
    if most > MAX_CELLS:
        raise FrameTooLarge(
            f"{max(last, end) - first + 1:,} slots of {resolution:g} s for {width:,} series are too many; "
            "use a coarser resolution, or remove rows whose time is far from the others"
        )
    planes = {name: fold(r, resolution, first, last) for name, r in material.readings.items()}
    own = _own(material, extras)
    looks = _looks(own, events, resolution, (first, max(last, end)))
    return Frame(
        resolution,
        first,
        last - first + 1,
        planes,
        _resources(material, extras, resolution, last),
        {name: row[: last - first + 1] for name, row in looks.items()},
        _look_cadence(material, own, (extras, looks), resolution),
        _failures(events, resolution, last),
        material.reasons,
        extras.late,
    )


def _span(material: Material, events: Mapping[str, tuple[LookEvent, ...]]) -> tuple[float, float] | None:
    """The first and last instant of anything."""
    times = [float(t) for r in material.readings.values() for t in (r.times.min(), r.times.max())]
    times += [event.time for looks in events.values() for event in looks]
    return (min(times), max(times)) if times else None


def _look_events(material: Material, extras: Extras) -> dict[str, tuple[LookEvent, ...]]:
    """What was said about whole looks, in order of time; recorded failures have no reason but their text."""
    events: dict[str, list[LookEvent]] = {}
    readings = material.readings.get(SUCCESS)
    if readings is not None:
        rows = zip(readings.times, readings.series, readings.values, readings.status, strict=True)
        for time, series, value, status in rows:
            failure = None if value else "recorded as failed"
            if status >= BAD:
                failure = material.reasons[status - BAD]
            events.setdefault(readings.resources[series].id, []).append(LookEvent(float(time), failure))
    # After those: of one instant what a live look says stands, as it knows why it failed.
    for name, looks in extras.looks.items():
        events.setdefault(name, []).extend(looks)
    return {name: tuple(sorted(looks, key=lambda look: look.time)) for name, looks in events.items()}


@dataclass(frozen=True, slots=True)
class _Own:
    """Of one collector's signal: when it was read, and seconds between two looks, on this machine."""

    collector: str
    times: Floats
    given: Floats


def _own(material: Material, extras: Extras) -> list[_Own]:
    """Per signal what this machine's collectors read."""
    here = np.array([resource not in extras.nodes for resource in material.resources], bool)
    found = []
    for name, readings in material.readings.items():
        if name == SUCCESS:
            continue
        mine = here[material.members[name]]
        times, given = readings.times, material.given[name]
        if not mine.all():
            times, given = times[mine[readings.series]], given[mine]
        if len(times):
            found.append(_Own(readings.signal.collector, times, given))
    return found


def _looks(
    own: Iterable[_Own],
    events: Mapping[str, tuple[LookEvent, ...]],
    resolution: float,
    span: tuple[int, int],
) -> dict[str, Bytes]:
    """Per collector and slot: 0, LOOKED or FAILED. A reading shows that its collector looked."""
    first, last = span
    rows: dict[str, Bytes] = {}

    def row(collector: str) -> Bytes:
        return rows.setdefault(collector, np.zeros(last - first + 1, np.uint8))

    for item in own:
        row(item.collector)[slots_of(item.times, resolution) - first] = LOOKED
    for collector, looks in events.items():
        for look in looks:
            row(collector)[slot_of(look.time, resolution) - first] = FAILED if look.failure else LOOKED
    return dict(sorted(rows.items()))


def _look_cadence(
    material: Material, own: Iterable[_Own], told: tuple[Extras, Mapping[str, Bytes]], resolution: float
) -> dict[str, int]:
    """Slots between two looks: as given, else the median distance of the slots with a look."""
    extras, looks = told
    seconds: dict[str, float] = {}
    for item in own:
        shortest = float(np.nanmin(item.given)) if not np.isnan(item.given).all() else np.inf
        seconds[item.collector] = min(seconds.get(item.collector, np.inf), shortest)
    if SUCCESS in material.readings:
        pairs = zip(material.readings[SUCCESS].resources, material.given[SUCCESS], strict=True)
        seconds |= {resource.id: float(given) for resource, given in pairs if not np.isnan(given)}
    seconds |= extras.every
    return {
        name: int(whole_slots(np.array(seconds[name]), resolution))
        if np.isfinite(seconds.get(name, np.inf))
        else median_slots(row != 0)
        for name, row in looks.items()
    }


def _failures(events: Mapping[str, tuple[LookEvent, ...]], resolution: float, last: int) -> dict[str, str]:
    """Collector -> why its newest failed look up to slot `last` failed."""
    return {
        name: look.failure
        for name, looks in events.items()
        for look in looks
        if look.failure and slot_of(look.time, resolution) <= last
    }


def _resources(
    material: Material, extras: Extras, resolution: float, last: int
) -> dict[ResourceId, Presence]:
    count = len(material.resources)
    first = np.full(count, np.inf)
    for name, readings in material.readings.items():
        starts = np.flatnonzero(np.diff(readings.series, prepend=-1) != 0)
        np.minimum.at(first, material.members[name], readings.times[starts])
    changes = label_changes(material.statements, resolution, last)
    absences = _absences(material, extras, resolution, last)
    present: dict[ResourceId, Presence] = {}
    for index, resource in enumerate(material.resources):
        slot = slot_of(float(first[index]), resolution)
        if slot > last:
            continue
        labels = changes.get(index, [])
        if not labels or labels[0].slot > slot:
            labels = [LabelChange(slot, {}), *labels]
        nodes = extras.nodes.get(resource, ())
        present[resource] = Presence(slot, tuple(labels), absences.get(index, ()), nodes)
    return present


def _absences(
    material: Material, extras: Extras, resolution: float, last: int
) -> dict[int, tuple[tuple[int, int | None], ...]]:
    """Per resource index the (from, to) slots of its absences that began by slot `last`."""
    gone: dict[int, list[float]] = {}
    numbers = {resource: index for index, resource in enumerate(material.resources)} if extras.gone else {}
    for resource, time in extras.gone:
        # One whose samples were forgotten has its absence in what was made of them before.
        if resource in numbers:
            gone.setdefault(numbers[resource], []).append(time)
    if PRESENT in material.readings:
        readings, members = material.readings[PRESENT], material.members[PRESENT]
        zeros = np.flatnonzero((readings.status == VALID) & (readings.values == 0))
        for place in zeros:
            gone.setdefault(int(members[readings.series[place]]), []).append(float(readings.times[place]))
    if not gone:
        return {}
    seen = _seen(material, gone)
    found: dict[int, tuple[tuple[int, int | None], ...]] = {}
    for index, times in gone.items():
        spans: list[tuple[int, int | None]] = []
        back = -np.inf
        for time in sorted(times):
            start = slot_of(time, resolution)
            if time < back or start > last:
                continue
            later = np.searchsorted(seen[index], time, side="right")
            back = float(seen[index][later]) if later < len(seen[index]) else np.inf
            end = slot_of(back, resolution) if np.isfinite(back) else None
            if end is None or end > start:
                spans.append((start, end if end is not None and end <= last else None))
        found[index] = tuple(spans)
    return found


def _seen(material: Material, wanted: Iterable[int]) -> dict[int, Floats]:
    """When the wanted resources were read, in order of time."""
    chosen = np.zeros(len(material.resources), bool)
    chosen[list(wanted)] = True
    owners: list[Longs] = [np.empty(0, np.int64)]
    times: list[Floats] = [np.empty(0)]
    for name, readings in material.readings.items():
        owner = material.members[name][readings.series].astype(np.int64)
        mask = chosen[owner]
        if name == PRESENT:
            mask &= (readings.status == VALID) & (readings.values != 0)
        owners.append(owner[mask])
        times.append(readings.times[mask])
    owner, time = np.concatenate(owners), np.concatenate(times)
    order = np.lexsort((time, owner))
    owner, time = owner[order], time[order]
    return {
        index: time[slice(*np.searchsorted(owner, (index, index + 1)))]
        for index in np.flatnonzero(chosen).tolist()
    }
