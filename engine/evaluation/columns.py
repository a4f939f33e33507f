"""Who is judged: resources in time, split at changes of owner, and how they relate.

A column is one stretch of one resource: a GPU, host or process under one job; any other
resource from its first sight on. Columns only ever grow at their end, so that carried state
stays in place when a later frame brings new resources. Relations are labels: a column of a
lower kind belongs, slot by slot, to the column of the upper kind that its label names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stoploss.engine.evaluation.implied import OPEN, with_implied
from stoploss.engine.history.frame import Frame, Presence
from stoploss.engine.model import UNREADABLE, LabelValue, ResourceId
from stoploss.rules.catalogue import KINDS, PARENTS

Slots = npt.NDArray[np.int64]
Track = tuple[tuple[int, LabelValue], ...]
"""A label's values over time: from each slot on."""

OWNED = frozenset({"gpu", "host", "process"})
"""Kinds whose rows end when their job changes, so that a new tenant inherits nothing."""


@dataclass(frozen=True, slots=True)
class Column:
    """One stretch [start, end) of a resource under one owner (a job's id, or None)."""

    resource: ResourceId
    owner: str | None
    start: int
    end: int = OPEN


@dataclass(slots=True)
class ColumnTable:
    """The columns of one kind, in a fixed order, with their bounds as arrays."""

    columns: list[Column] = field(default_factory=list)
    index: dict[tuple[ResourceId, int], int] = field(default_factory=dict)
    by_resource: dict[ResourceId, list[int]] = field(default_factory=dict)
    start: Slots = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    end: Slots = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def merge(self, found: list[Column]) -> None:
        """Append columns not seen before and take over the ends of known ones."""
        for column in found:
            key = (column.resource, column.start)
            at = self.index.get(key)
            if at is None:
                self.index[key] = len(self.columns)
                self.by_resource.setdefault(column.resource, []).append(len(self.columns))
                self.columns.append(column)
            else:
                self.columns[at] = column
        self.start = np.array([column.start for column in self.columns], dtype=np.int64)
        self.end = np.array([column.end for column in self.columns], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.columns)


@dataclass(frozen=True, slots=True)
class Entries:
    """A relation: `lower` columns belong to `upper` columns during [start, end), sorted by upper."""

    lower: npt.NDArray[np.intp]
    upper: npt.NDArray[np.intp]
    start: Slots
    end: Slots


