"""Training logs for tests: from a few numbers, from real files, and cut as a daemon would see them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from stoploss.collectors.training import read
from stoploss.engine.model import Curve, TrainingLog

REAL = Path(__file__).parents[3] / "shared" / "data" / "loss"


def curve(
    signal: str,
    values: Sequence[float],
    steps: Sequence[float] | None = None,
    times: Sequence[float] | None = None,
) -> Curve:
    """A curve; steps count from 1 and there is no clock where none is given."""
    return Curve(
        signal,
        array("d", steps if steps is not None else range(1, len(values) + 1)),
        array("d", values),
        array("d", times if times is not None else [math.nan] * len(values)),
    )


def log(curves: Mapping[str, Sequence[float] | Curve], **facts: str | float) -> TrainingLog:
    """A log of curves by signal; keywords are its facts."""
    made = {name: data if isinstance(data, Curve) else curve(name, data) for name, data in curves.items()}
    return TrainingLog("run", "memory", "test", made, facts)


def real(name: str) -> tuple[TrainingLog, ...]:
    """The runs of a real file; skips where the folder is not there."""
    path = REAL / name
    if not path.exists():
        pytest.skip(f"real training logs are not on this machine: {path}")
    return read(path)


def part(curve: Curve, start: int, end: int) -> Curve:
    """Records of a curve from `start` up to and without `end`."""
    return replace(
        curve, steps=curve.steps[start:end], values=curve.values[start:end], times=curve.times[start:end]
    )


def prefix(whole: TrainingLog, share: float) -> TrainingLog:
    """What a daemon has read of a log when a share of its main curve is written.

    Facts of the end (status, ended) are not there yet. Curves as long as the main one are cut at
    the same record, others at its step.
    """
    name = next(name for name in ("train.loss", "eval.loss", "eval.metric") if name in whole.curves)
    main = whole.curves[name]
    count = max(1, int(len(main.values) * share))
    step = main.steps[count - 1]
    cut = {}
    for signal, other in whole.curves.items():
        if len(other.values) == len(main.values):
            kept = count
        else:
            kept = sum(1 for at in other.steps if not at > step)
        if kept:
            cut[signal] = part(other, 0, kept)
    early = {
        key: value for key, value in whole.facts.items() if key not in ("status", "ended", "best_checkpoint")
    }
    return replace(whole, curves=cut, facts=early)


def prefixes(whole: TrainingLog, points: int = 20) -> Iterator[tuple[float, TrainingLog]]:
    """The log at that many points of its life, the last one whole."""
    for number in range(1, points + 1):
        yield number / points, prefix(whole, number / points)
