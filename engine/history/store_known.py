"""What the store's tables say beside the samples: series, words, reasons, collectors, resources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from sqlalchemy import Connection, delete, insert, inspect, select, update

from stoploss.engine.history import store_schema as schema
from stoploss.engine.history.frame import BAD, MAX_REASONS, Bytes, Floats, Frame, LabelChange, Plane, Presence
from stoploss.engine.history.presences import merged, shortened
from stoploss.engine.history.rows import OTHER
from stoploss.engine.history.slots import Longs
from stoploss.engine.model import ResourceId

SEEN_EVERY = 6 * 3600.0
"""Seconds after which it is written anew that a resource is still seen; it is forgotten so much later."""
NEVER = -(2**60)
LOOK = "look"
"""The kind under which it is noted when a collector looked."""


@dataclass(slots=True)
class Known:
    """The tables in memory, so that an append writes only what is new.

    A series has a column (`series`); one that was forgotten leaves its column to the next new one (`free`).
    """

    meta: dict[str, str] = field(default_factory=dict)
    series: dict[str, dict[ResourceId, int]] = field(default_factory=dict)
    cadence: dict[str, list[int]] = field(default_factory=dict)
    words: dict[str, dict[str, int]] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    collectors: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    resources: dict[ResourceId, Presence] = field(default_factory=dict)
    seen: dict[ResourceId, int] = field(default_factory=dict)
    noted: dict[str, Longs] = field(default_factory=dict)
    free: dict[str, list[int]] = field(default_factory=dict)

    def slot(self, name: str) -> int | None:
        """A slot that the meta table names."""
        return int(self.meta[name]) if name in self.meta else None


def load(connection: Connection) -> Known:
    """Read everything but the samples."""
    known = Known({row.name: row.value for row in connection.execute(select(schema.META))})
    table = schema.SERIES
    for row in connection.execute(select(table).order_by(table.c.signal, table.c.position)):
        cadence = known.cadence.setdefault(row.signal, [])
        unused = range(len(cadence), row.position)
        known.free.setdefault(row.signal, []).extend(unused)
        cadence.extend([*(1 for _ in unused), row.cadence])
        known.series.setdefault(row.signal, {})[ResourceId(row.kind, row.resource)] = row.position
    for row in connection.execute(select(schema.WORDS).order_by(schema.WORDS.c.position)):
        known.words.setdefault(row.signal, {})[row.word] = row.position
    for row in connection.execute(select(schema.REASONS).order_by(schema.REASONS.c.position)):
        known.reasons[row.reason] = row.position
    for row in connection.execute(select(schema.COLLECTORS).order_by(schema.COLLECTORS.c.collector)):
        known.collectors[row.collector] = (row.cadence, row.failure)
    known.resources = _load_resources(connection)
    _load_seen(connection, known)
    return known


def _load_seen(connection: Connection, known: Known) -> None:
    if inspect(connection).has_table(schema.SEEN.name):
        for row in connection.execute(select(schema.SEEN)):
            known.seen[ResourceId(row.kind, row.resource)] = row.slot
    # Of what nobody noted it may have been just now.
    last = known.slot("last") or 0
    for resource in (*known.resources, *(ResourceId(LOOK, name) for name in known.collectors)):
        known.seen.setdefault(resource, last)


def _load_resources(connection: Connection) -> dict[ResourceId, Presence]:
    changes: dict[ResourceId, list[LabelChange]] = defaultdict(list)
    absences: dict[ResourceId, list[tuple[int, int | None]]] = defaultdict(list)
    for row in connection.execute(select(schema.LABELS).order_by(schema.LABELS.c.slot)):
        change = LabelChange(row.slot, schema.labels_from(row.labels))
        changes[ResourceId(row.kind, row.resource)].append(change)
    for row in connection.execute(select(schema.ABSENCES).order_by(schema.ABSENCES.c.start)):
        absences[ResourceId(row.kind, row.resource)].append((row.start, row.stop))
    nodes: dict[ResourceId, list[str]] = defaultdict(list)
    if inspect(connection).has_table(schema.NODES.name):
        # A store of an earlier version, opened for reading, has none.
        for row in connection.execute(select(schema.NODES).order_by(schema.NODES.c.node)):
            nodes[ResourceId(row.kind, row.resource)].append(row.node)
    return {
        resource: Presence(
            row.first, tuple(changes[resource]), tuple(absences[resource]), tuple(nodes[resource])
        )
        for row in connection.execute(select(schema.RESOURCES))
        for resource in (ResourceId(row.kind, row.resource),)
    }


def note_series(connection: Connection, known: Known, plane: Plane) -> Longs:
    """The store's column of each of the plane's series; new ones take a free one, or one at the end."""
    name = plane.signal.name
    columns, cadence = known.series.setdefault(name, {}), known.cadence.setdefault(name, [])
    free = known.free.setdefault(name, [])
    fresh: list[dict[str, object]] = []
    for resource, slots in zip(plane.series, plane.cadence.tolist(), strict=True):
        place = columns.get(resource)
        if place is None:
            place = columns[resource] = free.pop(0) if free else len(cadence)
            cadence[place : place + 1] = [slots]
            key = {"signal": name, "position": place}
            fresh.append(key | {"kind": resource.kind, "resource": resource.id, "cadence": slots})
        elif cadence[place] != slots:
            cadence[place] = slots
            table = schema.SERIES
            same = (table.c.signal == name) & (table.c.position == place)
            connection.execute(update(table).where(same).values(cadence=slots))
    if fresh:
        connection.execute(insert(schema.SERIES), fresh)
    return np.array([columns[resource] for resource in plane.series], np.int64)


def note_seen(connection: Connection, known: Known, frame: Frame) -> None:
    """Note what was read in a frame, and who looked, where that was not noted of late.

    The series of the frame have their columns already.
    """
    step = max(1, round(SEEN_EVERY / frame.resolution))
    news = dict.fromkeys(frame.resources.keys() - known.seen.keys(), frame.last)
    for plane in frame.planes.values():
        columns, noted = known.series[plane.signal.name], _noted(known, plane.signal.name)
        read = plane.status > 0
        last = frame.first + len(read) - 1 - np.argmax(read[::-1], axis=0)
        places = np.array([columns[resource] for resource in plane.series], np.int64)
        # Most were noted a short while ago.
        for at in np.flatnonzero(read.any(axis=0) & (last >= noted[places] + step)).tolist():
            resource, slot = plane.series[at], int(last[at])
            if slot >= known.seen.get(resource, slot - step) + step:
                news[resource] = max(news.get(resource, slot), slot)
            noted[places[at]] = news.get(resource, known.seen.get(resource, 0))
    for name, looks in frame.looks.items():
        collector = ResourceId(LOOK, name)
        if looks.any():
            slot = frame.first + int(np.flatnonzero(looks)[-1])
            if slot >= known.seen.get(collector, slot - step) + step:
                news[collector] = slot
    table = schema.SEEN
    for resource in news.keys() & known.seen.keys():
        same = (table.c.kind == resource.kind) & (table.c.resource == resource.id)
        connection.execute(delete(table).where(same))
    if news:
        rows = [{"kind": r.kind, "resource": r.id, "slot": slot} for r, slot in news.items()]
        connection.execute(insert(table), rows)
        known.seen |= news


def _noted(known: Known, name: str) -> Longs:
    """Per column of a signal the slot that was noted last, or one before."""
    noted = known.noted.get(name, np.zeros(0, np.int64))
    wanted = len(known.cadence[name])
    known.noted[name] = np.concatenate([noted, np.full(wanted - len(noted), NEVER)])
    return known.noted[name]


def note_words(connection: Connection, known: Known, plane: Plane) -> Floats:
    """The store's number of each of the plane's words."""
    name = plane.signal.name
    numbers = known.words.setdefault(name, {})
    fresh = [word for word in plane.words if word not in numbers]
    for word in fresh:
        numbers[word] = len(numbers)
    if fresh:
        rows = [{"signal": name, "position": numbers[word], "word": word} for word in fresh]
        connection.execute(insert(schema.WORDS), rows)
    return np.array([numbers[word] for word in plane.words], np.float64)


def note_reasons(connection: Connection, known: Known, reasons: tuple[str, ...]) -> Bytes:
    """The store's status byte for each status byte of a frame; beyond the limit reasons share one."""
    status = np.arange(256, dtype=np.uint8)
    for index, reason in enumerate(reasons):
        if reason not in known.reasons and len(known.reasons) >= MAX_REASONS - 1:
            reason = OTHER
        if reason not in known.reasons:
            known.reasons[reason] = len(known.reasons)
            row = {"position": known.reasons[reason], "reason": reason}
            connection.execute(insert(schema.REASONS), row)
        status[BAD + index] = BAD + known.reasons[reason]
    return status


