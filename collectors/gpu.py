"""NVIDIA GPUs of this machine and their MIG slices, as the driver sees them through NVML.

Nothing needs to be configured, and no rights are needed beyond those that running `nvidia-smi`
needs. It changes nothing. Between looks it keeps the driver open, as any monitor of GPUs does:
a GPU cannot be reset meanwhile.

- A GPU is named `HOST/gpuINDEX` and keeps that name while stoploss runs, whatever happens to
  the GPUs beside it. A MIG slice is a GPU of its own, `HOST/gpuINDEX/migN`. Labels: `host`,
  `uuid`, and of a slice `parent` and `profile` (such as `3g.40gb`).
- The label `job` comes from the processes on the GPU. No process means no job. Where the
  processes cannot be listed, one of them cannot be seen, or memory is held and none is listed
  (other containers hide theirs), the job is unreadable. Of several jobs it is the one that holds
  most memory, and a note says so.
- On a GPU that is split, and on its slices, utilization is `not supported on MIG`, even where
  the driver says 0. A slice knows its memory, its processes and, on Hopper and later, its share of
  active multiprocessors. Power is that of the whole device, on the parent.
- `gpu.sm_active`, `gpu.sm_occupancy`, `gpu.tensor_active` and `gpu.engine_active` are measured by
  the driver between two looks, from Hopper on; else they need DCGM, and say so. The first look
  takes two readings 100 ms apart.
- `gpu.throttled` is 100% or 0% at the moment of a look: over many looks, the share of time.
- ECC errors count since the driver was loaded, Xid errors since stoploss first looked.
- Processes of any type count: compute, MPS and graphics.

What the driver refuses is a bad reading with its reason, never a zero. So is a number that
stands for none (`sentinel value 4294967295`), and what cannot be true: power or energy that stay
the same to the last digit over ten looks while other readings move, 100% utilization at idle power
without a process, 0 W on a GPU with a power limit, more memory in use than there is.

A GPU that is lost or has vanished makes bad readings of all it had. As long as one is missing,
every other GPU of the host is neither idle nor busy: its activity (utilization, power, energy and
the shares that are measured) is `another GPU of this host is lost: gpu3`. The rest is still known.

Where there is neither driver nor GPU there is nothing to look at. A GPU on the bus without a
driver, a driver that does not fit its library, or one that may not be opened fails the look.

Right:

```yaml
collectors:
  gpu: {every: 15s, name: node-17}
```

Wrong, because an interval is a duration with its unit:

```yaml
collectors:
  gpu: {every: 15}
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoploss.collectors import gpu_profiling, nvml
from stoploss.collectors.contract import Collector, CollectorError, Context, NotHere
from stoploss.collectors.gpu_card import SIGNALS, Reader, View, blind
from stoploss.collectors.gpu_options import Options
from stoploss.collectors.gpu_suspect import Watch
from stoploss.engine.model import UNREADABLE, Bad, LabelValue, Look, ResourceId, Sample

NAME = "gpu"

FIRST_GAP = 0.1
"""Seconds between the two readings that the first look at a GPU takes."""

VANISHED = "GPU vanished"
NO_PERMISSION = Bad("no permission")

XID = ("gpu.xid", "gpu.xid_errors")

ACTIVITY = (
    "gpu.utilization",
    "gpu.power",
    "gpu.energy",
    "gpu.memory.active",
    *gpu_profiling.METRICS,
)
"""What a verdict of idleness could be built on."""


@dataclass(slots=True)
class _Known:
    """A GPU that was seen once, by its uuid.

    Attributes:
        number: the number in its name.
        parts: suffix and labels of what it consisted of at the last look that could tell.
        watch: what doubts about its readings are built on.
    """

    number: int
    parts: tuple[tuple[str, dict[str, LabelValue]], ...] = (("", {"uuid": UNREADABLE}),)
    watch: Watch = field(default_factory=Watch)


@dataclass(frozen=True, slots=True)
class _Card:
    """One GPU of a look, its views, and whether it is there to be judged."""

    number: int
    views: Sequence[View]
    missing: str | None = None


@dataclass(slots=True)
class GpuCollector:
    """Looks at the GPUs of one machine; `root` is where /proc and /sys lie."""

    hostname: str
    sleep: Callable[[float], None]
    root: Path = Path("/")
    _reader: Reader = field(init=False)
    _open: bool = False
    _known: dict[str, _Known] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reader = Reader(self.root / "proc")

    def look(self, at: float) -> Look:
        """Look once; every sample carries `at`.

        Raises:
            NotHere: this machine has no GPU.
            CollectorError: it has, and the driver as a whole does not answer.
        """
        if not self._open:
            nvml.open_driver(self.root)
            self._open = True
        try:
            return self._look(at)
        except (CollectorError, NotHere):
            self.close()
            raise

    def close(self) -> None:
        """Let go of the driver; the next look opens it again and knows the same GPUs."""
        if self._open:
            self._open = False
            self._reader.close()
            nvml.close_driver()

    def _look(self, at: float) -> Look:
        reader = self._reader
        devices = nvml.devices()
        if not devices and not self._known:
            if nvml.gpus_on_the_bus(self.root):
                raise CollectorError("GPUs here but the driver lists none")
            raise NotHere("no GPU here: the driver lists none")
        new = [reader.prepare(device) for device in devices]
        if any(new):
            self.sleep(FIRST_GAP)
        reader.xid.collect()
        reader.notes.clear()
        cards = [self._card(*identified) for identified in self._identify(devices)]
        present = {card.number for card in cards}
        cards += [
            self._gone(known, VANISHED) for known in self._known.values() if known.number not in present
        ]
        cards.sort(key=lambda card: card.number)
        reader.keep(str(view.labels["uuid"]) for card in cards for view in card.views)
        missing = [card for card in cards if card.missing]
        notes = [*reader.notes, *(f"{self._name(card.number)}: {card.missing}" for card in missing)]
        samples = (sample for card in cards for sample in self._samples(at, card, missing))
        return Look(tuple(samples), notes=tuple(notes))

    def _identify(self, devices: Sequence[nvml.Device]) -> Iterator[tuple[nvml.Device, int, _Known | None]]:
        """Each device with the number in its name; the driver's own numbers shift when a GPU vanishes."""
        present = {device.uuid for device in devices}
        taken = {known.number for known in self._known.values()}
        for device in devices:
            known = self._known.get(device.uuid) if isinstance(device.uuid, str) else None
            if isinstance(device.uuid, Bad):
                # Which GPU cannot be reached is told by who is missing in its place.
                absent = (item for uuid, item in self._known.items() if uuid not in present)
                known = next((item for item in absent if item.number == device.index), None)
            if known is not None:
                yield device, known.number, known
                continue
            number = device.index
            while number in taken:
                number += 1
            taken.add(number)
            if isinstance(device.uuid, str):
                known = self._known[device.uuid] = _Known(number, (("", {"uuid": device.uuid}),))
            yield device, number, known

    def _card(self, device: nvml.Device, number: int, known: _Known | None) -> _Card:
        """What is seen of one GPU that the driver lists."""
        if device.handle == NO_PERMISSION:
            labels: dict[str, LabelValue] = {"uuid": UNREADABLE}
            return _Card(number, [blind("", labels, NO_PERMISSION.reason)])
        known = known or _Known(number)
        if isinstance(device.handle, Bad):
            why = device.handle.reason
            return self._gone(known, why if why in nvml.UNUSABLE else f"GPU cannot be reached: {why}")
        views = self._reader.read(device, self._name(number))
        whole = views[0]
        if whole.unusable:
            gone = self._gone(known, whole.unusable)
            if isinstance(whole.readings["gpu.xid"], str) and whole.readings["gpu.xid"] != "none":
                # The error that cost the GPU was heard before the GPU fell silent.
                gone.views[0].readings.update({signal: whole.readings[signal] for signal in XID})
            return gone
        whole.readings.update(known.watch.check(whole.readings))
        known.parts = tuple((view.suffix, _lasting(view.labels)) for view in views)
        return _Card(number, views)

    def _gone(self, known: _Known, why: str) -> _Card:
        """A GPU that is not there to be read, with the slices that it had."""
        return _Card(known.number, [blind(suffix, labels, why) for suffix, labels in known.parts], why)

    def _samples(self, at: float, card: _Card, missing: Sequence[_Card]) -> Iterator[Sample]:
        beside = ", ".join(f"gpu{other.number}" for other in missing)
        for view in card.views:
            found = view.readings
            if missing and not card.missing:
                known = (signal for signal in ACTIVITY if not isinstance(found[signal], Bad))
                found |= dict.fromkeys(known, Bad(f"another GPU of this host is lost: {beside}"))
            labels: dict[str, LabelValue] = {"host": self.hostname, **view.labels}
            if view.suffix:
                labels["parent"] = self._name(card.number)
            resource = ResourceId("gpu", self._name(card.number) + view.suffix)
            for signal in SIGNALS:
                yield Sample(at, resource, signal, found[signal], labels)

    def _name(self, number: int) -> str:
        return f"{self.hostname}/gpu{number}"


def _lasting(labels: Mapping[str, LabelValue]) -> dict[str, LabelValue]:
    """Labels that stay true of a GPU that is lost; who uses it does not."""
    return {name: value for name, value in labels.items() if name != "job"}


def build(options: Options, context: Context) -> Collector:
    """The running collector."""
    return GpuCollector(options.name or context.hostname, context.sleep)
