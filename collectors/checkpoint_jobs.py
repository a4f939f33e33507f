"""Judges checkpoints: which are complete, whose they are, and what they tell of their job."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from stoploss.collectors import checkpoint_layouts as layouts
from stoploss.collectors import mounts, path_labels
from stoploss.collectors.checkpoint_census import Census, Checkpoint
from stoploss.collectors.walking import shown
from stoploss.engine.model import Bad, LabelValue, Reading

SETTLED = 600.0
"""Seconds without a write after which nobody writes any more."""

REMEMBERED = 64
"""Checkpoints of a job whose time is remembered after they are gone."""


TRACKED = {
    "deepspeed": (layouts.DEEPSPEED,),
    "megatron": (layouts.MEGATRON,),
    "folder": (layouts.DEEPSPEED, layouts.MEGATRON),
}
"""Layout -> files that may name the newest one that is whole; the first two must have theirs."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The job of a checkpoint, the checkpoint's name within it, and labels that were found."""

    job: str
    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Member:
    """A checkpoint of a job; `lacks` is what keeps it from being complete, else None."""

    name: str
    checkpoint: Checkpoint
    lacks: str | None
    trouble: str | None
    domain: Reading

    @property
    def complete(self) -> bool:
        """Whether it is whole and was read."""
        return self.lacks is None and self.trouble is None


@dataclass(frozen=True, slots=True)
class Job:
    """A job with its checkpoints; `newest` is the newest complete one, `best` a bad reading or a path."""

    name: str
    members: Sequence[Member]
    labels: Mapping[str, LabelValue]
    newest: Member | None
    best: str | Bad


@dataclass(slots=True)
class Saved:
    """When the checkpoints of a job were saved (seconds since the epoch), also those gone since."""

    times: dict[str, float] = field(default_factory=dict)

    def learn(self, members: Sequence[Member]) -> list[float]:
        """Remember complete ones; returns all times in their order."""
        self.times |= {item.checkpoint.path: item.checkpoint.newest for item in members if item.complete}
        kept = sorted(self.times.items(), key=lambda item: item[1])[-REMEMBERED:]
        self.times = dict(kept)
        return [time for _, time in kept]


def failure_domain(said: str | None, file_system: str | None) -> Reading:
    """What a checkpoint would be lost with, by the options or by its file system."""
    if said:
        return said
    if file_system in mounts.LOCAL:
        return "host"
    return Bad(f"{file_system or 'this file system'} may lie elsewhere: name its failure-domain")


def owner_of(
    path: str, root: str, facts: Mapping[str, Mapping[str, str]], pattern: re.Pattern[str] | None
) -> Owner:
    """Whose a checkpoint is: by files in the folders above it, by the names of folders, or by the root."""
    if path == root:
        root = os.path.dirname(root)
    labels: dict[str, str] = {}
    home: str | None = None
    folder = os.path.dirname(path)
    while len(folder) >= len(root):
        told = facts.get(folder, {})
        if home is None and "job" in told:
            home = folder
        labels = {**told, **labels}
        if folder in (root, "/"):
            break
        folder = os.path.dirname(folder)
    named, below = _by_folders(path, os.path.relpath(path, root), pattern)
    if home is not None:
        below = os.path.relpath(path, home)
    labels = {**named, **labels}
    job = labels.pop("job", None) or os.path.basename(root) or root
    return Owner(shown(job), shown(below), {name: shown(value) for name, value in labels.items()})


def _by_folders(path: str, below: str, pattern: re.Pattern[str] | None) -> tuple[Mapping[str, str], str]:
    """The labels that folders name, and the rest of the path; none where the names do not fit."""
    if pattern is None:
        first, slash, rest = below.partition("/")
        return ({"job": first}, rest) if slash else ({}, below)
    whole = path if pattern.pattern.startswith("/") else below
    named = path_labels.labels_in(pattern, whole)
    if named is None:
        return {}, below
    return named.labels, whole[named.length :].lstrip("/") or os.path.basename(path)


def lacking(census: Census, at: float) -> dict[str, str | None]:
    """Path -> what a checkpoint lacks to be complete at the instant `at`."""
    marked = {item.parent for item in census.found.values() if item.markers}
    return {path: _lacks(item, census, at, marked) for path, item in census.found.items()}


