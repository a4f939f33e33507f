"""Train a small network for real, on made-up data, and log it as JSON lines.

    python examples/trainer/train.py --out run.jsonl                       # healthy
    python examples/trainer/train.py --out run.jsonl --lr 6 --steps 1000   # oscillates: steps too long
    python examples/trainer/train.py --out run.jsonl --init 0.01           # flat: the gradient vanishes

A network of tanh layers learns by stochastic gradient descent which of ten classes a point belongs
to; a fixed network drew the classes. One line is `{"step", "loss", "lr", "grad_norm"}`, every
`--eval-every` steps with `"eval_loss"` on points that are never trained on. The same options
and seed give the same file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

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


def train(options: Options) -> Iterator[dict[str, float]]:
    """The records of a run, one a step."""
    random = np.random.default_rng(options.seed)
    points = random.normal(size=(TRAINED_ON + HELD_OUT, INPUTS))
    classes = Network(random, 1.5).forward(points)[-1].argmax(axis=1)
    network = Network(random, options.init)
    for step in range(1, options.steps + 1):
        chosen = random.integers(0, TRAINED_ON, options.batch)
        loss, gradients = network.gradients(points[chosen], classes[chosen])
        norm = float(np.sqrt(sum(float(np.vdot(gradient, gradient)) for gradient in gradients)))
        for weight, gradient in zip(network.weights, gradients, strict=True):
            weight -= options.lr * gradient
        record = {"step": step, "loss": loss, "lr": options.lr, "grad_norm": norm}
        if step % options.eval_every == 0:
            record["eval_loss"] = network.loss(points[TRAINED_ON:], classes[TRAINED_ON:])
        yield record


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Train a small network and log it as JSON lines.")
    parser.add_argument("--out", type=Path, help="file to write; standard output where none is given")
    for name, default in (("lr", 0.1), ("init", 1.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    for name, number in (("steps", 600), ("batch", 64), ("eval-every", 50), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=number)
    given = vars(parser.parse_args(arguments))
    target: Path | None = given.pop("out")
    stream = target.open("w", encoding="utf-8") if target is not None else sys.stdout
    try:
        for record in train(Options(**given)):
            print(json.dumps(record), file=stream, flush=True)
    finally:
        if target is not None:
            stream.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
