"""What a run tells of itself can be read, whatever happens to the run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from stoploss.collectors.contract import Context
from stoploss.collectors.training import names, read
from stoploss.collectors.training.collector import build
from stoploss.collectors.training.options import Options
from stoploss.rules.catalogue import catalogue
from stoploss.training.track import PHASES, SIGNALS, Tracker

from .conftest import environment


def lines(path: Path) -> list[dict[str, object]]:
    """The records of a file, without their times."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for record in records:
        assert abs(record.pop("time") - time.time()) < 60
    return records


def test_names_are_those_of_the_catalogue_and_the_reader() -> None:
    """Every short name is written as a signal of the catalogue, which is what the reader takes it for too."""
    for short, signal in SIGNALS.items():
        for name in (short, signal):
            found = names.meaning(name)
            assert found is not None
            assert (name, found.signal, found.factor) == (name, signal, 1.0)
    assert set(SIGNALS.values()) <= set(catalogue())
    assert catalogue()["job.phase"].values == PHASES


def test_a_run_is_read_as_it_was_told(tmp_path: Path) -> None:
    """Losses with NaN and infinities, other signals and steps come out of our reader as they went in."""
    tracker = Tracker(tmp_path / "track.jsonl")
    losses = [2.5, math.nan, math.inf, -math.inf, 2.25]
    for step, loss in enumerate(losses, 1):
        tracker.track(step=step, loss=loss, lr=1e-3, **{"data.wait_share": 0.25})
    tracker.track(step=5, val_loss=2.75)

    [run] = read(tmp_path / "track.jsonl")

    curve = run.curves["train.loss"]
    assert list(curve.steps) == [1, 2, 3, 4, 5]
    assert [repr(value) for value in curve.values] == [repr(value) for value in losses]
    assert list(run.curves["eval.loss"].values) == [2.75]
    assert set(run.curves["data.wait_share"].values) == {0.25}
    assert all(abs(moment - time.time()) < 60 for moment in curve.times)


def test_values_of_libraries_are_numbers_or_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Scalars and arrays of one element are written as numbers; other values are left out with one note."""
    tracker = Tracker(tmp_path / "track.jsonl")
    for _ in range(2):
        tracker.track(
            step=np.int64(3),
            loss=np.float32(0.5),
            lr=np.array([0.25]),
            grad_norm=np.ones(2),
            mfu="fast",
            x=None,
        )
    tracker.track(tokens=10**400, loss_scale=1 << 70)

    assert lines(tmp_path / "track.jsonl") == [
        {"step": 3, "train.loss": 0.5, "train.lr": 0.25},
        {"step": 3, "train.loss": 0.5, "train.lr": 0.25},
        {"train.loss_scale": float(1 << 70)},
    ]
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "grad_norm is left out: ndarray is no number",
        "mfu is left out: str is no number",
        "tokens is left out: int is no number",
    ]


def test_the_phase_reaches_the_collector(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The newest phase is the reading job.phase of the run's job; a misspelt one is left out with a note."""
    tracker = Tracker(tmp_path / "job-7" / ".stoploss" / "track.jsonl")
    tracker.track(step=1, loss=2.0, phase="training")
    tracker.track(step=1, phase="evaluating")
    tracker.track(phase="evaluate")
    collector = build(Options.model_validate({"paths": [str(tmp_path)]}), Context(hostname="n1"))

    samples = {item.signal: item for item in collector.look(time.time()).samples}

    assert samples["job.phase"].reading == "evaluating"
    assert samples["job.phase"].resource.id == "job-7"
    assert samples["train.loss"].reading == 2.0
    assert len(lines(tmp_path / "job-7" / ".stoploss" / "track.jsonl")) == 2
    assert "phase 'evaluate' is left out" in caplog.messages[0]


def test_only_the_first_rank_writes(tmp_path: Path) -> None:
    """Of several ranks only rank 0 writes, so that no step is told twice."""
    command = "import stoploss; stoploss.track(step=1, loss=2.0)"
    for rank in ("0", "1"):
        subprocess.run(
            [sys.executable, "-c", command],
            env=environment(STOPLOSS_RUN_DIR=str(tmp_path), RANK=rank),
            check=True,
            cwd="/",
        )

    assert lines(tmp_path / ".stoploss" / "track.jsonl") == [{"step": 1, "train.loss": 2.0}]


CHILD = """
import itertools, stoploss
for step in itertools.count(1):
    stoploss.track(step=step, loss=1 / step, lr=0.5, **{f"x{n}": n / 7 for n in range(20)})
"""


def test_kill_9_leaves_a_log_that_is_read(tmp_path: Path) -> None:
    """Of a process killed while it writes, every step is read, save the last one if it is torn."""
    path = tmp_path / "track.jsonl"
    for attempt in (1, 2):
        child = subprocess.Popen([sys.executable, "-c", CHILD], env=environment(STOPLOSS_TRACK=str(path)))
        try:
            least, limit = (path.stat().st_size if path.exists() else 0) + 200_000, time.monotonic() + 20
            while not path.exists() or path.stat().st_size < least:
                assert time.monotonic() < limit
                time.sleep(0.001)
        finally:
            child.kill()
            child.wait()

        [run] = read(path)
        steps = list(run.curves["train.loss"].steps)
        assert len(steps) >= path.read_bytes().count(b"\n") - 1
        assert steps.count(1) == attempt
        assert all(later in (step + 1, 1) for step, later in pairwise(steps))


def test_a_torn_line_costs_no_other(tmp_path: Path) -> None:
    """Where the process before was killed within a line, the next one is written on a line of its own."""
    path = tmp_path / "track.jsonl"
    path.write_text('{"step": 1, "train.loss": 2.5}\n{"step": 2, "train.lo')

    Tracker(path).track(step=2, loss=2.25)

    [run] = read(path)
    assert list(run.curves["train.loss"].values) == [2.5, 2.25]


def test_what_cannot_be_written_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the file cannot be opened training goes on, one note says so, and a later call tries again."""
    blocked = tmp_path / "run"
    blocked.write_text("")
    tracker = Tracker(blocked / "track.jsonl")

    tracker.track(step=1, loss=2.0)
    tracker.track(step=2, loss=2.0)

    assert len(caplog.messages) == 1
    assert "cannot be written" in caplog.messages[0]
    os.unlink(blocked)
    tracker.track(step=3, loss=2.0)
    assert lines(blocked / "track.jsonl") == [{"step": 3, "train.loss": 2.0}]


def test_a_full_disk_loses_lines_and_not_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """On a full disk nothing is raised, and the note gives the system's reason."""
    Tracker("/dev/full").track(step=1, loss=2.0)

    assert caplog.messages == ["stoploss: /dev/full cannot be written: No space left on device"]