def _lacks(item: Checkpoint, census: Census, at: float, marked: set[str]) -> str | None:
    if item.problem:
        return item.problem
    layout = item.name.layout
    if layout in TRACKED:
        reached = {name: census.trackers.get((item.parent, name), -1) for name in TRACKED[layout]}
        there = {name: step for name, step in reached.items() if step != -1}
        if not there and layout != "folder":
            return f"no file {TRACKED[layout][0]} beside it"
        for name, step in there.items():
            if step is not None and item.name.step is not None and item.name.step > step:
                return f"{name} names step {step}"
    if item.sharded and ".metadata" not in item.markers:
        return "no .metadata"
    if not item.markers and layout == "huggingface" and item.name.step is not None:
        return f"no {layouts.TRAINER_STATE}"
    if not item.markers and layout == "folder" and item.parent in marked:
        return "no marker file, as its neighbours have"
    if not item.steady and item.newest > at - SETTLED:
        return "a size that stands still"
    return None


def job(name: str, members: Sequence[Member], labels: Mapping[str, LabelValue]) -> Job:
    """A job out of its checkpoints, in the order of their steps."""
    ordered = sorted(members, key=_order)
    return Job(name, ordered, labels, newest(ordered), _best(ordered))


def _order(member: Member) -> tuple[float, float, str]:
    name = member.checkpoint.name
    number = name.step if name.step is not None else name.epoch
    return (-1 if number is None else number, member.checkpoint.newest, member.name)


def newest(ordered: Sequence[Member]) -> Member | None:
    """The newest complete one: of the highest step, or without a step and written later than that."""
    complete = [member for member in ordered if member.complete]
    numbered = [member for member in complete if _order(member)[0] >= 0]
    latest = numbered[-1] if numbered else None
    for member in complete:
        if _order(member)[0] < 0 and (latest is None or member.checkpoint.newest > latest.checkpoint.newest):
            latest = member
    return latest


def _best(ordered: Sequence[Member]) -> str | Bad:
    """The path of the best one, as the newest trainer_state.json says."""
    for member in reversed(ordered):
        if member.complete and member.checkpoint.knows_best:
            if member.checkpoint.best is None:
                return Bad(f"{layouts.TRAINER_STATE} names no best one")
            return os.path.join(member.checkpoint.parent, member.checkpoint.best)
    return Bad(f"no {layouts.TRAINER_STATE} says which is the best one")


def member_readings(member: Member, job: Job, at: float) -> dict[str, Reading]:
    """The readings of one checkpoint; sizes in bytes, times in seconds before `at`."""
    item = member.checkpoint
    step: Reading = Bad("its name holds no step")
    if item.name.step is not None:
        step = float(item.name.step)
    readings: dict[str, Reading] = {
        "checkpoint.step": step,
        "checkpoint.size": float(item.size),
        "checkpoint.complete": 1.0 if member.lacks is None else 0.0,
        "checkpoint.newest": 1.0 if member is job.newest else 0.0,
        "checkpoint.best": job.best if isinstance(job.best, Bad) else float(job.best == item.path),
        "checkpoint.age": max(0.0, at - item.newest),
    }
    if member.trouble:
        readings = dict.fromkeys(readings, Bad(member.trouble)) | {"checkpoint.step": step}
    readings["checkpoint.failure_domain"] = member.domain
    return readings


def job_readings(job: Job, saved: Saved, at: float) -> dict[str, Reading]:
    """What the checkpoints tell of their job; sizes in bytes, times in seconds."""
    complete = [member for member in job.members if member.complete]
    times = saved.learn(job.members)
    gaps = [after - before for before, after in pairwise(times) if after > before]
    spans = [
        member.checkpoint.newest - member.checkpoint.oldest
        for member in complete
        if member.checkpoint.files > 1
    ]
    trouble = next((member.trouble for member in job.members if member.trouble), None)
    since: Reading = Bad("no checkpoint is complete")
    if job.newest is not None:
        since = max(0.0, at - job.newest.checkpoint.newest)
    readings: dict[str, Reading] = {
        "checkpoint.since_last": since,
        "checkpoint.interval": float(median(gaps)) if gaps else Bad("fewer than two complete checkpoints"),
        "checkpoint.save_time": float(median(spans)) if spans else Bad("no checkpoint of several files"),
        "checkpoint.count": float(len(complete)),
        "checkpoint.total_size": float(sum(member.checkpoint.size for member in job.members)),
    }
    if trouble:
        # Which one is the newest, and how large all are, depends on what cannot be read.
        readings |= dict.fromkeys(
            ("checkpoint.since_last", "checkpoint.count", "checkpoint.total_size"), Bad(trouble)
        )
    return readings
