"""Trainer states of Hugging Face trainers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from stoploss.collectors import training
from stoploss.collectors.training.hf_state import StateReader

STATE = """{"best_metric": 0.5, "best_model_checkpoint": "out/checkpoint-2", "log_history": [
 {"loss": 1.5, "grad_norm": Infinity, "learning_rate": 1e-05, "epoch": 0.5, "step": 1},
 {"loss": NaN, "grad_norm": NaN, "learning_rate": 2e-05, "epoch": 1.0, "step": 2},
 {"eval_loss": 1.25, "eval_runtime": 3.5, "epoch": 1.0, "step": 2},
 {"train_loss": 9.0, "train_runtime": 99.0, "epoch": 1.0, "step": 2}],
 "max_steps": 100, "stateful_callbacks": {"a": [1, {"b": null}]}}"""


def test_rows_of_training_and_evaluation_are_curves_of_their_own(read_text) -> None:
    """Training rows, evaluation rows and what stands beside the history are told apart."""
    (log,) = read_text(STATE)

    assert list(log.curves["train.loss"].steps) == [1, 2]
    assert list(log.curves["eval.loss"].values) == [1.25]
    assert list(log.curves["train.lr"].values) == [1e-05, 2e-05]
    assert log.facts == {"best_checkpoint": "out/checkpoint-2", "total_steps": 100}


def test_bare_nan_and_infinity_are_kept(read_text) -> None:
    """Bare NaN and Infinity, which are no JSON, are values like others."""
    (log,) = read_text(STATE)

    assert math.isnan(log.curves["train.loss"].values[1])
    assert log.curves["train.grad_norm"].values[0] == math.inf


def test_the_summary_is_no_step(read_text) -> None:
    """The row with the run time adds no loss."""
    (log,) = read_text(STATE)

    assert 9.0 not in log.curves["train.loss"].values


@pytest.mark.parametrize("size", [1, 7, 64])
def test_pieces_of_any_size_give_the_same(size: int) -> None:
    """A document that comes in pieces is read as one that comes at once."""
    whole, parts = StateReader(), StateReader()
    whole.feed(STATE.encode())
    for at in range(0, len(STATE), size):
        parts.feed(STATE.encode()[at : at + size])

    assert [str(record) for record in parts.take()] == [str(record) for record in whole.take()]
    assert parts.facts == whole.facts


@pytest.mark.parametrize("cut", range(175, len(STATE) - 1, 23))
def test_a_document_that_is_cut_off_gives_its_whole_rows(read_text, cut: int) -> None:
    """Of a truncated file all whole rows are read, and a note says so."""
    (log,) = read_text(STATE[:cut])

    rows = STATE[:cut].count("}") - STATE[:cut].count('"b": null}')
    assert len(log.curves["train.loss"].values if "train.loss" in log.curves else ()) == min(rows, 2)
    assert any("cut off" in note for note in log.notes)


def test_of_many_checkpoints_of_a_run_the_longest_counts(tmp_path: Path) -> None:
    """The states in the checkpoints of one run are one run, told by the longest history."""
    history = [{"step": step, "loss": 5 - step} for step in range(1, 4)]
    for name, rows in (("checkpoint-1", 1), ("checkpoint-3", 3), ("checkpoint-2", 2)):
        (tmp_path / "run" / name).mkdir(parents=True)
        (tmp_path / "run" / name / "trainer_state.json").write_text(
            json.dumps({"log_history": history[:rows]})
        )

    (log,) = training.read(tmp_path)

    assert log.run == "run"
    assert list(log.curves["train.loss"].values) == [4, 3, 2]


def test_a_real_overfit_run(real) -> None:
    """A real state holds 200 training points and five evaluations that get worse."""
    log = real("hf/whisper_overfit.trainer_state.json")

    assert len(log.curves["train.loss"].values) == 200
    assert [round(value, 3) for value in log.curves["eval.loss"].values] == [0.321, 0.358, 0.394, 0.412, 0.42]
    assert list(log.curves["eval.loss"].steps) == [1000, 2000, 3000, 4000, 5000]


def test_evaluations_of_other_sets_are_not_mixed(real) -> None:
    """Losses of several evaluation sets of one run are not joined to one curve, and a note names them."""
    log = real("hf/steady_train_only.trainer_state.json")

    assert len(log.curves["train.loss"].values) == 30
    assert "eval.loss" not in log.curves
    assert any("eval_g0_loss" in note for note in log.notes)


def test_G_48_loss_zero_with_nan_beside_it(real) -> None:
    """A loss of zero is kept beside a gradient norm and an evaluation that are not numbers."""
    log = real("hf/labels_all_masked.trainer_state.json")

    assert list(log.curves["train.loss"].values) == [0, 0, 0]
    assert all(map(math.isnan, log.curves["train.grad_norm"].values))
    assert all(map(math.isnan, log.curves["eval.loss"].values))
