"""The database that holds the state: opened to be written, or to be read without leaving a trace."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from stoploss.engine.history.store_errors import StoreError, file_of, is_there, parsed, shown, told

BUSY_SECONDS = 30.0
"""How long to wait for another program that writes."""

CONNECT_SECONDS = 10
"""How long to wait for a server to take a connection."""

WRITES = {"stoploss_writes": True}
"""Execution options of a connection that is going to write."""


def open_database(url: str, *, read_only: bool = False, create: bool = True) -> tuple[URL, Engine]:
    """Open a database by its URL.

    Args:
        url: such as sqlite:///stoploss.db.
        read_only: neither create nor change anything, not even beside it.
        create: whether a file that is not there is made.

    Raises:
        StoreError: it is no database URL, its driver is missing, or there is nothing to open.
    """
    address = parsed(url)
    if (read_only or not create) and not is_there(address):
        raise StoreError(f"{shown(address)}: there is nothing yet; check `state`, or give --state URL")
    # An intent has to be on the disk before anything is done, also when the power fails.
    return address, engine_of(address, read_only=read_only, busy=BUSY_SECONDS, durable=True)


def engine_of(address: URL, *, read_only: bool = False, busy: float, durable: bool) -> Engine:
    """An engine for a database, SQLite in the settings that all parts of the state share.

    Args:
        address: of the database.
        read_only: change nothing, not even beside it.
        busy: seconds to wait for another program that writes.
        durable: what was committed outlives a power cut; else it may lose the last commits, whole ones.

    Raises:
        StoreError: its driver is missing.
    """
    file = file_of(address)
    sqlite = address.get_backend_name() == "sqlite"
    with told(address):
        if file is not None and read_only:
            engine = create_engine(address, creator=partial(_reading, file, busy), poolclass=NullPool)
        elif sqlite:
            if file is not None:
                _make(file)
            engine = create_engine(address, connect_args={"timeout": busy})
        else:
            # A server may have been started again since a connection was used last.
            engine = create_engine(address, pool_pre_ping=True, connect_args=_limits(address))
    if sqlite:
        _tune(engine, read_only=read_only, durable=durable)
    return engine


def _make(file: Path) -> None:
    """Make the file of a database as the umask says, unless it is there.

    SQLite itself never lets the group write, and gives the files beside it the same rights: who shares the
    state by a group could read it and decide nothing.
    """
    # Never opened where it is there: closing it would let go of the locks that other connections of this
    # process hold. What is wrong with the place SQLite tells better.
    with suppress(OSError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))


def _limits(address: URL) -> dict[str, Any]:
    """Without a limit a server that has gone without a word is waited for until the kernel gives up."""
    return {"connect_timeout": CONNECT_SECONDS} if address.get_backend_name() == "postgresql" else {}


def make_schema(url: str, name: str) -> None:
    """Make a schema on a server where it is not there.

    Raises:
        StoreError: it cannot be made.
    """
    address = parsed(url)
    engine = engine_of(address, busy=BUSY_SECONDS, durable=True)
    try:
        with told(address), engine.begin() as connection:
            if not inspect(connection).has_schema(name):
                connection.execute(CreateSchema(name, if_not_exists=True))
    finally:
        engine.dispose()


def _reading(file: Path, busy: float) -> sqlite3.Connection:
    """A connection that leaves no file behind.

    Beside a database in WAL mode SQLite makes two more files even for a reader, unless it is told
    that nobody writes. Somebody who writes keeps a file open that ends in -wal.
    """
    still = "" if file.with_name(f"{file.name}-wal").exists() else "&immutable=1"
    return sqlite3.connect(
        f"file:{quote(str(file))}?mode=ro{still}", uri=True, timeout=busy, check_same_thread=False
    )


def _tune(engine: Engine, *, read_only: bool, durable: bool) -> None:
    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        # The driver would begin a transaction only at the first write; see the listener below.
        connection.isolation_level = None
        if not read_only:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        # Taken at once by writers: a lock wanted only at the first write may come too late to wait for.
        writes = connection.get_execution_options().get("stoploss_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def writing(url: str, *, busy: float = BUSY_SECONDS, durable: bool = True) -> Iterator[Connection]:
    """One transaction that writes, over a connection of its own; the settings are those of `engine_of`.

    Raises:
        StoreError: the database cannot be written.
    """
    address = parsed(url)
    engine = engine_of(address, busy=busy, durable=durable)
    try:
        with told(address), engine.execution_options(**WRITES).begin() as connection:
            yield connection
    finally:
        engine.dispose()


def has_table(url: str, table: str) -> bool:
    """Whether a database that is there has a table; nothing is changed.

    Raises:
        StoreError: it is not there, or cannot be read.
    """
    address, engine = open_database(url, read_only=True)
    try:
        with told(address), engine.begin() as connection:
            return inspect(connection).has_table(table)
    finally:
        engine.dispose()
