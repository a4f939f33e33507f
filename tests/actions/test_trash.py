"""Checkpoints go to the trash and come back; the newest complete one and a second always stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.shelf import DAY, HOST, Clock, Shelf, age, means, order, tree
from support.snapshots import checkpoint, contents

from stoploss.actions import prune
from stoploss.actions.contract import Means, Refused
from stoploss.actions.targets import trash, trash_store
from stoploss.actions.targets.trash import Member, PruneJob, PruneOne, spared
from stoploss.engine.model import Found, Order

KEPT = ".stoploss-trash"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A folder of checkpoints; job `a` has the steps 900, 1000, 8000, 9000 and 10000."""
    root = tmp_path / "ckpt"
    for step in (900, 1000, 8000, 9000, 10000):
        checkpoint(root / "a", step)
    return root


def job_order(*names: str, **more: object) -> Order:
    """An order to prune checkpoints of job a."""
    return order("job", "a", {"scheduler": "process"}, checkpoints=[f"a/{name}" for name in names], **more)


def one_order(at: Path, **labels: str) -> Order:
    """An order to prune one checkpoint of job a."""
    given = {"host": HOST, "path": str(at), "job": "a", **labels}
    return order("checkpoint", f"a/{at.name}", given)


def refused(action: PruneJob | PruneOne, asked: Order) -> str:
    """Why an order is refused."""
    with pytest.raises(Refused) as caught:
        action.find(asked)
    return caught.value.words


def test_checkpoints_go_to_the_trash_and_come_back(tmp_path: Path, shelf: Path) -> None:
    """What is named lies in the trash of its folder by one rename, and an undo brings back just that."""
    before = contents(shelf)
    action = PruneJob(means(tmp_path, shelf))
    asked = job_order("step-900", "step-1000")

    found = action.find(asked)
    done = action.act(asked, found)

    assert found.undoable
    assert "2 checkpoints (10" in found.words
    assert (done.state, done.after["moved"]) == ("done", 2)
    assert done.after["bytes"] == found.before["bytes"]
    assert sorted(os.listdir(shelf / "a")) == [KEPT, "step-10000", "step-8000", "step-9000"]
    assert sorted(os.listdir(shelf / "a" / KEPT / "o-1")) == ["manifest.json", "step-1000", "step-900"]
    assert action.look(asked, found).state == "done"
    assert action.undo(asked, found).state == "done"
    assert contents(shelf) == before
    assert not (shelf / "a" / KEPT).exists()
    assert action.look(asked, found).state == "undone"


def test_looking_changes_nothing(tmp_path: Path, shelf: Path) -> None:
    """Finding and looking leave every file, every date and the state folder alone."""
    action = PruneJob(means(tmp_path, shelf))
    asked = job_order("step-900")
    before = tree(tmp_path)

    found = action.find(asked)

    assert action.look(asked, found).state == "undone"
    assert tree(tmp_path) == before
    assert found == replace(found, before=json.loads(json.dumps(found.before)))


def test_P_D17_steps_are_numbers(tmp_path: Path, shelf: Path) -> None:
    """10000 is newer than 9000, whatever their names sort like."""
    why = refused(PruneJob(means(tmp_path, shelf)), job_order("step-10000"))

    assert why == f"{shelf}/a/step-10000 is of step 10000, as the newest complete checkpoint is"


def test_G_72_a_partial_newest_does_not_count(tmp_path: Path) -> None:
    """With 900 partial and 800 complete, 800 is the newest, and 900 may still be written."""
    root = tmp_path / "ckpt"
    for step in (600, 700, 800):
        checkpoint(root / "a", step)
    checkpoint(root / "a", 900, marked=False)
    action = PruneJob(means(tmp_path, root))

    assert "step 800, as the newest complete" in refused(action, job_order("step-800"))
    assert "step-900 may still be written" in refused(action, job_order("step-900"))
    assert "1 complete checkpoints would be left, and 2 must be" in refused(
        action, job_order("step-600", "step-700")
    )


