"""GPUs and MIG slices as dcgm-exporter tells them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from stoploss.collectors.gpu_readings import HARDWARE, IDLE, POWER, SENTINELS, THERMAL
from stoploss.collectors.nvml import NOT_SUPPORTED_ON_MIG
from stoploss.collectors.prometheus_calls import Answer
from stoploss.collectors.prometheus_scene import NOT_A_NUMBER, Metric, Scene, Selector, Told, target_of
from stoploss.collectors.prometheus_scene import words as source_of
from stoploss.engine.model import UNREADABLE, Bad, LabelValue, Reading, ResourceId

NAME = "dcgm"

MIB = float(2**20)

BLANKS = frozenset(float(number) for number in SENTINELS) | {2.0**47 + blank for blank in range(4)}
"""Numbers that stand for no number, as the server keeps them."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric that is a number.

    Attributes:
        signal: the signal that it is.
        per: its units in one of the catalogue's.
        low: the least that is possible, in the catalogue's unit.
        high: the most.
        of_slice: whether the exporter tells it of a MIG slice by itself, not of the GPU around it.
    """

    signal: str
    per: float = 1.0
    low: float = 0.0
    high: float = math.inf
    of_slice: bool = False


def _share(signal: str, per: float = 1.0, *, of_slice: bool = False) -> Gauge:
    # Rounding may carry a full share a little over.
    return Gauge(signal, per, high=1.01, of_slice=of_slice)


GAUGES: Mapping[str, Gauge] = {
    "DCGM_FI_DEV_GPU_UTIL": _share("gpu.utilization", 100),
    "DCGM_FI_DEV_ENC_UTIL": _share("gpu.encoder.utilization", 100),
    "DCGM_FI_DEV_DEC_UTIL": _share("gpu.decoder.utilization", 100),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _share("gpu.engine_active", of_slice=True),
    "DCGM_FI_PROF_SM_ACTIVE": _share("gpu.sm_active", of_slice=True),
    "DCGM_FI_PROF_SM_OCCUPANCY": _share("gpu.sm_occupancy", of_slice=True),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _share("gpu.tensor_active", of_slice=True),
    "DCGM_FI_PROF_DRAM_ACTIVE": _share("gpu.memory.active", of_slice=True),
    "DCGM_FI_PROF_PCIE_RX_BYTES": Gauge("gpu.pcie.received", high=1e12),
    "DCGM_FI_PROF_PCIE_TX_BYTES": Gauge("gpu.pcie.sent", high=1e12),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": Gauge("gpu.nvlink.received", high=1e13),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": Gauge("gpu.nvlink.sent", high=1e13),
    "DCGM_FI_DEV_POWER_USAGE": Gauge("gpu.power", high=5_000),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": Gauge("gpu.power_limit", low=1, high=5_000),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Gauge("gpu.energy", 3.6e6),
    "DCGM_FI_DEV_GPU_TEMP": Gauge("gpu.temperature", high=150),
    # 0 is what some boards without a sensor answer.
    "DCGM_FI_DEV_MEMORY_TEMP": Gauge("gpu.memory.temperature", low=1, high=150),
    "DCGM_FI_DEV_SM_CLOCK": Gauge("gpu.clock.sm", high=10_000),
    "DCGM_FI_DEV_MEM_CLOCK": Gauge("gpu.clock.memory", high=50_000),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": Gauge("gpu.pcie.width", low=1, high=64),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": Gauge("gpu.pcie.replays"),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": Gauge("gpu.ecc.corrected"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": Gauge("gpu.ecc.uncorrected"),
}

MEMORY = {
    name: Gauge(name, 1 / MIB, high=1e13, of_slice=True)
    for name in (
        "DCGM_FI_DEV_FB_TOTAL",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_FB_FREE",
        "DCGM_FI_DEV_FB_RESERVED",
    )
}
TOTAL, USED, FREE, RESERVED = MEMORY

SUMS: Mapping[str, tuple[str, ...]] = {
    "gpu.nvlink.errors": tuple(
        f"DCGM_FI_DEV_NVLINK_{part}_ERROR_COUNT_TOTAL"
        for part in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
    ),
    "gpu.remapped_rows": ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
}
"""Signal -> metrics that add up to it, where all are told."""

XID, PSTATE, COPY = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_PSTATE", "DCGM_FI_DEV_MEM_COPY_UTIL"
THROTTLE = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")

METRICS = (*GAUGES, *MEMORY, *(name for part in SUMS.values() for name in part), XID, PSTATE, COPY, *THROTTLE)

NOT_ON_MIG = ("gpu.utilization", "gpu.memory.active", "gpu.encoder.utilization", "gpu.decoder.utilization")

ACTIVITY = frozenset(
    {
        "gpu.utilization",
        "gpu.power",
        "gpu.energy",
        "gpu.memory.active",
        "gpu.engine_active",
        "gpu.sm_active",
        "gpu.sm_occupancy",
        "gpu.tensor_active",
    }
)
"""What a verdict of idleness could be built on."""


def questions(selector: Selector) -> dict[str, str]:
    """What the server is asked."""
    return {"dcgm": selector.any_of(METRICS), "dcgm ages": selector.ages(METRICS)}


@dataclass(slots=True)
class _Gpu:
    """One GPU or slice.

    Attributes:
        metrics: name -> what the series say, which are several where it is shared or told twice.
        labels: labels of any of its series.
        uuids: what they say it is.
        jobs: jobs that they name, None for none.
    """

    metrics: dict[str, list[Metric]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    uuids: set[str] = field(default_factory=set)
    jobs: set[LabelValue] = field(default_factory=set)


def told(
    values: Answer, ages: Answer, scene: Scene, job_of: Callable[[str, str], LabelValue]
) -> Iterator[Told]:
    """Every reading of every GPU; `job_of` names the job of a namespace and pod."""
    metrics = scene.fresh(values, ages)
    # Where no series of a target names a pod, the exporter may not look for them.
    mapped = {item.target for item in metrics if _user(item.labels, scene)}
    gpus: dict[tuple[str, str | None], _Gpu] = {}
    for item in metrics:
        labels = item.labels
        uuid, index, host = labels.get("UUID"), labels.get("gpu"), scene.host(labels)
        missing = [word for word, text in (("UUID", uuid), ("number", index), ("host", host)) if not text]
        if missing:
            scene.note(f"GPUs without {' and '.join(missing)} are left out: {source_of(item)}")
            continue
        name, part = f"{host}/gpu{index}", labels.get("GPU_I_ID") or None
        whole = gpus.setdefault((name, None), _Gpu())
        known = item.name in MEMORY or (item.name in GAUGES and GAUGES[item.name].of_slice)
        gpu = gpus.setdefault((name, part), _Gpu()) if part and known else whole
        gpu.metrics.setdefault(item.name, []).append(item)
        gpu.labels = labels
        gpu.uuids.add(str(uuid))
        if (part is None or gpu is not whole) and item.target in mapped:
            gpu.jobs.add(_job(labels, scene, job_of))
    split = {name for name, part in gpus if part}
    for (name, part), gpu in sorted(gpus.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        yield from _told(name, part, gpu, name in split, scene)


def _user(labels: Mapping[str, str], scene: Scene) -> bool:
    return bool(labels.get("hpc_job")) or scene.pod(labels) is not None


def _job(labels: Mapping[str, str], scene: Scene, job_of: Callable[[str, str], LabelValue]) -> LabelValue:
    if job := labels.get("hpc_job"):
        return job
    pod = scene.pod(labels)
    return None if pod is None else job_of(*pod)


def _told(name: str, part: str | None, gpu: _Gpu, split: bool, scene: Scene) -> Iterator[Told]:
    if not gpu.metrics:
        return
    first = next(iter(gpu.metrics.values()))[0]
    labels: dict[str, LabelValue] = {"host": name.rpartition("/")[0]}
    # That of a slice is not told, only that of the GPU which it is a part of.
    labels |= (
        {"parent": name, "profile": gpu.labels.get("GPU_I_PROFILE") or None}
        if part
        else {"uuid": min(gpu.uuids)}
    )
    if gpu.jobs:
        labels["job"] = next(iter(gpu.jobs)) if len(gpu.jobs) == 1 else UNREADABLE
        if len(gpu.jobs) > 1:
            scene.note(f"{name}: used by several jobs, so its job cannot be told")
    readings = _readings(gpu, scene)
    if len(gpu.uuids) > 1:
        readings = dict.fromkeys(readings, Bad(f"two GPUs of one name: {', '.join(sorted(gpu.uuids))}"))
    if split:
        readings |= dict.fromkeys(
            (signal for signal in NOT_ON_MIG if part is None and signal in readings),
            Bad(NOT_SUPPORTED_ON_MIG),
        )
        readings["gpu.mig"] = "enabled"
        if part:
            readings["gpu.utilization"] = Bad(NOT_SUPPORTED_ON_MIG)
    resource = ResourceId("gpu", f"{name}/gi{part}" if part else name)
    for signal, reading in readings.items():
        yield Told(resource, signal, reading, labels, source_of(first), first.target)


def _readings(gpu: _Gpu, scene: Scene) -> dict[str, Reading]:
    found: dict[str, Reading] = {}
    for name, gauge in GAUGES.items():
        if name in gpu.metrics:
            found[gauge.signal] = _number(gpu.metrics[name], gauge)
    if COPY in gpu.metrics and "gpu.memory.active" not in found:
        found["gpu.memory.active"] = _number(gpu.metrics[COPY], _share("gpu.memory.active", 100))
    for signal, names in SUMS.items():
        parts = [_number(gpu.metrics[name], Gauge(signal)) for name in names if name in gpu.metrics]
        if len(parts) == len(names):
            found[signal] = _sum(parts)
    found |= _memory(gpu)
    if XID in gpu.metrics:
        number = _number(gpu.metrics[XID], Gauge("gpu.xid", high=1e4))
        found["gpu.xid"] = number if isinstance(number, Bad) else f"{number:.0f}" if number else "none"
    if PSTATE in gpu.metrics:
        number = _number(gpu.metrics[PSTATE], Gauge("gpu.performance_state", high=15))
        found["gpu.performance_state"] = number if isinstance(number, Bad) else f"P{number:.0f}"
    reasons = next((gpu.metrics[name] for name in THROTTLE if name in gpu.metrics), None)
    if reasons is not None:
        found |= _throttling(_number(reasons, Gauge("gpu.throttled")))
    for signal, label in (("gpu.model", "modelName"), ("gpu.driver", "DCGM_FI_DRIVER_VERSION")):
        if text := gpu.labels.get(label):
            found[signal] = text
    return found


def _number(metrics: list[Metric], gauge: Gauge) -> Reading:
    """The one number that the series of a metric say."""
    targets = {target_of(item.labels) for item in metrics}
    values = {item.value for item in metrics}
    # The exporter repeats a GPU for each pod that shares it, and for each slice of it.
    if len(targets) > 1 or len(values) > 1:
        shown = sorted({source_of(item) for item in metrics})
        return Bad(f"told twice: {', '.join(shown[:3])}")
    raw = metrics[0].value
    if isinstance(raw, Bad):
        return raw
    if not math.isfinite(raw):
        return NOT_A_NUMBER
    value = raw / gauge.per
    if raw in BLANKS or not gauge.low <= value <= gauge.high:
        return Bad(f"sentinel value {raw:.0f}")
    return min(value, 1.0) if gauge.high == 1.01 else value


def _sum(parts: Iterable[Reading]) -> Reading:
    total = 0.0
    for part in parts:
        if not isinstance(part, float):
            return part
        total += part
    return total


def _memory(gpu: _Gpu) -> dict[str, Reading]:
    read = {name: _number(gpu.metrics[name], gauge) for name, gauge in MEMORY.items() if name in gpu.metrics}
    if USED not in read:
        return {}
    used, found = read[USED], dict[str, Reading]()
    found["gpu.memory.used"] = used
    if TOTAL in read:
        total = read[TOTAL]
    elif FREE in read:
        total = _sum([used, read[FREE], read.get(RESERVED, 0.0)])
    else:
        return found
    if RESERVED in read or TOTAL in read:
        # Without what is reserved the sum falls short of the size.
        found["gpu.memory.total"] = total
    if isinstance(used, float) and isinstance(total, float):
        fits = total > 0 and used <= total
        found["gpu.memory.utilization"] = (
            used / total if fits else Bad("suspect: more memory in use than there is")
        )
    else:
        found["gpu.memory.utilization"] = used if isinstance(used, Bad) else total
    return found


def _throttling(mask: Reading) -> dict[str, Reading]:
    if not isinstance(mask, float):
        return dict.fromkeys(("gpu.throttled", "gpu.throttle_reason"), mask)
    bits = int(mask)
    reasons = (("thermal", THERMAL), ("power", POWER), ("hardware", HARDWARE), ("other", ~IDLE))
    why = next((word for word, some in reasons if bits & some), "none")
    return {"gpu.throttled": float(why in ("thermal", "power", "hardware")), "gpu.throttle_reason": why}


def beside_lost(told: Iterable[Told], missing: Iterable[ResourceId]) -> list[Told]:
    """Readings of GPUs beside which others are missing: such a host is neither idle nor busy."""
    lost: dict[str, list[str]] = {}
    for resource in sorted(missing):
        host, _, name = resource.id.rpartition("/")
        lost.setdefault(host, []).append(name)
    found = []
    for item in told:
        beside = lost.get(str(item.labels.get("host")))
        if beside and item.signal in ACTIVITY and not isinstance(item.reading, Bad):
            why = Bad(f"another GPU of this host is lost: {', '.join(beside)}")
            item = Told(item.resource, item.signal, why, item.labels, item.source, item.target)
        found.append(item)
    return found
