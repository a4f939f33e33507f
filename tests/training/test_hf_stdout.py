"""What Hugging Face trainers print."""

from __future__ import annotations

import math

PRINTED = """Some weights were not initialized\r
  3%|▎         | 1/30 [00:01<00:29]\r{'loss': 2.5, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': 0.1}
{'loss': '2.25', 'grad_norm': inf, 'learning_rate': 2e-05, 'epoch': 0.2}
{'eval_loss': 2.0, 'eval_runtime': 1.5, 'epoch': 0.2}
{'train_runtime': 3.0, 'train_samples_per_second': 7.0, 'train_loss': 9.0, 'epoch': 0.2}
{'eval_loss': 1.75, 'epoch': 0.2}
"""


def test_dicts_between_progress_bars_are_read(read_text) -> None:
    """A dict counts also behind a progress bar, and with its numbers printed as text."""
    (log,) = read_text(PRINTED)

    assert log.format == "hf_stdout"
    assert list(log.curves["train.loss"].values) == [2.5, 2.25]
    assert list(log.curves["train.grad_norm"].values) == [1.5, math.inf]
    assert list(log.curves["train.epoch"].values)[:2] == [0.1, 0.2]


def test_the_summary_is_no_step_and_ends_no_evaluation(read_text) -> None:
    """The summary adds no record, and an evaluation after it belongs to the same run."""
    (log,) = read_text(PRINTED)

    assert list(log.curves["eval.loss"].values) == [2.0, 1.75]
    assert "train.samples_per_second" not in log.curves


def test_training_after_a_summary_is_another_run(read_text) -> None:
    """Records of training after a summary belong to a second run with a name of its own."""
    first, second = read_text(PRINTED + "{'loss': 7.0, 'epoch': 3.0}\n")

    assert first.run != second.run
    assert list(second.curves["train.loss"].values) == [7.0]


def test_an_epoch_that_starts_over_is_another_run(read_text) -> None:
    """Epochs that begin again begin another run; epochs that go back a little are a resume."""
    lines = [f"{{'loss': 1.0, 'epoch': {epoch}}}\n" for epoch in (1.0, 2.0, 3.0, 2.5, 3.0, 1.0, 2.0)]

    assert [len(log.curves["train.loss"].values) for log in read_text("".join(lines))] == [5, 2]


def test_two_real_runs_in_one_file(real_runs) -> None:
    """A real output of two runs gives a sound run and one that is broken from its start."""
    first, second = real_runs("hf/healthy_then_zero_restart.log")

    assert list(first.curves["train.loss"].values) == [0.1781, 0.1785]
    assert list(second.curves["train.loss"].values) == [0.0, 0.0]
    assert all(map(math.isnan, second.curves["train.grad_norm"].values))


def test_G_49_finite_loss_with_nan_gradient(real) -> None:
    """A gradient norm that is never a number, and a learning rate of zero, stand beside a finite loss."""
    log = real("hf/lr_stays_zero.log")

    assert list(log.curves["train.loss"].values) == [4.4202, 4.4061]
    assert list(log.curves["train.lr"].values) == [0, 0]
    assert all(map(math.isnan, log.curves["train.grad_norm"].values))


def test_infinity_then_nan(real) -> None:
    """A gradient norm grows, is infinite, and then no number, in that order."""
    log = real("hf/grad_blowup_inf_nan.log")

    assert list(log.curves["train.grad_norm"].values)[:4] == [3.12, 2.87, 41.5, math.inf]
    assert math.isnan(log.curves["train.loss"].values[-1])