def note_collectors(connection: Connection, known: Known, frame: Frame) -> None:
    """Cadence and newest failure of every collector."""
    for name in {*frame.looks, *frame.look_cadence, *frame.look_reasons}:
        cadence, failure = known.collectors.get(name, (1, None))
        told = (frame.look_cadence.get(name, cadence), frame.look_reasons.get(name, failure))
        if known.collectors.get(name) != told:
            known.collectors[name] = told
            table = schema.COLLECTORS
            connection.execute(delete(table).where(table.c.collector == name))
            connection.execute(insert(table), {"collector": name, "cadence": told[0], "failure": told[1]})


def note_resources(connection: Connection, known: Known, frame: Frame) -> None:
    """Presence and labels of every resource that the frame tells something new of."""
    for resource, given in frame.resources.items():
        presence = merged(known.resources.get(resource), given, frame.last)
        if presence != known.resources.get(resource):
            write_resource(connection, known, resource, presence)


def write_resource(connection: Connection, known: Known, resource: ResourceId, presence: Presence) -> None:
    """Replace what is stored of a resource."""
    key = {"kind": resource.kind, "resource": resource.id}
    if resource in known.resources:
        _remove(connection, resource)
    known.resources[resource] = presence
    connection.execute(insert(schema.RESOURCES), key | {"first": presence.first})
    labels = [key | {"slot": c.slot, "labels": schema.labels_text(c.labels)} for c in presence.changes]
    connection.execute(insert(schema.LABELS), labels)
    if presence.absences:
        spans = [key | {"start": start, "stop": stop} for start, stop in presence.absences]
        connection.execute(insert(schema.ABSENCES), spans)
    if presence.nodes:
        connection.execute(insert(schema.NODES), [key | {"node": node} for node in presence.nodes])


