"""Callbacks for loops and trainers of others, driven as those drive them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stoploss.training.callbacks import HuggingFaceCallback, after_step, lightning_callback

from .conftest import Run


@pytest.fixture(autouse=True)
def _in_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STOPLOSS_REQUEST", "STOPLOSS_TRACK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STOPLOSS_RUN_DIR", str(run.folder))


def told(run: Run) -> list[dict[str, Any]]:
    """What the run told of itself."""
    text = (run.box / "track.jsonl").read_text(encoding="utf-8")
    return [
        {name: value for name, value in json.loads(line).items() if name != "time"}
        for line in text.splitlines()
    ]


def test_a_plain_loop_saves_answers_and_stops(run: Run) -> None:
    """after_step tells the values, saves when asked, and is true when the loop is to end."""
    saves: list[int] = []

    def loop() -> int:
        for step in range(1, 10):
            if step == 3:
                run.ask("r1")
            if step == 5:
                run.ask("r2", "stop")

            def save(step: int = step) -> Path:
                saves.append(step)
                return run.folder / f"step-{step}"

            if after_step(step, save, run_dir=run.folder, loss=1 / step):
                return step
        return 0

    assert loop() == 5
    assert saves == [3, 5]
    assert (run.answer()["id"], run.answer()["state"], run.answer()["step"]) == ("r2", "stopped", 5)
    assert told(run)[0] == {"step": 1, "train.loss": 1.0}
    assert len(told(run)) == 5


@dataclass
class State:
    """What a trainer tells its callbacks of its state, and what they may ask it for."""

    global_step: int = 0
    should_save: bool = False
    should_training_stop: bool = False


@dataclass
class Arguments:
    """Options of a trainer."""

    output_dir: Path
    world_size: int = 1


def hugging_face(
    callback: HuggingFaceCallback, arguments: Arguments, *, steps: int = 6, saves: bool = True
) -> State:
    """Train as the trainer of Hugging Face does: every event of every callback, with named extras."""
    state = State()

    def event(name: str, **more: Any) -> None:
        assert getattr(callback, name)(arguments, state, state, model=None, **more) is None

    event("on_init_end")
    event("on_train_begin")
    while state.global_step < steps and not state.should_training_stop:
        event("on_step_begin")
        state.global_step += 1
        event("on_step_end")
        event("on_log", logs={"loss": 2.0, "learning_rate": 0.5, "epoch": 0.25})
        if state.should_save:
            state.should_save = False
            if saves:
                (arguments.output_dir / f"checkpoint-{state.global_step}").mkdir(parents=True)
            event("on_save")
    event("on_prediction_step")
    event("on_prediction_step")
    event("on_evaluate")
    event("on_log", logs={"train_runtime": 5.0, "train_loss": 2.0})
    event("on_train_end")
    return state


def test_the_trainer_of_hugging_face_saves_and_stops(run: Run) -> None:
    """A request makes the trainer save after its first step and stop; logs and phases are told."""
    run.ask("r1", "stop")

    state = hugging_face(HuggingFaceCallback(run.folder), Arguments(run.folder))

    assert state.global_step == 1
    assert (run.answer()["state"], run.answer()["step"]) == ("stopped", 1)
    assert run.answer()["path"] == str(run.folder / "checkpoint-1")
    assert {"step": 1, "train.loss": 2.0, "train.lr": 0.5, "train.epoch": 0.25} in told(run)
    assert [record["job.phase"] for record in told(run) if "job.phase" in record] == [
        "training",
        "evaluating",
        "training",
        "finishing",
    ]


def test_a_checkpoint_that_is_not_there_is_a_failure(run: Run) -> None:
    """Where the trainer says that it saved and no checkpoint is there, failed is answered and it goes on."""
    run.ask("r1", "stop")

    state = hugging_face(HuggingFaceCallback(run.folder), Arguments(run.folder), saves=False)

    assert state.global_step == 6
    assert run.answer()["state"] == "failed"


def test_several_ranks_act_only_when_they_can_agree(run: Run) -> None:
    """Without `agree` a request to four ranks is answered failed, with it the ranks save together."""
    run.ask("r1")
    hugging_face(HuggingFaceCallback(run.folder), Arguments(run.folder, world_size=4))
    assert (run.answer()["state"], "4 ranks" in run.answer()["reason"]) == ("failed", True)

    run.ask("r2")
    hugging_face(HuggingFaceCallback(run.folder, agree=lambda known: known), Arguments(run.folder, 4))
    assert (run.answer()["id"], run.answer()["state"]) == ("r2", "saved")


def test_other_ranks_follow_rank_0(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that is not the first reads no request, saves and stops with the first, and answers nothing."""
    monkeypatch.setenv("RANK", "3")
    run.ask("r1", "stop")
    words = iter(["", "stop"])
    heard: list[str] = []

    def agree(known: str) -> str:
        heard.append(known)
        return next(words)

    state = hugging_face(HuggingFaceCallback(run.folder, agree=agree), Arguments(run.folder, 4))

    assert (state.global_step, heard) == (2, ["", ""])
    assert sorted(path.name for path in run.box.iterdir()) == ["request.json"]


