"""The storage collector: sizes, ages, roles, fullness, and folders that cannot be read."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import ValidationError
from support.scenes import Scene, policy
from support.unprivileged import unprivileged

from stoploss.collectors import mounts, volumes
from stoploss.collectors.contract import CollectorError, Context
from stoploss.collectors.storage import StorageCollector, build
from stoploss.collectors.storage_options import Options, Place
from stoploss.engine.model import Bad, Look, Reading

Mount: Any = type(psutil.disk_partitions(all=True)[0])
Sizes: Any = type(psutil.disk_usage("/"))
AT = 2_000_000_000.0


def readings(look: Look, path: Path) -> dict[str, Reading]:
    """Signal -> reading of one folder."""
    return {item.signal: item.reading for item in look.samples if item.resource.id == f"n1:{path}"}


def collector(*paths: object, **more: Any) -> StorageCollector:
    """A collector of host n1, made as the registry makes it."""
    made = build(Options.model_validate({"paths": [p if isinstance(p, dict) else str(p) for p in paths]}),
                 Context(hostname="n1"))  # fmt: skip
    assert isinstance(made, StorageCollector)
    return StorageCollector("n1", made.places, **more) if more else made


def put(path: Path, size: int, times: tuple[float, float] = (AT - 50, AT - 60)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, times)


def test_what_a_folder_holds(tmp_path: Path) -> None:
    """Sizes and files are added up; the newest write and read count, and the age is the oldest entry's."""
    put(tmp_path / "a", 1000)
    put(tmp_path / "b/c", 500, (AT - 20, AT - 30))

    seen = readings(collector({"path": str(tmp_path), "role": "dataset", "tier": "cold"}).look(AT), tmp_path)

    assert seen["storage.size"] == 1500.0
    assert seen["storage.objects"] == 2.0
    assert seen["storage.last_written"] == 30.0
    assert seen["storage.last_read"] == 20.0
    assert seen["storage.role"] == "dataset"
    assert seen["storage.tier"] == "cold"
    assert seen["storage.age"] == pytest.approx(AT - time.time(), abs=60)


def test_a_sparse_file_and_a_file_of_many_names(tmp_path: Path) -> None:
    """A sparse file counts what it occupies, and one with three names counts once."""
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"x" * 4096)
        file.truncate(1 << 30)
    put(tmp_path / "one", 999)
    os.link(tmp_path / "one", tmp_path / "two")
    os.link(tmp_path / "one", tmp_path / "three")

    seen = readings(collector(tmp_path).look(AT), tmp_path)

    assert isinstance(seen["storage.size"], float)
    assert 999 + 4096 <= seen["storage.size"] < 200_000
    assert seen["storage.objects"] == 4.0


def test_an_empty_folder_is_as_old_as_itself(tmp_path: Path) -> None:
    """Without a file the folder's own write counts, and there is nothing that could be read."""
    os.utime(tmp_path, (AT - 500, AT - 400))

    seen = readings(collector(tmp_path).look(AT), tmp_path)

    assert seen["storage.size"] == seen["storage.objects"] == 0.0
    assert seen["storage.last_written"] == 400.0
    assert seen["storage.last_read"] == Bad("there is no file that could be read")


def test_a_time_to_come_is_now(tmp_path: Path) -> None:
    """A file dated after the look was written no time ago, never a negative one."""
    put(tmp_path / "a", 1, (AT + 500, AT + 500))

    seen = readings(collector(tmp_path).look(AT), tmp_path)

    assert seen["storage.last_written"] == seen["storage.last_read"] == 0.0