class World:
    """The columns and relations of all resources seen so far."""

    def __init__(self) -> None:
        self.tables: dict[str, ColumnTable] = {kind: ColumnTable() for kind in KINDS}
        self.version = 0
        self._source: Mapping[ResourceId, Presence] | None = None
        self._presences: dict[ResourceId, Presence] = {}
        self._tracks: dict[tuple[ResourceId, str], Track] = {}
        self._entries: dict[tuple[str, str], Entries] = {}

    def update(self, frame: Frame) -> bool:
        """Take over the resources of a frame; whether anything changed."""
        if frame.resources is self._source:
            return False
        self._source = frame.resources
        presences = with_implied(frame.resources)
        if presences == self._presences:
            return False
        self._presences = presences
        self._tracks.clear()
        self._entries.clear()
        found: dict[str, list[Column]] = {kind: [] for kind in KINDS}
        for resource in sorted(presences):
            if resource.kind in found:
                found[resource.kind].extend(_stretches(resource, presences[resource]))
        for kind, columns in found.items():
            self.tables[kind].merge(columns)
        self.version += 1
        return True

    def knows(self, resource: ResourceId) -> bool:
        """Whether a resource was seen or named."""
        return resource in self._presences

    def nodes(self, resource: ResourceId) -> tuple[str, ...]:
        """The machines that told of a resource, or of what names it; empty where only this one did."""
        presence = self._presences.get(resource)
        return presence.nodes if presence is not None else ()

    def track(self, resource: ResourceId, label: str) -> Track:
        """The values of a label over time: the resource's own, else those of its owners.

        A job is never inherited: a GPU whose process list is empty has none, whatever its
        host runs.
        """
        key = (resource, label)
        if key not in self._tracks:
            self._tracks[key] = self._resolve(resource, label)
        return self._tracks[key]

    def label_at(self, resource: ResourceId, label: str, slot: int) -> LabelValue:
        """A label's value in a slot; absent before the first sight."""
        return value_at(self.track(resource, label), slot)

    def labels_at(self, resource: ResourceId, slot: int) -> dict[str, LabelValue]:
        """All labels that were said of a resource itself, as of a slot."""
        presence = self._presences.get(resource)
        if presence is None:
            return {}
        current: Mapping[str, LabelValue] = {}
        for change in presence.changes:
            if change.slot > slot:
                break
            current = change.labels
        return dict(current)

    def _resolve(self, resource: ResourceId, label: str) -> Track:
        presence = self._presences.get(resource)
        if presence is None:
            return ()
        if label in ("kind", "id", resource.kind):
            return ((presence.first, resource.kind if label == "kind" else resource.id),)
        own = tuple((change.slot, change.labels.get(label)) for change in presence.changes)
        if label == "job":
            return _squeezed(own)
        parents = [kind for kind in PARENTS.get(resource.kind, ()) if kind != label]
        ids = {kind: self._own_track(presence, kind) for kind in parents}
        breaks = {slot for slot, _ in own}
        for kind, track in ids.items():
            for slot, parent in track:
                breaks.add(slot)
                if isinstance(parent, str):
                    breaks.update(s for s, _ in self.track(ResourceId(kind, parent), label))
        return _squeezed(
            tuple(
                (slot, self._inherited(value_at(own, slot), ids, label, slot))
                for slot in sorted(breaks)
                if slot >= presence.first
            )
        )

    def _own_track(self, presence: Presence, label: str) -> Track:
        return tuple((change.slot, change.labels.get(label)) for change in presence.changes)

    def _inherited(self, own: LabelValue, ids: Mapping[str, Track], label: str, slot: int) -> LabelValue:
        if own is not None:
            return own
        unreadable: LabelValue = None
        for kind, track in ids.items():
            parent = value_at(track, slot)
            if parent is UNREADABLE:
                unreadable = UNREADABLE
            elif isinstance(parent, str):
                value = value_at(self.track(ResourceId(kind, parent), label), slot)
                if isinstance(value, str):
                    return value
                if value is UNREADABLE:
                    unreadable = UNREADABLE
        return unreadable

    def entries(self, lower: str, upper: str) -> Entries:
        """Which columns of `lower` belong to which of `upper`, and when."""
        key = (lower, upper)
        if key not in self._entries:
            pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
            self._join(pairs, lower, upper)
            if upper == "job" and lower == "host":
                self._join_through_gpus(pairs)
            if upper == "job" and lower == "instance":
                self._join_through_hosts(pairs)
            self._entries[key] = _arrays(pairs)
        return self._entries[key]

    def _join(self, pairs: dict[tuple[int, int], list[tuple[int, int]]], lower: str, upper: str) -> None:
        table = self.tables[lower]
        for at, column in enumerate(table.columns):
            for start, end, value in _spans(self.track(column.resource, upper), column.start, column.end):
                if isinstance(value, str):
                    self._meet(pairs, at, ResourceId(upper, value), start, end)

    def _meet(
        self,
        pairs: dict[tuple[int, int], list[tuple[int, int]]],
        at: int,
        upper: ResourceId,
        start: int,
        end: int,
    ) -> None:
        table = self.tables[upper.kind]
        for up in table.by_resource.get(upper, ()):
            low, high = max(start, table.columns[up].start), min(end, table.columns[up].end)
            if low < high:
                pairs.setdefault((up, at), []).append((low, high))

    def _join_through_gpus(self, pairs: dict[tuple[int, int], list[tuple[int, int]]]) -> None:
        """A job sits on the hosts of its GPUs."""
        hosts = self.tables["host"]
        for gpu in self.tables["gpu"].columns:
            if gpu.owner is None:
                continue
            for start, end, host in _spans(self.track(gpu.resource, "host"), gpu.start, gpu.end):
                if not isinstance(host, str):
                    continue
                for at in hosts.by_resource.get(ResourceId("host", host), ()):
                    column = hosts.columns[at]
                    low, high = max(start, column.start), min(end, column.end)
                    if low < high:
                        self._meet(pairs, at, ResourceId("job", gpu.owner), low, high)

    def _join_through_hosts(self, pairs: dict[tuple[int, int], list[tuple[int, int]]]) -> None:
        """A job lies on the instances that its hosts are."""
        hosts, entries = self.tables["host"].columns, self.entries("host", "job")
        table = self.tables["instance"]
        for at, up, begin, end in zip(entries.lower, entries.upper, entries.start, entries.end, strict=True):
            track = self.track(hosts[int(at)].resource, "instance")
            for start, stop, name in _spans(track, int(begin), int(end)):
                if not isinstance(name, str):
                    continue
                for lower in table.by_resource.get(ResourceId("instance", name), ()):
                    column = table.columns[lower]
                    low, high = max(start, column.start), min(stop, column.end)
                    if low < high:
                        pairs.setdefault((int(up), lower), []).append((low, high))


