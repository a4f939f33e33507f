"""Evaluations since the best one: overfitting, and training that worsens on both sides."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stoploss.engine.losses.clean import Floats, Track, view
from stoploss.engine.losses.model import LossSettings


@dataclass(frozen=True, slots=True)
class Evaluations:
    """What the finite evaluations say.

    Attributes:
        count: how many there are.
        best: position of the best one in the track.
        since_best: evaluations after it.
        recent: median of the last three.
        level: the best median of three neighbours, which one lucky evaluation cannot set.
        noise: standard deviation of one evaluation around its neighbours.
        worse: whether they have risen for certain.
        sudden: evaluations from the best one to the first that lies beyond chance.
        improving: whether the newest quarter of them holds a best that noise does not explain.
    """

    count: int
    best: int
    since_best: int
    recent: float
    level: float
    noise: float
    worse: bool
    sudden: int | None
    improving: bool


def evaluations(track: Track, settings: LossSettings) -> Evaluations | None:
    """Judge the evaluations of a run; None where none is finite."""
    best = track.best_before(len(track))
    if best is None:
        return None
    all_values = view(track.values)
    places = np.flatnonzero(np.isfinite(all_values))
    rated = track.sign * all_values[places]
    after = rated[int(np.searchsorted(places, best)) + 1 :]
    noise = _noise(rated)
    level = float(_middles(rated).min()) if len(rated) > 2 else float(rated.min())
    recent = float(np.median(rated[-3:]))
    margin = max(settings.rise_share * abs(level), 3 * noise)
    beyond = after > level + margin
    worse = (
        len(after) >= settings.patience
        and recent - level > margin
        and bool((rated[-2:] > rated.min() + margin).all())
    )
    old = rated[: -max(1, len(rated) // 4)]
    return Evaluations(
        count=len(rated),
        best=best,
        since_best=len(after),
        recent=track.sign * recent,
        level=track.sign * level,
        noise=noise,
        worse=worse,
        sudden=int(beyond.argmax()) + 1 if worse and beyond.any() else None,
        improving=len(old) > 0 and float(rated.min()) < float(old.min()) - max(noise, 1e-3 * abs(level)),
    )


def _noise(values: Floats) -> float:
    if len(values) < 4:
        return 0.0
    # Both let a slope pass, the third differences also a bend, so that the smaller one is nearer to the
    # noise. A median of few says little, and too small a noise raises false alarms.
    second = float(np.median(np.abs(np.diff(values, 2)))) / math.sqrt(6)
    third = float(np.median(np.abs(np.diff(values, 3)))) / math.sqrt(20)
    return 1.4826 * min(second, third) * (1 + 4 / len(values))


def _middles(values: Floats) -> Floats:
    """Median of each value and its two neighbours; of two at the ends."""
    inner = np.median(np.stack((values[:-2], values[1:-1], values[2:])), axis=0)
    ends = (values[:2].mean(), values[-2:].mean())
    return np.concatenate(([ends[0]], inner, [ends[1]]))
