"""Volumes: which mounts are some, how full they are, and mounts that hang or are gone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from stoploss.collectors import volumes
from stoploss.engine.model import Bad

Mount: Any = type(psutil.disk_partitions(all=True)[0])
Sizes: Any = type(psutil.disk_usage("/"))


def test_volumes_are_what_holds_data() -> None:
    """Disks, network file systems and a container's root are volumes; pseudo and image mounts are not."""
    mounts = [
        Mount("overlay", "/", "overlay", "rw"),
        Mount("proc", "/proc", "proc", "rw"),
        Mount("tmpfs", "/run", "tmpfs", "rw"),
        Mount("/dev/loop0", "/snap/core", "squashfs", "ro"),
        Mount("overlay", "/var/lib/docker/overlay2/x/merged", "overlay", "rw"),
        Mount("lxcfs", "/var/lib/lxcfs", "fuse.lxcfs", "rw"),
        Mount("/dev/nvme1n1", "/data", "xfs", "rw"),
        Mount("nas:/home", "/home", "nfs4", "rw"),
        Mount("s3fs", "/bucket", "fuse.s3fs", "rw"),
        Mount("pool/a", "/pool", "zfs", "rw"),
    ]

    assert volumes.file_systems(mounts) == [("/",), ("/bucket",), ("/data",), ("/home",), ("/pool",)]


def test_a_file_system_counts_once() -> None:
    """Several mounts from one source are one volume, the shortest path first."""
    mounts = [
        Mount("/dev/sdb", "/srv/data/copy", "ext4", "rw"),
        Mount("/dev/sdb", "/srv/data", "ext4", "rw"),
        Mount("/dev/sda", "/etc/hosts", "ext4", "rw"),
    ]

    assert volumes.file_systems(mounts) == [("/etc/hosts",), ("/srv/data", "/srv/data/copy")]


def test_buckets_of_one_program_are_apart() -> None:
    """A source that only names the FUSE program, or nothing, does not make two mounts one volume."""
    mounts = [
        Mount("s3fs", "/a", "fuse.s3fs", "rw"),
        Mount("s3fs", "/b", "fuse.s3fs", "rw"),
        Mount("", "/c", "9p", "rw"),
        Mount("", "/d", "9p", "rw"),
    ]

    assert volumes.file_systems(mounts) == [("/a",), ("/b",), ("/c",), ("/d",)]


def test_what_is_mounted_over_cannot_be_seen() -> None:
    """Of two mounts at one point only the later counts."""
    mounts = [Mount("/dev/sda", "/data", "ext4", "rw"), Mount("tmpfs", "/data", "tmpfs", "rw")]

    assert volumes.file_systems(mounts) == []


def test_usage_is_what_the_kernel_says(tmp_path: Path) -> None:
    """Sizes of a real file system agree with statvfs, and a single mounted file is passed over."""
    file = tmp_path / "hosts"
    file.touch()
    expected = os.statvfs(tmp_path)

    found = volumes.usage_of([str(file), str(tmp_path)])

    assert found is not None
    point, usage = found
    assert point == str(tmp_path)
    assert usage.sizes.total == expected.f_blocks * expected.f_frsize
    assert usage.inodes == expected.f_files
    assert usage.device == os.stat(tmp_path).st_dev
    assert volumes.usage_of([str(file)]) is None


def test_shares_of_a_volume_are_of_what_programs_may_use() -> None:
    """Space kept back for root is neither used nor free in the share."""
    usage = volumes.Usage(Sizes(100, 40, 40, 50.0), inodes=200, free_inodes=50, device=1)

    assert list(volumes.readings(usage).values()) == [100.0, 40.0, 40.0, 0.5, 0.75]


def test_file_systems_without_inodes_say_so() -> None:
    """Where a file system counts no inodes their share is a bad reading, not 0."""
    usage = volumes.Usage(Sizes(100, 40, 40, 50.0), inodes=0, free_inodes=0, device=1)

    found = volumes.readings(usage)

    assert found["storage.utilization"] == 0.5
    assert found["storage.inodes.utilization"] == Bad("the file system counts no inodes")


def test_one_file_system_under_two_sources_counts_once(tmp_path: Path) -> None:
    """File systems that turn out to be the same device are one volume, at the shortest path."""
    deep = tmp_path / "deep"
    deep.mkdir()

    answers = volumes.Prober().probe([(str(deep),), (str(tmp_path),)])

    assert list(answers) == [str(tmp_path)]


def test_a_volume_that_cannot_be_asked_is_bad_by_itself(tmp_path: Path) -> None:
    """A mount that is gone or broken is a bad reading with its reason; the other is read."""
    gone, loop = tmp_path / "gone", tmp_path / "loop"
    loop.symlink_to(loop)

    answers = volumes.Prober().probe([(str(gone),), (str(loop),), (str(tmp_path),)])

    assert set(volumes.readings(answers[str(gone)]).values()) == {Bad("no such file or directory")}
    assert answers[str(loop)] == Bad("too many levels of symbolic links")
    assert isinstance(answers[str(tmp_path)], volumes.Usage)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What hanging mounts wait for."""
    event = threading.Event()
    yield event
    event.set()


def test_a_mount_that_hangs_costs_only_itself(gate: threading.Event, tmp_path: Path) -> None:
    """A hanging mount is bad, is not asked again while it hangs, and is read once it answers."""
    asked: list[str] = []

    def ask(points: Sequence[str]) -> tuple[str, volumes.Usage] | None:
        asked.append(points[0])
        if points[0] == "/hung":
            gate.wait(30)
        found = volumes.usage_of([str(tmp_path)])
        return found and (points[0], replace(found[1], device=hash(points[0])))

    prober = volumes.Prober(ask, time_limit=0.1)
    systems = [("/hung",), ("/good",)]

    first = prober.probe(systems)
    second = prober.probe(systems)
    gate.set()
    next(thread for thread in threading.enumerate() if thread.name == "volume /hung").join(5)
    third = prober.probe(systems)

    assert first["/hung"] == second["/hung"] == Bad("the mount does not answer")
    assert isinstance(first["/good"], volumes.Usage)
    assert isinstance(third["/hung"], volumes.Usage)
    assert asked.count("/hung") == 2
