"""Train a small network for real, on made-up data, and log it as JSON lines.

    python examples/trainer/train.py --out run.jsonl                       # healthy
    python examples/trainer/train.py --out run.jsonl --lr 6 --steps 1000   # oscillates: steps too long
    python examples/trainer/train.py --out run.jsonl --init 0.01           # flat: the gradient vanishes
    python examples/trainer/train.py --out run.jsonl --checkpoint-dir kept          # saves when asked
    python examples/trainer/train.py --out run.jsonl --checkpoint-dir kept --resume # goes on from there
    python examples/trainer/train.py --out run.jsonl --idle-after 100               # then only waits
    python examples/trainer/train.py --out run.jsonl --raise-after 100              # leaves its worker

A network of tanh layers learns by stochastic gradient descent which of ten classes a point belongs
to; a fixed network drew the classes. One line is `{"step", "loss", "lr", "grad_norm"}`, every
`--eval-every` steps with `"eval_loss"` on points that are never trained on. The same options
and seed give the same file.

It does what it is asked for, by `.stoploss/request.json` beside the log or by SIGUSR1: after the step it
saves a checkpoint, and ends if asked to stop or started with `--stop-after-save`. A run that goes on from a
checkpoint has the losses that it would have had without the pause.

A run that is idle still does what it is asked for. One that raises leaves a worker behind that holds what it
had open, as a data loader does that nobody joins.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

import checkpoints
import numpy as np
import numpy.typing as npt

import stoploss
from stoploss.training.callbacks import obey

Floats = npt.NDArray[np.float64]

INPUTS, WIDTH, HIDDEN, CLASSES = 16, 32, 4, 10
TRAINED_ON, HELD_OUT = 4096, 1024


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is: learning rate, scale of the first weights (1 keeps signals at their size), length."""

    lr: float = 0.1
    init: float = 1.0
    steps: int = 600
    batch: int = 64
    eval_every: int = 50
    seed: int = 0


class Network:
    """Layers of tanh with a softmax on top; weights only, which is enough here."""

    def __init__(self, random: np.random.Generator, init: float) -> None:
        sizes = [INPUTS, *[WIDTH] * HIDDEN, CLASSES]
        self.weights = [
            random.normal(0, init / np.sqrt(before), (before, after)) for before, after in pairwise(sizes)
        ]

    def forward(self, points: Floats) -> list[Floats]:
        """What every layer puts out, the points first and the logits last."""
        outputs = [points]
        for weight in self.weights[:-1]:
            outputs.append(np.tanh(outputs[-1] @ weight))
        outputs.append(outputs[-1] @ self.weights[-1])
        return outputs

    def loss(self, points: Floats, classes: npt.NDArray[np.intp]) -> float:
        """Mean cross-entropy in nats."""
        return _cross_entropy(self.forward(points)[-1], classes)

    def gradients(self, points: Floats, classes: npt.NDArray[np.intp]) -> tuple[float, list[Floats]]:
        """The loss and its derivative for every layer's weights."""
        outputs = self.forward(points)
        error = _softmax(outputs[-1])
        error[np.arange(len(classes)), classes] -= 1
        error /= len(classes)
        found: list[Floats] = []
        for weight, before in zip(reversed(self.weights), reversed(outputs[:-1]), strict=True):
            found.append(before.T @ error)
            error = (error @ weight.T) * (1 - before**2)
        return _cross_entropy(outputs[-1], classes), found[::-1]


