"""Shares of multiprocessors, warps and tensor cores at work, as NVML measures them between two looks.

GPUs before Hopper leave that to DCGM.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pynvml

from stoploss.collectors import nvml
from stoploss.engine.model import Bad, Reading

METRICS = {
    "gpu.engine_active": pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "gpu.sm_active": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "gpu.sm_occupancy": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "gpu.tensor_active": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
}
NEEDS = Bad("needs DCGM or GPM")
FIRST = Bad("needs two looks")


@dataclass(slots=True)
class _Pair:
    """Two samples in the driver's memory, of which the spare is the next to be filled."""

    last: Any
    spare: Any
    filled: bool = False


@dataclass(slots=True)
class Profiling:
    """Measures GPUs and MIG instances; it owns samples in the driver, so `close` it."""

    _pairs: dict[str, _Pair] = field(default_factory=dict)

    def measure(self, uuid: str | Bad, handle: Any, instance: int | Bad | None = None) -> dict[str, Reading]:
        """Shares since the measure before of the same name; `instance`: of this MIG instance of the GPU."""
        found: dict[str, Reading] | Bad
        if isinstance(uuid, Bad):
            found = uuid
        elif isinstance(instance, Bad):
            found = instance
        else:
            found = self._measure(uuid, handle, instance)
        if isinstance(found, Bad):
            return dict.fromkeys(METRICS, _needs(found))
        return found

    def _measure(self, uuid: str, handle: Any, instance: int | None) -> dict[str, Reading] | Bad:
        pair = self._pairs.get(uuid) or self._new(handle)
        if isinstance(pair, Bad):
            return pair
        self._pairs[uuid] = pair
        if instance is None:
            taken = nvml.ask(pynvml.nvmlGpmSampleGet, handle, pair.spare)
        else:
            taken = nvml.ask(pynvml.nvmlGpmMigSampleGet, handle, instance, pair.spare)
        if isinstance(taken, Bad):
            pair.filled = False
            return taken
        before, pair.last, pair.spare = pair.last, pair.spare, pair.last
        if not pair.filled:
            pair.filled = True
            return FIRST
        return _between(before, pair.last)

    def _new(self, handle: Any) -> _Pair | Bad:
        support = nvml.ask(pynvml.nvmlGpmQueryDeviceSupport, handle)
        if isinstance(support, Bad):
            return support
        if not support.isSupportedDevice:
            return NEEDS
        last, spare = nvml.ask(pynvml.nvmlGpmSampleAlloc), nvml.ask(pynvml.nvmlGpmSampleAlloc)
        return next((failed for failed in (last, spare) if isinstance(failed, Bad)), _Pair(last, spare))

    @property
    def active(self) -> bool:
        """Whether there is anything that it can measure."""
        return bool(self._pairs)

    def keep(self, uuids: Iterable[str | Bad]) -> None:
        """Give back the samples of everything that is not among `uuids`."""
        for uuid in self._pairs.keys() - set(uuids):
            pair = self._pairs.pop(uuid)
            for sample in (pair.last, pair.spare):
                nvml.let_go(pynvml.nvmlGpmSampleFree, sample)

    def close(self) -> None:
        """Give back every sample."""
        self.keep(())


def _needs(found: Bad) -> Bad:
    return NEEDS if found.reason in (nvml.NOT_SUPPORTED, nvml.TOO_OLD) else found


def _between(before: Any, now: Any) -> dict[str, Reading] | Bad:
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics = len(METRICS)
    asked.sample1, asked.sample2 = before, now
    for place, metric in enumerate(METRICS.values()):
        asked.metrics[place].metricId = metric
    answered = nvml.ask(pynvml.nvmlGpmMetricsGet, asked)
    if isinstance(answered, Bad):
        return answered
    return {signal: _share(answered.metrics[place]) for place, signal in enumerate(METRICS)}


def _share(metric: Any) -> Reading:
    if metric.nvmlReturn != pynvml.NVML_SUCCESS:
        return _needs(Bad(nvml.reason(pynvml.NVMLError(metric.nvmlReturn))))
    # Rounding in the driver may carry a full share a little over.
    if not math.isfinite(metric.value) or not 0 <= metric.value <= 101:
        return Bad(f"sentinel value {metric.value:g}")
    return float(min(metric.value / 100, 1.0))
