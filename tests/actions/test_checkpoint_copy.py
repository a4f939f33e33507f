"""A copy of a checkpoint is whole and equal, or not there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from support.snapshots import ROOT, Played, checkpoint, contents, demand

from stoploss.actions.snapshot import Candidate, Order
from stoploss.actions.snapshot import take as take_order
from stoploss.actions.snapshot_result import Snapshot
from stoploss.actions.targets.checkpoint_copy import MANIFEST, Copy, take

AT = 1_700_000_000.0


def copied(source: Path, target: Path, **more: object) -> Snapshot:
    """What becomes of a copy of step 8."""
    return take(Copy(str(source), str(target), 8), demand(**more), Played().waiting())


def of_copy(target: Path) -> dict[str, tuple[bytes, int]]:
    """Its files but for the manifest."""
    return {name: what for name, what in contents(target).items() if name != MANIFEST}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkpoint with a folder in it, written in the past."""
    path = checkpoint(tmp_path / "local", 8)
    (path / "shards").mkdir()
    (path / "shards" / "a.npz").write_bytes(os.urandom(3 << 20))
    for file in path.rglob("*"):
        os.utime(file, (AT, AT))
    return path


def test_a_copy_is_equal_and_says_so(source: Path, tmp_path: Path) -> None:
    """Content, dates and folders are the same, and the manifest holds size and SHA-256 of each file."""
    target = tmp_path / "safe" / "step-8"

    found = copied(source, target, since=AT)

    manifest = json.loads((target / MANIFEST).read_text("utf-8"))
    assert found.verified, found.why
    assert (found.path, found.step, found.began) == (str(target), 8, AT)
    assert of_copy(target) == contents(source)
    assert manifest["files"] == {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, (content, _) in contents(source).items()
    }
    assert os.listdir(target.parent) == ["step-8"]


def test_what_is_there_is_found_and_not_copied_again(source: Path, tmp_path: Path) -> None:
    """The second call verifies the first one's copy and writes nothing."""
    target = tmp_path / "safe" / "step-8"
    copied(source, target)
    before = (contents(target), target.stat().st_ino)

    assert copied(source, target).verified
    assert (contents(target), target.stat().st_ino) == before


@pytest.mark.parametrize("damage", ["flipped", "short", "more", "no manifest"])
def test_a_copy_that_was_damaged_is_not_verified(source: Path, tmp_path: Path, damage: str) -> None:
    """One changed byte, a file too short or too many, or no manifest: it fails, and stays as it is."""
    target = tmp_path / "safe" / "step-8"
    copied(source, target)
    shard = target / "shards" / "a.npz"
    content = shard.read_bytes()
    if damage == "flipped":
        shard.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif damage == "short":
        shard.write_bytes(content[:-1])
    elif damage == "more":
        (target / "more").write_text("x", "utf-8")
    else:
        (target / MANIFEST).unlink()
    os.utime(shard, (AT, AT))
    before = contents(target)

    found = copied(source, target)

    assert found.state == "failed"
    assert ("the checksum of" if damage == "flipped" else "something else") in found.why
    assert contents(target) == before


KILLED = """
import os, signal, sys, time
from stoploss.actions.snapshot_result import Waiting
from stoploss.actions.targets.checkpoint_copy import Copy, take
from stoploss.actions.verify import Demand
calls = 0
def clock():
    global calls
    calls += 1
    if calls == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return 0.0
take(Copy(sys.argv[1], sys.argv[2], 8), Demand(lambda path: None), Waiting(clock, clock, lambda s: None))
"""


