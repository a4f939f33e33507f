"""Use of jobs that are not there any more, taken together where nothing asks for each by itself.

What they used counts against budgets and in the totals of their teams for good. A stand-in takes the place
of all jobs that have the same labels, as far as budgets ask for labels; its name begins with `MARK`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stoploss.engine.costs.past import Day, Past, Together
from stoploss.engine.costs.use import Key
from stoploss.engine.history.frame import LabelChange, Presence
from stoploss.engine.model import UNREADABLE, ResourceId

if TYPE_CHECKING:
    from stoploss.engine.evaluation.columns import World

MARK = "\0"
"""Begins the name of a stand-in; no job has such a name."""


def is_stand_in(job: str | None) -> bool:
    """Whether a name stands for jobs that are not there any more."""
    return job is not None and job.startswith(MARK)


def together(past: Past, jobs: Collection[str], experiments: Collection[str], asked: Sequence[str]) -> Past:
    """What was used before, with a stand-in for jobs that are none of these, and without other experiments.

    Args:
        past: what was used.
        jobs, experiments: those that are there.
        asked: labels by which budgets choose jobs; a budget that chooses them by name keeps them apart.
    """
    key = tuple(asked)
    known = past.folds.get(key)
    if known is not None and known.jobs.isdisjoint(jobs) and known.experiments.isdisjoint(experiments):
        return known.past
    # Of those that are there now and then it is reckoned once.
    ever_jobs = {item.job for item in past.days if item.job is not None}
    ever_experiments = {item.experiment for item in past.days if item.experiment is not None}
    gone = frozenset(ever_jobs - set(jobs) if known is None else known.jobs - set(jobs))
    over = frozenset(
        ever_experiments - set(experiments) if known is None else known.experiments - set(experiments)
    )
    past.folds[key] = Together(gone, over, folded(past, gone, over, key))
    return past.folds[key].past


def folded(past: Past, gone: Collection[str], over: Collection[str], asked: Sequence[str]) -> Past:
    """What was used before, with stand-ins for the jobs that are gone, without experiments that are over."""
    days: dict[Key, dict[str, Day]] = {}
    labels = {job: said for job, said in past.labels.items() if job not in gone}
    for key, rows in past.days.items():
        if key.job in gone and key.job is not None:
            said = {name: past.labels.get(key.job, {}).get(name) for name in asked if name != "job"}
            shown = {name: value for name, value in sorted(said.items()) if value is not None}
            job = key.job if "job" in asked else MARK + json.dumps(shown)
            labels[job] = shown
            key = replace(key, job=job, experiment=None if key.experiment in over else key.experiment)
        sums = days.setdefault(key, {})
        for day in rows:
            before = sums.get(day.day, Day(day.day, 0.0, 0.0))
            sums[day.day] = Day(day.day, before.gpu_hours + day.gpu_hours, before.money + day.money)
    kept = {key: tuple(rows[day] for day in sorted(rows)) for key, rows in days.items()}
    return Past(past.until, kept, labels)


def forgotten(past: Past, there: Collection[str], since: str, asked: Sequence[str]) -> Past:
    """What was used, without telling jobs apart that are not there and used nothing from a day on.

    Args:
        past: what was used.
        there: jobs that are there.
        since: the day (ISO date).
        asked: labels by which budgets choose jobs.
    """
    newest: dict[str, str] = {}
    for key, rows in past.days.items():
        if key.job is not None:
            newest[key.job] = max(newest.get(key.job, ""), rows[-1].day)
    gone = {job for job, day in newest.items() if day < since and job not in there}
    if not gone:
        return past
    over = {key.experiment for key in past.days if key.experiment is not None}
    over -= {key.experiment for key in past.days if key.job not in gone}
    return folded(past, gone, {name for name in over if name is not None}, asked)


def labels_of(world: World, job: str, last: int) -> dict[str, str]:
    """The labels of a job, those of its experiment and team too, as they were read last up to a slot."""
    resource = ResourceId("job", job)
    table = world.tables["job"]
    ends = [table.columns[at].end for at in table.by_resource.get(resource, ())]
    slot = min(last, max(ends, default=0) - 1)
    owners = [
        ResourceId(kind, value)
        for kind in ("experiment", "team")
        if isinstance(value := world.label_at(resource, kind, slot), str)
    ]
    names = {name for item in (resource, *owners) for name in world.labels_at(item, slot)}
    found = {}
    for name in sorted(names - {"job"}):
        told = [value for at, value in world.track(resource, name) if at <= slot and value is not UNREADABLE]
        if told and isinstance(told[-1], str):
            found[name] = told[-1]
    return found


def presences(past: Past, there: Collection[str], slot: int) -> Mapping[ResourceId, Presence]:
    """Jobs that are not there, as resources that are, so that budgets choose among them by their labels."""
    return {
        ResourceId("job", job): Presence(slot, (LabelChange(slot, dict(labels)),))
        for job, labels in past.labels.items()
        if job not in there
    }
