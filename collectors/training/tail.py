"""Following one log that grows: each record is given once, whatever happens to the file in between.

The place in the file is kept, with the bytes at its beginning and before that place. While these are the same
the file has only grown. Otherwise it was truncated, replaced or rotated: the rest of a file that was moved
away is read first, and of the new content only the records that were not given before count.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stoploss.collectors import training
from stoploss.collectors.training import keyvalue, reading
from stoploss.collectors.training.curves import Assembly
from stoploss.collectors.training.records import Reader, Record
from stoploss.engine.model import TrainingLog

_FIRST, _LAST = 256, 64
"""Bytes at the beginning of a file, and before the place in it, by which it is known again."""

LIMIT = 1 << 26
"""Bytes that one look reads of a file that only grows."""


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a file was read, and how to know it again."""

    identity: tuple[int, int] = (0, 0)
    offset: int = 0
    first: bytes = b""
    last: bytes = b""

    @classmethod
    def at(cls, handle: int, offset: int) -> _Place:
        status = os.fstat(handle)
        first = os.pread(handle, min(_FIRST, offset), 0)
        last = os.pread(handle, min(_LAST, offset), max(0, offset - _LAST))
        return cls((status.st_dev, status.st_ino), offset, first, last)

    def holds(self, handle: int) -> bool:
        """Whether the open file begins with all that was read."""
        if os.fstat(handle).st_size < self.offset:
            return False
        return _Place.at(handle, self.offset)._words == self._words

    @property
    def _words(self) -> tuple[bytes, bytes]:
        return self.first, self.last


class Tail:
    """A log that is looked at again and again.

    Attributes:
        path: the file.
        problem: why nothing could be read at the last look; None where it could.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, patterns: Iterable[str | re.Pattern[str]] = ()
    ) -> None:
        """Nothing is read yet.

        Raises:
            ValueError: a pattern cannot be used.
        """
        self.path = os.fspath(path)
        self.problem: str | None = None
        self._patterns: Sequence[re.Pattern[str]] = keyvalue.compiled(patterns)
        self._reader: Reader | None = None
        self._given = Assembly()
        self._place = _Place()
        self._seen: tuple[int, int, int, int] | None = None

    @property
    def format(self) -> str | None:
        """The format, once it is known."""
        return self._reader.name if self._reader is not None else None

    def feed(self, limit: int = LIMIT) -> tuple[Record, ...]:
        """The records since the last call, in the order of the log.

        A record that is only half written waits. A look reads about `limit` bytes of a file that has grown;
        the rest follows at the next.
        """
        try:
            records = self._look(limit)
        except OSError as error:
            self.problem, self._seen = (error.strerror or str(error)).lower(), None
            return ()
        self._given.extend(records)
        return tuple(records)

    def end(self) -> tuple[Record, ...]:
        """What the last line holds, where it has no end, now that no more will be written."""
        if self._reader is None:
            return ()
        self._reader.end()
        records = self._reader.take()
        self._given.extend(records)
        return tuple(records)

    def logs(self) -> tuple[TrainingLog, ...]:
        """The runs as far as they were given."""
        if self._reader is None:
            return ()
        return self._given.logs(self._reader, self.path, os.path.basename(self.path).split(".")[0])

    def _look(self, limit: int) -> list[Record]:
        handle = reading.open_file(self.path)
        try:
            status = os.fstat(handle)
            seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if seen == self._seen:
                return []
            if not training.is_regular(self.path):
                raise OSError(0, "no plain file")
            records = self._read(handle, limit, status.st_size)
            self._seen = seen if self._reader is None or self._place.offset >= status.st_size else None
            return records
        finally:
            os.close(handle)

    def _read(self, handle: int, limit: int, size: int) -> list[Record]:
        if self._reader is None:
            self._reader = self._new_reader(handle, size)
            if self._reader is None:
                self.problem = "the file is empty" if size == 0 else "no known format of training log yet"
                return []
        self.problem = None
        if self._reader.snapshot and self._place.offset:
            return self._again(handle, size)
        if not self._place.holds(handle):
            return self._rest() + self._again(handle, size)
        return self._on(handle, self._reader, min(size, self._place.offset + limit))

    def _new_reader(self, handle: int, size: int) -> Reader | None:
        made = training.reader_for(reading.pieces_of(handle, size), "", self._patterns)
        return None if made is None else reading.prepare(made, self.path)

    def _on(self, handle: int, reader: Reader, end: int, start: int | None = None) -> list[Record]:
        """Feed the reader from where it is, or from `start`, up to `end`."""
        at = self._place.offset if start is None else start
        while at < end and (data := os.pread(handle, min(reading.CHUNK, end - at), at)):
            reader.feed(data)
            at += len(data)
        self._place = _Place.at(handle, at)
        return reader.take()

    def _rest(self) -> list[Record]:
        """What was added to the file before it was moved away under another name."""
        reader, place = self._reader, self._place
        if reader is None:
            return []
        folder = os.path.dirname(self.path) or "."
        with os.scandir(folder) as entries:
            moved = [entry.path for entry in entries if entry.inode() == place.identity[1]]
        for path in moved:
            try:
                handle = reading.open_file(path)
            except OSError:
                continue
            try:
                if path != self.path and os.fstat(handle).st_dev == place.identity[0] and place.holds(handle):
                    return self._on(handle, reader, os.fstat(handle).st_size)
            finally:
                os.close(handle)
        return []

    def _again(self, handle: int, size: int) -> list[Record]:
        """Read other content from its beginning; records that were given are not given again."""
        old = self._reader
        fresh = self._new_reader(handle, size)
        if old is None:
            return []
        records = self._on(handle, fresh, size, 0) if fresh is not None else []
        new = _not_given(records, self._given)
        if fresh is not None and len(new) < len(records):
            self._reader = fresh
            return new
        if fresh is not None and records and (old.snapshot or fresh.name != old.name):
            # Another run, or another kind of log, under the old name.
            self._reader, self._given = fresh, Assembly()
            return records
        if old.snapshot:
            return []
        # Nothing in common: the log was rotated and goes on here.
        old.restart()
        old.notes.add("the file was replaced or truncated; the log goes on")
        return self._on(handle, old, size, 0)


def _not_given(records: Iterable[Record], given: Assembly) -> list[Record]:
    """The records without those with which each curve begins as it did."""
    places: dict[tuple[int, str], int] = {}
    new = []
    for record in records:
        key = (record.run, record.signal)
        at = places.get(key, 0)
        columns = given.series(*key)
        if at >= 0 and columns is not None and at < len(columns[1]) and _same(record, columns, at):
            places[key] = at + 1
        else:
            places[key] = -1
            new.append(record)
    return new


def _same(record: Record, columns: tuple[Sequence[float], Sequence[float], Sequence[float]], at: int) -> bool:
    pairs = zip((record.step, record.value, record.time), columns, strict=True)
    return all(a == column[at] or (math.isnan(a) and math.isnan(column[at])) for a, column in pairs)
