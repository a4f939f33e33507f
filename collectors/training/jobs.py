"""The logs of one job put together, and the readings they give."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from stoploss.collectors.training import names
from stoploss.collectors.training.following import Log
from stoploss.engine.model import Bad, Curve, Reading, TrainingLog
from stoploss.rules.catalogue import catalogue

PRIMARY = ("train.loss", "eval.loss", "eval.metric", "train.grad_norm", "train.lr")
"""The curve whose steps are those of the job: the first of these that is logged."""

WATCHED = ("train.loss", "train.grad_norm", "eval.loss")
"""Curves whose values ought to be finite."""


@dataclass(slots=True)
class Job:
    """What was told of a job at the look before.

    Attributes:
        told: how many records of each curve.
        concluded: the readings that were concluded, of how many records.
    """

    told: dict[str, int] = field(default_factory=dict)
    concluded: tuple[dict[str, int], Mapping[str, float | str]] = field(default=({}, {}))


def merged(name: str, logs: Sequence[Log]) -> TrainingLog | None:
    """One run of all logs of a job; None where none of them could be read."""
    runs = [log.run for log in sorted(logs, key=lambda log: log.written) if log.run is not None]
    if not runs:
        return None
    newest: dict[str, str] = {}
    for run in runs:
        # Later files come later, so that the format of the newest one stays.
        newest.update({signal: run.format for signal, curve in run.curves.items() if curve.values})
    parts: dict[str, list[Curve]] = {}
    for run in runs:
        for signal, curve in run.curves.items():
            if newest.get(signal) == run.format:
                parts.setdefault(signal, []).append(curve)
    curves = {signal: _joined(signal, pieces) for signal, pieces in parts.items()}
    facts = {key: value for run in runs for key, value in run.facts.items()}
    return TrainingLog(name, runs[-1].source, runs[-1].format, curves, facts)


def _joined(signal: str, pieces: Sequence[Curve]) -> Curve:
    if len(pieces) == 1:
        return pieces[0]
    steps, values, times = array("d"), array("d"), array("d")
    for piece in sorted(pieces, key=_begun):
        steps += piece.steps
        values += piece.values
        times += piece.times
    return Curve(signal, steps, values, times)


def _begun(curve: Curve) -> float:
    """When a curve began, where it has a clock; pieces without one stay in their order."""
    return next((time for time in curve.times if math.isfinite(time)), 0.0)


def job_readings(job: Job, run: TrainingLog | None, logs: Sequence[Log]) -> dict[str, Reading]:
    """The newest value of every signal of a job, in catalogue units."""
    trouble = next((log.trouble for log in logs if log.trouble), None)
    if run is None or trouble:
        reason = Bad(trouble or "nothing could be read")
        known = run.curves if run is not None else {}
        return dict.fromkeys(("train.loss", "train.step", *known), reason)
    readings: dict[str, Reading] = {
        signal: curve.values[-1] for signal, curve in run.curves.items() if curve.values
    }
    planned = run.facts.get("total_steps")
    if isinstance(planned, float | int) and planned > 0:
        readings["train.steps_planned"] = float(planned)
    phase = run.facts.get("phase")
    if phase in catalogue()["job.phase"].values:
        readings["job.phase"] = str(phase)
    curve = next((run.curves[signal] for signal in PRIMARY if signal in run.curves), None)
    if curve is not None:
        readings |= _steps(curve)
    readings.setdefault("train.non_finite_share", _lost(job, run))
    job.told = {signal: len(curve.values) for signal, curve in run.curves.items()}
    return readings


def _steps(curve: Curve) -> dict[str, Reading]:
    """The newest step, and how often and how far a run went back."""
    steps = [step for step in curve.steps if math.isfinite(step)]
    if not steps:
        return {"train.step": float(len(curve.values))}
    resumes, redone = 0, 0.0
    for before, step in pairwise(steps):
        if step < before:
            resumes += 1
            redone += before - step
    return {"train.step": steps[-1], "train.resumes": float(resumes), "train.redone_steps": redone}


def _lost(job: Job, run: TrainingLog) -> float:
    """The share of new records that are not finite; 0 where nothing is new."""
    new = [
        value
        for signal in WATCHED
        if signal in run.curves and signal in names.KEPT_NON_FINITE
        for value in run.curves[signal].values[job.told.get(signal, 0) :]
    ]
    return sum(not math.isfinite(value) for value in new) / len(new) if new else 0.0
