"""Megatron-LM's text."""

from __future__ import annotations

import pytest

LINE = (
    " [2026-01-01 00:00:{second:02d}] iteration {step:8d}/    1000 | consumed samples: {samples:12d} | "
    "elapsed time per iteration (ms): 2000.0 | learning rate: 1.000E-04 | global batch size:    64 | "
    "lm loss: {loss} | loss scale: 4096.0 | grad norm: 0.500 | "
    "number of skipped iterations: {skipped:3d} | number of nan iterations: {nan:3d} |\n"
)


def iteration(step: int, loss: str = "2.000000E+00", skipped: int = 0, nan: int = 0) -> str:
    """One line of an iteration."""
    return LINE.format(step=step, loss=loss, skipped=skipped, nan=nan, samples=step * 64, second=step % 60)


def test_all_that_an_iteration_holds(read_text) -> None:
    """Loss, speed in seconds, scale, gradient norm, samples and the clock of a line are read."""
    (log,) = read_text("preamble\n" + iteration(10))

    values = {signal: curve.values[0] for signal, curve in log.curves.items()}
    assert values == {
        "train.loss": 2.0,
        "train.step_time": 2.0,
        "train.lr": 1e-4,
        "train.batch_size": 64,
        "train.loss_scale": 4096,
        "train.grad_norm": 0.5,
        "train.samples": 640,
        "train.non_finite_share": 0,
    }
    assert log.curves["train.loss"].times[0] == 1767225610
    assert log.facts == {"total_steps": 1000}


def test_skipped_and_nan_iterations_are_a_share(read_text) -> None:
    """Iterations that were skipped, or had no finite loss, are a share of those since the line before."""
    (log,) = read_text(iteration(10) + iteration(20, skipped=3, nan=1) + iteration(30, nan=10, loss="nan"))

    assert list(log.curves["train.non_finite_share"].values) == [0, 0.3, 1.0]


def test_validations_belong_to_their_iteration(read_text) -> None:
    """Validation losses are read in the wordings of old and new versions, and test losses are not."""
    (log,) = read_text(
        iteration(10)
        + "valid loss at iteration 10 | lm loss value: 2.5E+00 | lm loss PPL: 1.2E+01 |\n"
        + iteration(20)
        + " validation loss at iteration 20 on validation set | lm loss value: 2.25E+00 | lm loss PPL: 9 |\n"
        + " validation loss at iteration 20 on test set | lm loss value: 7.0E+00 | lm loss PPL: 9 |\n"
    )

    assert list(log.curves["eval.loss"].steps) == [10, 20]
    assert list(log.curves["eval.loss"].values) == [2.5, 2.25]


def test_a_log_that_goes_on_without_iterations(real) -> None:
    """Dated lines after the last record say from when to when the run was quiet."""
    log = real("megatron/bloom176b_eval_hang.log")

    assert list(log.curves["eval.loss"].values) == [2.327091]
    assert float(log.facts["quiet_to"]) - float(log.facts["quiet_from"]) == pytest.approx(7207)


def test_an_iteration_ends_the_quiet(read_text) -> None:
    """A run that goes on was not quiet."""
    pulse = "[2026-01-01 03:00:00] PULSE: job is running for 2:00\n"
    (log,) = read_text(iteration(10) + pulse + iteration(20))

    assert "quiet_from" not in log.facts


def test_an_impossible_throughput_is_flagged(real) -> None:
    """A real log of 0.005 samples per second, which took milliseconds for seconds, is not believed."""
    log = real("megatron/tr8b-104B_units_bug.log")

    assert [round(value, 1) for value in log.curves["train.samples_per_second"].values] == [5.3, 5.1]
    assert any("0.005" in note and "(2 times)" in note for note in log.notes)


def test_a_gradient_norm_leads_a_real_spike(real) -> None:
    """A real spike keeps its gradient norms, the losses and their steps."""
    log = real("megatron/bloom176b_spike_recovers.log")

    assert max(log.curves["train.grad_norm"].values) == 960.351
    assert (log.curves["train.loss"].steps[0], log.curves["train.loss"].steps[-1]) == (31214, 31251)
