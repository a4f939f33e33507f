"""Traps for everything that changes something outside of this process, or sends something.

They hear what Python itself reports of every call, whichever library makes it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = frozenset(
    {
        *(
            f"os.{name}"
            for name in ("remove", "rename", "rmdir", "mkdir", "chmod", "chown", "link", "symlink")
        ),
        *(f"os.{name}" for name in ("truncate", "utime", "setxattr", "removexattr", "lchown", "lockf")),
        *(f"os.{name}" for name in ("kill", "killpg", "putenv", "unsetenv", "chflags", "startfile")),
        *(f"shutil.{name}" for name in ("copyfile", "copytree", "move", "rmtree", "chown", "make_archive")),
        *(f"os.{name}" for name in ("system", "exec", "posix_spawn", "spawn", "fork", "forkpty")),
        *(f"socket.{name}" for name in ("connect", "sendto", "sendmsg", "bind", "getaddrinfo")),
        *("subprocess.Popen", "pty.spawn", "signal.pthread_kill", "mmap.__new__", "smtplib.connect"),
        *("tempfile.mkstemp", "tempfile.mkdtemp", "urllib.Request", "http.client.connect", "syslog.syslog"),
    }
)
NOWHERE = (os.devnull,)

_heard: list[list[str]] = []
_hooked: list[bool] = []


@contextmanager
def trapped() -> Iterator[list[str]]:
    """What was changed or sent while the block runs, in words."""
    if not _hooked:
        # A hook stays for good, so there is one, and it is deaf outside of these blocks.
        sys.addaudithook(_hear)
        _hooked.append(True)
    found: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        # Loading a module may cache what it was compiled to.
        patch.setattr(sys, "dont_write_bytecode", True)
        if hasattr(signal, "pidfd_send_signal"):
            patch.setattr(signal, "pidfd_send_signal", lambda *_: found.append("pidfd_send_signal"))
        _heard.append(found)
        try:
            yield found
        finally:
            _heard.remove(found)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if not _heard:
        return
    if event == "open":
        path, _, flags = arguments
        changes = isinstance(flags, int) and flags & WRITES and path not in NOWHERE
    elif event == "sqlite3.connect":
        changes = "mode=ro" not in str(arguments[0]) and str(arguments[0]) != ":memory:"
    else:
        changes = event in CHANGES
    if changes:
        for found in _heard:
            found.append(f"{event}{arguments!r}"[:300])
