"""What a run declares: numbers, and the target with the curve it is about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from stoploss.engine.losses.clean import Track, view

Facts = Mapping[str, str | float]


def number(facts: Facts, name: str) -> float | None:
    """A fact as a finite number, or None."""
    value = facts.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Goal:
    """The declared target.

    Attributes:
        curve: the signal it is about; None where no target is declared.
        value: the target.
        met: step at which it was first met; None where it was not.
        evidence: a sentence on it, empty without a target.
    """

    curve: str | None = None
    value: float = math.nan
    met: float | None = None
    evidence: tuple[str, ...] = ()


def goal(tracks: Mapping[str, Track], facts: Facts) -> Goal:
    """How a run stands to its target: of its metric, else of its evaluation loss, else of its loss."""
    value = number(facts, "target")
    if value is None:
        return Goal()
    if tracks.get("eval.metric"):
        name = "eval.metric"
        if "better" not in facts:
            return Goal(
                evidence=(f"a target of {value:g} is declared, but not whether lower or higher is better",)
            )
    else:
        name = "eval.loss" if tracks.get("eval.loss") else "train.loss"
    track = tracks.get(name)
    best = track.best_before(len(track)) if track is not None else None
    if track is None or best is None:
        return Goal()
    missed = track.sign * (track.values[best] - value)
    if missed > 1e-9 * abs(value):
        far = f"missed by {missed:.4g}" if "status" in facts or "ended" in facts else f"{missed:.4g} to go"
        text = f"target {value:g} of {name} is not met: best {track.values[best]:.6g}, {far}"
        return Goal(name, value, None, (text,))
    met = track.sign * view(track.values) <= track.sign * value + 1e-9 * abs(value)
    step = track.steps[int(met.argmax())]
    text = f"target {value:g} of {name} was met at step {step:g} (best {track.values[best]:.6g})"
    return Goal(name, value, step, (text,))
