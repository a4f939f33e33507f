"""A run is asked to keep a share of its lines by a file that is whole, and is left as it was by an undo."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.shelf import HOST, means, order, tree

from stoploss.actions import retain
from stoploss.actions.contract import Refused
from stoploss.actions.targets.log_sampling import Sample, SampleJob
from stoploss.engine.model import Order
from stoploss.training.sampling import Asked, parsed


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with a log."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text("x\n", "utf-8")
    return folder


def job_order(run: Path, share: object = 0.1, **labels: str) -> Order:
    """An order to keep a share of a job's lines."""
    return order("job", "a", {"scheduler": "process", "run_dir": str(run), **labels}, sample=share)


def log_order(run: Path, share: object = 0.1) -> Order:
    """An order to keep a share of a log's lines."""
    path = run / "train.log"
    return order("log", f"{HOST}:{path}", {"host": HOST, "path": str(path)}, sample=share)


def asked_file(run: Path) -> dict[str, Any]:
    """What the file says."""
    found: dict[str, Any] = json.loads((run / ".stoploss" / "sampling.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize(("make", "place"), [(job_order, "job/process?sample"), (log_order, "log?sample")])
def test_a_share_is_asked_for_and_taken_back(
    tmp_path: Path, run: Path, make: Callable[[Path], Order], place: str
) -> None:
    """The file says share, levels and who asks, as the filter reads it; an undo leaves no trace."""
    before = sorted(run.rglob("*"))
    action = retain.build(means(tmp_path))
    asked = make(run)

    found = action.find(asked)
    done = action.act(asked, found)

    assert (found.place, found.undoable, done.state) == (place, True, "done")
    assert asked_file(run) == {
        "version": 1,
        "id": "o-1",
        "by": "policy tidy",
        "share": 0.1,
        "levels": ["DEBUG", "INFO"],
    }
    assert parsed((run / ".stoploss" / "sampling.json").read_bytes()) == Asked(0.1)
    assert action.look(asked, found).state == "done"
    assert action.act(asked, found).state == "done"
    assert action.undo(asked, found).state == "done"
    assert sorted(run.rglob("*")) == before
    assert action.look(asked, found).state == "undone"
    assert action.undo(asked, found).state == "done"


def test_what_was_asked_before_comes_back(tmp_path: Path, run: Path) -> None:
    """An undo writes what the file said before; other files of the run stay."""
    (run / ".stoploss").mkdir()
    (run / ".stoploss" / "track.jsonl").write_text("{}\n", "utf-8")
    file = run / ".stoploss" / "sampling.json"
    file.write_text('{"version": 1, "share": 0.5}', "utf-8")
    action, asked = SampleJob(means(tmp_path)), job_order(run)
    found = action.find(asked)

    assert action.act(asked, found).state == "done"
    assert action.undo(asked, found).state == "done"
    assert file.read_text("utf-8") == '{"version": 1, "share": 0.5}'
    assert sorted(os.listdir(run / ".stoploss")) == ["sampling.json", "track.jsonl"]


def test_what_somebody_else_asks_stays(tmp_path: Path, run: Path) -> None:
    """A file that was changed since is neither overwritten nor taken back."""
    action, asked = SampleJob(means(tmp_path)), job_order(run)
    found = action.find(asked)
    (run / ".stoploss").mkdir()
    file = run / ".stoploss" / "sampling.json"
    file.write_text("theirs", "utf-8")

    outcomes = (action.act(asked, found), action.look(asked, found), action.undo(asked, found))

    assert [outcome.state for outcome in outcomes] == ["skipped"] * 3
    assert file.read_text("utf-8") == "theirs"


def test_looking_changes_nothing(tmp_path: Path, run: Path) -> None:
    """Finding and looking write nothing."""
    action, asked = Sample(means(tmp_path)), log_order(run)
    before = tree(tmp_path)

    assert action.look(asked, action.find(asked)).state == "undone"
    assert tree(tmp_path) == before


@pytest.mark.parametrize("call", ["mkdir", "open", "rename", "fsync"])
def test_a_crash_at_any_call_leaves_a_whole_file_or_none(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Killed at any system call, the file is whole or not there, and acting again ends it."""
    for count in range(1, 20):
        action, asked = SampleJob(means(tmp_path)), job_order(run)
        found = action.find(asked)
        real, left = getattr(os, call), count

        def dying(*given: object, real: Any = real, **named: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return real(*given, **named)

        monkeypatch.setattr(os, call, dying)
        try:
            action.act(asked, found)
            ended = True
        except KeyboardInterrupt:
            ended = False
        monkeypatch.undo()
        if ended:
            return
        there = (run / ".stoploss" / "sampling.json").exists()
        assert action.look(asked, found).state == ("done" if there else "undone")
        assert action.act(asked, found).state == "done"
        assert asked_file(run)["share"] == 0.1
        assert action.undo(asked, found).state == "done"
    pytest.fail("it never ended")


@pytest.mark.parametrize("share", [None, -0.1, 1.5, True, "10%", float("nan")])
def test_what_is_no_share_is_refused(tmp_path: Path, run: Path, share: object) -> None:
    """Only a number from 0 to 1 is a share."""
    with pytest.raises(Refused, match="no number from 0 to 1"):
        SampleJob(means(tmp_path)).find(job_order(run, share))


def test_a_run_that_is_not_known_is_refused(tmp_path: Path, run: Path) -> None:
    """Without a readable folder, on another machine, or with a link for its folder, nothing is written."""
    action = SampleJob(means(tmp_path))
    with pytest.raises(Refused, match="no readable label 'run_dir'"):
        action.find(order("job", "a", {"run_dir": "?"}, sample=0.1))
    with pytest.raises(Refused, match="is on host n2"):
        action.find(job_order(run, host="n2"))
    with pytest.raises(Refused, match="is not there any more"):
        action.find(job_order(run / "none"))
    with pytest.raises(Refused, match="is not there any more"):
        Sample(means(tmp_path)).find(log_order(run / "none"))
    (run / ".stoploss").symlink_to(tmp_path)
    with pytest.raises(Refused, match=r"sampling\.json"):
        action.find(job_order(run))


def test_the_same_twice_is_refused_and_another_folder_is_left_alone(tmp_path: Path, run: Path) -> None:
    """What is asked for already is not asked for again; a folder that was replaced is another's."""
    action, asked = SampleJob(means(tmp_path)), job_order(run)
    found = action.find(asked)
    run.rename(tmp_path / "old")
    run.mkdir()
    assert action.act(asked, found).state == "skipped"
    assert list(run.iterdir()) == []

    action.act(asked, action.find(asked))
    with pytest.raises(Refused, match="asks for that already"):
        action.find(asked)
    assert action.find(replace(asked, id="o-2")).undoable
