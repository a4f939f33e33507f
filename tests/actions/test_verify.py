"""A checkpoint is verified by looking at it, twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.snapshots import Played, checkpoint, demand
from support.unprivileged import unprivileged

from stoploss.actions.snapshot import Candidate, check
from stoploss.actions.snapshot_result import Snapshot
from stoploss.actions.verify import verify

AT = 1_900_000_000.0


def judged(path: Path, played: Played | None = None, **more: object) -> Snapshot:
    """What is found of a checkpoint that should be of step 8."""
    return verify(str(path), demand(**more), (played or Played()).waiting(), 8)


def test_a_whole_checkpoint_that_stands_still_is_verified(tmp_path: Path) -> None:
    """Its path, step, beginning and size are told."""
    path = checkpoint(tmp_path, 8, at=AT)
    os.utime(path / "COMPLETE", (AT + 9, AT + 9))

    found = judged(path, since=AT - 1)

    size = sum(file.stat().st_size for file in path.iterdir())
    assert (found.state, found.path, found.step) == ("verified", str(path), 8)
    assert (found.began, found.bytes) == (AT, size)


def test_two_looks_lie_a_pause_apart(tmp_path: Path) -> None:
    """Between the looks it waits once, as long as the caller says."""
    played = Played()
    start = played.time

    verify(str(checkpoint(tmp_path, 8)), demand(), played.waiting(every=30))

    assert (played.sleeps, played.time - start) == (1, 30)


@pytest.mark.parametrize("change", ["grows", "file comes", "same size", "marker goes", "all goes"])
def test_what_changes_between_the_looks_is_not_verified(tmp_path: Path, change: str) -> None:
    """A file that grows, comes, goes or is written again makes it one that is still being written."""
    path = checkpoint(tmp_path, 8, at=AT)
    changes = {
        "grows": lambda: (path / "weights.npz").write_bytes(b"w" * 6000),
        "file comes": lambda: (path / "more.bin").write_bytes(b"\x80"),
        "same size": lambda: (path / "weights.npz").write_bytes(b"v" * 5000),
        "marker goes": lambda: (path / "COMPLETE").unlink(),
        "all goes": lambda: path.rename(tmp_path / "elsewhere"),
    }
    played = Played()
    played.at[1] = changes[change]

    found = judged(path, played)

    assert found.state == "failed"
    assert ("no such file" if change == "all goes" else "still being written") in found.why


def test_P_D10_what_is_said_to_be_done_is_looked_at(tmp_path: Path) -> None:
    """A path that is not there, is empty, or holds only empty files is not verified."""
    (tmp_path / "step-1").mkdir()
    checkpoint(tmp_path, 2)
    for file in (tmp_path / "step-2").iterdir():
        file.write_bytes(b"")

    found = [judged(tmp_path / name) for name in ("step-0", "step-1", "step-2")]

    assert [item.state for item in found] == ["failed"] * 3
    assert "no such file" in found[0].why
    assert "is empty" in found[1].why
    assert "is empty" in found[2].why


def test_what_cannot_be_read_is_not_verified(open_folder: Path) -> None:
    """One file without the right to read it fails the whole."""
    path = checkpoint(open_folder, 8)
    (path / "weights.npz").chmod(0)

    with unprivileged():
        found = judged(path)

    assert found.state == "failed"
    assert "permission denied" in found.why


def test_a_header_that_is_cut_short_is_not_verified(tmp_path: Path) -> None:
    """Weights whose header names more bytes than there are fail, whatever the marker says."""
    path = checkpoint(tmp_path, 8)
    (path / "model.safetensors").write_bytes((10_000).to_bytes(8, "little") + b"{")

    found = judged(path)

    assert found.state == "failed"
    assert "model.safetensors is cut short" in found.why


def test_one_begun_before_the_episode_is_not_verified(tmp_path: Path) -> None:
    """The oldest file counts: a save that had begun before is not a new one."""
    path = checkpoint(tmp_path, 8, at=AT)
    os.utime(path / "state.json", (AT - 5, AT - 5))

    found = judged(path, since=AT)

    assert found.state == "failed"
    assert "was begun 5 s before it was needed" in found.why


@pytest.mark.parametrize(
    ("domain", "why"), [("host", "lost with the host"), (None, "something that is not known"), ("zone", None)]
)
def test_one_that_is_lost_with_what_the_step_ends_is_not_verified(
    tmp_path: Path, domain: str | None, why: str | None
) -> None:
    """It must be known to lie outside the failure domains that the step ends."""
    path = checkpoint(tmp_path, 8)

    found = judged(path, lost_with=frozenset({"host"}), domain=lambda path: domain)

    assert found.verified == (why is None)
    assert (why or "is complete") in found.why


@pytest.mark.parametrize("kind", ["link", "pipe", "relative", "pipe inside"])
def test_what_is_no_plain_checkpoint_is_not_verified(tmp_path: Path, kind: str) -> None:
    """Links, pipes and relative paths are refused without being followed or waited for."""
    path = checkpoint(tmp_path, 8)
    odd = tmp_path / "step-9"
    if kind == "link":
        odd.symlink_to(path)
    elif kind == "pipe":
        os.mkfifo(odd)
    elif kind == "pipe inside":
        os.mkfifo(path / "pipe")
        odd = path
    else:
        odd = Path(os.path.relpath(path))

    assert judged(odd).state == "failed"


def test_G_72_a_partial_newest_is_passed_over(tmp_path: Path) -> None:
    """step-900 without its marker is not relied on; step-800, which is complete, is."""
    partial, whole = checkpoint(tmp_path, 900, marked=False), checkpoint(tmp_path, 800)
    there = [Candidate(str(whole), 800), Candidate(str(partial), 900)]

    found = check(there, demand(), Played().waiting())
    alone = check(there[1:], demand(), Played().waiting())

    assert (found.state, found.step) == ("verified", 800)
    assert alone.state == "failed"
    assert "no marker file" in alone.why


def test_G_75_a_remote_copy_that_is_stuck_blocks(tmp_path: Path) -> None:
    """Where step 50 is only local and 18 the newest elsewhere, it fails and tells the 32 steps at risk."""
    local, remote = tmp_path / "local", tmp_path / "remote"
    paths = [checkpoint(remote, 18, at=AT - 900), checkpoint(local, 18, at=AT - 900)]
    paths.append(checkpoint(local, 50, at=AT))
    there = [Candidate(str(path), int(path.name[5:])) for path in paths]
    wanted = demand(
        since=AT - 60,
        lost_with=frozenset({"host"}),
        domain=lambda path: "host" if path.startswith(str(local)) else "bucket",
    )

    found = check(there, wanted, Played().waiting())

    assert (found.state, found.step) == ("failed", 50)
    assert "would be lost with the host" in found.why
    assert "step 18: 32 steps are at risk" in found.why


def test_a_folder_that_cannot_be_read_leaves_nothing(tmp_path: Path) -> None:
    """Where neither the newest nor another can be looked at, it fails and says that none would be left."""
    there = [Candidate(str(tmp_path / "gone" / f"step-{step}"), step) for step in (1, 2)]
    wanted = demand(lost_with=frozenset({"host"}), domain=lambda path: "bucket")

    found = check(there, wanted, Played().waiting())

    assert (found.state, found.step) == ("failed", 2)
    assert found.why.endswith("; no complete checkpoint would be left")


def test_without_any_checkpoint_nothing_is_verified(tmp_path: Path) -> None:
    """No candidate is a failure with its reason, never a success by default."""
    assert check([], demand(), Played().waiting()) == Snapshot("failed", why="there is no checkpoint")
