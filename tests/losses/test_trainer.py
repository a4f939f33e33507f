"""Runs of a real trainer: one that oscillates, one whose gradient vanishes, and their healthy twins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.curves import prefixes

from stoploss.collectors.training import read
from stoploss.engine.losses.incremental import judge
from stoploss.engine.model import TrainingLog

SCRIPT = Path(__file__).parents[2] / "examples" / "trainer" / "train.py"
ALARMS = {"flat", "diverged", "overfit", "degrading", "oscillating", "hung", "non-finite"}


def trained(folder: Path, *options: str) -> TrainingLog:
    """The log of a run with these options, read as a user's would be."""
    target = folder / "run.jsonl"
    command = [sys.executable, str(SCRIPT), "--out", str(target), *options]
    subprocess.run(command, check=True, timeout=60)
    [run] = read(target)
    return run


@pytest.mark.parametrize("seed", ["0", "1"])
def test_healthy_twins_raise_no_alarm(tmp_path: Path, seed: str) -> None:
    """With a fitting learning rate and first weights the same network is healthy at every part of its run."""
    seen = {judge(log).verdict for _, log in prefixes(trained(tmp_path, "--seed", seed))}

    assert "healthy" in seen
    assert not seen & ALARMS


@pytest.mark.parametrize("seed", ["0", "1"])
def test_steps_that_are_too_long_oscillate(tmp_path: Path, seed: str) -> None:
    """With a learning rate of 6 the loss is thrown about above where it began, and is oscillating."""
    verdict = judge(trained(tmp_path, "--lr", "6", "--steps", "1000", "--seed", seed))

    assert verdict.verdict == "oscillating"
    assert verdict.wasted_share == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_a_vanishing_gradient_is_flat_from_the_start(tmp_path: Path, seed: str) -> None:
    """With first weights near zero nothing is learnt: flat since step 1, and the gradient is told."""
    verdict = judge(trained(tmp_path, "--init", "0.01", "--seed", seed))

    assert (verdict.verdict, verdict.since_step) == ("flat", 1)
    assert any("vanished" in line for line in verdict.strategy)


def test_the_same_seed_gives_the_same_log(tmp_path: Path) -> None:
    """Two runs with the same options write the same bytes, one record a step."""
    texts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        trained(tmp_path / name, "--steps", "60")
        texts.append((tmp_path / name / "run.jsonl").read_text(encoding="utf-8"))

    assert texts[0] == texts[1]
    records = [json.loads(line) for line in texts[0].splitlines()]
    assert [record["step"] for record in records] == list(range(1, 61))
    assert "eval_loss" in records[49]
