"""The embedded sample store: samples on their grid, in a database.

One row per signal and slot holds the values of all series; SQLite by default, another database
by its URL. One append is one transaction, so a crash leaves the slots before it whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from sqlalchemy import Connection, delete, insert, inspect, select, update

from stoploss.engine.history import store_known as known_tables
from stoploss.engine.history import store_schema as schema
from stoploss.engine.history.frame import Bytes, Floats, Frame, Plane, Presence
from stoploss.engine.history.presences import lasting
from stoploss.engine.history.slots import Longs
from stoploss.engine.history.store_errors import StoreError, is_there, parsed, shown, told
from stoploss.engine.history.store_known import Known
from stoploss.engine.model import ResourceId
from stoploss.engine.state_database import WRITES, engine_of
from stoploss.rules.catalogue import Catalogue, SignalKind

__all__ = ["SampleStore", "StoreError", "open_store"]

BUSY_SECONDS = 5.0
"""How long to wait for another program that writes."""
_BATCH = 500

_Columns: TypeAlias = "tuple[tuple[ResourceId, ...], Longs]"
"""Some series of a signal, and the columns in which they are stored, ascending."""


def open_store(url: str, *, read_only: bool, catalogue: Catalogue | None = None) -> SampleStore:
    """Open a store that exists, at the resolution it was made with.

    Raises:
        StoreError: it does not exist, is damaged, locked or too new.
    """
    return SampleStore(url, read_only=read_only, catalogue=catalogue)


class SampleStore:
    """Samples by slot. Only one program may append; others may read meanwhile."""

    def __init__(
        self,
        url: str,
        resolution: float | None = None,
        *,
        read_only: bool = False,
        catalogue: Catalogue | None = None,
    ) -> None:
        """Open a store, and create it where it is not there and may be written.

        Args:
            url: database URL, such as sqlite:///stoploss.db.
            resolution: seconds per slot; None takes what the store was made with.
            read_only: neither create nor change anything.
            catalogue: the signals that are known; the program's own by default.

        Raises:
            StoreError: the store cannot be used; the text says why and what to do.
        """
        if catalogue is None:
            from stoploss.rules.catalogue import catalogue as shipped

            catalogue = shipped()
        self._catalogue, self._read_only = catalogue, read_only
        self._url = parsed(url)
        if (read_only or resolution is None) and not is_there(self._url):
            raise StoreError(
                f"{shown(self._url)}: there is no such store; run the daemon first, or check `state`"
            )
        self._engine = engine_of(self._url, read_only=read_only, busy=BUSY_SECONDS, durable=False)
        self._known: Known | None = None
        try:
            self.resolution = self._prepared(resolution)
        except BaseException:
            self.close()
            raise

    @property
    def first_slot(self) -> int | None:
        """The oldest slot that is kept; None when empty."""
        return self._tables().slot("first")

    @property
    def last_slot(self) -> int | None:
        """The newest slot; None when empty."""
        return self._tables().slot("last")

    def append(self, frame: Frame) -> None:
        """Write a frame's slots; what was stored of the same slots is replaced.

        Raises:
            StoreError: the frame has another resolution, or the store cannot be written.
        """
        if frame.resolution != self.resolution:
            raise StoreError(
                f"{shown(self._url)}: it holds slots of {self.resolution:g} s, not of {frame.resolution:g} s"
            )
        if not frame.slots:
            return
        with self._writing() as (connection, known):
            for table in (schema.SLOTS, schema.LOOKS):
                connection.execute(delete(table).where(table.c.slot.between(frame.first, frame.last)))
            status = known_tables.note_reasons(connection, known, frame.reasons)
            for plane in frame.planes.values():
                columns = known_tables.note_series(connection, known, plane)
                words = known_tables.note_words(connection, known, plane)
                width = len(known.cadence[plane.signal.name])
                rows = _packed(plane, frame.first, (columns, words, status), width)
                _insert(connection, schema.SLOTS, rows)
            known_tables.note_collectors(connection, known, frame)
            _insert(connection, schema.LOOKS, _looks(frame))
            known_tables.note_resources(connection, known, frame)
            known_tables.note_seen(connection, known, frame)
            first, last = known.slot("first"), known.slot("last")
            meta = {
                "first": str(frame.first if first is None else min(first, frame.first)),
                "last": str(frame.last if last is None else max(last, frame.last)),
                "late": str(frame.late),
            }
            known_tables.write_meta(connection, known, {**meta})

    def read(
        self, first: int, last: int, *, signals: Iterable[str] | None = None, since: int | None = None
    ) -> Frame:
        """The slots `first` to `last`, both included; slots that are not stored are blank.

        Args:
            first: a slot.
            last: a slot, not before `first` - 1.
            signals: names of the signals to read; all by default.
            since: leave out what was over before this slot: resources, their series, and labels.

        Raises:
            StoreError: the store cannot be read.
        """
        with told(self._url), self._engine.begin() as connection:
            known = known_tables.load(connection) if self._read_only else self._tables()
            wanted = set(known.series) if signals is None else set(signals)
            names = [name for name in sorted(known.series) if name in wanted and name in self._catalogue]
            resources = lasting(known.resources, last, since)
            columns = {name: _columns(known.series[name], resources, since) for name in names}
            planes = {name: self._blank(known, columns[name], name, last - first + 1) for name in names}
            slots = schema.SLOTS
            query = select(slots).where(slots.c.slot.between(first, last))
            if signals is not None:
                query = query.where(slots.c.signal.in_(names))
            for row in connection.execute(query):
                if row.signal in planes:
                    at = columns[row.signal][1]
                    self._fill(planes[row.signal], row.slot - first, row.data, at)
            looks = {name: np.zeros(last - first + 1, np.uint8) for name in known.collectors}
            table = schema.LOOKS
            for row in connection.execute(select(table).where(table.c.slot.between(first, last))):
                if row.collector in looks:
                    looks[row.collector][row.slot - first] = row.status
        return Frame(
            self.resolution,
            first,
            last - first + 1,
            planes,
            resources,
            looks,
            {name: cadence for name, (cadence, _) in known.collectors.items()},
            {name: failure for name, (_, failure) in known.collectors.items() if failure},
            tuple(known.reasons),
            int(known.meta.get("late", "0")),
        )

    def presence(self, resource: ResourceId) -> Presence | None:
        """What is known of a resource; None where it is not known, or not any more."""
        return self._tables().resources.get(resource)

    def prune(self, before_slot: int, known_before: int | None = None) -> None:
        """Forget the slots before `before_slot`, and what nobody has seen since.

        The columns of series that go are given to new ones.

        Args:
            before_slot: the first slot that stays.
            known_before: what was over before this slot is forgotten; `before_slot` by default, and not
                later than it.

        Raises:
            StoreError: the store cannot be written.
        """
        with self._writing() as (connection, known):
            for table in (schema.SLOTS, schema.LOOKS):
                connection.execute(delete(table).where(table.c.slot < before_slot))
            over = before_slot if known_before is None else min(before_slot, known_before)
            known_tables.forget(connection, known, over, self.resolution)
            first, last = known.slot("first"), known.slot("last")
            if first is not None and last is not None and first < before_slot:
                left = {"first": str(before_slot)} if before_slot <= last else {"first": None, "last": None}
                known_tables.write_meta(connection, known, {**left})

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def _tables(self) -> Known:
        if self._known is None or self._read_only:
            with told(self._url), self._engine.begin() as connection:
                self._known = known_tables.load(connection)
        return self._known

    @contextmanager
    def _writing(self) -> Iterator[tuple[Connection, Known]]:
        """One transaction; when it fails, what is held in memory is read again."""
        if self._read_only:
            raise StoreError(f"{shown(self._url)}: it was opened for reading only")
        known = self._tables()
        self._known = None
        with told(self._url), self._engine.execution_options(**WRITES).begin() as connection:
            yield connection, known
        self._known = known

    def _prepared(self, resolution: float | None) -> float:
        """Create the tables where they are not there; the store's resolution."""
        # What may be made is begun as a writer: one that reads first is not waited for.
        engine = self._engine if self._read_only else self._engine.execution_options(**WRITES)
        with told(self._url), engine.begin() as connection:
            there = inspect(connection).has_table(schema.META.name)
            if not there and (self._read_only or resolution is None):
                raise StoreError(f"{shown(self._url)}: it holds no samples yet; run the daemon first")
            meta = {row.name: row.value for row in connection.execute(select(schema.META))} if there else {}
            if not meta:
                schema.METADATA.create_all(connection)
                meta = {"schema": str(schema.SCHEMA), "resolution": repr(float(resolution or 0))}
                connection.execute(insert(schema.META), [{"name": n, "value": v} for n, v in meta.items()])
            elif not self._read_only:
                for table in schema.LATER:
                    table.create(connection, checkfirst=True)
                if int(meta["schema"]) < schema.SCHEMA:
                    same = schema.META.c.name == "schema"
                    connection.execute(update(schema.META).where(same).values(value=str(schema.SCHEMA)))
        if int(meta["schema"]) > schema.SCHEMA:
            raise StoreError(
                f"{shown(self._url)}: it was written by a newer stoploss (tables {meta['schema']}, this one "
                f"knows {schema.SCHEMA}); upgrade stoploss, or point `state` elsewhere"
            )
        stored = float(meta["resolution"])
        if resolution is not None and resolution != stored:
            raise StoreError(
                f"{shown(self._url)}: it holds slots of {stored:g} s, not of {resolution:g} s; "
                "set `resolution` back, or point `state` elsewhere"
            )
        return stored

    def _blank(self, known: Known, columns: _Columns, name: str, slots: int) -> Plane:
        signal, (series, places) = self._catalogue[name], columns
        shape = (slots, len(series))
        counter = signal.kind is SignalKind.COUNTER
        return Plane(
            signal,
            series,
            np.full(shape, np.nan),
            np.zeros(shape, np.uint8),
            np.array(known.cadence[name], np.int32)[places],
            np.zeros(shape) if counter else None,
            tuple(known.words.get(name, ())),
        )

    def _fill(self, plane: Plane, row: int, data: bytes, places: Longs) -> None:
        try:
            values, status, increase = schema.unpack(data, counter=plane.increase is not None)
        except ValueError as error:
            raise StoreError(
                f"{shown(self._url)}: samples of {plane.signal.name} are damaged ({error})"
            ) from error
        # A slot that was written before a series came has no column of it.
        width = int(np.searchsorted(places, len(values)))
        there = places[:width]
        plane.values[row, :width], plane.status[row, :width] = values[there], status[there]
        if plane.increase is not None and increase is not None:
            plane.increase[row, :width] = increase[there]


