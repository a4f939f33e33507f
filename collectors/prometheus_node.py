"""Hosts, their networks and their volumes, as node_exporter tells them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stoploss.collectors import volumes
from stoploss.collectors.network_sources import Totals
from stoploss.collectors.prometheus_calls import Answer
from stoploss.collectors.prometheus_scene import (
    METRIC,
    NOT_A_NUMBER,
    Metric,
    Scene,
    Selector,
    Target,
    Told,
    any_of,
    target_of,
)
from stoploss.collectors.prometheus_scene import words as source_of
from stoploss.engine.model import Bad, LabelValue, Reading, ResourceId
from stoploss.rules.units import format_duration

NAME = "node"

CPU, UNAME = "node_cpu_seconds_total", "node_uname_info"

PLAIN: Mapping[str, str] = {
    "node_load1": "host.load",
    "node_vmstat_oom_kill": "host.oom_kills",
    "node_memory_MemTotal_bytes": "host.memory.total",
    "node_netstat_Tcp_OutSegs": "network.segments_sent",
    "node_netstat_Tcp_RetransSegs": "network.retransmits",
}
"""Metric -> the signal that it is, in the same unit."""

PRESSURE: Mapping[str, str] = {
    f"node_pressure_{what}_waiting_seconds_total": f"host.pressure.{what}" for what in ("cpu", "memory", "io")
}

TOTALS: Mapping[str, tuple[str, ...]] = {
    "network.received": (
        "node_network_receive_bytes_total",
        "node_infiniband_port_data_received_bytes_total",
    ),
    "network.sent": (
        "node_network_transmit_bytes_total",
        "node_infiniband_port_data_transmitted_bytes_total",
    ),
    "network.drops": ("node_network_receive_drop_total", "node_network_transmit_drop_total"),
    "network.errors": ("node_network_receive_errs_total", "node_network_transmit_errs_total"),
    "network.link_downs": ("node_network_carrier_down_changes_total",),
    "host.disk.read": ("node_disk_read_bytes_total",),
    "host.disk.written": ("node_disk_written_bytes_total",),
}
"""Signal -> counters of devices that add up to it, as far as they are told."""

SPEED, UP = "node_network_speed_bytes", "node_network_up"
AVAILABLE, BOOTED = "node_memory_MemAvailable_bytes", "node_boot_time_seconds"

VOLUMES = ("size_bytes", "free_bytes", "avail_bytes", "files", "files_free")
_VOLUME = {f"node_filesystem_{part}": part for part in VOLUMES}

METRICS = (
    *PLAIN,
    *PRESSURE,
    *(name for names in TOTALS.values() for name in names),
    *(SPEED, UP, AVAILABLE, BOOTED, UNAME),
    *_VOLUME,
)

_VIRTUAL = re.compile(
    r"lo|ib.*|(bond|team|br|virbr|docker|veth|cali|cni|cilium|flannel|kube|lxc|lxd|tun|tap|wg|dummy|ifb|vxlan|nodelocal"
    r"|podman|vnet|ovs|genev|gre|sit|ip6tnl|tailscale)[-_.0-9a-z]*|.*\..*"
)
"""Interfaces that are none of hardware, or whose bytes a part of theirs counts too."""

_NO_DISK = re.compile(r"(dm-|md|loop|ram|zram|sr|fd|drbd|rbd\d+p)\d*|((h|s|v|xv)d[a-z]+|nvme\d+n\d+p)\d+")
"""Devices that stand on others, and parts of disks."""


def questions(selector: Selector, window: float) -> dict[str, str]:
    """What the server is asked; shares are over the last `window` seconds."""
    span = f"[{window:.0f}s]"
    rates = {"cpu": f"sum by (job, instance, mode) (rate({selector.of(CPU)}{span}))"}
    idle = selector.of(CPU, 'mode="idle"')
    rates["count"] = f"count by (job, instance) ({idle})"
    rates |= {name: f"rate({selector.of(name)}{span})" for name in PRESSURE}
    rates |= {
        name: f"rate({selector.of(name)}{span})"
        for name in ("node_network_receive_bytes_total", "node_network_transmit_bytes_total")
    }
    # An oldest age, so that no CPU of many can be left behind unseen.
    cpu = f"min by (job, instance) (timestamp({idle}))"
    ages = f'{selector.ages(METRICS)} or label_replace({cpu},"{METRIC}","{CPU}","","")'
    return {"node": selector.any_of(METRICS), "node ages": ages, "node rates": any_of(rates)}


@dataclass(slots=True)
class _Node:
    """What one target says: metric -> its series, and pseudo-metric -> rates by device or mode."""

    labels: Mapping[str, str]
    metrics: dict[str, list[Metric]] = field(default_factory=dict)
    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    cpu_newest: float | None = None

    def one(self, name: str) -> Reading | None:
        """The value of a metric that has one series; None where it is not told."""
        found = self.metrics.get(name)
        if not found:
            return None
        if len(found) > 1:
            return Bad(f"told twice: {len(found)} series of {source_of(found[0])}")
        value = found[0].value
        if isinstance(value, Bad) or math.isfinite(value):
            return value
        return NOT_A_NUMBER


@dataclass(slots=True)
class Nodes:
    """Reads hosts; it keeps their names, and totals that do not fall when a device goes."""

    names: dict[Target, str] = field(default_factory=dict)
    totals: dict[str, Totals] = field(default_factory=dict)

    def told(self, values: Answer, ages: Answer, rates: Answer, scene: Scene) -> Iterator[Told]:
        """Every reading of every host and volume."""
        nodes: dict[Target, _Node] = {}
        for item in scene.fresh(values, ages):
            node = nodes.setdefault(item.target, _Node(item.labels))
            node.metrics.setdefault(item.name, []).append(item)
        for series in ages.series:
            if series.labels.get(METRIC) == CPU:
                node = nodes.setdefault(target_of(series.labels), _Node(series.labels))
                node.cpu_newest = series.value
        for series in rates.series:
            found = nodes.get(target_of(series.labels))
            if found is not None:
                part = series.labels.get("mode") or series.labels.get("device") or ""
                found.rates.setdefault(series.labels.get(METRIC, ""), {})[part] = series.value
        self.names = {target: name for target, name in self.names.items() if target in scene.targets}
        self.totals = {name: total for name, total in self.totals.items() if name in set(self.names.values())}
        for target, node in sorted(nodes.items()):
            yield from self._node(target, node, scene)

    def _node(self, target: Target, node: _Node, scene: Scene) -> Iterator[Told]:
        host = self._name(target, node, scene)
        source = f"node_exporter at {target[1] or '?'}"
        readings = dict(_readings(node, scene))
        readings |= self._totals(host, node)
        for signal, reading in readings.items():
            yield Told(ResourceId("host", host), signal, reading, {}, source, target)
        for mount, found in _volumes(node):
            labels: dict[str, LabelValue] = {"host": host, "mount": mount}
            for signal, reading in found.items():
                yield Told(ResourceId("volume", f"{host}:{mount}"), signal, reading, labels, source, target)

    def _name(self, target: Target, node: _Node, scene: Scene) -> str:
        """The name of a host, which it keeps while the server tells it no other."""
        told = next((item.labels.get("nodename") for item in node.metrics.get(UNAME, ())), None)
        name = scene.host(node.labels) or told or self.names.get(target)
        if name is None:
            name = target[1].rpartition(":")[0] or target[1]
            scene.note(f"{target[1]}: its name is not told ({UNAME}), so its address is taken")
        self.names[target] = name
        return name

    def _totals(self, host: str, node: _Node) -> dict[str, Reading]:
        found: dict[str, Reading] = {}
        for signal, names in TOTALS.items():
            counts = {
                f"{name} {part}": count
                for name in names
                for item in node.metrics.get(name, ())
                if (part := _device(item)) is not None
                for count in (_whole(item.value),)
            }
            if counts:
                found[signal] = self.totals.setdefault(host, Totals()).take(signal, counts)
        received, sent = found.get("network.received"), found.get("network.sent")
        if received is not None and sent is not None:
            bad = next((item for item in (received, sent) if isinstance(item, Bad)), None)
            both = [item for item in (received, sent) if isinstance(item, float)]
            found["network.bytes"] = bad or sum(both)
        return found


def _whole(value: float | Bad) -> int | Bad:
    if isinstance(value, Bad):
        return value
    return int(value) if math.isfinite(value) else NOT_A_NUMBER


def _device(item: Metric) -> str | None:
    """The device of a counter; None for one that is not to be added."""
    device = item.labels.get("device", "")
    if item.name.startswith("node_infiniband"):
        return f"{device}/{item.labels.get('port', '')}"
    virtual = _NO_DISK if item.name.startswith("node_disk") else _VIRTUAL
    return None if virtual.fullmatch(device) else device


def _readings(node: _Node, scene: Scene) -> Iterator[tuple[str, Reading]]:
    window = Bad(f"needs two samples within {format_duration(scene.options.oldest)}")
    for name, signal in PLAIN.items():
        if (value := node.one(name)) is not None:
            yield signal, value
    for name, signal in PRESSURE.items():
        if (value := node.one(name)) is not None:
            rate = node.rates.get(name, {}).get("")
            yield signal, value if isinstance(value, Bad) else window if rate is None else _share(rate)
    if (booted := node.one(BOOTED)) is not None:
        if isinstance(booted, float):
            booted = scene.at - booted if booted <= scene.at else Bad("the boot lies after the look")
        yield "host.uptime", booted
    yield from _memory(node)
    if node.cpu_newest is not None:
        yield from _cpu(node, scene, window)
    yield from _links(node, window)


def _share(rate: float) -> Reading:
    # The server stretches a rate over its window, which may carry a full share a little over.
    return min(max(rate, 0.0), 1.0) if math.isfinite(rate) else NOT_A_NUMBER


def _memory(node: _Node) -> Iterator[tuple[str, Reading]]:
    total, available = node.one("node_memory_MemTotal_bytes"), node.one(AVAILABLE)
    if total is None or available is None:
        return
    found: tuple[Reading, Reading]
    if isinstance(total, float) and isinstance(available, float):
        if not 0 <= available <= total or total == 0:
            found = (Bad("more memory is available than there is"),) * 2
        else:
            found = total - available, (total - available) / total
    else:
        found = (total if isinstance(total, Bad) else available,) * 2
    yield from zip(("host.memory.used", "host.memory.utilization"), found, strict=True)


def _cpu(node: _Node, scene: Scene, window: Bad) -> Iterator[tuple[str, Reading]]:
    judged = scene.judged(0.0, node.cpu_newest)
    count = node.rates.get("count", {}).get("")
    if count is not None:
        yield "host.cpu.count", judged if isinstance(judged, Bad) else count
    modes = node.rates.get("cpu", {})
    # Guest times are parts of user and nice, and node_exporter tells them apart.
    spent = {mode: rate for mode, rate in modes.items() if not mode.startswith("guest")}
    total = sum(spent.values())
    signals: dict[str, Reading] = dict.fromkeys(
        ("host.cpu.utilization", "host.cpu.steal", "host.io_wait"), window
    )
    if isinstance(judged, Bad):
        signals = dict.fromkeys(signals, judged)
    elif "idle" in spent and math.isfinite(total) and total > 0:
        idle, steal, waiting = (spent.get(mode, 0.0) for mode in ("idle", "steal", "iowait"))
        signals["host.cpu.utilization"] = max(total - idle - steal - waiting, 0.0) / total
        signals |= {"host.cpu.steal": steal / total, "host.io_wait": waiting / total}
    yield from signals.items()


def _links(node: _Node, window: Bad) -> Iterator[tuple[str, Reading]]:
    up = {item.labels.get("device") for item in node.metrics.get(UP, ()) if item.value == 1}
    told = [item for item in node.metrics.get(SPEED, ()) if _device(item) and item.labels.get("device") in up]
    if not told:
        return
    # A card that does not tell its speed tells -1 Mbit/s or 0.
    speeds = {
        item.labels["device"]: item.value for item in told if isinstance(item.value, float) and item.value > 0
    }
    if not speeds:
        bad = next((item.value for item in told if isinstance(item.value, Bad)), None)
        bad = bad or Bad("no link that is up tells its speed")
        yield from {"network.link_speed": bad, "network.utilization": bad}.items()
        return
    yield "network.link_speed", min(speeds.values())
    shares = [
        rate / speeds[device]
        for name in ("node_network_receive_bytes_total", "node_network_transmit_bytes_total")
        for device, rate in node.rates.get(name, {}).items()
        if device in speeds
    ]
    yield "network.utilization", _share(max(shares)) if shares else window


def _volumes(node: _Node) -> Iterator[tuple[str, dict[str, Reading]]]:
    """Mount point -> how full it is; of several mounts of one device the shortest."""
    found: dict[tuple[str, str, str], dict[str, float | Bad]] = {}
    for name, part in _VOLUME.items():
        for item in node.metrics.get(name, ()):
            key = tuple(item.labels.get(label, "") for label in ("mountpoint", "device", "fstype"))
            found.setdefault((key[0], key[1], key[2]), {})[part] = item.value
    seen: set[str] = set()
    for (mount, device, kind), parts in sorted(found.items(), key=lambda item: (len(item[0][0]), item[0])):
        whole = kind in volumes.SHARED or kind.startswith("fuse.") or device.startswith("/dev/")
        if not whole or kind in volumes.IMAGES or kind in volumes.FUSE_TOOLS or device in seen:
            continue
        # FUSE programs often give their own name, the same for each bucket.
        seen |= {device} if not kind.startswith("fuse") else set()
        readings = _usage([parts.get(part) for part in VOLUMES])
        if readings is not None:
            yield mount, readings


def _usage(parts: Sequence[float | Bad | None]) -> dict[str, Reading] | None:
    if any(part is None for part in parts[:3]):
        return None
    bad = next((part for part in parts if isinstance(part, Bad)), None)
    numbers = [part for part in parts if isinstance(part, float)]
    if bad is None and not all(math.isfinite(number) for number in numbers):
        bad = NOT_A_NUMBER
    if bad is not None:
        return dict.fromkeys(volumes.SIGNALS, bad)
    size, free, available = numbers[:3]
    used = max(size - free, 0.0)
    inodes: Reading = Bad("the file system counts no inodes")
    if len(numbers) == len(VOLUMES) and numbers[3] > 0:
        inodes = (numbers[3] - numbers[4]) / numbers[3]
    share = used / (used + available) if used + available else 0.0
    return dict(zip(volumes.SIGNALS, (size, used, available, share, inodes), strict=True))
