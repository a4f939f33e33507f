"""What the daemon costs: on a node of 8 GPUs, at the centre of a fleet of 10,000, and after months.

    python benchmarks/daemon.py node [--minutes 5]      # real time, NVML against a fake driver
    python benchmarks/daemon.py fleet [--hours 2]       # as fast as it goes, on a clock of its own, or
    python benchmarks/daemon.py fleet --hours 0.5 --real    # every 15 seconds, as in life
    python benchmarks/daemon.py months [--days 20]      # the same, with jobs that come and go

`node` runs the real command with the packs gpu, lifecycle and logs, and reads its CPU time and memory from
/proc after a minute of warming up. `fleet` lets a service look at 10,000 GPUs every 15 seconds and tick every
minute, and tells how long ticks took and how memory went. `months` lets it live with 200 GPUs whose jobs last
four hours, and tick every 15 minutes, with two days of retention: in 20 days some 3,000 jobs come and go. It
tells how long ticks take and how much is held at the beginning, when what is kept is full, and at the end.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoploss.daemon.service import Service

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

GPUS, EVERY = 10_000, 15.0
NODE = """
version: 1
include: [pack:gpu, pack:lifecycle, pack:logs]
settings: {{state: "sqlite:///{folder}/state.db"}}
collectors: {{gpu: {{every: 15s}}, process: {{every: 30s}}}}
"""
FLEET = """
version: 1
prices: {gpu-hour: {default: $2.00/GPU-hour}}
policies:
""" + "".join(
    f"""  - name: p{number}
    each: gpu
    waste: 100%
    for: 10m
    when:
      - max(gpu.utilization, 30m) < {number}%
      - avg(gpu.power, 30m) < 120W
      - p95(gpu.utilization, 1h) < 20%
    then: [{{alert: {{}}}}]
"""
    for number in range(1, 6)
)

MONTHS = """
version: 1
settings: {resolution: 15m, retention: 2d}
prices: {gpu-hour: {default: $2.00/GPU-hour}}
budgets:
  - {name: job-hours, each: job, limit: 60 GPU-hours}
  - {name: daily, each: team, limit: $15000, per: day}
  - {name: monthly, each: team, where: 'class == "train"', limit: $500000, per: month}
policies:
  - {name: idle, each: job, waste: 100%, for: 30m, when: ['max(gpu.utilization, 2h) < 5%']}
  - {name: no-step, each: job, for: 1h, when: ['increase(train.step, 3h) == 0 or absent(train.step, 3h)']}
  - {name: hot, each: gpu, waste: $1/h, when: ['avg(gpu.utilization, 3h) > 99%']}
  - {name: spent, each: job, when: ['budget.used >= 80% or cost.total > $80']}
  - {name: team-spent, each: team, when: ['budget.used >= 80%']}