def value_at(track: Track, slot: int) -> LabelValue:
    """The value that a track holds in a slot; absent before its start."""
    value: LabelValue = None
    for start, candidate in track:
        if start > slot:
            break
        value = candidate
    return value


def _squeezed(track: Track) -> Track:
    """A track without changes that change nothing."""
    kept: list[tuple[int, LabelValue]] = []
    for slot, value in track:
        if not kept or kept[-1][1] != value:
            kept.append((slot, value))
    return tuple(kept)


def _spans(track: Track, start: int, end: int) -> list[tuple[int, int, LabelValue]]:
    """The pieces of a track that lie in [start, end)."""
    spans = []
    for number, (slot, value) in enumerate(track):
        until = track[number + 1][0] if number + 1 < len(track) else OPEN
        low, high = max(slot, start), min(until, end)
        if low < high:
            spans.append((low, high, value))
    return spans


def _stretches(resource: ResourceId, presence: Presence) -> list[Column]:
    """The columns of one resource: split at absences and, for owned kinds, at changes of job."""
    cuts: list[tuple[int, str | None]] = [(presence.first, None)]
    if resource.kind in OWNED:
        owner: str | None = None
        cuts = []
        for change in presence.changes:
            value = change.labels.get("job")
            # An owner that cannot be read ends nothing: silence is not a change of tenant.
            current = owner if value is UNREADABLE else value
            if not cuts or current != owner:
                assert current is None or isinstance(current, str)
                owner = current
                cuts.append((change.slot, owner))
    columns = []
    for number, (start, owner) in enumerate(cuts):
        end = cuts[number + 1][0] if number + 1 < len(cuts) else OPEN
        for low, high in _present(start, end, presence.absences):
            columns.append(Column(resource, owner, low, high))
    return columns


def _present(start: int, end: int, absences: tuple[tuple[int, int | None], ...]) -> list[tuple[int, int]]:
    """The parts of [start, end) outside the absences."""
    parts = []
    at = start
    for gone, back in absences:
        if gone >= end:
            break
        if gone == back:
            continue
        if at < gone:
            parts.append((at, gone))
        at = max(at, OPEN if back is None else back)
    if at < end:
        parts.append((at, end))
    return parts


def _arrays(pairs: Mapping[tuple[int, int], list[tuple[int, int]]]) -> Entries:
    rows: list[tuple[int, int, int, int]] = []
    for (upper, lower), spans in sorted(pairs.items()):
        merged: list[list[int]] = []
        for start, end in sorted(spans):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        rows.extend((lower, upper, start, end) for start, end in merged)
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return Entries(
        table[:, 0].astype(np.intp), table[:, 1].astype(np.intp), table[:, 2].copy(), table[:, 3].copy()
    )
