"""One writer at a time: a state is held by whoever runs on it, and free again when that has ended."""

from __future__ import annotations

import fcntl
import os
import threading
import zlib
from typing import Any

from stoploss.engine.history.store_errors import file_of, parsed, told
from stoploss.engine.state_database import open_database


class StateLock:
    """The right to write to a state. It goes with the process."""

    def __init__(self, url: str) -> None:
        """Prepare; nothing is locked yet.

        Raises:
            StoreError: the state's URL is none.
        """
        self._url = parsed(url)
        self._file = file_of(self._url)
        self._handle: int | None = None
        self._connection: Any = None
        self._asking = threading.Lock()

    def take(self) -> bool:
        """Take it if it is free; whether it is held now.

        Raises:
            StoreError: the server of the state cannot be reached.
            OSError: the lock file cannot be written.
        """
        if self._handle is not None or self._connection is not None:
            return True
        if self._file is not None:
            return self._take_file()
        if self._url.get_backend_name() == "postgresql":
            return self._take_server()
        return True

    def _take_file(self) -> bool:
        path = f"{self._file}.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def _take_server(self) -> bool:
        from sqlalchemy import text

        _, engine = open_database(self._url.render_as_string(hide_password=False))
        key = zlib.crc32(b"stoploss")
        with told(self._url):
            connection = engine.connect()
            held = connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": key}).scalar()
            connection.commit()
        if not held:
            connection.close()
            engine.dispose()
            return False
        # The lock is the session's: it is kept open.
        self._connection = connection
        return True

    def kept(self) -> bool:
        """Whether it is still held. It is taken again where its server was started anew and it is free.

        Raises:
            StoreError: the server of the state cannot be reached.
            OSError: the lock file cannot be written.
        """
        from sqlalchemy import text
        from sqlalchemy.exc import SQLAlchemyError

        with self._asking:
            if self._connection is not None:
                try:
                    self._connection.execute(text("SELECT 1"))
                    self._connection.commit()
                except SQLAlchemyError:
                    # The lock went with the connection.
                    self._connection.invalidate()
                    self._connection.close()
                    self._connection = None
            return self.take()

    def held_elsewhere(self) -> bool:
        """Whether another process holds it now; nothing is left behind.

        Raises:
            StoreError: the server of the state cannot be reached.
            OSError: the lock file cannot be read.
        """
        if self._file is not None and not os.path.exists(f"{self._file}.lock"):
            return False
        if not self.take():
            return True
        self.release()
        return False

    def release(self) -> None:
        """Let go of it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        if self._connection is not None:
            # Back in its pool it would go on to hold the lock.
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
