"""The sample store's errors, in words that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError


class StoreError(Exception):
    """The sample store cannot be used; the text says why and what to do."""


_FIXES = (
    ("not a database", "it is damaged or no database; move it away, and a new one is begun"),
    ("malformed", "it is damaged; move it away, and a new one is begun"),
    ("locked", "another program is writing to it; stop the other daemon, or try again"),
    ("unable to open", "it cannot be opened; check that its folder exists and may be written"),
    ("readonly", "it may not be written; check its permissions"),
    ("read-only", "it may not be written; check its permissions"),
    ("disk is full", "the disk is full; make room, or keep less with settings.retention"),
    ("disk i/o error", "the disk cannot be read or written; check whether it is full or broken"),
    ("no space left", "the disk is full; make room, or keep less with settings.retention"),
    ("no such table", "it holds no samples yet; run the daemon first"),
    ("undefinedtable", "it holds no samples yet; run the daemon first"),
    ("connection refused", "its server does not answer; start it, or check `state`"),
    ("could not translate host name", "its server is not known; check the name in `state`"),
    ("failed to resolve host", "its server is not known; check the name in `state`"),
    ("password authentication failed", "its server refuses the user or the password; check `state`"),
    ("starting up", "its server is starting; it is tried again"),
    ("shutting down", "its server is stopping; it is tried again"),
    ("terminating connection", "its server broke the connection; it is tried again"),
    ("closed the connection", "its server broke the connection; it is tried again"),
    ("connection timeout", "its server does not answer; start it, or check `state`"),
)


DRIVER = "postgresql+psycopg"


def parsed(url: str) -> URL:
    """The parts of a database URL.

    Raises:
        StoreError: it is none.
    """
    try:
        address = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"{url!r} is no database URL; write one such as sqlite:///stoploss.db") from error
    # The driver that comes with stoploss[postgres], whichever SQLAlchemy would take.
    return address.set(drivername=DRIVER) if address.drivername in ("postgresql", "postgres") else address


def shown(url: URL) -> str:
    """A URL as it may be printed: without the password."""
    return url.render_as_string(hide_password=True)


def file_of(url: URL) -> Path | None:
    """The file of an SQLite URL; None for a server or memory."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return None
    return Path(url.database)


def is_there(url: URL) -> bool:
    """Whether there is a file to open; a server is asked later.

    Raises:
        StoreError: this user may not see whether.
    """
    file = file_of(url)
    try:
        return file is None or file.exists()
    except PermissionError as error:
        raise StoreError(f"{shown(url)}: it may not be read; check the permissions of its folder") from error


@contextmanager
def told(url: URL) -> Iterator[None]:
    """Turn a database's errors into a StoreError."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).strip()
        lowered = cause.lower()
        fix = next((text for sign, text in _FIXES if sign in lowered), cause)
        raise StoreError(f"{shown(url)}: {fix}") from error
    except ImportError as error:
        raise StoreError(f"{shown(url)}: its driver is not installed ({error})") from error