@pytest.mark.parametrize("call", [2, 4, 6, 8])
def test_after_a_kill_it_goes_on_from_what_is_there(source: Path, tmp_path: Path, call: int) -> None:
    """Killed at any point, nothing bears the name of the copy; the same call then completes it."""
    target = tmp_path / "safe" / "step-8"
    arguments = [sys.executable, "-c", KILLED, str(source), str(target), str(call)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    killed = subprocess.run(arguments, env=environment, check=False, timeout=30)
    assert killed.returncode == -signal.SIGKILL
    whole = target.exists()
    left = {path.name for path in target.parent.iterdir()}

    found = copied(source, target)

    assert left == {"step-8"} if whole else {".tmp-step-8"}
    assert found.verified, found.why
    assert of_copy(target) == contents(source)
    assert os.listdir(target.parent) == ["step-8"]


def test_a_draft_is_checked_before_it_is_used(source: Path, tmp_path: Path) -> None:
    """What is right is kept, what is wrong or not of the source is replaced or removed."""
    draft = tmp_path / "safe" / ".tmp-step-8"
    shutil.copytree(source, draft)
    kept = (draft / "weights.npz").stat().st_ino
    (draft / "state.json").write_text('{"step": 9}', "utf-8")
    (draft / "left").write_text("x", "utf-8")
    (draft / "way-out").symlink_to(tmp_path)

    found = copied(source, tmp_path / "safe" / "step-8")

    assert found.verified, found.why
    assert of_copy(tmp_path / "safe" / "step-8") == contents(source)
    assert (tmp_path / "safe" / "step-8" / "weights.npz").stat().st_ino == kept


@pytest.mark.parametrize("place", ["file", "folder", "root"])
def test_links_are_not_followed(source: Path, tmp_path: Path, place: str) -> None:
    """A checkpoint that holds a link, or is one, is not copied, and nothing of it is left."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("s", "utf-8")
    if place == "root":
        link = tmp_path / "local" / "step-9"
        link.symlink_to(source)
        source = link
    else:
        (source / "more").symlink_to(tmp_path / "secret" / ("key" if place == "file" else ""))

    found = copied(source, tmp_path / "safe" / "step-8")

    assert found.state == "failed"
    assert ("is no folder" if place == "root" else "it holds the link more") in found.why
    assert not list((tmp_path / "safe").iterdir() if (tmp_path / "safe").exists() else ())


def test_a_source_that_changes_is_not_copied(source: Path, tmp_path: Path) -> None:
    """A file that is written while others are copied makes the copy fail, and it is removed."""
    played = Played()

    def clock() -> float:
        with (source / "COMPLETE").open("a", encoding="utf-8") as stream:
            stream.write("x")
        return 0.0

    waiting = played.waiting()
    found = take(
        Copy(str(source), str(tmp_path / "safe" / "step-8")),
        demand(),
        type(waiting)(clock, clock, played.sleep),
    )

    assert "it changed while it was copied" in found.why
    assert os.listdir(tmp_path / "safe") == []


def test_one_that_takes_too_long_has_failed_and_goes_on_later(source: Path, tmp_path: Path) -> None:
    """At the limit it stops and keeps its draft; the next call finishes it."""
    played, target = Played(), tmp_path / "safe" / "step-8"

    def clock() -> float:
        played.time += 100
        return played.time

    waiting = type(played.waiting())(clock, clock, played.sleep, limit=250)
    slow = take(Copy(str(source), str(target)), demand(), waiting)
    left = os.listdir(target.parent)

    assert (slow.state, left) == ("failed", [".tmp-step-8"])
    assert "it took longer than 250 s" in slow.why
    assert copied(source, target).verified


def test_what_does_not_fit_is_not_begun(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk without room it fails with both numbers, and leaves nothing."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(9000, 8000, 1000))

    found = copied(source, tmp_path / "safe" / "step-8")

    assert "bytes more, and 1,000 are free" in found.why
    assert os.listdir(tmp_path / "safe") == []


def test_a_copy_into_itself_is_refused(source: Path) -> None:
    """Neither in the checkpoint, nor over it, nor by a relative path."""
    targets = [source / "copy", source, Path("copy")]

    assert [copied(source, target).state for target in targets] == ["failed"] * 3


def test_the_newest_complete_one_is_copied_out_of_the_failure_domain(source: Path, tmp_path: Path) -> None:
    """Of a partial newest and a whole one on the host, the whole one is copied, and the copy verified."""
    partial = checkpoint(source.parent, 9, marked=False)
    there = (Candidate(str(partial), 9), Candidate(str(source), 8))
    order = Order("i1", "test", copy_to=str(tmp_path / "safe"), candidates=there)
    wanted = demand(
        lost_with=frozenset({"host"}),
        domain=lambda path: "host" if path.startswith(str(source.parent)) else "bucket",
    )

    found = take_order(order, wanted, Played().waiting())
    nothing = take_order(Order("i1", "x", copy_to=str(tmp_path / "safe")), wanted, Played().waiting())

    assert (found.state, found.path) == ("verified", str(tmp_path / "safe" / "step-8"))
    assert (nothing.state, nothing.why) == ("failed", "there is no checkpoint")
