"""Attempts that fail in the same way again: `job.same_failure`, derived from how attempts ended.

An experiment is tried by several jobs, or by one job that is queued again. Attempts of one
configuration (labels `experiment` and `recipe`) count together; a job without an experiment
counts by itself. What a person cancelled or a provider took back is no failure of the attempt
and changes nothing; a success, or a failure of another kind, begins the count anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from stoploss.engine.evaluation.columns import World
from stoploss.engine.history.frame import BAD, VALID, Frame, Plane
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.policy import PolicySet

SIGNAL = "job.same_failure"
REASON, ATTEMPTS = "job.exit_reason", "job.attempts"

FAILURES = frozenset({"failed", "timeout", "out-of-memory", "gpu-out-of-memory", "node-failure"})
NEITHER = frozenset({"none", "cancelled", "preempted"})
"""Ends that say nothing of the attempt itself."""

Group = tuple[str, str]
Ending = tuple[int, ResourceId, str]
"""Row of the frame, job, and how the attempt ended."""


def with_attempts(
    policies: PolicySet, frames: Callable[[float], Frame], catalogue: Catalogue
) -> Callable[[float], Frame]:
    """Frames that carry `job.same_failure`, where any condition of the set names it."""
    named = {signal.name for policy in policies.policies for c in policy.conditions for signal in c.signals}
    if SIGNAL not in named:
        return frames
    return lambda resolution: counted(frames(resolution), catalogue)


def counted(frame: Frame, catalogue: Catalogue) -> Frame:
    """The frame with `job.same_failure`, where attempts are told and nobody recorded it."""
    plane = frame.planes.get(REASON)
    if plane is None or SIGNAL in frame.planes or not frame.slots:
        return frame
    world = World()
    world.update(frame)
    groups = {job: _group(world, job, frame.last) for job in plane.series}
    endings: dict[Group, list[Ending]] = {}
    for job in plane.series:
        endings.setdefault(groups[job], []).extend(_endings(frame, plane, job))
    values = np.zeros((frame.slots, len(plane.series)))
    for group, ended in endings.items():
        counts = _streaks(sorted(ended, key=lambda ending: ending[0]), frame.slots)
        for column, job in enumerate(plane.series):
            if groups[job] == group:
                values[:, column] = counts
    # It is known where the reason was looked at: a job that nobody looks at has no count.
    read = (plane.status > 0) & (plane.status < BAD)
    derived = Plane(
        catalogue[SIGNAL],
        plane.series,
        np.where(read, values, np.nan),
        np.where(read, np.uint8(VALID), plane.status),
        plane.cadence,
    )
    looks = {**frame.looks, "derived": np.asarray(read.any(axis=1), dtype=np.uint8)}
    return replace(frame, planes={**frame.planes, SIGNAL: derived}, looks=looks)


def _group(world: World, job: ResourceId, slot: int) -> Group:
    experiment = world.label_at(job, "experiment", slot)
    if not isinstance(experiment, str) or not experiment:
        return ("job", job.id)
    recipe = world.label_at(job, "recipe", slot)
    return (f"experiment {experiment}", recipe if isinstance(recipe, str) else "")


def _endings(frame: Frame, plane: Plane, job: ResourceId) -> Iterator[Ending]:
    """Each attempt of a job that ended: the reason appears, changes, or the attempts go up under it."""
    at = plane.series.index(job)
    started = _attempts(frame, job)
    before: str | None = None
    for row in np.flatnonzero((plane.status[:, at] > 0) & (plane.status[:, at] < BAD)):
        word = plane.words[int(plane.values[row, at])]
        again = started is not None and bool(started[row]) and word == before
        if word != before or again:
            if word not in NEITHER:
                yield int(row), job, word
            before = word


def _attempts(frame: Frame, job: ResourceId) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    plane = frame.planes.get(ATTEMPTS)
    if plane is None or plane.increase is None or job not in plane.series:
        return None
    return np.asarray(plane.increase[:, plane.series.index(job)] > 0)


def _streaks(endings: list[Ending], slots: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Per slot: how many of the newest attempts in a row failed in the same way."""
    counts = np.zeros(slots)
    streak, kind = 0, ""
    for row, _, word in endings:
        streak = streak + 1 if word == kind and word in FAILURES else int(word in FAILURES)
        kind = word
        counts[row:] = streak
    return counts
