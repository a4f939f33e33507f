"""Callbacks that tell what training does and carry out what is asked: for plain loops, for the trainer of
Hugging Face and for Lightning. Neither library is imported here.

Where a run has several ranks, all of them must save at the same step. Rank 0 alone reads the request, and
`agree` carries it to the others: every rank calls it after every step with what it knows ("" for nothing),
and is given what rank 0 knows. Without `agree` a request to several ranks is answered `failed`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from stoploss.training import places
from stoploss.training.request import Request, requested
from stoploss.training.track import track

Agree = Callable[[str], str]
Path = str | os.PathLike[str]

_EVALUATION = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "dev"})
"""First words of names that Lightning keeps among the metrics after an evaluation."""


def after_step(step: int, save: Callable[[], Path], *, run_dir: Path | None = None, **values: Any) -> bool:
    """Tell what a step gave, and do what is asked; True where the loop is to end now.

    Args:
        step: the number of steps done.
        save: writes a checkpoint and returns its path once it is complete. What it raises is answered as
            `failed`, and training goes on.
        run_dir: as in `stoploss.requested`.
        values: as in `stoploss.track`.
    """
    if values:
        track(step=step, **values)
    request = requested(run_dir)
    return request is not None and obey(request, save, step)


def obey(request: Request, save: Callable[[], Path], step: int) -> bool:
    """Save and answer; True where the run is to end now."""
    try:
        path = save()
    except Exception as error:
        places.note(f"the checkpoint that was asked for could not be saved: {error}")
        request.failed(f"{type(error).__name__}: {error}")
        return False
    request.saved(path, step)
    if request.action != "stop":
        return False
    request.stopped(path, step)
    return True


class _Asked:
    """What all ranks are asked for, and what has become of it.

    Attributes:
        action: `checkpoint`, `stop`, or "" while nothing is asked.
        ending: the run ends because it was asked to.
    """

    def __init__(self, run_dir: Path | None, agree: Agree | None) -> None:
        self.action = ""
        self.ending = False
        self._run_dir = run_dir
        self._agree = agree
        self._request: Request | None = None
        self._saved: tuple[Path, int] | None = None

    def look(self, ranks: int) -> str:
        """What all ranks are asked for after this step."""
        if self.action:
            return self.action
        request = requested(self._run_dir) if places.rank() == 0 else None
        if request is not None and ranks > 1 and self._agree is None:
            request.failed(f"the run has {ranks} ranks, and its callback was given no `agree`")
            request = None
        self._request = request
        self.action = "" if request is None else request.action
        if ranks > 1 and self._agree is not None:
            self.action = self._agree(self.action)
        return self.action

    def saved(self, path: Path, step: int) -> None:
        """The checkpoint is complete."""
        if self._request is not None:
            self._request.saved(path, step)
        self.ending = self.action == "stop"
        self._saved, self.action = (path, step), ""

    def failed(self, error: Exception) -> None:
        """The checkpoint could not be saved; training goes on."""
        places.note(f"the checkpoint that was asked for could not be saved: {error}")
        if self._request is not None:
            self._request.failed(f"{type(error).__name__}: {error}")
        self.action = ""

    def ended(self) -> None:
        """Training is over."""
        if self.ending and self._request is not None and self._saved is not None:
            self._request.stopped(*self._saved)


class _Phase:
    """Tells the phase when it changes."""

    def __init__(self) -> None:
        self._now = ""

    def turn(self, phase: str, step: int) -> None:
        """The run is in this phase."""
        if phase != self._now:
            self._now = phase
            track(step=step, phase=phase)


def _nothing(*arguments: Any, **named: Any) -> None:
    """An event that says nothing here."""


class HuggingFaceCallback:
    """For `Trainer(callbacks=[HuggingFaceCallback()])` of the package transformers.

    What the trainer logs is told; a request makes it save after the step, and stop if asked to.
    """

    def __init__(self, run_dir: Path | None = None, *, agree: Agree | None = None) -> None:
        self._asked = _Asked(run_dir, agree)
        self._phase = _Phase()

    def __getattr__(self, name: str) -> Callable[..., None]:
        # The trainer calls every event of every callback; later versions have more of them.
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(name)

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Training begins."""
        self._phase.turn("training", state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Look for a request; the trainer saves right after this."""
        if self._asked.look(int(getattr(args, "world_size", 1))):
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """A checkpoint is complete."""
        if not self._asked.action:
            return
        path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        if not os.path.isdir(path) and places.rank() == 0:
            self._asked.failed(FileNotFoundError(f"the trainer saved, but there is no {path}"))
            return
        self._asked.saved(path, state.global_step)
        if self._asked.ending:
            control.should_training_stop = True

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **named: Any
    ) -> None:
        """The trainer logs; its summary at the end is no step and is left out."""
        if logs and "train_runtime" not in logs:
            track(step=state.global_step, **{name: logs[name] for name in logs if name != "step"})

    def on_prediction_step(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """A step of an evaluation."""
        self._phase.turn("evaluating", state.global_step)

    def on_evaluate(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """An evaluation is over."""
        self._phase.turn("training", state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Training is over."""
        self._phase.turn("finishing", state.global_step)
        self._asked.ended()


class _LightningHooks:
    """The events of a Lightning callback that say something here."""

    def __init__(self, run_dir: Path | None, agree: Agree | None) -> None:
        self._asked = _Asked(run_dir, agree)
        self._phase = _Phase()
        self._step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Training begins."""
        self._step = trainer.global_step
        self._phase.turn("training", self._step)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Tell the metrics at the trainer's own interval; save where a request came."""
        step = trainer.global_step
        # Where gradients are accumulated, most batches are no step.
        if step == self._step:
            return
        self._step = step
        if step % max(1, trainer.log_every_n_steps) == 0:
            self._tell(trainer, evaluation=False)
        if not (action := self._asked.look(trainer.world_size)):
            return
        path = os.path.join(trainer.default_root_dir, "checkpoints", f"step={step}.ckpt")
        try:
            trainer.save_checkpoint(path)
        except Exception as error:
            self._asked.failed(error)
            return
        self._asked.saved(path, step)
        if action == "stop":
            trainer.should_stop = True

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """An evaluation begins."""
        self._phase.turn("evaluating", trainer.global_step)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """An evaluation is over; the one before training says nothing."""
        if not trainer.sanity_checking:
            self._tell(trainer, evaluation=True)
            self._phase.turn("training", trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Training is over."""
        self._phase.turn("finishing", trainer.global_step)
        self._asked.ended()

    def _tell(self, trainer: Any, *, evaluation: bool) -> None:
        metrics = trainer.callback_metrics
        # Metrics of the evaluation before stay among those of the steps after it.
        told = {name: metrics[name] for name in metrics if _of_evaluation(name) == evaluation}
        told.pop("step", None)
        if told:
            track(step=trainer.global_step, **told)


def _of_evaluation(name: str) -> bool:
    return name.lower().replace("/", "_").partition("_")[0] in _EVALUATION


def lightning_callback(
    run_dir: Path | None = None, *, agree: Agree | None = None, base: type | None = None
) -> Any:
    """A callback for `Trainer(callbacks=[…])` of Lightning, which takes only children of its own class.

    Args:
        run_dir: as in `stoploss.requested`.
        agree: as said above.
        base: Lightning's class `Callback`; else that of the Lightning which the program has imported.

    Raises:
        RuntimeError: no Lightning was imported.
    """
    if base is None:
        loaded = (sys.modules.get(name) for name in ("lightning.pytorch", "pytorch_lightning"))
        module = next((found for found in loaded if found is not None), None)
        if module is None:
            raise RuntimeError(
                "import lightning.pytorch first, or give its class: base=lightning.pytorch.Callback"
            )
        base = module.Callback
    return type("StoplossCallback", (_LightningHooks, base), {})(run_dir, agree)