def _remove(connection: Connection, resource: ResourceId) -> None:
    for table in (schema.RESOURCES, schema.LABELS, schema.ABSENCES, schema.NODES):
        same = (table.c.kind == resource.kind) & (table.c.resource == resource.id)
        connection.execute(delete(table).where(same))


def forget(connection: Connection, known: Known, before: int, resolution: float) -> None:
    """Forget what was over before a slot: labels and absences, and what nobody has seen since.

    What something names that is kept is kept as well. The slots before are not stored any more, so that
    the columns of series that go are blank.
    """
    step = max(1, round(SEEN_EVERY / resolution))
    unseen = {resource for resource, slot in known.seen.items() if slot + step <= before}
    looks = {resource for resource in unseen if resource.kind == LOOK}
    over = {r for r in unseen - looks if r not in known.resources or _told_last(known.resources[r]) < before}
    kept = shortened(known.resources, over, before)
    for resource, presence in kept.items():
        if known.resources[resource] is not presence:
            write_resource(connection, known, resource, presence)
    gone = over - kept.keys()
    for resource in gone:
        _remove(connection, resource)
        known.resources.pop(resource, None)
    for resource in looks:
        known.collectors.pop(resource.id, None)
        connection.execute(delete(schema.COLLECTORS).where(schema.COLLECTORS.c.collector == resource.id))
    for resource in gone | looks:
        del known.seen[resource]
        same = (schema.SEEN.c.kind == resource.kind) & (schema.SEEN.c.resource == resource.id)
        connection.execute(delete(schema.SEEN).where(same))
    _free(connection, known, gone)


def _told_last(presence: Presence) -> int:
    """The newest slot in which something changed about a resource, beside its readings."""
    ends = [slot for span in presence.absences[-1:] for slot in span if slot is not None]
    return max([presence.changes[-1].slot, *ends])


def _free(connection: Connection, known: Known, gone: Iterable[ResourceId]) -> None:
    """Let go of the columns of resources."""
    gone = list(gone)
    for name, columns in known.series.items():
        for resource in gone:
            place = columns.pop(resource, None)
            if place is not None:
                known.free.setdefault(name, []).append(place)
                _noted(known, name)[place] = NEVER
                same = (schema.SERIES.c.signal == name) & (schema.SERIES.c.position == place)
                connection.execute(delete(schema.SERIES).where(same))
        known.free.get(name, []).sort()


def write_meta(connection: Connection, known: Known, values: dict[str, str | None]) -> None:
    """Set meta values; None removes one."""
    for name, value in values.items():
        if known.meta.get(name) == value:
            continue
        connection.execute(delete(schema.META).where(schema.META.c.name == name))
        known.meta.pop(name, None)
        if value is not None:
            known.meta[name] = value
            connection.execute(insert(schema.META), {"name": name, "value": value})
