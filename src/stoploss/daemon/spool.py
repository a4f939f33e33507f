"""Looks that wait on a node's disk until the centre has taken them: oldest first, numbered, bounded."""

from __future__ import annotations

import json
import os
import secrets
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    delete,
    func,
    insert,
    select,
    update,
)

from stoploss.engine.history.looks import Kept, plain
from stoploss.engine.history.store_errors import file_of, parsed, told
from stoploss.engine.state_database import WRITES, open_database

METADATA = MetaData()
WAITING = Table(
    "waiting",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("at", Float(53), nullable=False, index=True),
    Column("size", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    # A number is never given twice, not even when nothing waits any more.
    sqlite_autoincrement=True,
)
ABOUT = Table(
    "about",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("spool", String(64), nullable=False),
    Column("dropped", Integer, nullable=False),
)
PART = 100
"""Looks that are dropped at once where there is no room."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may wait.

    Attributes:
        size: bytes, as they lie on disk.
        seconds: of age; the centre takes nothing that is older than 3 days.
    """

    size: int = 2**30
    seconds: float = 3 * 86400.0 - 600.0


@dataclass(frozen=True, slots=True)
class Waits:
    """A look that waits: its number, and itself as JSON."""

    number: int
    text: str


class Spool:
    """Looks in a file of their own. May be called from any thread."""

    def __init__(self, path: str, bounds: Bounds | None = None) -> None:
        """Open it, and create it where it is not there.

        Raises:
            StoreError: it cannot be used.
        """
        self._bounds = bounds or Bounds()
        self._lock = threading.Lock()
        self._url, self._engine = open_database(f"sqlite:///{path}")
        with self._writing() as connection:
            METADATA.create_all(connection)
            row = connection.execute(select(ABOUT)).one_or_none()
            if row is None:
                connection.execute(insert(ABOUT), {"id": 1, "spool": secrets.token_hex(16), "dropped": 0})
                row = connection.execute(select(ABOUT)).one()
            self.name: str = row.spool
            self._dropped: int = row.dropped
            self._size = int(
                connection.execute(select(func.coalesce(func.sum(WAITING.c.size), 0))).scalar_one()
            )
        for file in (path, f"{path}-wal", f"{path}-shm"):
            if os.path.exists(file):
                os.chmod(file, 0o600)

    @property
    def dropped(self) -> int:
        """Looks that were let go because there was no room, were too old, or were refused; ever."""
        return self._dropped

    def put(self, looks: Iterable[Kept], every: Mapping[str, float], now: float) -> None:
        """Let looks wait. What is too much or too old goes, the oldest first.

        Args:
            looks: what was seen.
            every: collector -> seconds between two of its looks.
            now: the present instant, in seconds since the epoch.

        Raises:
            StoreError: they cannot be written.
        """
        bodies = [
            (kept.at, zlib.compress(_text(replace(kept, every=every.get(kept.collector))).encode(), 6))
            for kept in looks
        ]
        rows = [{"at": at, "size": len(body), "body": body} for at, body in bodies]
        if not rows:
            return
        more = sum(len(body) for _, body in bodies)
        with self._lock:
            with self._writing() as connection:
                connection.execute(insert(WAITING), rows)
                size = self._size + more
                gone, freed = self._too_old(connection, now)
                while size - freed > self._bounds.size:
                    number, count, part = _part(connection, size - freed - self._bounds.size)
                    connection.execute(delete(WAITING).where(WAITING.c.number <= number))
                    gone, freed = gone + count, freed + part
                if gone:
                    connection.execute(update(ABOUT).values(dropped=self._dropped + gone))
            self._size, self._dropped = size - freed, self._dropped + gone

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with told(self._url), self._engine.execution_options(**WRITES).begin() as connection:
            yield connection

    def _too_old(self, connection: Connection, now: float) -> tuple[int, int]:
        """Let go of what is too old; returns how many looks and bytes that were."""
        old = WAITING.c.at < now - self._bounds.seconds
        query = select(func.count(), func.coalesce(func.sum(WAITING.c.size), 0)).where(old)
        count, total = connection.execute(query).one()
        if count:
            connection.execute(delete(WAITING).where(old))
        return int(count), int(total)

    def oldest(self, looks: int, size: int) -> list[Waits]:
        """The looks that wait longest, one at least where any waits.

        Args:
            looks: how many at most.
            size: characters of them at most.

        Raises:
            StoreError: they cannot be read.
        """
        found: list[Waits] = []
        with self._lock, told(self._url), self._engine.begin() as connection:
            for row in connection.execute(select(WAITING).order_by(WAITING.c.number).limit(looks)):
                text = zlib.decompress(row.body).decode()
                size -= len(text)
                if found and size < 0:
                    break
                found.append(Waits(row.number, f'{{"number": {row.number}, {text[1:]}'))
        return found

    def done(self, number: int, *, dropped: int = 0) -> None:
        """Let go of what was taken, or will never be: all looks up to a number.

        Raises:
            StoreError: that cannot be written; they are sent again then.
        """
        with self._lock:
            with self._writing() as connection:
                old = WAITING.c.number <= number
                query = select(func.coalesce(func.sum(WAITING.c.size), 0)).where(old)
                freed = connection.execute(query).scalar_one()
                connection.execute(delete(WAITING).where(old))
                if dropped:
                    connection.execute(update(ABOUT).values(dropped=self._dropped + dropped))
            self._size, self._dropped = self._size - int(freed), self._dropped + dropped

    def waiting(self) -> int:
        """How many looks wait.

        Raises:
            StoreError: that cannot be read.
        """
        with self._lock, told(self._url), self._engine.begin() as connection:
            return int(connection.execute(select(func.count()).select_from(WAITING)).scalar_one())

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()


def _part(connection: Connection, over: int) -> tuple[int, int, int]:
    """The oldest looks that make room for so many bytes: the last one's number, how many, and their bytes."""
    number = count = freed = 0
    query = select(WAITING.c.number, WAITING.c.size).order_by(WAITING.c.number).limit(PART)
    for row in connection.execute(query):
        number, count, freed = row.number, count + 1, freed + row.size
        if freed >= over:
            break
    return number, count, freed


def spool_path(url: str) -> str:
    """Where the spool of a node lies: beside its state, else in the working folder."""
    file = file_of(parsed(url))
    if file is None:
        return os.path.abspath("stoploss-spool.db")
    return str(Path(file).with_name(f"{file.stem}-spool{file.suffix}"))


def _text(kept: Kept) -> str:
    said = {"collector": kept.collector, "at": kept.at, "every": None, **plain(kept)}
    # Half of a character, as a broken log may hold, is no JSON for others.
    text = json.dumps(said, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()
