"""Interfaces and RDMA ports as the kernel shows them under /sys, and running totals over them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from stoploss.collectors import network_texts as texts
from stoploss.engine.model import Bad

INTERFACES = Path("sys/class/net")
RDMA = Path("sys/class/infiniband")

STATISTICS: Mapping[str, tuple[str, ...]] = {
    "network.received": ("rx_bytes",),
    "network.sent": ("tx_bytes",),
    # What found no room in the receive ring counts apart from what was dropped later.
    "network.drops": ("rx_dropped", "tx_dropped", "rx_missed_errors"),
    "network.errors": ("rx_errors", "tx_errors"),
}
"""Signal -> the statistics of an interface that add up to it."""

PORT_DATA: Mapping[str, Mapping[str, int]] = {
    "network.received": {"counters/port_rcv_data": 4, "hw_counters/rx_bytes": 1},
    "network.sent": {"counters/port_xmit_data": 4, "hw_counters/tx_bytes": 1},
}
"""Signal -> the data counters that an RDMA port may have, with the bytes in their unit."""

PORT_COUNTS: Mapping[str, tuple[str, ...]] = {
    "network.rdma.errors": (
        "counters/symbol_error",
        "counters/port_rcv_errors",
        "counters/local_link_integrity_errors",
        "counters/excessive_buffer_overrun_errors",
        "hw_counters/rx_icrc_encapsulated",
    ),
    "network.rdma.retransmits": (
        "hw_counters/local_ack_timeout_err",
        "hw_counters/packet_seq_err",
        "hw_counters/out_of_sequence",
        "hw_counters/retrans_pkts",
    ),
}
"""Signal -> counters of an RDMA port that add up to it, as far as its driver has them."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Link:
    """One interface or RDMA port at one look.

    Attributes:
        name: its name, and for a port `DEVICE/PORT`.
        up: whether it carries data now.
        speed: bytes a second, or why that cannot be told.
        counts: signal -> count since it began, or why that cannot be told.
    """

    name: str
    up: bool
    speed: float | Bad
    counts: Mapping[str, int | Bad]


@dataclass(slots=True)
class Totals:
    """Counters of many links as one, which neither falls when a link goes nor jumps when it is reset."""

    _last: dict[tuple[str, str], int] = field(default_factory=dict)
    _sums: dict[str, int] = field(default_factory=dict)

    def take(self, signal: str, counts: Mapping[str, int | Bad]) -> float | Bad:
        """The total of a signal after each link (name -> count) was read; bad where one is."""
        bad = next(
            (f"{name}: {count.reason}" for name, count in counts.items() if isinstance(count, Bad)), None
        )
        for name, count in counts.items():
            if isinstance(count, Bad):
                continue
            before = self._last.get((signal, name), 0)
            gain = count - before if count >= before else count
            self._sums[signal] = self._sums.get(signal, 0) + gain
            self._last[signal, name] = count
        return Bad(bad) if bad is not None else float(self._sums.get(signal, 0))


def interfaces(root: Path, patterns: tuple[str, ...]) -> list[Link]:
    """The interfaces that match the patterns, or all physical ones, in the order of their names."""
    folder = root / INTERFACES
    paths = [path for path in sorted(folder.glob("*")) if (path / "statistics").is_dir()]
    if patterns:
        chosen = [path for path in paths if any(fnmatch.fnmatchcase(path.name, one) for one in patterns)]
    else:
        chosen = [path for path in paths if _is_physical(path)]
    return [_interface(path) for path in chosen]


def ports(root: Path) -> list[Link]:
    """The ports of all RDMA devices."""
    return [_port(path) for path in sorted((root / RDMA).glob("*/ports/*"))]


def is_infiniband(interface: str, root: Path) -> bool:
    """Whether an interface runs over InfiniBand, whose ports count its bytes already."""
    return read(root / INTERFACES / interface / "type", texts.parse_count) == 32


def read(path: Path, parse: Callable[[str], T]) -> T | Bad:
    """One file, read and parsed, or why it cannot be."""
    try:
        return parse(path.read_text("utf-8", "replace"))
    except texts.Unparsable as error:
        return Bad(str(error))
    except FileNotFoundError:
        return Bad(f"no {path.name}")
    except OSError as error:
        return Bad(f"{path.name}: {(error.strerror or str(error)).lower()}")


def _is_physical(path: Path) -> bool:
    """Whether an interface stands for hardware, and is not a part of one that does and counts it.

    The members of a bond count for themselves, since a bond is no hardware. A virtual function
    below the virtual card of its machine is counted by that card.
    """
    return (path / "device").exists() and not (path / "master/device").exists()


def _interface(path: Path) -> Link:
    counts: dict[str, int | Bad] = {
        signal: _sum([read(path / "statistics" / name, texts.parse_count) for name in names])
        for signal, names in STATISTICS.items()
    }
    downs = read(path / "carrier_down_count", texts.parse_count)
    counts["network.link_downs"] = downs
    up = read(path / "operstate", str.strip)
    # A driver that does not tell is asked whether there is a carrier.
    carrier = up == "up" or (up == "unknown" and read(path / "carrier", str.strip) == "1")
    return Link(path.name, carrier, read(path / "speed", texts.parse_speed), counts)


def _port(path: Path) -> Link:
    counts: dict[str, int | Bad] = {}
    for signal, units in PORT_DATA.items():
        name = next((name for name in units if (path / name).exists()), None)
        if name is not None:
            data = read(path / name, texts.parse_count)
            counts[signal] = data if isinstance(data, Bad) else data * units[name]
    for signal, names in PORT_COUNTS.items():
        # Each driver has its own choice of these.
        present = [name for name in names if (path / name).exists()]
        found = _sum([read(path / name, texts.parse_count) for name in present])
        counts[signal] = found if present else Bad("its driver does not count them")
    if (path / "counters/link_downed").exists():
        counts["network.link_downs"] = read(path / "counters/link_downed", texts.parse_count)
    state = read(path / "state", str.strip)
    up = isinstance(state, str) and state.endswith("ACTIVE")
    return Link(f"{path.parent.parent.name}/{path.name}", up, read(path / "rate", texts.parse_rate), counts)


def _sum(counts: list[int | Bad]) -> int | Bad:
    total = 0
    for count in counts:
        if isinstance(count, Bad):
            return count
        total += count
    return total
