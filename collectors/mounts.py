"""On which file system a path lies, and what is known of that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import psutil

from stoploss.collectors import volumes

if TYPE_CHECKING:
    from psutil._ntuples import sdiskpart

LOCAL = frozenset(
    {
        "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "ntfs3", "overlay", "ramfs",
        "reiserfs", "tmpfs", "vfat", "xfs", "zfs",
    }
)  # fmt: skip
"""File systems whose data lies in this machine, as far as the machine can tell."""


def mounts() -> list[sdiskpart]:
    """All mounts of this machine; none where they cannot be read."""
    try:
        return psutil.disk_partitions(all=True)
    except OSError:
        return []


def mount_of(path: str, mounted: Iterable[sdiskpart]) -> sdiskpart | None:
    """The mount on which a path without symbolic links lies."""
    found: sdiskpart | None = None
    for mount in mounted:
        point = mount.mountpoint.rstrip("/") + "/"
        # Of two mounts at one point only the later can be seen.
        longer = found is None or len(mount.mountpoint) >= len(found.mountpoint)
        if longer and (path + "/").startswith(point):
            found = mount
    return found


def is_volume(path: str, mounted: Iterable[sdiskpart]) -> bool:
    """Whether the `host` collector tells of the file system under this very path."""
    return any(points[0] == path for points in volumes.file_systems(mounted))
