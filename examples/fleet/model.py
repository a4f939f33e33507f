"""A simulated cluster: 4 hosts with 8 GPUs each, eight jobs, one week.

Everything here is invented by a seeded random generator. No figure was measured on a real
machine. Moments are given as shares of the simulated span, so that a shorter span shows the
same scenes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

END = datetime(2026, 11, 30, tzinfo=UTC)
SLOW = 3
"""Levels that change slowly are looked at in every third look."""
HOLE_HOURS = 5.0

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FREE, IDLE, BUSY, HUNG = range(4)
UTILIZATION = np.array([0.0, 0.0, 0.93, 1.0])
POWER_W = np.array([68.0, 74.0, 590.0, 104.0])
MEMORY_B = np.array([4.0e6, 61.2e9, 61.2e9, 61.2e9])
TENSOR = np.array([0.0, 0.0, 0.47, 0.0])


@dataclass(frozen=True)
class Grid:
    """The instants of the looks, the last one at END."""

    every_s: int
    slots: int

    @property
    def hours(self) -> Floats:
        """Hours since the start of the span, for each look."""
        return np.arange(1, self.slots + 1, dtype=np.float64) * (self.every_s / 3600)

    @property
    def span_hours(self) -> float:
        """Length of the span in hours."""
        return self.slots * self.every_s / 3600

    def at(self, share: float) -> int:
        """Index of the look at a share of the span."""
        return min(self.slots, round(share * self.slots))

    def times(self) -> list[str]:
        """The instants in ISO form."""
        start = END - timedelta(seconds=self.every_s * self.slots)
        step = timedelta(seconds=self.every_s)
        return [f"{start + step * (k + 1):%Y-%m-%dT%H:%M:%SZ}" for k in range(self.slots)]


@dataclass(frozen=True)
class Job:
    """A job on GPUs `first` to `last` of one host; `begin` and `end` are shares of the span."""

    name: str
    host: str
    first: int
    last: int
    team: str
    user: str
    env: str = "research"
    workload: str = "train"
    stage: str = "train"
    begin: float = 0.0
    end: float = 2.0

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the job and of what belongs to it."""
        return {
            "job": self.name,
            "host": self.host,
            "team": self.team,
            "user": self.user,
            "env": self.env,
            "class": self.workload,
            "stage": self.stage,
        }


HOSTS = ("n1", "n2", "n3", "n4")
JOBS = (
    Job("llm-pretrain", "n1", 0, 7, "nlp", "ana"),
    Job("segmenter", "n2", 0, 7, "vision", "ben"),
    Job("moe-allreduce", "n3", 0, 7, "nlp", "chi"),
    Job("vit-search", "n4", 0, 1, "vision", "dee", stage="tune"),
    Job("bert-finetune", "n4", 2, 2, "nlp", "ana", begin=0.1, end=0.72),
    Job("rl-sim", "n4", 3, 3, "robotics", "eli"),
    Job("audio-gan", "n4", 4, 5, "speech", "fay", begin=0.25),
    Job("notebook", "n4", 6, 7, "speech", "gus", workload="interactive", stage="interactive"),
)
IDLE_FROM, HUNG_FROM, DIVERGED_FROM, RESUMED_AT = 0.2, 0.96, 0.7, 0.55
HOLE_FROM, RETRANSMITS_FROM, STEAL_FROM, STEAL_TO = 0.4, 0.955, 0.6, 0.65
BUDGET = {"llm-pretrain": 0.85, "segmenter": 0.41, "bert-finetune": 0.9, "audio-gan": 0.3}


@dataclass(frozen=True)
class Series:
    """A stretch of one series: values from look `first` on, None where nobody looked."""

    resource: str
    kind: str
    signal: str
    values: Sequence[str | None]
    labels: Mapping[str, str] = field(default_factory=dict)
    first: int = 0
    stride: int = 1


