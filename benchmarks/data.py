"""Made-up fleets for the benchmarks: arrays, frames, dicts and files of the same numbers.

Every value comes from a fixed seed, so that two runs measure the same work. Shares are
fractions of one, power is in watts, a slot is one minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stoploss.engine.history.frame import LOOKED, VALID, Frame, LabelChange, Plane, Presence
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import catalogue

Array = npt.NDArray[np.float64]

SEED = 20260101
EPOCH_SLOT = 29_700_000
"""The first slot of every fleet: a whole minute in the year 2026."""
SIGNALS = ("gpu.utilization", "gpu.power", "gpu.memory.utilization")
COLLECTOR = "gpu"

CORE_POLICY = """\
version: 1
policies:
  - name: core
    each: gpu
    when:
      - max(gpu.utilization, 30m) < 5%
      - avg(gpu.power, 30m) < 100W
      - p95(gpu.memory.utilization, 1h) < 20%
    for: 10m
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits of one policy: two shares in percent, a power in watts, a window in minutes."""

    utilization: int
    power: int
    memory: int
    window: int


def tick_limits() -> tuple[Limits, ...]:
    """Twenty policies from strict to lenient, over windows of four lengths."""
    return tuple(
        Limits(utilization=5 * (i + 1), power=90 + 30 * i, memory=100 - 4 * i, window=15 * (i % 4 + 1))
        for i in range(20)
    )


def tick_policies() -> str:
    """The twenty policies as a policy file."""
    lines = ["version: 1", "policies:"]
    for i, limits in enumerate(tick_limits()):
        lines += [
            f"  - name: tick-{i}",
            "    each: gpu",
            "    when:",
            f"      - max(gpu.utilization, {limits.window}m) < {limits.utilization}%",
            f"      - avg(gpu.power, {limits.window}m) < {limits.power}W",
            f"      - p95(gpu.memory.utilization, {limits.window}m) < {limits.memory}%",
            "    for: 10m",
        ]
    return "\n".join(lines) + "\n"


def gpus(count: int) -> tuple[ResourceId, ...]:
    """The series of a fleet."""
    return tuple(ResourceId("gpu", f"gpu-{i:06d}") for i in range(count))


def presences(series: tuple[ResourceId, ...]) -> dict[ResourceId, Presence]:
    """Every GPU seen from the first slot on, eight to a job and a host."""
    return {
        gpu: Presence(
            EPOCH_SLOT,
            (LabelChange(EPOCH_SLOT, {"job": f"job-{i // 8}", "host": f"host-{i // 8}"}),),
        )
        for i, gpu in enumerate(series)
    }


def frame(
    values: Mapping[str, Array],
    resources: Mapping[ResourceId, Presence],
    first: int = EPOCH_SLOT,
) -> Frame:
    """A frame in which every series has a valid value in every slot; arrays are slots x series."""
    series = tuple(resources)
    slots = len(next(iter(values.values())))
    cadence = np.ones(len(series), dtype=np.int32)
    planes = {
        name: Plane(catalogue()[name], series, array, np.full(array.shape, VALID, dtype=np.uint8), cadence)
        for name, array in values.items()
    }
    return Frame(
        resolution=60.0,
        first=first,
        slots=slots,
        planes=planes,
        resources=resources,
        looks={COLLECTOR: np.full(slots, LOOKED, dtype=np.uint8)},
        look_cadence={COLLECTOR: 1},
    )


def busy_and_idle(slots: int, series: int, settled: int = 1) -> dict[str, Array]:
    """The three signals of GPUs that work and rest in turns of one to eight hours.

    Every sample has a value of its own, at work and at rest. No GPU changes between the two in
    the last `settled` slots.
    """
    rng = np.random.default_rng(SEED)
    half_turn = rng.integers(60, 480, size=series)
    offset = rng.integers(0, 960, size=series)
    turn = np.minimum(np.arange(slots), slots - settled)[:, None]
    idle = ((turn + offset) // half_turn) % 2 == 0
    noise = rng.random((slots, series))
    return {
        "gpu.utilization": np.where(idle, 0.03 * noise, 0.5 + 0.5 * noise),
        "gpu.power": np.where(idle, 60.0 + 20.0 * noise, 300.0 + 300.0 * noise),
        "gpu.memory.utilization": np.where(idle, 0.1 * noise, 0.3 + 0.5 * noise),
    }


@dataclass(frozen=True, slots=True)
class Steady:
    """GPUs that each keep to a level of their own: in whole percent, and in whole tens of watts.

    Samples jitter above the level by less than one step, and every limit is a whole step. So a
    window over the past and the newest value alone always give the same verdict, and two
    engines can be compared on what they find.
    """

    utilization: npt.NDArray[np.int64]
    power: npt.NDArray[np.int64]
    memory: npt.NDArray[np.int64]

    @staticmethod
    def fleet(count: int) -> Steady:
        """Levels drawn evenly over the whole range."""
        rng = np.random.default_rng(SEED)
        return Steady(rng.integers(0, 100, count), rng.integers(5, 70, count), rng.integers(0, 100, count))

    def samples(self, slots: int, seed: int) -> dict[str, Array]:
        """The three signals over `slots` slots."""
        jitter = np.random.default_rng(seed).uniform(0.1, 0.9, (slots, len(self.power)))
        return {
            "gpu.utilization": (self.utilization + jitter) / 100.0,
            "gpu.power": (self.power + jitter) * 10.0,
            "gpu.memory.utilization": (self.memory + jitter) / 100.0,
        }

    def matches(self) -> int:
        """How many (policy, GPU) pairs are over, by the levels alone."""
        return sum(
            int(
                np.count_nonzero(
                    (self.utilization < limits.utilization)
                    & (self.power * 10 < limits.power)
                    & (self.memory < limits.memory)
                )
            )
            for limits in tick_limits()
        )


def records(samples: Mapping[str, Array], series: tuple[ResourceId, ...]) -> list[dict[str, str | float]]:
    """One slot as one dict per GPU, the form in which an inventory call returns resources."""
    columns = [samples[name][0].tolist() for name in SIGNALS]
    return [
        {"id": gpu.id, SIGNALS[0]: utilization, SIGNALS[1]: power, SIGNALS[2]: memory}
        for gpu, utilization, power, memory in zip(series, *columns, strict=True)
    ]


def columns(resources: list[dict[str, str | float]]) -> dict[str, Array]:
    """One slot of arrays out of such dicts."""
    count = len(resources)
    return {
        name: np.fromiter((item[name] for item in resources), dtype=np.float64, count=count).reshape(1, count)
        for name in SIGNALS
    }


def day(series: int) -> dict[str, Array]:
    """1,440 slots of the three signals, rounded as a collector writes them.

    In the last 80 slots no GPU changes between work and rest, so that windows that are closed at
    both ends and windows that are open on the left give the same alerts at the end.
    """
    values = busy_and_idle(1440, series, settled=80)
    return {name: array.round(1 if name == "gpu.power" else 4) for name, array in values.items()}


def idle_at_the_end(values: Mapping[str, Array]) -> tuple[int, ...]:
    """The numbers of the GPUs that end the day at rest."""
    return tuple(np.flatnonzero(values["gpu.utilization"][-1] < 0.05).tolist())


def write_csv(path: Path, values: Mapping[str, Array], series: tuple[ResourceId, ...]) -> None:
    """The day as recorded signals, in the order of time."""
    start = np.datetime64(EPOCH_SLOT * 60, "s")
    slots = len(next(iter(values.values())))
    with path.open("w", encoding="utf-8") as file:
        file.write("time,resource,kind,signal,value\n")
        for slot in range(slots):
            stamp = f"{start + np.timedelta64(slot * 60, 's')}Z"
            for name, array in values.items():
                file.writelines(
                    f"{stamp},{gpu.id},gpu,{name},{value}\n"
                    for gpu, value in zip(series, array[slot].tolist(), strict=True)
                )