def test_role_and_tier_are_never_guessed(tmp_path: Path) -> None:
    """A folder called checkpoints without a role has none, and says so."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()

    seen = readings(collector(folder).look(AT), folder)

    assert seen["storage.role"] == Bad("the options name no role")
    assert seen["storage.tier"] == Bad("the options name no tier")


@pytest.mark.parametrize(
    ("options", "reading", "notes"),
    [
        ("rw,noatime", Bad("mounted with noatime"), 0),
        ("rw,relatime", 50.0, 1),
        ("rw,strictatime", 50.0, 0),
    ],
)
def test_reads_that_the_file_system_does_not_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, reading: object, notes: int
) -> None:
    """With noatime the newest read is a bad reading; relatime makes a note."""
    put(tmp_path / "a", 1)
    monkeypatch.setattr(mounts, "mounts", lambda: [Mount("/dev/sda", "/", "ext4", options)])

    look = collector(tmp_path).look(AT)

    assert readings(look, tmp_path)["storage.last_read"] == reading
    assert len([note for note in look.notes if "relatime" in note]) == notes


def test_fullness_is_told_where_the_host_collector_does_not(tmp_path: Path) -> None:
    """A folder within a file system tells how full that is; a volume of its own leaves that to `host`."""
    root = next(points[0] for points in volumes.file_systems(mounts.mounts()))
    usage = os.statvfs(tmp_path)
    fresh = StorageCollector("n1", [Place(path=str(tmp_path)), Place(path=root)], entries=10)

    look = fresh.look(AT)

    seen = readings(look, tmp_path)
    assert seen["storage.capacity"] == float(usage.f_blocks * usage.f_frsize)
    assert isinstance(seen["storage.inodes.utilization"], float | Bad)
    assert "storage.capacity" not in readings(look, Path(root))


def test_two_folders_of_one_file_system_both_tell_how_full_it_is(tmp_path: Path) -> None:
    """Each folder carries the fullness of its file system, also where another lies on the same."""
    for name in "ab":
        (tmp_path / name).mkdir()

    look = collector(tmp_path / "a", tmp_path / "b").look(AT)

    for name in "ab":
        assert isinstance(readings(look, tmp_path / name)["storage.utilization"], float)


def test_a_walk_that_is_not_through_counts_nothing(tmp_path: Path) -> None:
    """Until the first walk is through its sums are bad readings; after that the last whole walk counts."""
    for name in range(5):
        put(tmp_path / str(name), 10)
    fresh = collector(tmp_path, entries=4)

    sizes = []
    for number in range(4):
        look = fresh.look(AT)
        sizes.append(readings(look, tmp_path)["storage.size"])
        if number == 1:
            put(tmp_path / "later", 1000)
    more = any("walked" in note for note in fresh.look(AT).notes)

    assert sizes == [Bad("not walked to the end yet"), 50.0, 50.0, 1050.0]
    assert more


def test_a_folder_that_fails_costs_only_itself(open_folder: Path) -> None:
    """A missing and a denied folder are bad readings of their own; the third is read."""
    put(open_folder / "good/a", 7)
    (open_folder / "closed").mkdir()
    (open_folder / "closed").chmod(0o700 if os.geteuid() == 0 else 0)
    paths = [open_folder / name for name in ("good", "closed", "gone")]

    with unprivileged():
        look = collector(*paths).look(AT)

    assert [readings(look, path)["storage.size"] for path in paths] == [
        7.0,
        Bad("permission denied"),
        Bad("no such file or directory"),
    ]
    assert f"storage: {paths[2]}: no such file or directory" in look.notes


def test_nothing_readable_at_all_is_a_failure(tmp_path: Path) -> None:
    """Where no folder can be read the collector fails, and names them."""
    with pytest.raises(CollectorError) as caught:
        collector(tmp_path / "gone").look(AT)

    assert caught.value.reason == f"no such file or directory: {tmp_path}/gone"


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["relative"],
        [{"path": "/a", "role": "images"}],
        [{"path": "/a", "teir": "fast"}],
        [{"role": "logs"}],
    ],
)
def test_options_are_closed_and_typed(paths: list[object]) -> None:
    """Relative paths, unknown roles and unknown keys are refused."""
    with pytest.raises(ValidationError):
        Options.model_validate({"paths": paths})


def test_one_folder_named_twice_is_looked_at_once(tmp_path: Path) -> None:
    """Two ways to write one path make one volume."""
    look = collector(tmp_path, f"{tmp_path}/").look(AT)

    assert len([item for item in look.samples if item.signal == "storage.size"]) == 1


def test_G_87_inodes_at_100_while_space_is_at_80(tmp_path: Path, scene: Scene) -> None:
    """A file system with space left but no inodes is full: the policy on inodes fires."""

    def ask(points: Sequence[str]) -> tuple[str, volumes.Usage]:
        return points[0], volumes.Usage(Sizes(100, 80, 20, 80.0), inodes=1000, free_inodes=0, device=1)

    look = collector(tmp_path, prober=volumes.Prober(ask)).look(AT)
    seen = readings(look, tmp_path)
    assert seen["storage.utilization"] == 0.8
    assert seen["storage.inodes.utilization"] == 1.0

    lines = ["time,resource,kind,signal,value"]
    for minute in range(1, 31):
        at = 1_767_225_600 + 60 * minute
        for signal in ("storage.utilization", "storage.inodes.utilization"):
            lines.append(f"{at},n1:{tmp_path},volume,{signal},{seen[signal]}")
    rules = policy("storage.utilization > 90% or storage.inodes.utilization > 95%", each="volume")
    found = scene.audit(rules, "\n".join(lines) + "\n")["findings"]

    assert [(item["resource"]["id"], item["state"]) for item in found] == [(f"n1:{tmp_path}", "firing")]
