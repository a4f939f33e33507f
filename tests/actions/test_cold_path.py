"""What is moved to a cheaper file system is there whole before the original goes to the trash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.shelf import DAY, HOST, Clock, means, order, tree
from support.snapshots import checkpoint, contents

from stoploss.actions import tier
from stoploss.actions.contract import Means, Refused
from stoploss.actions.targets import checkpoint_copy, cold_path, trash
from stoploss.actions.targets.cold_path import Move
from stoploss.engine.model import Order, ResourceId

SHM = Path("/dev/shm")  # noqa: S108 - the other file system that nearly every machine has


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on another file system."""
    monkeypatch.setattr(cold_path, "PAUSE", 0.001)
    if not os.access(SHM, os.W_OK) or SHM.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("this machine has one file system only")
    folder = Path(tempfile.mkdtemp(dir=SHM, prefix="stoploss-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """Checkpoints of job a."""
    for step in (1, 2, 3):
        checkpoint(tmp_path / "fast" / "a", step)
    return tmp_path / "fast"


def move_order(path: Path, cold: Path, **labels: str) -> Order:
    """An order to move one checkpoint of job a."""
    given = {"host": HOST, "path": str(path), "job": "a", **labels}
    return order("checkpoint", f"a/{path.name}", given, path=str(cold))


def volume_order(path: Path, cold: Path) -> Order:
    """An order to move a folder."""
    return order("volume", f"{HOST}:{path}", path=str(cold))


def test_a_checkpoint_moves_and_comes_back(tmp_path: Path, shelf: Path, cold: Path) -> None:
    """The copy is equal, with owners and rights; the original is in the trash; an undo brings it back."""
    path = shelf / "a" / "step-1"
    (path / "weights.npz").chmod(0o640)
    path.chmod(0o750)
    before = contents(path)
    action = Move(means(tmp_path, shelf))
    asked = move_order(path, cold)

    found = action.find(asked)
    done = action.act(asked, found)

    target = cold / "a" / "step-1"
    copied = contents(target)
    copied.pop("stoploss-manifest.json")
    assert (found.undoable, done.state, done.after["target"]) == (True, "done", str(target))
    assert copied == before
    assert target.stat().st_mode & 0o777 == 0o750
    assert (target / "weights.npz").stat().st_mode & 0o777 == 0o640
    assert not path.exists()
    assert action.look(asked, found).state == "done"
    assert action.act(asked, found).state == "done"
    assert action.undo(asked, found).state == "done"
    assert contents(path) == before
    assert target.exists()


def test_it_comes_back_after_the_trash_was_emptied(tmp_path: Path, shelf: Path, cold: Path) -> None:
    """Then the copy is copied back and compared, also when that is done twice."""
    path = shelf / "a" / "step-1"
    before = contents(path)
    clock = Clock()
    given = means(tmp_path, shelf, clock=clock)
    action = Move(given)
    asked = move_order(path, cold)
    found = action.find(asked)
    action.act(asked, found)
    clock.ahead = 2 * DAY
    assert trash.empty_all(given) == (str(path),)

    assert action.look(asked, found).state == "done"
    assert action.undo(asked, found).state == "done"
    assert contents(path) == before
    assert action.undo(asked, found).state == "done"
    (path / "weights.npz").write_bytes(b"newer")
    undone = action.undo(asked, found)
    assert (undone.state, (path / "weights.npz").read_bytes()) == ("skipped", b"newer")


def test_a_folder_moves_with_its_empty_folders(tmp_path: Path, cold: Path) -> None:
    """A volume moves by its own name; folders without files are there too."""
    path = tmp_path / "data"
    (path / "deep" / "none").mkdir(parents=True)
    (path / "deep" / "x.bin").write_bytes(b"x" * 10_000)
    action = tier.build(means(tmp_path))
    asked = volume_order(path, cold)

    found = action.find(asked)

    assert found.place == "volume?path"
    assert action.act(asked, found).state == "done"
    assert (cold / "data" / "deep" / "none").is_dir()
    assert (cold / "data" / "deep" / "x.bin").read_bytes() == b"x" * 10_000
    assert action.undo(asked, found).state == "done"
    assert (path / "deep" / "none").is_dir()


def test_looking_changes_nothing(tmp_path: Path, shelf: Path, cold: Path) -> None:
    """Finding and looking write nothing anywhere."""
    action = Move(means(tmp_path, shelf))
    asked = move_order(shelf / "a" / "step-1", cold)
    before = tree(tmp_path, cold)

    found = action.find(asked)

    assert action.look(asked, found).state == "undone"
    assert tree(tmp_path, cold) == before


def refused(given: Means, asked: Order) -> str:
    """Why an order is refused."""
    with pytest.raises(Refused) as caught:
        Move(given).find(asked)
    return caught.value.words


def test_what_must_stay_is_refused(tmp_path: Path, shelf: Path, cold: Path) -> None:
    """The newest complete one, one in use, the same file system, links, and another's place stay."""
    given = means(tmp_path, shelf)
    path = shelf / "a" / "step-1"
    assert "as the newest complete checkpoint is" in refused(given, move_order(shelf / "a" / "step-3", cold))
    assert "is on host n2" in refused(given, move_order(path, cold, host="n2"))
    assert "on the same file system" in refused(given, move_order(path, tmp_path))
    assert "no folder that is there" in refused(given, move_order(path, cold / "none"))
    assert "no absolute path" in refused(given, move_order(path, Path("cold")))
    assert "is not there any more" in refused(given, volume_order(tmp_path / "none", cold))
    nameless = replace(move_order(path, cold), resource=ResourceId("checkpoint", "a/.."))
    assert "no name that a folder can have" in refused(given, nameless)
    (cold / "a" / "step-1").mkdir(parents=True)
    assert "step-1 is there already" in refused(given, move_order(path, cold))
    (path / "link").symlink_to("/etc")
    assert "holds a symbolic link" in refused(given, move_order(path, cold))


def test_a_folder_in_use_stays(tmp_path: Path, cold: Path) -> None:
    """While a process has a file below it open, a folder is refused."""
    path = tmp_path / "data"
    path.mkdir()
    (path / "x").write_bytes(b"x")
    with (path / "x").open("rb") as stream:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=stream)
    try:
        assert refused(means(tmp_path), volume_order(path, cold)) == f"process {child.pid} uses {path}"
    finally:
        child.kill()
        child.communicate()


def test_what_changes_meanwhile_stays(tmp_path: Path, shelf: Path, cold: Path) -> None:
    """A checkpoint that was written to after the look is skipped, and nothing is copied."""
    action = Move(means(tmp_path, shelf))
    asked = move_order(shelf / "a" / "step-1", cold)
    found = action.find(asked)
    (shelf / "a" / "step-1" / "more").write_bytes(b"x")

    assert action.act(asked, found).state == "skipped"
    assert list(cold.iterdir()) == []


def test_a_damaged_copy_keeps_the_original(
    tmp_path: Path, shelf: Path, cold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the checksums differ it has failed, and the original is where it was."""
    action = Move(means(tmp_path, shelf))
    path = shelf / "a" / "step-1"
    asked = move_order(path, cold)
    found = action.find(asked)
    real = os.rename

    def damaging(source: str, target: str, **named: int) -> None:
        real(source, target, **named)
        if str(target).startswith(str(cold)):
            with open(os.path.join(target, "weights.npz"), "r+b") as stream:
                stream.write(b"X")
            os.utime(os.path.join(target, "weights.npz"), ns=(0, (path / "weights.npz").stat().st_mtime_ns))

    monkeypatch.setattr(os, "rename", damaging)
    done = action.act(asked, found)

    assert done.state == "failed"
    assert "the checksum of weights.npz" in done.words
    assert path.exists()


def test_a_crash_is_gone_on_from(
    tmp_path: Path, shelf: Path, cold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it copies, or between copy and trash, a look tells it and acting again ends it."""
    action = Move(means(tmp_path, shelf))
    path = shelf / "a" / "step-1"
    before = contents(path)
    asked = move_order(path, cold)
    found = action.find(asked)
    for name in ("_check_copy", "verify"):

        def die(*given: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(checkpoint_copy, name, die)
        with pytest.raises(KeyboardInterrupt):
            action.act(asked, found)
        monkeypatch.undo()
        monkeypatch.setattr(cold_path, "PAUSE", 0.001)
        seen = action.look(asked, found)
        assert (seen.state, seen.retry) == ("failed", True)
        assert contents(path) == before

    assert action.act(asked, found).state == "done"
    assert action.undo(asked, found).state == "done"
    assert contents(path) == before
