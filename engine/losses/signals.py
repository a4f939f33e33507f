"""The loss signals of every job in a frame, from the curves that were recorded of it.

A slot with a reading of a curve gets a verdict on all that was read up to it, so that a frame in
one piece and the same frame tick by tick say the same. What was recorded wins: from the first
recorded verdict of a job on, none is concluded for it. A job of which no curve was ever read while
the collector of training logs looked is `cannot-tell`; where a log exists and cannot be read,
nothing is known.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from stoploss.engine.evaluation.implied import with_implied
from stoploss.engine.history.frame import LOOKED, VALID, Frame, Presence
from stoploss.engine.history.nodes import collector_of, key_of, keys_of, provided
from stoploss.engine.losses.incremental import LiveRun, judge
from stoploss.engine.losses.model import LossSettings, LossVerdict
from stoploss.engine.losses.planes import PLANNED, STEP, Inputs, Out, Series
from stoploss.engine.model import Curve, LabelValue, ResourceId, TrainingLog
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.policy import PolicySet

DERIVED = (
    "loss.verdict",
    "loss.trend",
    "loss.spike",
    "loss.gap",
    "loss.since_best",
    "loss.steps_since_best",
    "loss.evals_since_best",
    "loss.forecast.steps_to_target",
    "loss.forecast.time_to_target",
    "train.progress",
    "train.time_left",
)
"""Signals that are concluded."""

COLLECTOR = "training"
_NEEDS = ("loss.", "cost.", "budget.", "goodput.")
_PAUSE = LossSettings().pause_seconds


def readings(verdict: LossVerdict, planned: float | None) -> dict[str, float | str]:
    """What a verdict says as readings of signals; what cannot be told is left out.

    Args:
        verdict: the verdict.
        planned: steps that the run is meant to do.
    """
    numbers, ahead = verdict.numbers, verdict.numbers.forecast
    left = None
    if planned and numbers.progress is not None and numbers.steps_per_hour:
        left = (1 - numbers.progress) * planned / numbers.steps_per_hour * 3600
    found: dict[str, float | str | None] = {
        "loss.verdict": verdict.verdict,
        "loss.trend": numbers.trend,
        "loss.spike": numbers.spike,
        "loss.gap": numbers.gap,
        "loss.since_best": numbers.since_best,
        "loss.steps_since_best": numbers.steps_since_best,
        "loss.evals_since_best": numbers.evals_since_best,
        "loss.forecast.steps_to_target": None if ahead is None else ahead.steps,
        "loss.forecast.time_to_target": None if ahead is None else ahead.seconds,
        "train.progress": numbers.progress,
        "train.time_left": left,
    }
    return {
        name: value if isinstance(value, str) else float(value)
        for name, value in found.items()
        if value is not None and (isinstance(value, str) or math.isfinite(value))
    }


def conclude(log: TrainingLog, now: float | None) -> dict[str, float | str]:
    """The readings of the loss signals of one log.

    Args:
        log: one run, as far as it is written.
        now: seconds since the epoch, which tells a hang; None where nobody writes the log any more.
    """
    planned = log.facts.get("total_steps")
    return readings(judge(log, now=now), planned if isinstance(planned, float) else None)


def nearness(verdict: LossVerdict, target: str | float | None) -> str | None:
    """How near a run is to its target, in words; None without any record."""
    best = verdict.best
    if best is None:
        return None
    told = f"best {best.value:.4g} at step {best.step:,.0f}"
    if not isinstance(target, float):
        return f"{told}, no target is declared"
    if verdict.verdict == "converged":
        return f"{told}, target {target:.4g} reached"
    ahead = verdict.numbers.forecast
    steps = f"about {ahead.steps:,.0f} steps" if ahead is not None else "the trend does not lead there"
    return f"{told}, {abs(best.value - target):.4g} from the target {target:.4g}: {steps}"


def with_verdicts(
    policies: PolicySet, frames: Callable[[float], Frame], catalogue: Catalogue
) -> Callable[[float], Frame]:
    """Frames that carry the loss signals, where any condition of the set needs them."""
    conditions = [item.where for item in policies.exemptions]
    for policy in policies.policies:
        conditions += policy.conditions
    named = {signal.name for condition in conditions for signal in condition.signals}
    if not any(name.startswith(_NEEDS) or name in DERIVED for name in named):
        return frames
    return lambda resolution: LossSignals(catalogue).extend(frames(resolution))


@dataclass(slots=True)
class _Job:
    """What was read of one job so far.

    Attributes:
        run: its curves.
        last: signal -> step and value of its newest record.
        facts: what is declared of it.
        step: the newest training step.
        time: when the newest record was read, in seconds since the epoch.
        said: the newest readings, and `concluded`, when they were.
        near: how near its loss is, in words.
    """

    run: LiveRun = field(default_factory=LiveRun)
    last: dict[str, tuple[float, float]] = field(default_factory=dict)
    facts: dict[str, str | float] = field(default_factory=dict)
    step: float = math.nan
    time: float = math.nan
    said: dict[str, float | str] = field(default_factory=dict)
    concluded: float = math.nan
    near: str | None = None

    def take(self, values: Iterable[tuple[str, float]], now: float) -> dict[str, Curve]:
        """What is new among the values of a look, as curves of one record each."""
        curves = {}
        for name, value in values:
            if self.is_new(name, value):
                self.last[name] = self.step, value
                curves[name] = Curve(name, array("d", [self.step]), array("d", [value]), array("d", [now]))
        return curves

    def is_new(self, signal: str, value: float) -> bool:
        """Whether a reading is a record that was not seen before: looks repeat the newest one."""
        known = self.last.get(signal)
        if known is None or math.isnan(self.step):
            return True
        same = known[1] == value or (math.isnan(known[1]) and math.isnan(value))
        # An evaluation is repeated while the steps of the training go on.
        return not same or (not signal.startswith("eval.") and known[0] != self.step)


class LossSignals:
    """Follows the jobs of frames that come one after the other."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._jobs: dict[ResourceId, _Job] = {}
        self._series = {
            name: Series({word: at for at, word in enumerate(catalogue[name].values)}) for name in DERIVED
        }

    def extend(self, frame: Frame) -> Frame:
        """The frame with the loss signals of its jobs; it begins where the one before ended."""
        outs = {name: Out(self._series[name], frame.slots, frame.planes.get(name)) for name in DERIVED}
        present = with_implied(frame.resources) if provided(COLLECTOR, frame.looks) else frame.resources
        inputs = Inputs(frame)
        self._without_logs(outs["loss.verdict"], frame, present, inputs)
        for job in inputs.jobs:
            rows = inputs.rows(job)
            if rows:
                self._follow(job, rows, (outs, inputs, frame, present.get(job)))
        planes = dict(frame.planes)
        for name, out in outs.items():
            plane = out.plane(self._catalogue[name])
            if plane is not None:
                planes[name] = plane
        # What is concluded was looked at whenever the logs were.
        looks, cadence = dict(frame.looks), dict(frame.look_cadence)
        for key in [key for key in looks if collector_of(key) == COLLECTOR]:
            derived = key_of(key.rpartition("/")[0], "derived")
            looks.setdefault(derived, looks[key])
            cadence.setdefault(derived, cadence.get(key, 1))
        near = {("loss.verdict", job): state.near for job, state in self._jobs.items() if state.near}
        remarks = {**near, **frame.remarks}
        return replace(frame, planes=planes, looks=looks, look_cadence=cadence, remarks=remarks)

    def _follow(
        self,
        job: ResourceId,
        rows: Iterable[int],
        world: tuple[Mapping[str, Out], Inputs, Frame, Presence | None],
    ) -> None:
        """Conclude, row by row, on one job."""
        outs, inputs, frame, presence = world
        state = self._jobs.setdefault(job, _Job())
        for out in outs.values():
            out.series.cadence.setdefault(job, inputs.cadence(job))
        for row in rows:
            bad = inputs.bad(job, row)
            if bad is not None:
                for name, out in outs.items():
                    if name.startswith("loss."):
                        out.write(job, row, bad)
                continue
            slot = frame.first + row
            step = inputs.value(STEP, job, row)
            state.step = state.step if step is None else step
            curves = state.take(inputs.values(job, row), frame.time_of(slot))
            planned = inputs.value(PLANNED, job, row)
            if planned is not None:
                state.facts["total_steps"] = planned
            for name, value in _conclude(job, state, curves, (presence, slot, frame.time_of(slot))).items():
                outs[name].write(job, row, VALID, value)

    def _without_logs(
        self, out: Out, frame: Frame, present: Mapping[ResourceId, Presence], inputs: Inputs
    ) -> None:
        """Jobs whose logs were looked for and not found."""
        if not provided(COLLECTOR, frame.looks):
            return
        index = np.arange(frame.first, frame.last + 1)
        first = {job: rows[0] for job in inputs.jobs if (rows := inputs.rows(job))}
        for job, presence in present.items():
            if job.kind != "job" or job in self._jobs:
                continue
            keys = keys_of(COLLECTOR, presence.nodes, frame.looks)
            if not keys:
                continue
            looked = np.logical_and.reduce([frame.looks[key] == LOOKED for key in keys])
            there = looked & (index >= presence.first)
            there[first.get(job, frame.slots) :] = False
            for gone, back in presence.absences:
                there &= (index < gone) | (index >= (np.inf if back is None else back))
            if there.any():
                out.series.cadence.setdefault(job, max(frame.look_cadence.get(key, 1) for key in keys))
                for row in np.flatnonzero(there).tolist():
                    out.write(job, row, VALID, "cannot-tell")


