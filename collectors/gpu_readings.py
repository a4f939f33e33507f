"""Numbers of the driver made into readings in catalogue units; impossible ones are bad readings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from stoploss.collectors import nvml
from stoploss.engine.model import Bad, Reading

SENTINELS = frozenset(
    {2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1}
    # The blanks of the data center tools: no value, not found, not supported, not permitted.
    | {start + blank for start in (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0) for blank in range(4)}
)
"""Numbers that stand for no number."""

MEMORY = ("gpu.memory.total", "gpu.memory.used", "gpu.memory.utilization")
NVLINK = ("gpu.nvlink.received", "gpu.nvlink.sent", "gpu.nvlink.errors")

THERMAL = pynvml.nvmlClocksThrottleReasonSwThermalSlowdown | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
POWER = pynvml.nvmlClocksThrottleReasonSwPowerCap | pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
HARDWARE = pynvml.nvmlClocksThrottleReasonHwSlowdown
IDLE = pynvml.nvmlClocksThrottleReasonGpuIdle


@dataclass(frozen=True, slots=True)
class Field:
    """A number that one call reads.

    Attributes:
        signal: the signal it becomes.
        read: asks the driver, given the handle of a GPU.
        times: the catalogue's units in one of the driver's, where that is more than one.
        per: the driver's units in one of the catalogue's, where that is more than one.
        low: the least that is physically possible, in the catalogue's unit.
        high: the most.
    """

    signal: str
    read: Callable[[Any], Any]
    times: float = 1.0
    per: float = 1.0
    low: float = 0.0
    high: float = math.inf


def _ecc(kind: int) -> Callable[[Any], Any]:
    # Since the driver was loaded: what a reset or a repair has cured must not count forever.
    return lambda gpu: pynvml.nvmlDeviceGetTotalEccErrors(gpu, kind, pynvml.NVML_VOLATILE_ECC)


def _pcie(direction: int) -> Callable[[Any], Any]:
    return lambda gpu: pynvml.nvmlDeviceGetPcieThroughput(gpu, direction)


def _clock(kind: int) -> Callable[[Any], Any]:
    return lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, kind)


def _temperature(gpu: Any) -> Any:
    return pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU)


FIELDS = (
    Field("gpu.utilization", lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu, per=100, high=1),
    Field("gpu.memory.active", lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).memory, per=100, high=1),
    Field(
        "gpu.encoder.utilization", lambda gpu: pynvml.nvmlDeviceGetEncoderUtilization(gpu)[0], per=100, high=1
    ),
    Field(
        "gpu.decoder.utilization", lambda gpu: pynvml.nvmlDeviceGetDecoderUtilization(gpu)[0], per=100, high=1
    ),
    Field("gpu.power", pynvml.nvmlDeviceGetPowerUsage, per=1e3, high=5_000),
    Field("gpu.power_limit", pynvml.nvmlDeviceGetEnforcedPowerLimit, per=1e3, low=1, high=5_000),
    Field("gpu.energy", pynvml.nvmlDeviceGetTotalEnergyConsumption, per=3.6e6),
    Field("gpu.temperature", _temperature, high=150),
    Field("gpu.clock.sm", _clock(pynvml.NVML_CLOCK_SM), high=10_000),
    Field("gpu.clock.memory", _clock(pynvml.NVML_CLOCK_MEM), high=50_000),
    # In kB/s, which the driver averages over 20 ms.
    Field("gpu.pcie.received", _pcie(pynvml.NVML_PCIE_UTIL_RX_BYTES), times=1e3, high=1e12),
    Field("gpu.pcie.sent", _pcie(pynvml.NVML_PCIE_UTIL_TX_BYTES), times=1e3, high=1e12),
    Field("gpu.pcie.width", pynvml.nvmlDeviceGetCurrPcieLinkWidth, low=1, high=64),
    Field("gpu.pcie.replays", pynvml.nvmlDeviceGetPcieReplayCounter),
    Field("gpu.ecc.corrected", _ecc(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)),
    Field("gpu.ecc.uncorrected", _ecc(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)),
    Field("gpu.remapped_rows", lambda gpu: sum(pynvml.nvmlDeviceGetRemappedRows(gpu)[:2]), high=1e6),
)

NOT_ON_MIG = ("gpu.utilization", "gpu.memory.active", "gpu.encoder.utilization", "gpu.decoder.utilization")
"""What a GPU that is split says of itself as a whole and means nothing, whether refused or 0."""


def number(raw: float | Bad, field: Field) -> Reading:
    """A number of the driver as a reading, if it is one."""
    if isinstance(raw, Bad):
        return raw
    value = raw * field.times / field.per
    if raw in SENTINELS or not field.low <= value <= field.high:
        return Bad(f"sentinel value {raw}")
    return value


def numbers(handle: Any) -> dict[str, Reading]:
    """Every field of a GPU that one call reads."""
    return {field.signal: number(nvml.ask(field.read, handle), field) for field in FIELDS}


def memory(handle: Any) -> dict[str, Reading]:
    """Size, use and their ratio, of a GPU or a MIG instance; what the driver reserves is not in use."""
    found = nvml.ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if isinstance(found, Bad) and found.reason == nvml.TOO_OLD:
        found = nvml.ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    if isinstance(found, Bad):
        return dict.fromkeys(MEMORY, found)
    total = number(found.total, Field(MEMORY[0], id, low=1))
    used = number(found.used, Field(MEMORY[1], id))
    share: Reading
    if isinstance(total, Bad) or isinstance(used, Bad):
        share = total if isinstance(total, Bad) else used
    elif found.used > found.total:
        used = share = Bad("suspect: more memory in use than there is")
    else:
        share = found.used / found.total
    return dict(zip(MEMORY, (total, used, share), strict=True))


def texts(handle: Any) -> dict[str, Reading]:
    """Model, driver and performance state."""
    state = nvml.ask(pynvml.nvmlDeviceGetPerformanceState, handle)
    if not isinstance(state, Bad):
        state = f"P{state}" if 0 <= state <= 15 else Bad("unknown state")
    return {
        "gpu.model": nvml.ask(pynvml.nvmlDeviceGetName, handle),
        "gpu.driver": nvml.ask(pynvml.nvmlSystemGetDriverVersion),
        "gpu.performance_state": state,
    }


def throttling(handle: Any) -> dict[str, Reading]:
    """Whether heat or power hold the clocks back at this moment, and the foremost reason."""
    found = nvml.ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    if isinstance(found, Bad):
        return {"gpu.throttled": found, "gpu.throttle_reason": found}
    reasons = (("thermal", THERMAL), ("power", POWER), ("hardware", HARDWARE), ("other", ~IDLE))
    why = next((word for word, bits in reasons if found & bits), "none")
    return {"gpu.throttled": float(why in ("thermal", "power", "hardware")), "gpu.throttle_reason": why}


def mig(handle: Any) -> Reading:
    """Whether the GPU is split into MIG instances."""
    found = nvml.ask(pynvml.nvmlDeviceGetMigMode, handle)
    if isinstance(found, Bad):
        return found
    return {0: "disabled", 1: "enabled"}.get(found[0], Bad(f"sentinel value {found[0]}"))


@dataclass(frozen=True, slots=True)
class Counter:
    """A field value: what the driver counted, and when it did so in microseconds of its own clock."""

    value: float
    at: int


Counters = Mapping[tuple[int, int], "Counter | Bad"]
"""(field, scope) -> what was counted."""

ALL_LINKS = 2**32 - 1
TRAFFIC = {
    "gpu.nvlink.received": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
    "gpu.nvlink.sent": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
}
LINK_COUNT = (pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 0)
MEMORY_TEMPERATURE = (pynvml.NVML_FI_DEV_MEMORY_TEMP, 0)
ERRORS_IN_ALL = tuple(
    (field, 0)
    for field in (
        pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
        pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
        pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
        pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
    )
)
ERRORS_OF_A_LINK = (
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
)


def counters(handle: Any, links: int) -> Counters:
    """Everything that is read as field values, in one call; `links` is how many NVLinks there may be."""
    asked = [MEMORY_TEMPERATURE, LINK_COUNT]
    if links:
        asked += [*TRAFFIC.values(), *ERRORS_IN_ALL]
        asked += [(field, link) for link in range(links) for field in ERRORS_OF_A_LINK]
    found = nvml.ask(pynvml.nvmlDeviceGetFieldValues, handle, asked)
    if isinstance(found, Bad):
        return dict.fromkeys(asked, found)
    return {key: _counter(item) for key, item in zip(asked, found, strict=True)}


_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
}


def _counter(item: Any) -> Counter | Bad:
    if item.nvmlReturn != pynvml.NVML_SUCCESS:
        return Bad(nvml.reason(pynvml.NVMLError(item.nvmlReturn)))
    member = _MEMBERS.get(item.valueType)
    if member is None:
        return Bad(f"a value of the unknown type {item.valueType}")
    raw = getattr(item.value, member)
    return Bad(f"sentinel value {raw}") if raw in SENTINELS else Counter(raw, item.timestamp)


def memory_temperature(now: Counters) -> Reading:
    """Temperature of the memory in C."""
    found = now[MEMORY_TEMPERATURE]
    # 0 is what some boards without a sensor answer.
    field = Field("gpu.memory.temperature", id, low=1, high=150)
    return number(found if isinstance(found, Bad) else found.value, field)


def link_count(now: Counters) -> int:
    """How many NVLinks the GPU has; 0 where it does not say."""
    found = now[LINK_COUNT]
    return 0 if isinstance(found, Bad) else min(int(found.value), pynvml.NVML_NVLINK_MAX_LINKS)


def nvlink(before: Counters, now: Counters) -> dict[str, Reading]:
    """Bytes per second between two looks, and errors since the driver was loaded, over all links."""
    found = now[LINK_COUNT]
    if isinstance(found, Bad) or not found.value:
        return dict.fromkeys(NVLINK, found if isinstance(found, Bad) else Bad("no NVLink"))
    read: dict[str, Reading] = {signal: _rate(before.get(key), now[key]) for signal, key in TRAFFIC.items()}
    return {**read, "gpu.nvlink.errors": _errors(now)}


def _rate(before: Counter | Bad | None, now: Counter | Bad) -> Reading:
    if isinstance(now, Bad):
        return now
    if not isinstance(before, Counter):
        return Bad("needs two looks")
    if now.at <= before.at or now.value < before.value:
        return Bad("the counter was reset")
    return (now.value - before.value) * 1024 / ((now.at - before.at) / 1e6)


def _errors(now: Counters) -> Reading:
    """Sum of all links, in the fields of older or, where those are refused, of newer GPUs."""
    total = _sum([now[key] for key in ERRORS_IN_ALL])
    if not isinstance(total, Bad):
        return total
    return _sum([found for (field, _), found in now.items() if field in ERRORS_OF_A_LINK])


def _sum(found: list[Counter | Bad]) -> Reading:
    total = 0.0
    for item in found:
        if isinstance(item, Bad):
            return item
        total += item.value
    return total