"""
SLOT, LASTS, PLACES = 900.0, 4 * 3600.0, 25


def node(minutes: float) -> None:
    """CPU share and memory of the real daemon on a node."""
    import psutil
    from support import fake_driver

    driver = fake_driver.FakeDriver()
    environment = driver.environment(fake_driver.scenario(*(fake_driver.gpu(number) for number in range(8))))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policies.yaml"
        file.write_text(NODE.format(folder=folder), "utf-8")
        command = [sys.executable, "-m", "stoploss", "run", str(file), "--listen", "127.0.0.1:0"]
        child = subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.DEVNULL)
        seen = psutil.Process(child.pid)
        try:
            time.sleep(60)
            begun, before = time.monotonic(), seen.cpu_times()
            time.sleep(minutes * 60)
            after, wall = seen.cpu_times(), time.monotonic() - begun
            used = after.user + after.system - before.user - before.system
            memory = seen.memory_info().rss / 1e6
            print(f"node: {used / wall:.2%} of a core, {memory:.0f} MB, over {minutes:g} minutes")
        finally:
            child.terminate()
            child.wait(60)


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.at = datetime(2026, 12, 1, tzinfo=UTC).timestamp()

    def now(self) -> datetime:
        """The instant that it was set to."""
        return datetime.fromtimestamp(self.at, UTC)


class Source:
    """10,000 GPUs, a tenth of them idle, some of which turn busy and back."""

    def __init__(self) -> None:
        from stoploss.engine.model import ResourceId

        self.draw = random.Random(1)
        self.gpus = [ResourceId("gpu", f"n{number // 8}/gpu{number % 8}") for number in range(GPUS)]
        self.labels = [
            {"job": f"j{number // 8}", "class": "train", "host": f"n{number // 8}"} for number in range(GPUS)
        ]
        self.idle = [number % 10 == 0 for number in range(GPUS)]

    def look(self, at: float) -> object:
        """One look."""
        from stoploss.engine.model import Look, Sample

        for number in self.draw.sample(range(GPUS), 5):
            self.idle[number] = not self.idle[number]
        samples = []
        for gpu, labels, idle in zip(self.gpus, self.labels, self.idle, strict=True):
            samples.append(Sample(at, gpu, "gpu.utilization", 0.0 if idle else 0.9, labels))
            samples.append(Sample(at, gpu, "gpu.power", 70.0 if idle else 600.0, labels))
        return Look(tuple(samples), frozenset({"gpu"}))


class Tenants:
    """25 places of 8 GPUs whose jobs last four hours on average; every tenth place is idle."""

    def __init__(self) -> None:
        self.draw, self.jobs, self.count = random.Random(1), dict[int, tuple[str, float]](), 0

    def look(self, at: float) -> object:
        """One look."""
        from stoploss.engine.model import Look, ResourceId, Sample

        samples = []
        for place in range(PLACES):
            if place not in self.jobs or self.draw.random() < SLOT / LASTS:
                self.count += 1
                self.jobs[place] = f"j{self.count}", at
            job, since = self.jobs[place]
            labels = {"job": job, "class": "train", "team": f"t{place % 5}", "user": "ann"}
            for number in range(8):
                gpu = ResourceId("gpu", f"n{place}/gpu{number}")
                samples.append(Sample(at, gpu, "gpu.utilization", 0.9 if place % 10 else 0.0, labels))
                samples.append(Sample(at, gpu, "gpu.model", "H100"))
            samples.append(Sample(at, ResourceId("job", job), "train.step", (at - since) / 10, labels))
        return Look(tuple(samples), frozenset({"gpu", "job"}))


def service_of(text: str, folder: str, clock: Clock, source: object, every: float) -> Service:
    """A service over one source, on a clock that is set."""
    from stoploss.actions.registry import action_options
    from stoploss.collectors.registry import option_models
    from stoploss.daemon.live import Live
    from stoploss.daemon.service import Clocks, Service
    from stoploss.rules.catalogue import catalogue
    from stoploss.rules.loader import load

    file = Path(folder) / "policies.yaml"
    file.write_text(text, "utf-8")
    read = load(
        [file], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
    )
    assert read.policies is not None, read.diagnostics
    return Service(
        read.policies,
        f"sqlite:///{folder}/state.db",
        Clocks(clock.now, time.monotonic),
        environ={},
        live=lambda policies: Live({"gpu": source}, {"gpu": every}, (), ()),  # type: ignore[dict-item]
    )


def months(days: int) -> None:
    """How long ticks take, and how much is held, when ever more jobs have come and gone."""
    clock, source, ticks = Clock(), Tenants(), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        service = service_of(MONTHS, folder, clock, source, SLOT)
        for day in range(1, days + 1):
            ticks.clear()
            for _ in range(round(86400 / SLOT)):
                clock.at += SLOT
                service.look(["gpu"], clock.at)
                clock.at += 11
                begun = time.process_time()
                service.tick()
                ticks.append(time.process_time() - begun)
                clock.at -= 11
            if day in (1, 4, days) or day % 10 == 0:
                frame = service.history.frame(SLOT)
                late = sorted(ticks)[int(len(ticks) * 0.99)]
                print(
                    f"day {day:>3}: {source.count:>6,} jobs; tick p50 {statistics.median(ticks):.3f} s, "
                    f"p99 {late:.3f} s; {len(frame.resources)} resources and "
                    f"{sum(len(plane.series) for plane in frame.planes.values())} series in memory, "
                    f"{len(service.past.days)} streams carried on, {_memory():.0f} MB",
                    flush=True,
                )


def fleet(hours: float, *, real: bool) -> None:
    """How long ticks take, and how memory goes, at the centre of a fleet."""
    clock, source = Clock(), Source()
    started, early = clock.at - time.monotonic(), 0

    def wait() -> None:
        """In real time nothing happens before its instant."""
        nonlocal early
        left = clock.at - started - time.monotonic()
        if real and left > 0:
            early += 1
            time.sleep(left)

    with tempfile.TemporaryDirectory() as folder:
        service = service_of(FLEET, folder, clock, source, EVERY)
        ticks, looks, memory = [], [], []
        for minute in range(round(hours * 60)):
            for _ in range(4):
                clock.at += EVERY
                wait()
                begun = time.process_time()
                service.look(["gpu"], clock.at)
                looks.append(time.process_time() - begun)
            clock.at += 11
            wait()
            begun = time.monotonic()
            service.tick()
            ticks.append(time.monotonic() - begun)
            clock.at -= 11
            if minute % 10 == 9:
                memory.append(_memory())
                print(
                    f"{minute + 1:>4} min: tick {statistics.median(ticks[-10:]):.2f} s, "
                    f"look {statistics.median(looks[-40:]):.2f} s, {memory[-1]:.0f} MB",
                    flush=True,
                )
        late = sorted(ticks)[int(len(ticks) * 0.99)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        size = sum(path.stat().st_size for path in Path(folder).iterdir() if path.is_file()) / 1e6
        print(
            f"fleet: p99 of {len(ticks)} ticks {late:.2f} s of 60, peak {peak:.0f} MB, "
            f"state {size:.0f} MB after {hours:g} h"
            + (f"; {early} of {len(looks) + len(ticks)} looks and ticks began on time" if real else "")
        )


def _memory() -> float:
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(description="What the daemon costs.")
    parser.add_argument("what", choices=["node", "fleet", "months"])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--days", type=int, default=20)
    parser.add_argument("--real", action="store_true", help="the fleet in real time")
    given = parser.parse_args()
    if given.what == "node":
        node(given.minutes)
    elif given.what == "months":
        months(given.days)
    else:
        fleet(given.hours, real=given.real)


if __name__ == "__main__":
    main()