def _conclude(
    job: ResourceId, state: _Job, curves: Mapping[str, Curve], at: tuple[Presence | None, int, float]
) -> dict[str, float | str]:
    """The readings of a job in a slot; it is judged again where something is new, or may hang."""
    presence, slot, now = at
    if curves:
        state.facts.update(_declared(presence, slot))
        state.run.extend(TrainingLog(job.id, "", "", curves, dict(state.facts)))
        state.time = now
    if curves or now - state.time > _PAUSE:
        total = state.facts.get("total_steps")
        verdict = state.run.verdict(now)
        state.said = readings(verdict, total if isinstance(total, float) else None)
        state.near = nearness(verdict, state.facts.get("target"))
        state.concluded = now
    said = dict(state.said)
    since = said.get("loss.since_best")
    if isinstance(since, float):
        said["loss.since_best"] = since + now - state.concluded
    return said


def _declared(presence: Presence | None, slot: int) -> dict[str, str | float]:
    """Target and direction of the evaluation metric, as the labels of a job declare them."""
    labels: Mapping[str, LabelValue] = {}
    for change in presence.changes if presence is not None else ():
        if change.slot > slot:
            break
        labels = change.labels
    facts: dict[str, str | float] = {}
    target, better = labels.get("target"), labels.get("better")
    if isinstance(target, str):
        with suppress(ValueError):
            facts["target"] = float(target)
    if better in ("lower", "higher"):
        facts["better"] = str(better)
    return facts
