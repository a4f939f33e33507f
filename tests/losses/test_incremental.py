"""A curve that arrives in parts gives the same verdict as the whole."""

from __future__ import annotations

import math
from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.curves import curve, log, part

from stoploss.engine.losses.incremental import LiveRun, judge
from stoploss.engine.losses.model import LossSettings
from stoploss.engine.model import Curve, TrainingLog


def _odd_log(seed: int, count: int) -> TrainingLog:
    """A noisy fall with spikes, numbers that are not finite, resumes, repeats and evaluations."""
    random = np.random.default_rng(seed)
    values = (2 + 5 * np.arange(1, count + 1) ** -0.4) * random.lognormal(0, 0.05, count)
    for _ in range(random.integers(0, 4)):
        start = int(random.integers(0, count))
        values[start : start + int(random.integers(1, 9))] *= random.uniform(1.2, 4)
    values[random.random(count) < random.choice([0, 0.02])] = random.choice([math.nan, math.inf])
    steps, now = [], 0.0
    for _ in range(count):
        jump = random.random()
        now = max(0.0, now + (10 if jump > 0.03 else 0 if jump > 0.015 else -10 * random.integers(1, 30)))
        steps.append(now)
    grad = random.lognormal(0, 0.3, count)
    every = max(1, count // 12)
    evaluated = [float(value) for value in values[::every]]
    return log(
        {
            "train.loss": curve("train.loss", list(values), steps),
            "train.grad_norm": curve("train.grad_norm", list(grad), steps),
            "train.lr": curve("train.lr", [1e-3 * min(1, k / 40) for k in range(count)], steps),
            "eval.loss": curve("eval.loss", evaluated, steps[::every]),
        }
    )


def _upto(whole: TrainingLog, ends: dict[str, int], starts: dict[str, int] | None = None) -> TrainingLog:
    curves: dict[str, Curve] = {}
    for name, data in whole.curves.items():
        start = starts[name] if starts else 0
        if ends[name] > start:
            curves[name] = part(data, start, ends[name])
    return TrainingLog("run", "memory", "test", curves, whole.facts)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 400), st.lists(st.floats(0, 1), max_size=12))
def test_parts_give_the_verdict_of_the_whole(seed: int, count: int, cuts: list[float]) -> None:
    """After every part of any size the verdict, to the last digit, is that on the log cut there."""
    whole = _odd_log(seed, count)
    live = LiveRun()
    before = dict.fromkeys(whole.curves, 0)

    for share in sorted({*cuts, 1.0}):
        ends = {name: int(len(data.values) * share) for name, data in whole.curves.items()}
        live.extend(_upto(whole, ends, before))
        before = ends
        assert repr(live.verdict()) == repr(judge(_upto(whole, ends)))


def test_point_by_point_is_the_whole() -> None:
    """One record after another gives at each record what the whole file gives when cut there."""
    whole = _odd_log(11, 220)
    live = LiveRun()
    before = dict.fromkeys(whole.curves, 0)

    for number in range(1, 221):
        ends = {name: math.ceil(len(data.values) * number / 220) for name, data in whole.curves.items()}
        live.extend(_upto(whole, ends, before))
        before = ends
        assert repr(live.verdict()) == repr(judge(_upto(whole, ends)))


def test_G_56_patience_survives_a_restart() -> None:
    """Two bad evaluations, a restart, one more: the carried state makes the third count."""
    train = curve("train.loss", [2 / k for k in range(1, 41)])
    evaluations = curve("eval.loss", [1.0, 0.8, 0.6, 0.7, 0.8], [8, 16, 24, 32, 40])
    first = LiveRun(log({"train.loss": train, "eval.loss": evaluations}))
    assert first.verdict().verdict != "overfit"

    second = LiveRun(first.log())
    more = {
        "train.loss": curve("train.loss", [0.045] * 8, range(41, 49)),
        "eval.loss": curve("eval.loss", [0.95], [48]),
    }
    second.extend(log(more))

    assert second.verdict().verdict == "overfit"
    assert second.verdict().since_step == 24


def test_a_direction_that_comes_late_turns_the_metric() -> None:
    """A metric whose direction is declared after its first records is judged by it as if from the start."""
    live = LiveRun(log({"eval.metric": [0.5, 0.7, 0.6]}))
    live.extend(log({}, better="higher"))

    best = live.verdict().best
    assert best is not None
    assert best.value == 0.7


def test_columns_of_unlike_length_are_an_error() -> None:
    """A curve whose columns differ in length is refused with the lengths."""
    broken = Curve("train.loss", array("d", [1, 2]), array("d", [1]), array("d", [1]))

    with pytest.raises(ValueError, match="2 steps, 1 values and 1 times"):
        judge(log({"train.loss": broken}))


def test_settings_move_the_lines() -> None:
    """A stricter patience is obeyed: with 5, three bad evaluations are not yet overfit."""
    curves = {
        "train.loss": curve("train.loss", [2 / k for k in range(1, 49)]),
        "eval.loss": curve("eval.loss", [1.0, 0.8, 0.6, 0.7, 0.8, 0.95], [8, 16, 24, 32, 40, 48]),
    }

    assert judge(log(curves)).verdict == "overfit"
    assert judge(log(curves), settings=LossSettings(patience=5)).verdict == "healthy"
