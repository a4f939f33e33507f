"""Keys and values in text, and patterns of users."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from stoploss.collectors import training
from stoploss.collectors.training.keyvalue import compiled
from stoploss.collectors.training.records import ReadProblem


@pytest.mark.parametrize(
    "line",
    [
        "step:5/100 train_loss:2.5000 train_time:3378ms step_avg:nanms",
        "step=5, loss=2.5, lr=1e-3",
        "iter 5: loss 2.5, time 123.45ms, mfu 3.00%",
        "step 5/19560 | loss 2.500000 (+nanz)| norm 15.3 (+nanz)| lr 8.57e-07 | 3000.00 ms | 170000 tok/s",
        "Epoch [1/10], Step [5/100], Loss: 2.5000",
        "2026-01-01 00:00:00,000 INFO trainer step: 5 train loss: 2.5",
        "s:5 trl:2.5",
    ],
)
def test_many_ways_to_write_a_line(read_text, line: str) -> None:
    """The usual ways to print a step and its loss are all read."""
    (log,) = read_text(line + "\n")

    assert list(log.curves["train.loss"].steps) == [5]
    assert list(log.curves["train.loss"].values) == [2.5]


def test_training_and_validation_on_one_line(read_text) -> None:
    """A word before loss says which of them it is."""
    (log,) = read_text("step 250: train loss 1.9, val loss 1.88\n")

    assert (log.curves["train.loss"].values[0], log.curves["eval.loss"].values[0]) == (1.9, 1.88)


def test_text_without_a_step_says_nothing(read_text) -> None:
    """Words about a loss in other lines are no records."""
    (log,) = read_text("loss: 7\nwe saw loss 3 times\nstep 1 loss 2\ninfo: loss 9\n")

    assert list(log.curves["train.loss"].values) == [2]


def test_times_of_steps_come_from_the_time_since_the_start(read_text) -> None:
    """A step takes the difference of the times since the start, in seconds, unless that clock restarts."""
    text = "".join(
        f"step:{s}/9 train_loss:1 train_time:{ms}ms step_avg:nanms\n"
        for s, ms in ((1, 82000), (2, 83500), (3, 900))
    )
    (log,) = read_text(text)

    assert list(log.curves["train.step_time"].values) == [1.5]
    assert log.facts["total_steps"] == 9


def test_nanms_is_legal(read_text) -> None:
    """A mean that is not a number yet, with its unit, spoils nothing."""
    (log,) = read_text("step:1/9 train_loss:nan step_avg:nanms\nstep:2/9 train_loss:2 step_avg:1700ms\n")

    assert math.isnan(log.curves["train.loss"].values[0])
    assert list(log.curves["train.step_time"].values) == [1.7]


def test_a_real_speed_run(real) -> None:
    """A real log of 9,000 steps has a first step of 82 seconds among steps of 1.7."""
    log = real("nanogpt/scaleup1b_steps0-9000.log")

    assert len(log.curves["train.loss"].values) == 9000
    assert log.curves["train.step_time"].values[0] == pytest.approx(81.7, abs=0.1)
    assert log.curves["eval.loss"].values[-1] == 2.9818


def test_a_real_log_of_short_keys(real) -> None:
    """A real log with keys of three letters gives both losses."""
    log = real("nanogpt/adamw_llmc.log")

    assert (log.curves["train.loss"].values[0], log.curves["eval.loss"].values[-1]) == (10.965596, 3.275959)


def test_a_users_pattern_reads_any_text(read_text) -> None:
    """Named groups of a pattern are fields; lines that it does not find say nothing."""
    (log,) = read_text(
        "### 12 ==> L(2.5) took 40ms\nnoise\n### 13 ==> L(nan) took 41ms\n",
        patterns=[r"### (?P<step>\d+) ==> L\((?P<train_loss>\S+)\) took (?P<step_time>\S+)"],
    )

    assert log.format == "pattern"
    assert list(log.curves["train.loss"].steps) == [12, 13]
    assert log.curves["train.step_time"].values[0] == 0.04


def test_several_patterns_on_one_line_are_one_row(read_text) -> None:
    """What several patterns find in a line belongs to one step."""
    (log,) = read_text("<7> a2.5 b0.1\n", patterns=[r"<(?P<step>\d+)>", r"a(?P<loss>\S+)", r"b(?P<lr>\S+)"])

    assert (log.curves["train.lr"].steps[0], log.curves["train.loss"].steps[0]) == (7, 7)


def test_structured_formats_do_not_need_a_pattern(read_text) -> None:
    """A pattern that happens to find something does not hide what a format of its own says."""
    (log,) = read_text('{"log_history": [{"step": 1, "loss": 2.5}]}', patterns=[r"(?P<loss>\d)"])

    assert log.format == "hf_state"


@pytest.mark.parametrize("pattern", ["(", "no groups", r"(?P<nonsense>\d+)"])
def test_patterns_that_cannot_be_used_are_refused(pattern: str, tmp_path: Path) -> None:
    """A pattern without a known named group is refused with its text, and is a problem when reading."""
    with pytest.raises(ValueError, match=r"regular expression|group|named"):
        compiled([pattern])
    (tmp_path / "log").write_text("step 1 loss 2\n")
    problems: list[ReadProblem] = []

    assert len(training.read(tmp_path / "log", patterns=[pattern], problems=problems)) == 1
    assert "pattern" in problems[0].message


def test_the_documented_patterns_read_what_they_show(read_text) -> None:
    """The patterns in the documentation can be used as they stand there."""
    page = Path(__file__).parents[2] / "docs" / "training-logs.md"
    block = page.read_text().split("```yaml\n")[1].split("```")[0]
    patterns = yaml.safe_load(block)["collectors"]["training"]["patterns"]
    (log,) = read_text("### 1 ==> L(2.5) took 40ms\nvalidation after 1: 3.5\n", patterns=patterns)

    assert (log.curves["train.loss"].values[0], log.curves["eval.loss"].values[0]) == (2.5, 3.5)
