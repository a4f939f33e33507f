"""Asks a process for a checkpoint by SIGUSR1, and watches the folder where it saves.

A process that does not handle the signal would be ended by it, so that is looked up first. The process is
held by a handle while its start is compared, so that the signal cannot reach another of the same id.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from stoploss.actions.files import words_of
from stoploss.actions.snapshot_result import Snapshot, Waiting
from stoploss.actions.verify import Demand, verify

Mark = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its id, and its start in clock ticks since the boot."""

    pid: int
    start: int

    def is_there(self) -> bool:
        """Whether it lives, and is this one."""
        try:
            return started(self.pid) == self.start
        except (OSError, ValueError):
            return False


def started(pid: int) -> int:
    """The start of a process in clock ticks since the boot.

    Raises:
        OSError: there is none.
        ValueError: it has ended, and only its parent has not noticed.
    """
    with open(f"/proc/{pid}/stat", "rb") as stream:
        # The name in brackets may hold blanks and brackets itself.
        fields = stream.read().rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X"):
        raise ValueError("has ended")
    return int(fields[19])


def take(process: Process, folder: str, demand: Demand, waiting: Waiting) -> Snapshot:
    """Send the signal and wait until a checkpoint that was not there before is verified.

    Args:
        process: which handles SIGUSR1 by saving.
        folder: that it saves in; absolute.
        demand: what the checkpoint must be.
        waiting: how long.
    """
    try:
        before = _marks(folder)
        _send(process)
    except (OSError, ValueError) as error:
        return Snapshot("failed", why=f"process {process.pid} was not asked: {words_of(error)}")

    def look() -> Snapshot:
        # Asked before the folder is read: what it wrote last is then seen.
        alive = process.is_there()
        why = "nothing new is there"
        for path in _new(folder, before):
            found = verify(path, demand, waiting)
            if found.verified:
                return found
            why = found.why
        if alive:
            return Snapshot("pending", why=why)
        return Snapshot("failed", why=f"process {process.pid} has ended without a checkpoint: {why}")

    return waiting.until_over(look)


def _send(process: Process) -> None:
    """Raises OSError or ValueError where the signal was not sent."""
    handle = os.pidfd_open(process.pid)
    try:
        if started(process.pid) != process.start:
            raise ValueError("its id belongs to another process by now")
        if not handles(process.pid, signal.SIGUSR1):
            raise ValueError("it does not handle SIGUSR1, which would end it")
        signal.pidfd_send_signal(handle, signal.SIGUSR1)
    finally:
        os.close(handle)


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process handles a signal itself.

    Raises:
        OSError: it cannot be looked at.
    """
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as stream:
        for line in stream:
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _marks(folder: str) -> dict[str, Mark]:
    """Path -> what changes when something is written or renamed there."""
    with os.scandir(folder) as content:
        found = {}
        for entry in content:
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            found[entry.path] = (status.st_mtime_ns, status.st_ino, status.st_size)
        return found


def _new(folder: str, before: dict[str, Mark]) -> list[str]:
    """What has come or changed, the latest first."""
    try:
        after = _marks(folder)
    except OSError:
        return []
    changed = [path for path, mark in after.items() if before.get(path) != mark]
    return sorted(changed, key=lambda path: after[path], reverse=True)
