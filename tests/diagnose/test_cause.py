"""Root causes: one of four dimensions, or undecided between two, with evidence for and against."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.curves import curve, log

from stoploss.engine.losses.cause import Cause, find_cause
from stoploss.engine.losses.incremental import judge
from stoploss.engine.losses.model import LossVerdict, Numbers
from stoploss.engine.model import TrainingLog

NOISE = np.random.default_rng(7).normal(0, 0.01, 400)
FALLING = [3 * n**-0.3 + float(NOISE[n]) for n in range(1, 101)]
SPIKED = [*FALLING, *(4.0 + n / 10 for n in range(12))]
CALM_GRADIENT = [1.0 + float(NOISE[n]) for n in range(112)]


def cause_of(of: TrainingLog) -> Cause:
    found = find_cause(judge(of), of)
    assert found is not None
    return found


def test_a_healthy_run_has_no_cause() -> None:
    """Where nothing is wrong there is nothing to explain."""
    run = log({"train.loss": FALLING})

    assert find_cause(judge(run), run) is None


def test_a_gradient_that_rose_first_names_two() -> None:
    """A loss that went up after its gradient did is strategy or data, and nothing decides which."""
    gradient = [*CALM_GRADIENT[:97], *[30.0] * 15]

    cause = cause_of(log({"train.loss": SPIKED, "train.grad_norm": gradient}))

    assert (cause.cause, cause.between) == ("undecided", ("strategy", "data"))
    assert cause.evidence_for == ("the gradient norm rose 3 records earlier",)


def test_a_spike_at_the_end_of_warm_up_is_strategy() -> None:
    """A gradient that rose first while the learning rate had just peaked is the learning rate's doing."""
    gradient = [*CALM_GRADIENT[:97], *[30.0] * 15]
    rate = [min(1.0, n / 100) * 1e-3 for n in range(1, 113)]

    cause = cause_of(log({"train.loss": SPIKED, "train.grad_norm": gradient, "train.lr": rate}))

    assert cause.cause == "strategy"
    assert "the gradient norm rose 3 records earlier" in cause.evidence_for
    assert "near the end of warm-up" in cause.sentence
    assert cause.sentence.endswith("against: none")


def test_bad_records_before_a_spike_are_data() -> None:
    """A burst of records that had to be dropped just before a spike makes it the data's."""
    dropped = [0.0] * 96 + [40.0 * n for n in range(1, 17)]

    cause = cause_of(log({"train.loss": SPIKED, "data.invalid_records": dropped}))

    assert cause.cause == "data"
    assert "invalid records came just before" in cause.evidence_for[0]


def test_records_that_were_always_dropped_prove_nothing() -> None:
    """A counter that rises as it always did speaks for nothing."""
    dropped = [float(n) for n in range(112)]

    assert cause_of(log({"train.loss": SPIKED, "data.invalid_records": dropped})).cause == "undecided"


def test_both_kinds_of_evidence_stay_undecided() -> None:
    """Where one sentence speaks for the schedule and one for the data the cause is undecided."""
    dropped = [0.0] * 96 + [40.0 * n for n in range(1, 17)]
    rate = [min(1.0, n / 100) * 1e-3 for n in range(1, 113)]

    cause = cause_of(log({"train.loss": SPIKED, "data.invalid_records": dropped, "train.lr": rate}))

    assert cause.between == ("strategy", "data")
    assert len(cause.evidence_for) == 2


def test_the_same_step_twice_is_data() -> None:
    """A run that goes wrong again at the same step after a rewind meets the same data."""
    steps = [*range(1, 113), *range(60, 113)]
    values = [*SPIKED, *SPIKED[59:]]

    cause = cause_of(log({"train.loss": curve("train.loss", values, steps)}))

    assert cause.cause == "data"
    assert "an earlier pass went wrong at the same step (101) too" in cause.evidence_for


def test_a_loss_scale_that_fell_is_strategy() -> None:
    """Numbers that stopped being finite after the loss scale had collapsed are a matter of precision."""
    scale = [65536.0] * 90 + [65536.0 / 2**n for n in range(1, 20)]

    cause = cause_of(log({"train.loss": [*FALLING, *[math.nan] * 9], "train.loss_scale": scale}))

    assert cause.cause == "strategy"
    assert "the loss scale had fallen" in cause.sentence


def test_nan_from_the_start_is_data_or_model() -> None:
    """A loss that never was a number is the data's or the model's fault, not the schedule's."""
    cause = cause_of(log({"train.loss": [math.nan] * 6, "train.lr": [0.0] * 6}))

    assert cause.between == ("data", "model")
    assert "the learning rate is 0, so that no weight moves" in cause.evidence_for


def test_overfitting_is_the_models() -> None:
    """Evaluations that rise while the training loss falls are the model's."""
    train = curve("train.loss", [2 / n for n in range(1, 201)])
    evals = curve("eval.loss", [0.6, 0.5, 0.55, 0.6, 0.66, 0.72], [20, 40, 80, 120, 160, 200])

    cause = cause_of(log({"train.loss": train, "eval.loss": evals}, total_steps=200.0))

    assert (cause.cause, cause.between) == ("model", ())


@pytest.mark.parametrize(
    ("gradient", "rate", "expected"),
    [
        (None, None, "undecided"),
        ("gone", None, "undecided"),
        ("gone", "high", "model"),
        (None, "gone", "strategy"),
    ],
)
def test_a_flat_loss(gradient: str | None, rate: str | None, expected: str) -> None:
    """A flat loss is the model's if its gradient vanished, the schedule's if the rate did."""
    curves = {"train.loss": [2.3 + float(NOISE[n]) / 100 for n in range(200)]}
    if gradient:
        curves["train.grad_norm"] = [1.0 / (1 + n) ** 3 for n in range(200)]
    if rate:
        curves["train.lr"] = [1e-3 if rate == "high" or n < 20 else 1e-7 for n in range(200)]

    assert cause_of(log(curves)).cause == expected


def test_a_hang_is_infrastructure_with_a_doubt() -> None:
    """A run that stopped moving is infrastructure, and what was not looked at is said."""
    cause = find_cause(LossVerdict("hung", 100.0, 99), log({"train.loss": FALLING}))

    assert cause is not None
    assert cause.cause == "infrastructure"
    assert cause.evidence_against == ("use and power of the GPUs are not in the log",)


@pytest.mark.parametrize(("wait", "expected"), [(None, "undecided"), (0.6, "data"), (0.02, "infrastructure")])
def test_steps_that_slow_down(wait: float | None, expected: str) -> None:
    """Steps that take longer at the same progress are data where they wait for it, else infrastructure."""
    curves = {"train.loss": FALLING}
    if wait is not None:
        curves["data.wait_share"] = [wait] * 100
    run = log(curves)
    slow = replace(judge(run), numbers=Numbers(speed_ratio=0.5))

    cause = find_cause(slow, run)

    assert cause is not None
    assert cause.cause == expected
    assert "2.0 times as long" in cause.evidence_for[0]
