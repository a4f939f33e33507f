"""Which mounts are volumes, and how full each is; a mount that hangs costs only itself."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import psutil

from stoploss.collectors.background import in_background
from stoploss.engine.model import Bad, Reading

if TYPE_CHECKING:
    from psutil._ntuples import sdiskpart, sdiskusage

SIGNALS = (
    "storage.capacity",
    "storage.used",
    "storage.free",
    "storage.utilization",
    "storage.inodes.utilization",
)

TIME_LIMIT = 2.0
"""Seconds that all mounts together are waited for."""

IMAGES = frozenset({"squashfs", "iso9660", "udf", "erofs", "cramfs"})
"""Read-only images: always full, and nothing can be done about it."""

SHARED = frozenset(
    {
        "9p", "afs", "beegfs", "btrfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3",
        "virtiofs", "wekafs", "zfs",
    }
)  # fmt: skip
"""File systems that hold data although their source is no local device."""

FUSE_TOOLS = frozenset({"fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal", "fuse.snapfuse", "fusectl"})
"""FUSE mounts of tools, which hold no data of their own."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How full a file system is: its sizes, and its inodes in all and free.

    `device` is the number that all mounts of one file system share.
    """

    sizes: sdiskusage
    inodes: int
    free_inodes: int
    device: int


def readings(usage: Usage | Bad) -> dict[str, Reading]:
    """The readings of one volume; sizes in bytes, shares of what unprivileged programs may use."""
    if isinstance(usage, Bad):
        return dict.fromkeys(SIGNALS, usage)
    used, free = usage.sizes.used, usage.sizes.free
    inodes: Reading = Bad("the file system counts no inodes")
    if usage.inodes:
        inodes = (usage.inodes - usage.free_inodes) / usage.inodes
    share = used / (used + free) if used + free else 0.0
    found = (float(usage.sizes.total), float(used), float(free), share, inodes)
    return dict(zip(SIGNALS, found, strict=True))


def file_systems(mounts: Iterable[sdiskpart]) -> list[tuple[str, ...]]:
    """The file systems that hold data, each as its mount points, the shortest first."""
    # Of two mounts at one point only the later can be seen.
    visible = {mount.mountpoint: mount for mount in mounts}
    points: dict[str, list[str]] = {}
    for mount in visible.values():
        if _holds_data(mount):
            points.setdefault(_source(mount), []).append(mount.mountpoint)
    return sorted(tuple(sorted(group, key=_shortest)) for group in points.values())


def _shortest(point: str) -> tuple[int, str]:
    return len(point), point


def _source(mount: sdiskpart) -> str:
    """What the data comes from, as far as the list of mounts tells."""
    # FUSE programs often give their own name, the same for each bucket or remote folder.
    generic = not mount.device or mount.fstype.partition(".")[0] == "fuse"
    return mount.mountpoint if generic else mount.device


def _holds_data(mount: sdiskpart) -> bool:
    if mount.fstype in IMAGES or mount.fstype in FUSE_TOOLS:
        return False
    if mount.fstype == "overlay":
        # A container's own root; those of other containers lie on a volume that is counted already.
        return mount.mountpoint == "/"
    return mount.fstype in SHARED or mount.fstype.startswith("fuse.") or mount.device.startswith("/dev/")


def usage_of(points: Sequence[str]) -> tuple[str, Usage] | None:
    """How full the file system mounted at these points is, under the first that is a folder.

    Containers mount single files, such as /etc/hosts, from file systems that may or may not be
    mounted as a folder too; None where only files are.

    Raises:
        OSError: it cannot be asked.
    """
    for point in points:
        status = os.stat(point)
        if stat.S_ISDIR(status.st_mode):
            break
    else:
        return None
    sizes, found = psutil.disk_usage(point), os.statvfs(point)
    if sizes.total == 0:
        raise OSError(errno.ENODATA, "the file system tells no size", point)
    return point, Usage(sizes, found.f_files, found.f_ffree, status.st_dev)


_Answer = tuple[str, Usage]


@dataclass(slots=True)
class Prober:
    """Asks file systems how full they are, all at once, and remembers which of them hang."""

    ask: Callable[[Sequence[str]], tuple[str, Usage] | None] = usage_of
    time_limit: float = TIME_LIMIT
    _hanging: dict[tuple[str, ...], Future[_Answer | None]] = field(default_factory=dict)

    def probe(self, systems: Iterable[tuple[str, ...]]) -> dict[str, Usage | Bad]:
        """Mount point -> how full it is, or why that cannot be told.

        Args:
            systems: file systems, each as its mount points.
        """
        hung = {points: future for points, future in self._hanging.items() if not future.done()}
        futures = {
            points: hung.get(points) or in_background(partial(self.ask, points), f"volume {points[0]}")
            for points in systems
        }
        # One that hung before had its time; it is not waited for again.
        wait([future for points, future in futures.items() if points not in hung], timeout=self.time_limit)
        answers: dict[str, Usage | Bad] = {}
        for points, future in futures.items():
            if not future.done():
                hung[points] = future
                answers[points[0]] = Bad("the mount does not answer")
            else:
                answers |= _answer(points[0], future)
        self._hanging = hung
        return _once_each(answers)


def _once_each(answers: dict[str, Usage | Bad]) -> dict[str, Usage | Bad]:
    """Of file systems that turn out to be the same one, only that with the shortest path."""
    kept: dict[str, Usage | Bad] = {}
    devices: set[int] = set()
    for point in sorted(answers, key=_shortest):
        usage = answers[point]
        if isinstance(usage, Usage):
            if usage.device in devices:
                continue
            devices.add(usage.device)
        kept[point] = usage
    return kept


def _answer(point: str, future: Future[_Answer | None]) -> dict[str, Usage | Bad]:
    error = future.exception()
    if isinstance(error, OSError):
        return {point: Bad((error.strerror or str(error)).lower())}
    if error is not None:
        return {point: Bad(f"{type(error).__name__}: {error}")}
    found = future.result()
    return {} if found is None else {found[0]: found[1]}
