"""The ledger: what was decided and done, by whom and why; append-only and chained by hashes.

Each line's hash covers the line and the hash before it, so that a line that is changed, removed or
moved is found. A head record (how many lines, hash of the last) finds lines that were cut off the
end; kept outside, it also finds a chain that was forged anew from some line on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, insert, inspect, select, update

from stoploss.engine.history.store_errors import StoreError, file_of, shown, told
from stoploss.engine.ledger_schema import (
    HEAD,
    LINES,
    META,
    METADATA,
    SCHEMA,
    START,
    Entry,
    Fault,
    Head,
    entry_of,
    row_of,
)
from stoploss.engine.ledger_verify import faults_of
from stoploss.engine.masking import Masker
from stoploss.engine.state_database import WRITES, open_database

__all__ = ["Entry", "Fault", "Head", "Ledger"]

PART = 500
"""Episodes that are asked for at once."""


class Ledger:
    """Lines in a database, written one after the other; writers wait for each other."""

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        create: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Open a ledger, and create it where it is not there and may be written.

        Args:
            url: database URL; the sample store may lie in the same.
            read_only: neither create nor change anything.
            create: whether a database that is not there is made.
            environ: environment variables whose secrets are kept out; the process's by default.

        Raises:
            StoreError: it cannot be used; the text says why and what to do.
        """
        self._read_only = read_only
        self._masker = Masker(os.environ if environ is None else environ)
        self._url, self._engine = open_database(url, read_only=read_only, create=create)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """The URL as it may be printed."""
        return shown(self._url)

    @property
    def file(self) -> Path | None:
        """The database's file; None for a server or memory."""
        return file_of(self._url)

    @property
    def masker(self) -> Masker:
        """What takes secrets out of anything that is written beside the ledger."""
        return self._masker

    def append(self, entry: Entry) -> Entry:
        """Write one line; returns it as it was written, with its number and without secrets.

        Raises:
            StoreError: it cannot be written; nothing has changed then.
        """
        with self.writing() as connection:
            return self.append_within(connection, entry)

    def append_within(self, connection: Connection, entry: Entry) -> Entry:
        """Write one line within a transaction of `writing`, so that it stands or falls with the rest.

        Raises:
            StoreError: the head record is gone.
        """
        head = self._head(connection, lock=True)
        if head is None:
            raise StoreError(
                f"{self.name}: the ledger's head record is gone, nothing is added; run stoploss ledger verify"
            )
        row = row_of(entry, head.count + 1, head.hash, self._masker)
        connection.execute(insert(LINES), row)
        connection.execute(update(HEAD).values(count=row["seq"], hash=row["hash"]))
        return entry_of(_Written(row))

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that may write; other writers wait.

        Raises:
            StoreError: it cannot be written; nothing has changed then.
        """
        if self._read_only:
            raise StoreError(f"{self.name}: it was opened for reading only")
        with told(self._url), self._engine.execution_options(**WRITES).begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One transaction that only reads.

        Raises:
            StoreError: it cannot be read.
        """
        with told(self._url), self._engine.begin() as connection:
            yield connection

    def entries(
        self,
        *,
        kinds: Iterable[str] = (),
        episode: str | None = None,
        episodes: Sequence[str] | None = None,
        policy: str | None = None,
        resource: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        last: int | None = None,
    ) -> tuple[Entry, ...]:
        """Lines in order; `resource` is written `job 4412`, `last` keeps the newest so many.

        `episodes` are those of any of them, where `episode` is that of one.

        Raises:
            StoreError: a line is damaged, or the ledger cannot be read.
        """
        query = select(LINES)
        wanted = {"episode": episode, "policy": policy, "resource": resource}
        for name, value in wanted.items():
            if value is not None:
                query = query.where(LINES.c[name] == value)
        if chosen := tuple(kinds):
            query = query.where(LINES.c.kind.in_(chosen))
        if since is not None:
            query = query.where(LINES.c.time >= since.timestamp())
        if until is not None:
            query = query.where(LINES.c.time <= until.timestamp())
        query = query.order_by(LINES.c.seq.desc())
        if last is not None:
            query = query.limit(last)
        with self.reading() as connection:
            if episodes is None:
                rows = list(connection.execute(query))
            else:
                # In parts, as a statement takes a limited number of values.
                parts = (episodes[at : at + PART] for at in range(0, len(episodes), PART))
                rows = [
                    row
                    for part in parts
                    for row in connection.execute(query.where(LINES.c.episode.in_(part)))
                ]
                rows.sort(key=lambda row: row.seq, reverse=True)
        return tuple(self._entry(row) for row in reversed(rows[:last]))

    def open_intents(self) -> tuple[Entry, ...]:
        """Intents without a result: what a crash may have left half done.

        Raises:
            StoreError: a line is damaged, or the ledger cannot be read.
        """
        results = LINES.alias()
        closed = select(results.c.seq).where(results.c.intent == LINES.c.seq)
        query = select(LINES).where(LINES.c.kind == "intent", ~closed.exists()).order_by(LINES.c.seq)
        with self.reading() as connection:
            return tuple(self._entry(row) for row in connection.execute(query))

    def head(self) -> Head | None:
        """The head record; None when it is gone.

        Raises:
            StoreError: it cannot be read.
        """
        with self.reading() as connection:
            return self._head(connection)

    def verify(self, kept: Head | None = None) -> tuple[Fault, ...]:
        """Everything that is wrong with the chain, in order of lines; empty for a sound ledger.

        Args:
            kept: a head that was kept elsewhere: its line must still be there, with its hash.

        Raises:
            StoreError: the ledger cannot be read at all.
        """
        with self.reading() as connection:
            query = select(LINES).order_by(LINES.c.seq).execution_options(yield_per=1000)
            return tuple(faults_of(connection.execute(query), self._head(connection), kept))

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def _head(self, connection: Connection, *, lock: bool = False) -> Head | None:
        query = select(HEAD.c.count, HEAD.c.hash).where(HEAD.c.id == 1)
        found = connection.execute(query.with_for_update() if lock else query).one_or_none()
        return None if found is None else Head(*found)

    def _entry(self, row: Row[Any]) -> Entry:
        try:
            return entry_of(row)
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(
                f"{self.name}: line {row.seq} of the ledger is damaged; run stoploss ledger verify"
            ) from error

    def _prepare(self) -> None:
        """Create the tables where they are not there; look whether they are ours."""
        with self.reading() as connection:
            schema = self._schema(connection)
        if schema is None and self._read_only:
            raise StoreError(f"{self.name}: there is no ledger yet; nothing has been decided here")
        if schema is None:
            with self.writing() as connection:
                schema = self._schema(connection)
                if schema is None:
                    METADATA.create_all(connection)
                    connection.execute(insert(META), {"name": "schema", "value": str(SCHEMA)})
                    connection.execute(insert(HEAD), {"id": 1, "count": 0, "hash": START})
        if schema is not None and schema < SCHEMA and not self._read_only:
            with self.writing() as connection:
                # What was added since are tables and indexes; those that are there stay as they are.
                METADATA.create_all(connection)
                for index in LINES.indexes:
                    index.create(connection, checkfirst=True)
                connection.execute(update(META).where(META.c.name == "schema").values(value=str(SCHEMA)))
        if schema is not None and schema > SCHEMA:
            raise StoreError(
                f"{self.name}: it was written by a newer stoploss (ledger {schema}, this one knows "
                f"{SCHEMA}); upgrade stoploss, or point `state` elsewhere"
            )

    def _schema(self, connection: Connection) -> int | None:
        if not inspect(connection).has_table(META.name):
            return None
        value = connection.execute(select(META.c.value).where(META.c.name == "schema")).scalar()
        if value is None or not value.isdecimal():
            raise StoreError(f"{self.name}: the ledger's tables are damaged; restore them from a copy")
        return int(value)


class _Written:
    """A row that was just written, as one that is read."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.seq, self.body, self.previous, self.hash = (
            row["seq"],
            row["body"],
            row["previous"],
            row["hash"],
        )