def test_G_73_the_only_good_one_stays_until_a_new_one_is_complete(tmp_path: Path) -> None:
    """Two complete ones are never fewer; where a save fails, the old one stays."""
    root = tmp_path / "ckpt"
    checkpoint(root / "a", 1)
    checkpoint(root / "a", 2)
    checkpoint(root / "a", 3, marked=False)
    action = PruneJob(means(tmp_path, root))

    assert "1 complete checkpoints would be left" in refused(action, job_order("step-1"))
    (root / "a" / "step-3" / "COMPLETE").write_text("3\n", "utf-8")
    assert action.find(job_order("step-1")).undoable
    assert "2 complete checkpoints would be left, and 3 must be" in refused(
        action, job_order("step-1", keep=3)
    )


def test_what_is_left_is_looked_at_again_at_the_act(tmp_path: Path, shelf: Path) -> None:
    """Where others have deleted meanwhile, nothing more goes."""
    action = PruneJob(means(tmp_path, shelf))
    asked = job_order("step-900", "step-1000", "step-8000")
    found = action.find(asked)
    (shelf / "a" / "step-10000" / "COMPLETE").unlink()

    done = action.act(asked, found)

    assert done.state == "skipped"
    assert "1 complete checkpoints would be left" in done.words
    assert (shelf / "a" / "step-900").exists()


def test_without_a_look_at_checkpoints_nothing_goes(tmp_path: Path, shelf: Path) -> None:
    """Where no collector of checkpoints is named an order is refused."""
    assert "no collector" in refused(
        PruneJob(means(tmp_path, shelf, checkpoints=None)), job_order("step-900")
    )


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"host": "n2"}, "is on host n2, and this is n1"),
        ({"host": "?"}, "is on host ?"),
        ({"path": "/etc"}, "/etc lies in no folder of checkpoints"),
        ({"path": "a/step-900"}, "nothing says at which path"),
        ({"job": "?"}, "nothing says which job"),
        ({"keep": "until friday"}, "its label keep says 'until friday'"),
        ({"keep": "?"}, "its label keep says nothing that can be read"),
        ({"job": "b"}, "step-900 is no checkpoint of this job"),
    ],
)
def test_what_is_not_certain_is_refused(
    tmp_path: Path, shelf: Path, labels: dict[str, str], said: str
) -> None:
    """Another machine's, another job's, or one that somebody keeps, stays."""
    checkpoint(shelf / "b", 1)

    assert said in refused(PruneOne(means(tmp_path, shelf)), one_order(shelf / "a" / "step-900", **labels))


def test_a_file_keeps_a_checkpoint(tmp_path: Path, shelf: Path) -> None:
    """One that holds `.stoploss-keep` stays, also where the file comes between the look and the act."""
    action = PruneOne(means(tmp_path, shelf))
    asked = one_order(shelf / "a" / "step-900")
    found = action.find(asked)
    (shelf / "a" / "step-900" / ".stoploss-keep").touch()

    assert "is kept: it holds .stoploss-keep" in refused(action, asked)
    assert action.act(asked, found).state == "skipped"


