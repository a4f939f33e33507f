"""Everything of the simulated cluster beside its GPUs: hosts, jobs, storage, logs, instances.

Invented by a seeded random generator, as in `model.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from model import (
    BUDGET,
    DIVERGED_FROM,
    HOSTS,
    HUNG_FROM,
    IDLE_FROM,
    JOBS,
    RESUMED_AT,
    RETRANSMITS_FROM,
    SLOW,
    STEAL_FROM,
    STEAL_TO,
    Floats,
    Grid,
    Job,
    Series,
    numbers,
    silent,
    without_hole,
)


def host_series(grid: Grid, rng: np.random.Generator) -> Iterator[Series]:
    """Hosts and their network: one goes silent, one has a noisy neighbour, one loses packets."""
    for host in HOSTS:
        owners = [job for job in JOBS if job.host == host]
        labels = {"host": host} | (owners[0].labels if len(owners) == 1 else {})
        steal = np.full(grid.slots, 0.002)
        if host == "n2":
            steal[grid.at(STEAL_FROM) : grid.at(STEAL_TO)] = 0.18
        lost = np.full(grid.slots, 0.0002)
        if host == "n3":
            lost[grid.at(RETRANSMITS_FROM) :] = 0.031
        sent = np.full(grid.slots, 4.0e6) * (1 + 0.05 * rng.random(grid.slots))
        memory = 7.2e11 + 2e10 * rng.random(grid.slots)
        yield Series(host, "host", "host.memory.total", ["2e12"], labels)
        yield Series(host, "host", "host.cpu.count", ["192"], labels)
        for signal, values, stride in (
            ("host.cpu.utilization", 0.35 + 0.1 * rng.random(grid.slots), 1),
            ("host.cpu.steal", steal * (0.8 + 0.4 * rng.random(grid.slots)), 1),
            ("network.segments_sent", np.cumsum(sent), 1),
            ("network.retransmits", np.cumsum(np.round(sent * lost)), 1),
            ("host.memory.used", memory, SLOW),
            ("host.memory.utilization", memory / 2e12, SLOW),
            ("host.pressure.io", 0.02 + 0.02 * rng.random(grid.slots), SLOW),
            ("host.pressure.memory", 0.01 * rng.random(grid.slots), SLOW),
            ("host.oom_kills", np.zeros(grid.slots), SLOW),
            ("network.rtt_jitter", lost * 0.02 * (1 + rng.random(grid.slots)), SLOW),
        ):
            digits = 10 if signal.startswith("network.") else 3
            texts = without_hole(numbers(values, digits), silent(grid, host))
            yield Series(host, "host", signal, texts, labels, 0, stride)


def job_series(grid: Grid, rng: np.random.Generator) -> Iterator[Series]:
    """Jobs: state, steps, loss, verdict, budget and the work at risk."""
    for job in JOBS:
        first, hours = grid.at(job.begin), grid.hours[grid.at(job.begin) :]
        ended = np.maximum(0.0, hours - job.end * grid.span_hours) * 3600
        held = str(job.last - job.first + 1)
        states: list[str | None] = ["ended" if seconds > 0 else "running" for seconds in ended]
        for signal, values in (
            ("job.state", states),
            ("job.gpus_held", [held] * len(states)),
            ("job.since_end", numbers(ended, 6)),
        ):
            yield Series(job.name, "job", signal, values, job.labels, first, SLOW)
        if job.workload == "train":
            yield from _training(grid, rng, job)
        if job.name in BUDGET:
            used = BUDGET[job.name] * np.minimum(1.0, np.linspace(0.05, 1.0, len(hours)))
            yield Series(job.name, "job", "budget.used", numbers(used), job.labels, first, SLOW)


def _training(grid: Grid, rng: np.random.Generator, job: Job) -> Iterator[Series]:
    first = grid.at(job.begin)
    step, moving = steps(grid, job)
    noise = 0.02 * rng.normal(0, 1, len(step))
    loss = 1.9 + 3.2 * np.exp(-step / 6000) + noise
    if job.name == "segmenter":
        loss = 0.62 + noise / 4
    if job.name == "audio-gan":
        loss[grid.at(DIVERGED_FROM) - first :] = np.nan
    loss = np.where(moving, loss, loss[np.maximum.accumulate(np.where(moving, np.arange(len(step)), 0))])
    since = grid.every_s * _looks_since(step % 600 < np.diff(step, prepend=step[0] - 1) + 1)
    for signal, values, stride in (
        ("train.step", numbers(step, 9), 1),
        ("train.loss", numbers(loss, 5), 1),
        ("loss.verdict", verdicts(grid, job), SLOW),
        ("checkpoint.since_last", numbers(since, 7), SLOW),
    ):
        yield Series(job.name, "job", signal, values, job.labels, first, stride)


def steps(grid: Grid, job: Job) -> tuple[Floats, Floats]:
    """The step counter of a job and whether it moved, per look."""
    first = grid.at(job.begin)
    moving = np.ones(grid.slots - first, dtype=np.float64)
    stops = {"vit-search": IDLE_FROM, "moe-allreduce": HUNG_FROM, "bert-finetune": job.end}
    if job.name in stops:
        moving[grid.at(stops[job.name]) - first :] = 0.0
    step = np.cumsum(moving) * round(20 * grid.every_s / 300)
    if job.name == "llm-pretrain":
        # A resume from a checkpoint: the counter goes back and the steps are done again.
        step[grid.at(RESUMED_AT) - first :] -= min(1500.0, step[grid.at(RESUMED_AT) - first] / 2)
    return step, moving


def _looks_since(marks: npt.NDArray[np.bool_]) -> Floats:
    index = np.arange(len(marks))
    return (index - np.maximum.accumulate(np.where(marks, index, 0))).astype(np.float64)


def verdicts(grid: Grid, job: Job) -> Sequence[str]:
    """The verdict on the loss of a job, per look."""
    first = grid.at(job.begin)
    size = grid.slots - first
    changes = {
        "segmenter": (0.5, "flat"),
        "audio-gan": (DIVERGED_FROM, "non-finite"),
        "moe-allreduce": (HUNG_FROM, "hung"),
        "bert-finetune": (0.6, "converged"),
        "vit-search": (IDLE_FROM, "hung"),
    }
    share, word = changes.get(job.name, (2.0, "healthy"))
    turn = max(0, grid.at(share) - first) if share <= 1 else size
    warming = min(turn, max(1, size // 50))
    return ["warming-up"] * warming + ["healthy"] * (turn - warming) + [word] * (size - turn)


def checkpoint_series(grid: Grid) -> Iterator[Series]:
    """Checkpoints: an old one that nothing refers to, and the newest ones of two jobs."""
    for name, job, step, old_h, newest, domain in (
        ("vit-search/step-2000", "vit-search", 2000, 35 * 24.0, 0, "region"),
        ("vit-search/step-8000", "vit-search", 8000, 32 * 24.0, 1, "region"),
        ("llm-pretrain/step-30000", "llm-pretrain", 30000, 1.0, 1, "host"),
        ("segmenter/step-30000", "segmenter", 30000, 1.5, 1, "region"),
    ):
        labels = next(item.labels for item in JOBS if item.name == job)
        age = old_h * 3600 + (grid.hours if old_h > 24 else grid.hours % 4) * 3600
        fixed = (
            ("checkpoint.step", str(step)),
            ("checkpoint.size", "1.4e11"),
            ("checkpoint.complete", "1"),
            ("checkpoint.newest", str(newest)),
            ("checkpoint.references", "0"),
            ("checkpoint.failure_domain", domain),
        )
        yield Series(name, "checkpoint", "checkpoint.age", numbers(age, 8), labels, 0, SLOW)
        for signal, value in fixed:
            yield Series(name, "checkpoint", signal, [value] * grid.slots, labels, 0, SLOW)


def storage_series(grid: Grid) -> Iterator[Series]:
    """Volumes: one in use, one that nothing has been attached to for weeks, one nearly full."""
    for name, team, size, used, attached, detached_h, inodes in (
        ("vol-datasets", "nlp", 2.0e13, 0.61, 1, 0.0, 0.12),
        ("vol-old-scratch", "vision", 4.0e12, 0.35, 0, 40 * 24.0, 0.05),
        ("vol-samples", "speech", 1.0e12, 0.78, 1, 0.0, 0.993),
    ):
        labels = {"team": team, "env": "research"}
        since = detached_h * 3600 + (grid.hours * 3600 if detached_h else np.zeros(grid.slots))
        yield Series(name, "volume", "storage.capacity", [f"{size:.4g}"], labels)
        for signal, values in (
            ("storage.used", np.full(grid.slots, size * used)),
            ("storage.utilization", np.full(grid.slots, used)),
            ("storage.inodes.utilization", np.full(grid.slots, inodes)),
            ("storage.attachments", np.full(grid.slots, float(attached))),
            ("storage.references", np.full(grid.slots, float(attached))),
            ("storage.since_detached", since),
        ):
            yield Series(name, "volume", signal, numbers(values, 8), labels, 0, SLOW)


def log_series(grid: Grid, rng: np.random.Generator) -> Iterator[Series]:
    """Logs: a quiet one, and one that floods since its job diverged."""
    for job in (JOBS[0], JOBS[6]):
        first = grid.at(job.begin)
        size = grid.slots - first
        rate = np.full(size, 2.0e3)
        debug, repeat = np.full(size, 0.05), np.full(size, 0.1)
        if job.name == "audio-gan":
            flood = slice(grid.at(DIVERGED_FROM) - first, None)
            rate[flood], debug[flood], repeat[flood] = 6.0e6, 0.72, 0.96
        rate = rate * (0.9 + 0.2 * rng.random(size))
        for signal, values in (
            ("logs.bytes", np.cumsum(np.round(rate * grid.every_s))),
            ("logs.rate", rate),
            ("logs.debug_share", debug),
            ("logs.repeat_ratio", repeat),
        ):
            digits = 15 if signal == "logs.bytes" else 4
            yield Series(f"{job.name}.log", "log", signal, numbers(values, digits), job.labels, first)


def instance_series(grid: Grid, rng: np.random.Generator) -> Iterator[Series]:
    """Instances: one far too large for its work, one that is used."""
    for name, team, cpu in (("i-0ab3", "vision", 0.05), ("i-0cd4", "nlp", 0.62)):
        labels = {"team": team, "env": "research", "class": "train", "stage": "preprocess"}
        yield Series(name, "instance", "instance.type", ["m7i.16xlarge"], labels)
        yield Series(name, "instance", "instance.lifecycle", ["on-demand"], labels)
        use = cpu * (0.8 + 0.6 * rng.random(grid.slots))
        for signal, values in (
            ("instance.cpu.utilization", use),
            ("instance.memory.utilization", use + 0.04),
            ("instance.peak_ratio", np.maximum.accumulate(use + 0.04)),
        ):
            yield Series(name, "instance", signal, numbers(values), labels, 0, SLOW)
