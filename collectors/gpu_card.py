"""One GPU as a look sees it: the whole, and the MIG slices that it may be split into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoploss.collectors import gpu_readings as readings
from stoploss.collectors import nvml
from stoploss.collectors.gpu_profiling import Profiling
from stoploss.collectors.gpu_xid import XidWatch
from stoploss.collectors.job_labels import job_of
from stoploss.engine.model import UNREADABLE, Bad, LabelValue, Reading, Unreadable
from stoploss.rules.catalogue import catalogue

SIGNALS = tuple(signal.name for signal in catalogue().of_collector("gpu"))

HELD_BY_NOBODY = 256 * 2**20
"""Bytes of GPU memory that no process need hold: what the driver keeps is less, a program's context more."""

HIDDEN = Bad("a process that cannot be seen holds memory")


@dataclass(frozen=True, slots=True)
class View:
    """What was seen of a GPU or of one slice.

    Attributes:
        suffix: what its name has after that of the GPU; nothing for the whole GPU.
        labels: `uuid` and `job`, and of a slice `profile`.
        readings: every signal of GPUs.
    """

    suffix: str
    labels: dict[str, LabelValue]
    readings: dict[str, Reading]

    @property
    def unusable(self) -> str | None:
        """Why nothing that this GPU says can be trusted, if so."""
        reasons = (found.reason for found in self.readings.values() if isinstance(found, Bad))
        return next((reason for reason in reasons if reason in nvml.UNUSABLE), None)


def blind(suffix: str, labels: dict[str, LabelValue], reason: str) -> View:
    """A GPU or slice of which nothing can be read."""
    return View(suffix, {**labels, "job": UNREADABLE}, dict.fromkeys(SIGNALS, Bad(reason)))


