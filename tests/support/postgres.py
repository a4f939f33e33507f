"""A real PostgreSQL on loopback, from Debian's package, in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BINARIES = "/usr/lib/postgresql/*/bin"
USER = "postgres"
WAIT = 30.0
"""Seconds that it may take to start or to stop."""
SETTINGS = (
    "listen_addresses=127.0.0.1",
    "fsync=off",
    "shared_buffers=16MB",
    "max_connections=50",
    "unix_socket_directories=",
)


class Postgres:
    """A server that can be stopped and started again."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self._binaries = folder, binaries
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._child: subprocess.Popen[bytes] | None = None
        self._databases = 0
        # As root the server refuses to run, and its user must be able to enter the folder.
        self._as = pwd.getpwnam(USER) if os.getuid() == 0 else None
        data = folder / "data"
        data.mkdir()
        if self._as is not None:
            os.chown(data, self._as.pw_uid, self._as.pw_gid)
        self._call(
            "initdb", "--pgdata", str(data), "--auth=trust", f"--username={USER}", "--no-sync", "-E", "UTF8"
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [word for setting in SETTINGS for word in ("-c", setting)]
        with (self.folder / "log").open("ab") as log:
            self._child = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.folder / "data", "-p", str(self.port), *options],
                stdout=log,
                stderr=log,
                cwd="/",
                user=None if self._as is None else self._as.pw_uid,
                group=None if self._as is None else self._as.pw_gid,
                extra_groups=None if self._as is None else [],
            )
        limit = time.monotonic() + WAIT
        while self._call("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), check=False) != 0:
            assert time.monotonic() < limit, (self.folder / "log").read_text()
            assert self._child.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it at once, as a failure would; connections break."""
        if self._child is not None:
            # SIGQUIT: it ends without waiting for anybody.
            self._child.send_signal(3)
            self._child.wait(WAIT)
            self._child = None

    def database(self) -> str:
        """The URL of a new, empty database."""
        self._databases += 1
        name = f"state{self._databases}"
        self._call("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, name)
        return f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/{name}"

    def _call(self, program: str, *words: str, check: bool = True) -> int:
        done = subprocess.run(
            [self._binaries / program, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            timeout=WAIT,
            check=False,
            user=None if self._as is None else self._as.pw_uid,
            group=None if self._as is None else self._as.pw_gid,
            extra_groups=None if self._as is None else [],
        )
        assert not check or done.returncode == 0, done.stdout.decode()
        return done.returncode


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    """A server that runs; the test is skipped where there is none, or no driver."""
    found = sorted(Path("/").glob(BINARIES.lstrip("/") + "/postgres"))
    if not found:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    pytest.importorskip("psycopg", reason="psycopg is not installed; pip install 'stoploss[postgres]'")
    if os.getuid() == 0 and not any(user.pw_name == USER for user in pwd.getpwall()):
        pytest.skip("as root PostgreSQL needs the user postgres")
    running = Postgres(folder, found[-1].parent)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder / "data", ignore_errors=True)