class Callback:
    """Stands for Lightning's own class: every event, and nothing in it."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """An event that only the base has."""


@dataclass
class Lightning:
    """A trainer as Lightning's callbacks see it."""

    default_root_dir: Path
    full: bool = False
    global_step: int = 0
    world_size: int = 1
    log_every_n_steps: int = 2
    sanity_checking: bool = True
    should_stop: bool = False
    callback_metrics: dict[str, float] = field(default_factory=dict)

    def save_checkpoint(self, path: str) -> None:
        """Save."""
        if self.full:
            raise OSError(28, "No space left on device")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("weights")

    def fit(self, callback: Any) -> None:
        """Four steps of two batches with an evaluation before and after the second."""
        callback.setup(self, None, "fit")
        callback.on_validation_start(self, None)
        callback.on_validation_end(self, None)
        self.sanity_checking = False
        callback.on_train_start(self, None)
        while self.global_step < 4 and not self.should_stop:
            callback.on_train_batch_end(self, None, None, None, 0)
            self.global_step += 1
            self.callback_metrics["train_loss"] = 1 / self.global_step
            callback.on_train_batch_end(self, None, None, None, 0)
            if self.global_step == 2:
                callback.on_validation_start(self, None)
                self.callback_metrics["val_loss"] = 3.0
                callback.on_validation_end(self, None)
        callback.on_train_end(self, None)


def test_lightning_tells_each_evaluation_once(run: Run) -> None:
    """Training metrics come at the trainer's interval, those of an evaluation once, phases as they turn."""
    callback = lightning_callback(run.folder, base=Callback)

    Lightning(run.folder).fit(callback)

    assert isinstance(callback, Callback)
    assert [record for record in told(run) if "job.phase" not in record] == [
        {"step": 2, "train.loss": 0.5},
        {"step": 2, "eval.loss": 3.0},
        {"step": 4, "train.loss": 0.25},
    ]
    assert [record["job.phase"] for record in told(run) if "job.phase" in record] == [
        "evaluating",
        "training",
        "evaluating",
        "training",
        "finishing",
    ]


@pytest.mark.parametrize(("full", "state", "steps"), [(False, "stopped", 1), (True, "failed", 4)])
def test_lightning_is_stopped_only_with_a_checkpoint(run: Run, full: bool, state: str, steps: int) -> None:
    """Asked to stop it saves and ends after that step; where it cannot save it answers failed and goes on."""
    run.ask("r1", "stop")
    trainer = Lightning(run.folder, full=full)

    trainer.fit(lightning_callback(run.folder, base=Callback))

    assert (trainer.global_step, run.answer()["state"]) == (steps, state)


def test_lightning_must_be_loaded(run: Run) -> None:
    """Without Lightning in the program the error says what to import."""
    with pytest.raises(RuntimeError, match=r"import lightning\.pytorch first"):
        lightning_callback(run.folder)