@dataclass(slots=True)
class Reader:
    """Reads GPUs; `proc` is where the processes on them are looked up."""

    proc: Path
    profiling: Profiling = field(default_factory=Profiling)
    xid: XidWatch = field(default_factory=XidWatch)
    notes: list[str] = field(default_factory=list)
    _counters: dict[str, readings.Counters] = field(default_factory=dict)

    def prepare(self, device: nvml.Device) -> bool:
        """Take the first of two readings of a new GPU; returns whether anything of it needs two."""
        if isinstance(device.handle, Bad):
            return False
        self.xid.listen(device.handle)
        if isinstance(device.uuid, Bad) or device.uuid in self._counters:
            return False
        self.profiling.measure(device.uuid, device.handle)
        for part in self._slices(device.handle):
            self.profiling.measure(part.uuid, device.handle, part.instance)
        self._counters[device.uuid] = self._count(device)
        return self.profiling.active or readings.link_count(self._counters[device.uuid]) > 0

    def _count(self, device: nvml.Device) -> readings.Counters:
        # How many links there are is not known before the first reading.
        before = self._counters.get(str(device.uuid)) or readings.counters(device.handle, 0)
        return readings.counters(device.handle, readings.link_count(before))

    def _slices(self, handle: Any) -> tuple[nvml.Slice, ...]:
        found = nvml.slices(handle) if readings.mig(handle) == "enabled" else ()
        return () if isinstance(found, Bad) else found

    def read(self, device: nvml.Device, name: str) -> list[View]:
        """The whole GPU first, then its slices; `name` is its name in notes."""
        handle = device.handle
        before, now = self._counters.get(str(device.uuid), {}), self._count(device)
        if isinstance(device.uuid, str):
            self._counters[device.uuid] = now
        found: dict[str, Reading] = {
            **readings.texts(handle),
            **readings.numbers(handle),
            **readings.memory(handle),
            **readings.throttling(handle),
            **readings.nvlink(before, now),
            **self.profiling.measure(device.uuid, handle),
            **self.xid.readings(device.uuid, handle),
            "gpu.memory.temperature": readings.memory_temperature(now),
            "gpu.mig": readings.mig(handle),
        }
        parts: list[View] = []
        listed: tuple[nvml.Process, ...] | Bad
        if found["gpu.mig"] == "enabled":
            _mark_split(found)
            parts, listed = self._parts(device, found, name)
        else:
            listed = nvml.processes(handle)
        whole = self._view("", {"uuid": _label(device.uuid)}, found, listed, name)
        return [whole, *parts]

    def _parts(
        self, device: nvml.Device, whole: dict[str, Reading], name: str
    ) -> tuple[list[View], tuple[nvml.Process, ...] | Bad]:
        """The slices, and the processes on all of them."""
        slices = nvml.slices(device.handle)
        if isinstance(slices, Bad):
            self.notes.append(f"{name}: its MIG slices cannot be listed: {slices.reason}")
            return [], slices
        views, everyone, hidden = [], dict[int, nvml.Process](), None
        for part in slices:
            suffix, labels = f"/mig{part.index}", _slice_labels(part)
            if isinstance(part.handle, Bad):
                views.append(blind(suffix, labels, part.handle.reason))
                hidden = part.handle
                continue
            found: dict[str, Reading] = dict.fromkeys(SIGNALS, Bad(nvml.NOT_SUPPORTED_ON_MIG))
            found |= {signal: whole[signal] for signal in ("gpu.driver", "gpu.mig")}
            found |= {"gpu.model": part.name, **readings.memory(part.handle)}
            found |= self.profiling.measure(part.uuid, device.handle, part.instance)
            listed = nvml.processes(part.handle)
            if isinstance(listed, Bad):
                hidden = listed
            else:
                everyone |= {process.pid: process for process in listed}
            views.append(self._view(suffix, labels, found, listed, name + suffix))
        return views, hidden or tuple(everyone.values())

    def _view(
        self,
        suffix: str,
        labels: dict[str, LabelValue],
        found: dict[str, Reading],
        listed: tuple[nvml.Process, ...] | Bad,
        name: str,
    ) -> View:
        used = found["gpu.memory.used"]
        if listed == () and not isinstance(used, Bad) and float(used) > HELD_BY_NOBODY:
            listed = HIDDEN
        found["gpu.processes"] = listed if isinstance(listed, Bad) else float(len(listed))
        return View(suffix, {**labels, "job": self._job(listed, name)}, found)

    def _job(self, listed: Sequence[nvml.Process] | Bad, name: str) -> LabelValue:
        """The job that owns what these processes run on."""
        if isinstance(listed, Bad):
            return UNREADABLE
        held: dict[str, int] = {}
        for process in listed:
            job = job_of(process.pid, self.proc)
            if isinstance(job, Unreadable):
                return UNREADABLE
            if job is not None:
                held[job] = held.get(job, 0) + (process.memory or 0)
        if not held:
            return None
        owner = max(held, key=lambda job: (held[job], job))
        if len(held) > 1:
            self.notes.append(
                f"{name}: {len(held)} jobs are on it ({', '.join(sorted(held))}); "
                f"it counts for {owner}, which holds most of its memory"
            )
        return owner

    def keep(self, uuids: Iterable[str]) -> None:
        """Forget what is not among these GPUs and slices."""
        kept = set(uuids)
        self.profiling.keep(kept)
        self._counters = {uuid: found for uuid, found in self._counters.items() if uuid in kept}

    def close(self) -> None:
        """Give back what is held in the driver."""
        self.profiling.close()
        self.xid.close()
        self._counters.clear()


def _mark_split(found: dict[str, Reading]) -> None:
    """On a GPU that is split, what is refused is refused for that; a 0 of what cannot be read is no 0."""
    for signal, reading in found.items():
        if signal in readings.NOT_ON_MIG or reading == Bad(nvml.NOT_SUPPORTED):
            found[signal] = Bad(nvml.NOT_SUPPORTED_ON_MIG)


def _slice_labels(part: nvml.Slice) -> dict[str, LabelValue]:
    profile: LabelValue = UNREADABLE
    if isinstance(part.name, str) and " MIG " in part.name:
        profile = part.name.rpartition(" MIG ")[2]
    return {"uuid": _label(part.uuid), "profile": profile}


def _label(found: str | Bad) -> LabelValue:
    return UNREADABLE if isinstance(found, Bad) else found
