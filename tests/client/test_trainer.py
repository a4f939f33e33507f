"""A real training process that is asked to save, saves, answers, and loses no step."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from .conftest import Run


def wait_for_steps(run: Run, count: int) -> None:
    """Wait until the log has so many lines."""
    limit = time.monotonic() + 30
    while not run.log.exists() or run.log.read_bytes().count(b"\n") < count:
        assert time.monotonic() < limit
        time.sleep(0.005)


def uninterrupted(folder: Path, steps: int) -> bytes:
    """The log of a run of so many steps that nobody asks for anything."""
    folder.mkdir()
    other = Run(folder)
    other.train("--steps", steps)
    return other.log.read_bytes()


def test_asked_by_file_to_stop_it_saves_at_its_next_step_and_loses_none(run: Run) -> None:
    """Asked to stop, it saves after that step and ends; resumed, its losses are those of an unbroken run."""
    child = run.start("--steps", 1_000_000, "--checkpoint-dir", run.checkpoints)
    wait_for_steps(run, 20)
    before = len(run.records())
    run.ask("r1", "stop", by="test")
    assert child.wait(timeout=30) == 0

    answer, last = run.answer(), run.records()[-1]["step"]
    assert (answer["id"], answer["state"], answer["step"]) == ("r1", "stopped", last)
    assert last >= before
    assert answer["path"] == str(run.checkpoints / f"step-{last:g}")
    assert sorted(os.listdir(answer["path"])) == ["COMPLETE", "state.json", "weights.npz"]

    run.train("--steps", int(last) + 30, "--checkpoint-dir", run.checkpoints, "--resume")
    assert run.log.read_bytes() == uninterrupted(run.folder / "other", int(last) + 30)


def test_asked_by_signal_it_saves_and_goes_on_from_there(run: Run) -> None:
    """SIGUSR1 makes it save after the step; with --stop-after-save it ends there, and resumes just so."""
    options = ("--checkpoint-dir", run.checkpoints)
    child = run.start("--steps", 1_000_000, "--stop-after-save", *options)
    wait_for_steps(run, 20)
    child.send_signal(signal.SIGUSR1)
    assert child.wait(timeout=30) == 0

    last = int(run.records()[-1]["step"])
    assert (run.answer()["state"], run.answer()["step"]) == ("saved", last)
    assert run.answer()["id"].startswith(f"signal-{child.pid}-")

    run.train("--steps", last + 30, "--resume", *options)
    assert run.log.read_bytes() == uninterrupted(run.folder / "other", last + 30)


def test_a_checkpoint_does_not_change_the_run(run: Run) -> None:
    """A run that saves at its first step and goes on has the log of one that does not."""
    run.ask("r1")
    run.train("--steps", 30, "--checkpoint-dir", run.checkpoints)

    assert (run.answer()["state"], run.answer()["step"]) == ("saved", 1)
    assert run.log.read_bytes() == uninterrupted(run.folder / "other", 30)


@pytest.mark.parametrize("action", ["checkpoint", "stop"])
def test_a_save_that_fails_is_answered_and_training_goes_on(run: Run, action: str) -> None:
    """Where the checkpoint cannot be written the answer is failed with the reason, and the run goes on."""
    run.checkpoints.write_text("in the way")
    run.ask("r1", action)

    said = run.train("--steps", 30, "--checkpoint-dir", run.checkpoints)

    assert (run.answer()["id"], run.answer()["state"]) == ("r1", "failed")
    assert run.answer()["reason"].startswith(("NotADirectoryError", "FileExistsError"))
    assert "could not be saved" in said
    assert len(run.records()) == 30


def test_a_half_written_checkpoint_is_not_resumed_from(run: Run) -> None:
    """Without its marker the newest folder is passed over for the one before it."""
    run.ask("r1", "stop")
    run.train("--checkpoint-dir", run.checkpoints)
    (run.checkpoints / "step-9").mkdir()

    run.train("--steps", 10, "--checkpoint-dir", run.checkpoints, "--resume")

    assert [record["step"] for record in run.records()] == list(range(1, 11))
    assert run.answer()["state"] == "stopped"