def test_links_mounts_and_what_is_gone_are_refused(
    tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link, a path through a link, a mount point, and what is not there are left alone."""
    action = PruneOne(means(tmp_path, shelf))
    elsewhere = checkpoint(tmp_path / "elsewhere", 5)
    (shelf / "a" / "step-5").symlink_to(elsewhere)
    (shelf / "b").symlink_to(elsewhere.parent)
    assert "step-5 is a symbolic link" in refused(action, one_order(shelf / "a" / "step-5"))
    assert "lies in no folder" in refused(action, one_order(shelf / "b" / "step-5"))
    with pytest.raises(Refused) as caught:
        action.find(one_order(shelf / "a" / "step-7"))
    assert caught.value.gone

    mounted = tmp_path / "mounts"
    mounted.write_text(f"1 2 8:1 / {shelf}/a/step-900 rw - ext4 /dev/x rw\n", "utf-8")
    monkeypatch.setattr("stoploss.actions.targets.trash_registry.MOUNTS", str(mounted))
    assert "step-900 is a mount point" in refused(action, one_order(shelf / "a" / "step-900"))


def test_what_a_process_uses_and_what_the_step_relies_on_stay(tmp_path: Path, shelf: Path) -> None:
    """A checkpoint that another process works in, or that was verified for this step, is refused."""
    action = PruneOne(means(tmp_path, shelf))
    path = shelf / "a" / "step-900"
    assert "relies on" in refused(action, replace(one_order(path), saved=str(path)))
    child = subprocess.Popen([sys.executable, "-c", "input()"], cwd=path, stdin=subprocess.PIPE)
    try:
        assert refused(action, one_order(path)) == f"process {child.pid} uses {path}"
    finally:
        child.kill()
        child.communicate()


def test_one_that_is_younger_than_said_stays(tmp_path: Path, shelf: Path) -> None:
    """The age of the step counts at the moment of the look."""
    action = PruneJob(means(tmp_path, shelf))
    age(shelf / "a" / "step-900", 7200)

    assert action.find(job_order("step-900", older_than=3600.0)).undoable
    assert "step-1000 is not old enough" in refused(action, job_order("step-1000", older_than=3600.0))


def test_what_has_changed_since_is_left_alone(tmp_path: Path, shelf: Path) -> None:
    """A checkpoint that was written to, or replaced, after the look stays where it is."""
    action = PruneJob(means(tmp_path, shelf))
    asked = job_order("step-900", "step-1000")
    found = action.find(asked)
    (shelf / "a" / "step-900" / "weights.npz").write_bytes(b"other")
    (shelf / "a" / "step-1000").rename(tmp_path / "old")
    checkpoint(shelf / "a", 1000)

    done = action.act(asked, found)

    assert done.state == "skipped"
    assert "step-900 has changed since" in done.words
    assert sorted(path.name for path in (shelf / "a").glob("step-*")) == [
        f"step-{step}" for step in (1000, 10000, 8000, 900, 9000)
    ]


def test_copies_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """The first folder gives the plain name, another one its own; a name that fits two is refused."""
    local, far = tmp_path / "local", tmp_path / "far"
    for root in (local, far):
        for step in (1, 2, 3, 4):
            checkpoint(root / "a", step)
    action = PruneJob(means(tmp_path, local, far))

    def path(name: str) -> object:
        return action.find(job_order(name)).before["items"][0]["path"]

    assert path("step-1") == str(local / "a" / "step-1")
    assert path(f"step-1@{far}") == str(far / "a" / "step-1")
    checkpoint(local / "a" / "old", 1)
    assert "can be" in refused(action, job_order("step-1"))
    assert "is not there any more" in refused(action, job_order("step-77"))
    asked = order("job", "a", checkpoints=["b/step-1"])
    assert "is not one of job a" in refused(action, asked)
    assert "nothing names" in refused(action, order("job", "a"))


def test_an_undo_replaces_nothing(tmp_path: Path, shelf: Path) -> None:
    """Where a checkpoint of that name is there again, it stays, and so does the trash."""
    action = PruneJob(means(tmp_path, shelf))
    asked = job_order("step-900")
    found = action.find(asked)
    action.act(asked, found)
    checkpoint(shelf / "a", 900)
    before = contents(shelf)

    undone = action.undo(asked, found)

    assert undone.state == "skipped"
    assert "is there again" in undone.words
    assert contents(shelf) == before


def test_a_single_file_goes_and_comes_back(tmp_path: Path) -> None:
    """A checkpoint that is one file is moved and brought back like a folder, and replaces nothing."""
    root = tmp_path / "ckpt"
    for step in (1, 2, 3):
        (root / "a").mkdir(parents=True, exist_ok=True)
        (root / "a" / f"step-{step}.pt").write_bytes(b"\x80\x02}q\x00.")
    action = PruneJob(means(tmp_path, root))
    asked = job_order("step-1.pt")
    found = action.find(asked)

    assert action.act(asked, found).state == "done"
    (root / "a" / "step-1.pt").touch()
    assert action.undo(asked, found).state == "skipped"
    (root / "a" / "step-1.pt").unlink()
    assert action.undo(asked, found).state == "done"
    assert (root / "a" / "step-1.pt").read_bytes() == b"\x80\x02}q\x00."


CALLS = ("mkdir", "rename", "fsync", "open")


@pytest.mark.parametrize("call", CALLS)
def test_a_crash_at_any_call_is_gone_on_from(
    tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Killed at any system call, a look tells how far it is, acting again ends it, and an undo undoes it."""
    before = contents(shelf)
    count = 0
    while True:
        count += 1
        action = PruneJob(means(tmp_path, shelf))
        asked = replace(job_order("step-900", "step-1000"), id=f"{call}-{count}")
        found = action.find(asked)
        left = count

        real = getattr(os, call)

        def dying(*given: object, real: object = real, **named: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return real(*given, **named)  # type: ignore[operator]

        monkeypatch.setattr(os, call, dying)
        try:
            action.act(asked, found)
            ended = True
        except KeyboardInterrupt:
            ended = False
        monkeypatch.undo()
        if ended:
            assert count > 2
            return
        moved = len(list((shelf / "a").glob(f"{KEPT}/{call}-{count}/step-*")))
        seen = action.look(asked, found)
        assert seen.state == {0: "undone", 1: "failed", 2: "done"}[moved]
        again = action.act(asked, found)
        assert (again.state, again.after["moved"]) == ("done", 2)
        assert action.undo(asked, found).state == "done"
        assert contents(shelf) == before


def test_a_day_later_the_trash_is_deleted(tmp_path: Path, shelf: Path) -> None:
    """What lies longer than 24 h is deleted, what is younger stays, and the registry forgets it."""
    clock = Clock()
    given = means(tmp_path, shelf, clock=clock)
    action = PruneJob(given)
    first, second = job_order("step-900"), replace(job_order("step-1000"), id="o-2")
    found = action.find(first)
    action.act(first, found)
    clock.ahead = DAY / 2
    later = action.find(second)
    action.act(second, later)

    assert trash.empty_all(given) == ()
    clock.ahead = DAY + 60
    assert trash.empty_all(given) == (str(shelf / "a" / "step-900"),)
    assert trash.empty_all(given) == ()
    assert os.listdir(shelf / "a" / KEPT) == ["o-2"]
    undone = action.undo(first, found)
    assert (undone.state, "the trash was emptied" in undone.words) == ("skipped", True)
    assert action.look(first, found).state == "skipped"
    assert action.undo(second, later).state == "done"
    clock.ahead = 3 * DAY
    assert trash.empty_all(given) == ()
    assert (tmp_path / "state" / "trash.jsonl").read_bytes() == b""
    assert (shelf / "a" / "step-1000").exists()


def moved_away(given: Means) -> tuple[PruneJob, Order, Found]:
    """The checkpoint of step 900 lies in the trash."""
    action, asked = PruneJob(given), job_order("step-900")
    found = action.find(asked)
    assert action.act(asked, found).state == "done"
    return action, asked, found


def test_emptying_follows_no_link(tmp_path: Path, shelf: Path) -> None:
    """A link in the trash is deleted as a link; a trash folder that is a link is not entered."""
    precious = checkpoint(tmp_path / "precious", 1)
    (shelf / "a" / "step-900" / "out").symlink_to(precious)
    clock = Clock()
    given = means(tmp_path, shelf, clock=clock)
    moved_away(given)
    clock.ahead = 2 * DAY

    (shelf / "a" / KEPT).rename(tmp_path / "aside")
    (shelf / "a" / KEPT).symlink_to(tmp_path / "aside")
    assert trash.empty(str(shelf / "a"), clock()) == ()
    (shelf / "a" / KEPT).unlink()
    (tmp_path / "aside").rename(shelf / "a" / KEPT)
    assert trash.empty(str(shelf / "a"), clock()) == (str(shelf / "a" / "step-900"),)
    assert (precious / "weights.npz").exists()
    assert not (shelf / "a" / KEPT).exists()


@pytest.mark.parametrize("record", [{"path": "/x/..", "ino": 1}, {"path": "/x/other", "ino": 1}, {}, []])
def test_emptying_deletes_only_what_was_moved(tmp_path: Path, shelf: Path, record: object) -> None:
    """What a manifest does not name, or names wrongly, stays."""
    box = shelf / "a" / KEPT / "o-9"
    (box / "other").mkdir(parents=True)
    (box / "manifest.json").write_text(json.dumps({"at": 1.0, "items": [record]}), "utf-8")

    assert trash.empty(str(shelf / "a"), 9e9) == ()
    assert (box / "other").exists()


def test_a_registry_with_a_torn_line_still_works(tmp_path: Path, shelf: Path) -> None:
    """A line that a crash has cut short does not hide the others."""
    clock = Clock()
    given = means(tmp_path, shelf, clock=clock)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "trash.jsonl").write_bytes(b'{"order": "o-0", "fol')
    moved_away(given)
    clock.ahead = 2 * DAY

    assert trash.empty_all(given) == (str(shelf / "a" / "step-900"),)


def test_what_cannot_be_moved_is_a_failure(
    tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that refuses gives an outcome, with another try of use."""
    action, asked = PruneJob(means(tmp_path, shelf)), job_order("step-900")
    found = action.find(asked)

    def refuse(*given: object, **named: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "rename", refuse)
    done = action.act(asked, found)

    assert (done.state, done.retry) == ("failed", True)
    assert "read-only file system" in done.words


def test_the_action_finds_its_targets(tmp_path: Path, shelf: Path) -> None:
    """By the kind of resource and who runs the job, an order comes to its target and back."""
    action = prune.build(means(tmp_path, shelf))
    asked = one_order(shelf / "a" / "step-900")
    found = action.find(asked)

    assert found.place == "checkpoint"
    assert action.act(asked, found).state == "done"
    assert action.undo(asked, found).state == "done"
    assert action.find(job_order("step-900")).place == "job/process"


def oracle(there: list[Member], doomed: set[str]) -> bool:
    """Whether it would be wrong: said as plainly as it can be."""
    complete = {item.path: item.step for item in there if item.complete}
    known = [step for step in complete.values() if step is not None]
    takes_newest = any(complete.get(path) is not None and complete[path] == max(known) for path in doomed)
    return takes_newest or len(set(complete) - doomed) < 2


MEMBERS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 12_000)), st.booleans()), max_size=8).map(
    lambda drawn: [Member(f"/c/{number}", *item) for number, item in enumerate(drawn)]
)


@given(MEMBERS, st.sets(st.integers(0, 8)), st.integers(-1, 4))
def test_what_is_allowed_never_breaks_the_rule(there: list[Member], picks: set[int], keep: int) -> None:
    """Whatever is allowed leaves the newest complete checkpoint, and two complete ones at least."""
    doomed = {f"/c/{number}" for number in picks}

    left, why = spared(there, doomed, keep)

    if why is None and doomed:
        assert not oracle(there, doomed)
        assert len(left) >= max(2, keep)


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(st.sampled_from([5, 50, 500, 600, 700, 1000, 9000]), st.booleans(), max_size=5),
    st.sets(st.sampled_from([5, 50, 500, 600, 700, 1000, 9000]), min_size=1, max_size=3),
)
def test_on_disk_the_rule_is_never_broken(steps: dict[int, bool], picks: set[int]) -> None:
    """With real folders, whatever is asked for, the newest complete one and a second are still there."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "ckpt"
        for step, marked in steps.items():
            checkpoint(root / "a", step, marked=marked)
        (root / "a").mkdir(parents=True, exist_ok=True)
        shelf = Shelf(root)
        whole = sorted(step for path, step in shelf.of_job("a") if step is not None and not shelf.lacks(path))
        action = PruneJob(means(Path(name), root))
        asked = job_order(*(f"step-{step}" for step in sorted(picks)))
        try:
            done = action.act(asked, action.find(asked)).state
        except Refused:
            done = "refused"

        gone = {step for step in steps if not (root / "a" / f"step-{step}").exists()}
        assert gone == (picks if done == "done" else set())
        if gone:
            assert whole[-1] not in gone
            assert len(set(whole) - gone) >= 2


def test_mount_points_are_read_with_their_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount point with a blank in its name is known, and so is one below."""
    mounted = tmp_path / "mounts"
    mounted.write_text(f"1 2 8:1 / {tmp_path}/a\\040b/c rw - ext4 /dev/x rw\n", "utf-8")
    monkeypatch.setattr("stoploss.actions.targets.trash_registry.MOUNTS", str(mounted))

    assert trash_store.mounts_in(f"{tmp_path}/a b") == (f"{tmp_path}/a b/c",)
    assert trash_store.mounts_in(f"{tmp_path}/a") == ()