def numbers(values: Floats, digits: int = 4) -> list[str | None]:
    """Numbers as texts, NaN as `nan`."""
    return [f"{value:.{digits}g}" for value in values.tolist()]


def silent(grid: Grid, host: str) -> tuple[int, int]:
    """The looks in which the host says nothing: one host, a few hours, once."""
    if host != "n4":
        return 0, 0
    begin = grid.at(HOLE_FROM)
    return begin, min(grid.slots, begin + round(HOLE_HOURS * 3600 / grid.every_s))


def without_hole(values: list[str | None], hole: tuple[int, int], first: int = 0) -> list[str | None]:
    """Values with those of a silent host taken out."""
    low, high = (max(0, edge - first) for edge in hole)
    return [None if low <= index < high else value for index, value in enumerate(values)]


def modes(grid: Grid, job: Job, gpu: int) -> Ints:
    """What a GPU does in each look of its job's time."""
    first = grid.at(job.begin)
    mode = np.full(grid.slots - first, BUSY)
    if job.name == "vit-search":
        mode[max(0, grid.at(IDLE_FROM) - first) :] = IDLE
    elif job.name == "moe-allreduce":
        mode[grid.at(HUNG_FROM) - first :] = HUNG
    elif job.name == "segmenter" and gpu == job.last:
        mode[:] = IDLE
    elif job.name == "bert-finetune":
        mode[grid.at(job.end) - first :] = IDLE
    elif job.name in ("rl-sim", "notebook"):
        minutes = (grid.hours[first:] * 60) % (25 if job.name == "rl-sim" else 240)
        mode = np.where(minutes < (10 if job.name == "rl-sim" else 60), BUSY, IDLE)
    return mode


def gpu_series(grid: Grid, rng: np.random.Generator) -> Iterator[Series]:
    """Every GPU with its job's labels; before a job begins the GPU has no job."""
    for job in JOBS:
        first = grid.at(job.begin)
        for gpu in range(job.first, job.last + 1):
            name = f"{job.host}-g{gpu}"
            yield from _attributes(name, job)
            if first:
                free = np.full(first, FREE)
                yield from _readings(grid, rng, name, free, {"host": job.host}, 0)
            mode = modes(grid, job, gpu)
            yield from _readings(grid, rng, name, mode, job.labels, first)


def _attributes(name: str, job: Job) -> Iterator[Series]:
    labels = job.labels if job.begin == 0 else {"host": job.host}
    for signal, value in (
        ("gpu.model", "NVIDIA H100 80GB HBM3"),
        ("gpu.power_limit", "700"),
        ("gpu.memory.total", "8.5899e10"),
    ):
        yield Series(name, "gpu", signal, [value], labels)


def _readings(
    grid: Grid, rng: np.random.Generator, name: str, mode: Ints, labels: Mapping[str, str], first: int
) -> Iterator[Series]:
    size = len(mode)
    works = mode == BUSY
    hole = silent(grid, labels["host"])
    wobble = rng.normal(0, 1, (3, size))
    utilization = np.clip(UTILIZATION[mode] + works * 0.03 * wobble[0], 0, 1)
    power = POWER_W[mode] + np.where(works, 25, 2) * wobble[1]
    tensor = np.clip(TENSOR[mode] + works * 0.04 * wobble[2], 0, 1)
    no_counter: list[str | None] = ["N/A"] * size
    sliced = labels.get("job") == "notebook"
    mig: list[str | None] = ["enabled" if sliced else "disabled"] * size
    for signal, values, stride in (
        ("gpu.mig", mig, SLOW),
        ("gpu.utilization", no_counter if sliced else numbers(utilization, 3), 1),
        ("gpu.power", numbers(power, 3), 1),
        ("gpu.memory.used", numbers(MEMORY_B[mode], 3), SLOW),
        ("gpu.tensor_active", no_counter if sliced else numbers(tensor, 2), SLOW),
    ):
        yield Series(name, "gpu", signal, without_hole(values, hole, first), labels, first, stride)
