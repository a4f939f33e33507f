"""Which processes hold which GPUs: by the device files they have open, and by the driver's own list.

Device files tell even of a child that only inherited them, and keep telling when the driver does
not answer; but CUDA opens those of all GPUs, used or not. The driver's list is exact, and does
not know who merely inherited. So a job holds what the driver lists, and where it lists none of
its processes, what their open files say.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from stoploss.collectors.background import in_background
from stoploss.collectors.contract import CollectorError, NotHere
from stoploss.engine.model import Bad, Reading

DENIED = Bad("open files cannot be read (permission denied)")

DRIVER_TIME_LIMIT = 3.0
"""Seconds that the driver is waited for."""

Listed: TypeAlias = Mapping[int, Mapping[str, "int | None"]]
"""Process -> device file of a GPU it is on -> bytes it holds there, None where that is not told."""


@dataclass(frozen=True, slots=True)
class DeviceFiles:
    """The device files that match some patterns."""

    patterns: tuple[str, ...]
    proc: Path

    def held(self, pid: int) -> frozenset[str] | Bad:
        """Those that a process has open; none for one that is gone."""
        wanted = re.compile("|".join(fnmatch.translate(pattern) for pattern in self.patterns)).match
        try:
            with os.scandir(self.proc / str(pid) / "fd") as entries:
                return frozenset(path for entry in entries if wanted(path := target(entry.path)))
        except PermissionError:
            return DENIED
        except OSError:
            return frozenset()


def listed_by_nvml() -> Listed:
    """What the NVIDIA driver lists; nothing where there is no driver.

    Raises:
        CollectorError: there is one, and it does not work.
    """
    import pynvml

    from stoploss.collectors import nvml

    try:
        nvml.open_driver()
    except NotHere:
        return {}
    found: dict[int, dict[str, int | None]] = {}
    try:
        for device in nvml.devices():
            if isinstance(device.handle, Bad):
                continue
            minor = nvml.ask(pynvml.nvmlDeviceGetMinorNumber, device.handle)
            processes = nvml.processes(device.handle)
            if isinstance(minor, Bad) or isinstance(processes, Bad):
                continue
            for process in processes:
                found.setdefault(process.pid, {})[f"/dev/nvidia{minor}"] = process.memory
    finally:
        nvml.close_driver()
    return found


@dataclass(slots=True)
class Driver:
    """Asks a driver for its list, and does not wait for one that hangs."""

    ask: Callable[[], Listed] = listed_by_nvml
    time_limit: float = DRIVER_TIME_LIMIT
    _pending: Future[Listed] | None = field(default=None)

    def listed(self) -> Listed | Bad:
        """The driver's list, or why it is not to be had."""
        hung = self._pending is not None and not self._pending.done()
        if self._pending is None or not hung:
            self._pending = in_background(self.ask, "GPU driver")
            wait([self._pending], timeout=self.time_limit)
        if not self._pending.done():
            return Bad("the GPU driver does not answer")
        error = self._pending.exception()
        if isinstance(error, CollectorError):
            return Bad(error.reason)
        if error is not None:
            return Bad(f"{type(error).__name__}: {error}")
        return self._pending.result()


def memory(pid: int, devices: frozenset[str] | Bad, listed: Listed | Bad, *, complete: bool) -> Reading:
    """Bytes of GPU memory that a process holds.

    `complete` says that the list knows processes by the ids that they have here, so that one
    which is not on it holds none.
    """
    if not isinstance(listed, Bad) and pid in listed:
        amounts = [amount for amount in listed[pid].values() if amount is not None]
        whole = len(amounts) == len(listed[pid])
        return float(sum(amounts)) if whole else Bad("the driver does not tell")
    if isinstance(devices, Bad):
        return devices
    if not devices or (complete and listed):
        return 0.0
    return listed if isinstance(listed, Bad) else Bad("device files do not tell how much")


def target(link: str) -> str:
    """Where a link points, or nothing where that cannot be told."""
    try:
        return os.readlink(link)
    except OSError:
        return ""
