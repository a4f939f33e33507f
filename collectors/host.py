"""CPU, memory, pressure, disks and mounted volumes of the machine that stoploss runs on.

Nothing needs to be configured. It asks psutil, reads what psutil leaves out (pressure, OOM
kills, CPU quotas, inodes) from the kernel, needs no rights beyond those of any user, and
changes nothing.

- A CPU share covers the time since the look before. The first look takes two readings
  100 ms apart, so a single `stoploss audit` knows them too.
- `host.cpu.utilization` leaves out idle time, time waiting for I/O and time stolen by the
  hypervisor; the latter two are signals of their own.
- `host.cpu.throttled` is read from the control group at the root of what this process sees:
  in a container, the container's own. A group without a CPU limit is never throttled: 0%.
- Memory is used where programs cannot have it: total less available, caches not counted.
- Pressure is the kernel's "some avg10": the share of the last ten seconds in which at least
  one task waited. A kernel without pressure information makes it a bad reading.
- `host.disk.read` and `host.disk.written` add up whole disks; partitions, RAID and mapped
  devices would count the same bytes again.
- A volume is a mounted file system that holds data: a local disk, a network or cluster file
  system, a container's own root. In-memory and read-only image file systems are left out, and
  a file system mounted at several places counts once, at the shortest path. Its name is
  `HOST:PATH`, so that `/data` of two hosts are two volumes; the labels `host` and `mount` hold
  the two parts. Shares are of what unprivileged programs may use, as `df` shows them.
- On an instance of EC2 the label `instance` is its id, as the firmware tells it: what is known of the
  instance, such as a notice that it will be taken back, is then known of the jobs on it.
- A mount that hangs or is denied makes bad readings of that volume alone; it is asked for at
  most two seconds, and not again while it hangs.

What cannot be read is a bad reading with its reason, never a zero. Where there is no
`/proc/stat`, the collector has nothing to look at and says so.

Right:

```yaml
collectors:
  host: {every: 30s, name: node-17}
```

Wrong, because an interval is a duration with its unit:

```yaml
collectors:
  host: {every: 30}
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from stoploss.collectors import host_readings as readings
from stoploss.collectors import host_texts as texts
from stoploss.collectors import volumes
from stoploss.collectors.contract import Collector, Context, NotHere
from stoploss.collectors.host_options import Options
from stoploss.engine.model import Bad, Look, Reading, ResourceId, Sample

if TYPE_CHECKING:
    from psutil._ntuples import scputimes

NAME = "host"

FIRST_GAP = 0.1
"""Seconds between the two readings of the first look."""

CGROUP_FILES = ("cpu.stat", "cpu/cpu.stat", "cpu,cpuacct/cpu.stat")
"""Where control groups of version 2 and 1 keep what they count."""

ASSET_TAG = "sys/class/dmi/id/board_asset_tag"
"""Where the firmware of an instance of EC2 tells its id; no right is needed to read it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counters of which two readings make a share."""

    cpu: scputimes | Bad
    throttling: texts.Throttling | Bad


@dataclass(slots=True)
class HostCollector:
    """Looks at one machine; `root` is where the files lie that psutil does not read."""

    hostname: str
    sleep: Callable[[float], None]
    root: Path = Path("/")
    prober: volumes.Prober = field(default_factory=volumes.Prober)
    _before: _Counts | None = None

    def look(self, at: float) -> Look:
        """Look once; every sample carries `at`.

        Raises:
            NotHere: there is no /proc/stat, so this is no Linux machine.
        """
        if not (self.root / "proc/stat").exists():
            raise NotHere("no /proc/stat: the host collector reads Linux machines only")
        host = ResourceId("host", self.hostname)
        instance = self._instance()
        labels = None if instance is None else {"instance": instance}
        samples = [Sample(at, host, signal, reading, labels) for signal, reading in self._host_readings(at)]
        notes: tuple[str, ...] = ()
        mounted = _ask(partial(psutil.disk_partitions, all=True))
        if isinstance(mounted, Bad):
            notes = (f"volumes were not looked at: {mounted.reason}",)
        else:
            samples += self._volume_samples(at, volumes.file_systems(mounted))
        return Look(tuple(samples), notes=notes)

    def _host_readings(self, at: float) -> Iterator[tuple[str, Reading]]:
        counts = self._counts()
        if self._before is None:
            self.sleep(FIRST_GAP)
            before, counts = counts, self._counts()
        else:
            before = self._before
        self._before = counts
        yield from readings.cpu_shares(before.cpu, counts.cpu).items()
        yield "host.cpu.throttled", readings.throttled(before.throttling, counts.throttling)
        yield "host.cpu.count", readings.number(_ask(psutil.cpu_count))
        yield "host.load", readings.number(_ask(lambda: psutil.getloadavg()[0]))
        yield "host.uptime", readings.uptime(_ask(psutil.boot_time), at)
        yield "host.oom_kills", readings.number(self._read("proc/vmstat", texts.parse_oom_kills))
        yield from readings.memory(_ask(psutil.virtual_memory)).items()
        for what in ("cpu", "memory", "io"):
            missing = f"kernel without pressure information (no /proc/pressure/{what})"
            yield f"host.pressure.{what}", self._read(f"proc/pressure/{what}", texts.parse_pressure, missing)
        # Only what stands for hardware has a device; partitions, RAID, loops and maps have none.
        whole = {path.parent.name for path in (self.root / "sys/block").glob("*/device")}
        # A counter that went back is the engine's to see, so psutil must not hide it.
        counters = _ask(lambda: psutil.disk_io_counters(perdisk=True, nowrap=False))
        yield from readings.disks(counters, whole).items()

    def _instance(self) -> str | None:
        """The name under which the cloud knows this machine, as its firmware tells it; None for none."""
        try:
            return texts.parse_instance((self.root / ASSET_TAG).read_text("utf-8", "replace"))
        except OSError:
            return None

    def _counts(self) -> _Counts:
        groups = self.root / "sys/fs/cgroup"
        path = next((name for name in CGROUP_FILES if (groups / name).exists()), CGROUP_FILES[0])
        return _Counts(
            _ask(psutil.cpu_times),
            self._read(f"sys/fs/cgroup/{path}", texts.parse_throttling, "no cgroup cpu.stat"),
        )

    def _volume_samples(self, at: float, systems: Sequence[tuple[str, ...]]) -> Iterator[Sample]:
        for point, usage in self.prober.probe(systems).items():
            # A path may hold any bytes; a name must be text.
            mount = point.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            resource = ResourceId("volume", f"{self.hostname}:{mount}")
            labels = {"host": self.hostname, "mount": mount}
            for signal, reading in volumes.readings(usage).items():
                yield Sample(at, resource, signal, reading, labels)

    def _read(self, path: str, parse: Callable[[str], T], missing: str | None = None) -> T | Bad:
        """One file, read and parsed; `missing` is what to say where there is no such file."""
        try:
            return parse((self.root / path).read_text("utf-8", "surrogateescape"))
        except texts.Unparsable as error:
            return Bad(f"/{path}: {error}")
        except FileNotFoundError:
            return Bad(missing or f"/{path}: no such file")
        except OSError as error:
            return Bad(f"/{path}: {(error.strerror or str(error)).lower()}")


def _ask(question: Callable[[], T]) -> T | Bad:
    """What psutil answers, or why it does not."""
    try:
        return question()
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return Bad(place + (error.strerror or str(error)).lower())
    except Exception as error:
        # What psutil raises on a text that it cannot read depends on where it stumbles.
        return Bad(f"psutil cannot tell: {type(error).__name__}: {error}")


def build(options: Options, context: Context) -> Collector:
    """The running collector."""
    return HostCollector(options.name or context.hostname, context.sleep)