def _softmax(logits: Floats) -> Floats:
    raised: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _cross_entropy(logits: Floats, classes: npt.NDArray[np.intp]) -> float:
    top = logits.max(axis=1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    return float(np.mean(total - logits[np.arange(len(classes)), classes]))


class Training:
    """A run that can be saved after any step."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.random = np.random.default_rng(options.seed)
        self.points = self.random.normal(size=(TRAINED_ON + HELD_OUT, INPUTS))
        self.classes = Network(self.random, 1.5).forward(self.points)[-1].argmax(axis=1)
        self.network = Network(self.random, options.init)
        self.step = self.saved = 0

    def records(self) -> Iterator[dict[str, float]]:
        """Do the steps that are left, and tell a record of each."""
        options, network = self.options, self.network
        while self.step < options.steps:
            self.step += 1
            chosen = self.random.integers(0, TRAINED_ON, options.batch)
            loss, gradients = network.gradients(self.points[chosen], self.classes[chosen])
            norm = float(np.sqrt(sum(float(np.vdot(gradient, gradient)) for gradient in gradients)))
            for weight, gradient in zip(network.weights, gradients, strict=True):
                weight -= options.lr * gradient
            record = {"step": self.step, "loss": loss, "lr": options.lr, "grad_norm": norm}
            if self.step % options.eval_every == 0:
                record["eval_loss"] = network.loss(self.points[TRAINED_ON:], self.classes[TRAINED_ON:])
            yield record

    def save(self, folder: Path | None) -> Path:
        """Save all that the next step depends on."""
        if folder is None:
            raise ValueError("the run was started without --checkpoint-dir")
        path = checkpoints.save(folder, self.step, self.network.weights, self.random.bit_generator.state)
        self.saved = self.step
        return path

    def resume(self, folder: Path) -> None:
        """Go on from the newest complete checkpoint, where there is one."""
        newest = checkpoints.newest(folder)
        if newest is not None:
            self.step, self.network.weights, self.random.bit_generator.state = checkpoints.load(newest)


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where checkpoints are kept, what is done with them, and after which step a run goes wrong."""

    checkpoint_dir: Path | None
    resume: bool
    stop_after_save: bool
    idle_after: int | None = None
    raise_after: int | None = None


def run(options: Options, keeping: Keeping, out: Path | None) -> None:
    """Train, log, and do what is asked for."""
    stoploss.listen()
    training = Training(options)
    if keeping.resume and keeping.checkpoint_dir is not None:
        training.resume(keeping.checkpoint_dir)
    if keeping.raise_after is not None:
        leave_a_worker()
    run_dir = out.parent if out is not None else None
    mode = "a" if training.step else "w"
    with out.open(mode, encoding="utf-8") if out is not None else nullcontext(sys.stdout) as stream:
        for record in training.records():
            print(json.dumps(record), file=stream, flush=True)
            if training.step == keeping.raise_after:
                raise RuntimeError(f"step {training.step} cannot be done")
            over = obeyed(training, keeping, run_dir)
            while training.step == keeping.idle_after and not over:
                time.sleep(0.02)
                over = obeyed(training, keeping, run_dir)
            if over:
                return


def obeyed(training: Training, keeping: Keeping, run_dir: Path | None) -> bool:
    """Do what the run is asked for; whether it is to end."""
    request = stoploss.requested(run_dir)
    if request is None:
        return False
    asked_to_stop = obey(request, lambda: training.save(keeping.checkpoint_dir), training.step)
    return asked_to_stop or (keeping.stop_after_save and training.saved == training.step)


def leave_a_worker() -> None:
    """Start a process that lives on and holds all that this one has open."""
    if os.fork() == 0:
        while True:
            time.sleep(1)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Train a small network and log it as JSON lines.")
    parser.add_argument("--out", type=Path, help="file to write; standard output where none is given")
    for name, default in (("lr", 0.1), ("init", 1.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    for name, number in (("steps", 600), ("batch", 64), ("eval-every", 50), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--checkpoint-dir", type=Path, help="folder to save to when asked")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint there")
    parser.add_argument("--stop-after-save", action="store_true", help="end once a checkpoint is saved")
    parser.add_argument("--idle-after", type=int, metavar="STEP", help="do nothing more, and stay")
    parser.add_argument("--raise-after", type=int, metavar="STEP", help="fail, and leave a worker behind")
    given = vars(parser.parse_args(arguments))
    out = given.pop("out")
    keeping = Keeping(**{field.name: given.pop(field.name) for field in fields(Keeping)})
    if keeping.resume and keeping.checkpoint_dir is None:
        parser.error("--resume needs --checkpoint-dir")
    run(Options(**given), keeping, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