def _columns(
    columns: Mapping[ResourceId, int], resources: Mapping[ResourceId, Presence], since: int | None
) -> _Columns:
    """The series of a signal in the order of their columns: all, or only those of some resources."""
    if since is None:
        found = sorted((place, resource) for resource, place in columns.items())
    else:
        found = sorted((columns[resource], resource) for resource in resources if resource in columns)
    return tuple(resource for _, resource in found), np.array([place for place, _ in found], np.int64)


def _packed(
    plane: Plane, first: int, numbers: tuple[Longs, Floats, Bytes], width: int
) -> Iterator[dict[str, object]]:
    """The rows of a plane's slots, in the store's order of series and numbers of words and reasons."""
    columns, words, states = numbers
    for index in range(len(plane.status)):
        if schema.is_blank(plane.status[index]):
            continue
        values, status = np.full(width, np.nan), np.zeros(width, np.uint8)
        row = plane.values[index]
        if plane.words:
            row = row.copy()
            valid = ~np.isnan(row)
            row[valid] = words[row[valid].astype(np.int64)]
        values[columns], status[columns] = row, states[plane.status[index]]
        increase = None
        if plane.increase is not None:
            increase = np.zeros(width)
            increase[columns] = plane.increase[index]
        data = schema.pack(values, status, increase)
        yield {"slot": first + index, "signal": plane.signal.name, "data": data}


def _looks(frame: Frame) -> Iterator[dict[str, object]]:
    for collector, row in frame.looks.items():
        for index in np.flatnonzero(row).tolist():
            yield {"slot": frame.first + index, "collector": collector, "status": int(row[index])}


def _insert(connection: Connection, table: Any, rows: Iterator[dict[str, object]]) -> None:
    batch: list[dict[str, object]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            connection.execute(insert(table), batch)
            batch = []
    if batch:
        connection.execute(insert(table), batch)
