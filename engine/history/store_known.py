"""What the store's tables say beside the samples: series, words, reasons, collectors, resources."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from sqlalchemy import Connection, delete, insert, inspect, select, update

from stoploss.engine.history import store_schema as schema
from stoploss.engine.history.frame import BAD, MAX_REASONS, Bytes, Floats, Frame, LabelChange, Plane, Presence
from stoploss.engine.history.presences import merged
from stoploss.engine.history.rows import OTHER
from stoploss.engine.history.slots import Longs
from stoploss.engine.model import ResourceId


@dataclass(slots=True)
class Known:
    """The tables in memory, so that an append writes only what is new."""

    meta: dict[str, str] = field(default_factory=dict)
    series: dict[str, dict[ResourceId, int]] = field(default_factory=dict)
    cadence: dict[str, list[int]] = field(default_factory=dict)
    words: dict[str, dict[str, int]] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    collectors: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    resources: dict[ResourceId, Presence] = field(default_factory=dict)

    def slot(self, name: str) -> int | None:
        """A slot that the meta table names."""
        return int(self.meta[name]) if name in self.meta else None


def load(connection: Connection) -> Known:
    """Read everything but the samples."""
    known = Known({row.name: row.value for row in connection.execute(select(schema.META))})
    table = schema.SERIES
    for row in connection.execute(select(table).order_by(table.c.signal, table.c.position)):
        known.series.setdefault(row.signal, {})[ResourceId(row.kind, row.resource)] = row.position
        known.cadence.setdefault(row.signal, []).append(row.cadence)
    for row in connection.execute(select(schema.WORDS).order_by(schema.WORDS.c.position)):
        known.words.setdefault(row.signal, {})[row.word] = row.position
    for row in connection.execute(select(schema.REASONS).order_by(schema.REASONS.c.position)):
        known.reasons[row.reason] = row.position
    for row in connection.execute(select(schema.COLLECTORS).order_by(schema.COLLECTORS.c.collector)):
        known.collectors[row.collector] = (row.cadence, row.failure)
    known.resources = _load_resources(connection)
    return known


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
    """The store's column of each of the plane's series; new ones are added at the end."""
    name = plane.signal.name
    columns, cadence = known.series.setdefault(name, {}), known.cadence.setdefault(name, [])
    fresh: list[dict[str, object]] = []
    for resource, slots in zip(plane.series, plane.cadence.tolist(), strict=True):
        place = columns.setdefault(resource, len(columns))
        key = {"signal": name, "position": place}
        if place == len(cadence):
            cadence.append(slots)
            fresh.append(key | {"kind": resource.kind, "resource": resource.id, "cadence": slots})
        elif cadence[place] != slots:
            cadence[place] = slots
            table = schema.SERIES
            same = (table.c.signal == name) & (table.c.position == place)
            connection.execute(update(table).where(same).values(cadence=slots))
    if fresh:
        connection.execute(insert(schema.SERIES), fresh)
    return np.array([columns[resource] for resource in plane.series], np.int64)


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
        for table in (schema.RESOURCES, schema.LABELS, schema.ABSENCES, schema.NODES):
            same = (table.c.kind == resource.kind) & (table.c.resource == resource.id)
            connection.execute(delete(table).where(same))
    known.resources[resource] = presence
    connection.execute(insert(schema.RESOURCES), key | {"first": presence.first})
    labels = [key | {"slot": c.slot, "labels": schema.labels_text(c.labels)} for c in presence.changes]
    connection.execute(insert(schema.LABELS), labels)
    if presence.absences:
        spans = [key | {"start": start, "stop": stop} for start, stop in presence.absences]
        connection.execute(insert(schema.ABSENCES), spans)
    if presence.nodes:
        connection.execute(insert(schema.NODES), [key | {"node": node} for node in presence.nodes])


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
