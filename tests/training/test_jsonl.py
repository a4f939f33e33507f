"""JSON lines."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest


def lines(*records: object) -> str:
    """Records as JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records)


def test_fields_become_signals(read_text) -> None:
    """Known fields are signals in catalogue units, whatever their spelling, and times are read."""
    (log,) = read_text(
        lines(
            {
                "train/loss": 2.0,
                "step": 5,
                "lr": 0.1,
                "timestamp": "2026-01-01T00:00:00Z",
                "step_time_ms": 250,
            },
            {"eval": {"loss": 3.0}, "step": 5, "tokens/sec": 1e6, "timestamp": 1767225660000, "mfu": 40},
        )
    )

    assert (log.curves["train.loss"].values[0], log.curves["train.loss"].steps[0]) == (2.0, 5)
    assert log.curves["train.loss"].times[0] == 1767225600
    assert (log.curves["eval.loss"].values[0], log.curves["eval.loss"].times[0]) == (3.0, 1767225660)
    assert log.curves["train.step_time"].values[0] == 0.25
    assert log.curves["train.tokens_per_second"].values[0] == 1e6
    assert log.curves["train.mfu"].values[0] == 0.4


def test_other_lines_are_skipped(read_text) -> None:
    """Lines that are no JSON objects lie between the records without harm, and are counted."""
    (log,) = read_text('starting\n{"step": 1, "loss": 2}\n[1]\n{"step": 2, "lo\n{"step": 3, "loss": 1}\n')

    assert list(log.curves["train.loss"].steps) == [1, 3]
    assert "a line that is no JSON object was skipped (3 times)" in log.notes


def test_G_50_a_share_of_non_finite_steps_is_read(read_text) -> None:
    """The share of steps that were not finite is read beside a loss that hides them."""
    (log,) = read_text(lines(*({"step": step, "loss": 1.0, "nan_fraction": 0.33} for step in (1, 2, 3))))

    assert list(log.curves["train.non_finite_share"].values) == [0.33] * 3


def test_G_54_the_same_entry_three_times_is_kept_three_times(read_text) -> None:
    """A reader keeps repeated entries; what they mean is judged elsewhere."""
    (log,) = read_text(lines(*[{"step": 10, "loss": 1.0}] * 3))

    assert list(log.curves["train.loss"].steps) == [10, 10, 10]


def test_G_55_nan_between_evaluations_is_kept(read_text) -> None:
    """An evaluation that is not a number stays where it was logged, bare or as text."""
    text = '{"step": 1, "val_loss": 0.5}\n{"step": 2, "val_loss": NaN}\n{"step": 3, "val_loss": "nan"}\n'
    (log,) = read_text(text)

    assert log.curves["eval.loss"].values[0] == 0.5
    assert all(map(math.isnan, log.curves["eval.loss"].values[1:]))


def test_of_two_fields_with_one_signal_one_is_read(read_text) -> None:
    """A curve comes from one field; a note names the field that would have mixed in."""
    (log,) = read_text(lines({"step": 1, "loss": 1.0}, {"step": 1, "train_loss_epoch": 5.0}))

    assert list(log.curves["train.loss"].values) == [1.0]
    assert "fields not read: train_loss_epoch" in log.notes


def test_rows_without_a_step_belong_to_the_step_before(read_text) -> None:
    """An evaluation that is logged without a step has the step of the training record before it."""
    (log,) = read_text(lines({"step": 7, "loss": 1.0}, {"val_loss": 2.0, "epoch": 1}))

    assert list(log.curves["eval.loss"].steps) == [7]


@pytest.mark.parametrize(
    ("readings", "total"),
    [
        ([(1, 1.0), (2, 2.0), (3, 0.5)], 2.5),
        ([(10, 1.0), (20, 2.0), (15, 2.1)], 2.1),
        ([(10, 0.1), (40, 0.2), (20, 0.9)], 1.1),
        ([(1, 1.0), (2, float("nan")), (3, 3.0)], 3.0),
    ],
    ids=["falls", "carried over a resume", "outgrew the old one unseen", "nan"],
)
def test_cost_counters_are_added_over_sessions(read_text, readings, total: float) -> None:
    """Money is the sum of all growth, also where a session began at zero again."""
    (log,) = read_text(lines(*({"step": step, "loss": 1.0, "usd": usd} for step, usd in readings)))

    assert log.facts["cost"] == pytest.approx(total)
    assert log.facts["cost_currency"] == "USD"


def test_a_cost_without_a_currency_is_no_money(read_text) -> None:
    """A field that is only named cost may be a loss, and is not read as money."""
    (log,) = read_text(lines({"step": 1, "loss": 1.0, "cost": 5.0}))

    assert "cost" not in log.facts


def test_G_65_four_sessions_cost_what_they_cost(real) -> None:
    """A real log whose counter of dollars began again three times cost $15.31."""
    log = real("jsonl/slm125m.metrics.jsonl")

    assert round(float(log.facts["cost"]), 2) == 15.31


def test_G_60_steps_that_go_back_stay_one_run_in_order(real) -> None:
    """A real log that goes back to an earlier step stays one run, redone steps included."""
    log = real("jsonl/slm125m.metrics.jsonl")

    steps = list(log.curves["train.loss"].steps)
    assert len(steps) == 398
    assert [(a, b) for a, b in pairwise(steps) if b < a][1:] == [
        (7580, 7520),
        (7560, 7520),
    ]


def test_whole_numbers_beyond_all_bounds_are_infinite(read_text) -> None:
    """A whole number with more digits than a float holds is infinite, of its sign."""
    (log,) = read_text(f'{{"step": 1, "loss": {"9" * 400}}}\n{{"step": 2, "loss": -{"9" * 400}}}\n')

    assert list(log.curves["train.loss"].values) == [math.inf, -math.inf]


def test_an_impossible_throughput_is_not_believed(read_text) -> None:
    """Samples per second that do not fit batch and step time by a factor of ten are replaced and noted."""
    row = {"step": 1, "loss": 1.0, "batch_size": 2048, "step_time": 384.5, "samples_per_second": 0.005}
    (log,) = read_text(lines(row))

    assert log.curves["train.samples_per_second"].values[0] == pytest.approx(2048 / 384.5)
    assert any("impossible throughput" in note for note in log.notes)
