"""The host collector looking at this machine, and at odd files through psutil."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from stoploss.collectors import host
from stoploss.collectors import host_readings as readings
from stoploss.collectors.contract import Context, NotHere
from stoploss.collectors.host_options import Options
from stoploss.collectors.runner import run_collectors
from stoploss.engine.model import Bad, Look, ResourceId
from stoploss.rules.catalogue import catalogue

AT = 1_700_000_040.0
HOST = ResourceId("host", "n1")

PRESSURE = (
    "some avg10=12.50 avg60=0.90 avg300=0.21 total=2624630\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=0\n"
)
THROTTLED = "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 200\nnr_throttled 50\nthrottled_usec 7\n"


class Machine:
    """A machine whose /proc and /sys are real files in a folder, and a collector looking at it."""

    def __init__(self, root: Path) -> None:
        self.root, self.slept = root, 0.0
        self.then: dict[str, str] = {}
        for path, text in {
            "proc/stat": f"cpu  100 0 50 800 40 0 10 5 3 0\nbtime {AT - 1045:.0f}\n",
            "proc/vmstat": "oom_kill 3\n",
            "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 250 kB\nBuffers: 0 kB\n"
            "Cached: 0 kB\nActive: 0 kB\nInactive: 0 kB\nShmem: 0 kB\n",
            "proc/pressure/cpu": PRESSURE,
            "proc/pressure/memory": PRESSURE,
            "proc/pressure/io": PRESSURE,
            "proc/diskstats": " 8 0 sda 1 0 8 1 1 0 16 1 0 1 2\n 8 1 sda1 1 0 8 1 1 0 16 1 0 1 2\n",
            "proc/self/mounts": "",
            "sys/fs/cgroup/cpu.stat": THROTTLED,
        }.items():
            self.write(path, text)
        (root / "sys/block/sda/device").mkdir(parents=True)
        (root / "sys/block/dm-0").mkdir()
        self.collector = host.HostCollector("n1", self.sleep, root)

    def write(self, path: str, text: str) -> None:
        """Write one file of the kernel's."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def sleep(self, seconds: float) -> None:
        """Between two readings the machine goes on."""
        self.slept += seconds
        for path, text in self.then.items():
            self.write(path, text)

    def look(self) -> dict[str, object]:
        """What one look reads of the host."""
        return {
            item.signal: item.reading for item in self.collector.look(AT).samples if item.resource == HOST
        }


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine in a folder, where psutil looks too."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    return Machine(tmp_path)


def test_the_first_look_takes_two_readings_and_later_ones_take_one(machine: Machine) -> None:
    """Shares of the first look come from two readings 100 ms apart, later ones from the look before."""
    machine.then = {
        "proc/stat": "cpu  140 0 60 830 60 0 10 15 3 0\n",
        "sys/fs/cgroup/cpu.stat": "nr_periods 210\nnr_throttled 54\n",
    }
    first = machine.look()
    machine.write("proc/stat", "cpu  190 0 60 830 110 0 10 15 3 0\n")
    second = machine.look()

    assert machine.slept == 0.1
    assert first["host.cpu.utilization"] == pytest.approx(50 / 110)
    assert first["host.io_wait"] == pytest.approx(20 / 110)
    assert first["host.cpu.steal"] == pytest.approx(10 / 110)
    assert first["host.cpu.throttled"] == 0.4
    assert second["host.cpu.utilization"] == pytest.approx(0.5)
    assert second["host.cpu.throttled"] == 0.0


def test_levels_are_read_in_catalogue_units(machine: Machine) -> None:
    """Bytes, seconds and shares arrive as the catalogue has them; only whole disks count."""
    seen = machine.look()

    assert seen["host.memory.total"] == 1_024_000.0
    assert seen["host.memory.used"] == 768_000.0
    assert seen["host.pressure.io"] == 0.125
    assert seen["host.disk.read"] == 8 * 512.0
    assert seen["host.disk.written"] == 16 * 512.0
    assert seen["host.oom_kills"] == 3.0
    assert seen["host.uptime"] == 1045.0


def test_a_group_without_limit_is_never_throttled(machine: Machine) -> None:
    """A control group of version 1 that counts no periods gives 0, read where version 1 keeps it."""
    (machine.root / "sys/fs/cgroup/cpu.stat").unlink()
    machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")

    assert machine.look()["host.cpu.throttled"] == 0.0


@pytest.mark.parametrize(
    ("path", "signals", "reason"),
    [
        ("sys/fs/cgroup/cpu.stat", ["host.cpu.throttled"], "no cgroup cpu.stat"),
        (
            "proc/pressure/io",
            ["host.pressure.io"],
            "kernel without pressure information (no /proc/pressure/io)",
        ),
        ("proc/vmstat", ["host.oom_kills"], "/proc/vmstat: no such file"),
        (
            "proc/meminfo",
            ["host.memory.total", "host.memory.used", "host.memory.utilization"],
            "{root}/proc/meminfo: no such file or directory",
        ),
    ],
)
def test_a_missing_file_is_a_bad_reading(
    machine: Machine, path: str, signals: list[str], reason: str
) -> None:
    """A file that the kernel does not have makes bad readings of its own signals alone."""
    (machine.root / path).unlink()

    seen = machine.look()

    assert {seen[signal] for signal in signals} == {Bad(reason.format(root=machine.root))}
    assert seen["host.uptime"] == 1045.0


def test_what_cannot_be_read_is_a_bad_reading(machine: Machine) -> None:
    """A file that cannot be read, is a folder, or holds garbage spoils its own signals alone."""
    (machine.root / "proc/vmstat").unlink()
    (machine.root / "proc/vmstat").mkdir()
    machine.write("proc/stat", "cpu  100 0 50 -")
    machine.write("proc/diskstats", " 8 0 sda 1 0 8")
    machine.write("proc/meminfo", "MemTotal:       1000 kB\nMemAvail")

    seen = machine.look()

    spoiled = {signal for signal, reading in seen.items() if isinstance(reading, Bad)}
    assert seen["host.oom_kills"] == Bad("/proc/vmstat: is a directory")
    assert seen["host.memory.total"] == Bad("psutil cannot tell: IndexError: list index out of range")
    assert seen["host.cpu.steal"].reason.startswith("psutil cannot tell: ValueError: ")
    assert spoiled == {
        *readings.CPU_SHARES,
        *readings.MEMORY,
        *readings.DISKS,
        "host.oom_kills",
        "host.uptime",
    }


def test_without_mounts_the_host_is_still_read(machine: Machine) -> None:
    """A list of mounts that cannot be read is told as a note and costs only the volumes."""
    (machine.root / "proc/self/mounts").unlink()

    look = machine.collector.look(AT)

    place = machine.root / "proc/self/mounts"
    assert look.notes == (f"volumes were not looked at: {place}: no such file or directory",)
    assert {item.resource for item in look.samples} == {HOST}


def test_volumes_are_named_after_host_and_mount(machine: Machine) -> None:
    """A volume's name is unique over hosts; a mount that cannot be asked spoils only itself."""
    good, gone = machine.root / "the data", machine.root / "gone"
    good.mkdir()
    escaped = str(good).replace(" ", "\\040")
    machine.write("proc/self/mounts", f"/dev/a {escaped} ext4 rw 0 0\nnas:/b {gone} nfs4 rw 0 0\n")

    found = [item for item in machine.collector.look(AT).samples if item.resource.kind == "volume"]

    bad = {item.resource.id for item in found if item.reading == Bad("no such file or directory")}
    assert {item.resource.id for item in found} == {f"n1:{good}", f"n1:{gone}"}
    assert bad == {f"n1:{gone}"}
    assert {tuple(item.labels.items()) for item in found if item.labels} == {
        (("host", "n1"), ("mount", str(good))),
        (("host", "n1"), ("mount", str(gone))),
    }


def test_no_proc_is_nothing_to_collect(tmp_path: Path) -> None:
    """A machine without /proc/stat is not a failure but has nothing to collect."""
    with pytest.raises(NotHere, match="Linux machines only"):
        host.HostCollector("n1", time.sleep, tmp_path).look(AT)


@pytest.fixture(scope="module")
def look() -> Look:
    """One look at this very machine, through the runner."""
    collector = host.build(Options(name="n1"), Context())
    (run,) = run_collectors({"host": collector}, at=time.time(), monotonic=time.monotonic)
    assert run.reason is None
    assert run.look is not None
    return run.look


def test_this_machine_is_read(look: Look) -> None:
    """On a real machine the basics are numbers that make sense."""
    seen = {item.signal: item.reading for item in look.samples if item.resource == HOST}

    assert seen["host.cpu.count"] == os.cpu_count()
    assert seen["host.memory.total"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 <= seen["host.cpu.utilization"] <= 1
    assert 0 < seen["host.memory.utilization"] < 1
    assert seen["host.uptime"] > 0


def test_every_signal_is_there_at_every_look(look: Look) -> None:
    """A look carries every signal that the catalogue gives this collector, each once per resource."""
    pairs = [(item.resource, item.signal) for item in look.samples]
    kinds = {item.resource.kind for item in look.samples}
    promised = {s.name: s for s in catalogue().of_collector("host") if kinds & set(s.resources)}

    assert len(pairs) == len(set(pairs))
    assert {signal for _, signal in pairs} == set(promised) | {"collector.success", "collector.duration"}
    for resource, signal in pairs:
        if signal in promised:
            assert resource.kind in promised[signal].resources


def test_volumes_carry_their_host_and_mount(look: Look) -> None:
    """Samples of volumes have host and mount as labels, and every sample the same instant."""
    volume_samples = [item for item in look.samples if item.resource.kind == "volume"]

    for item in volume_samples:
        assert item.labels is not None
        assert set(item.labels) == {"host", "mount"}
        assert item.resource.id == f"n1:{item.labels['mount']}"
    assert len({item.time for item in look.samples}) == 1


def test_the_name_defaults_to_the_hostname() -> None:
    """Without `name` the host is called what the context says."""
    collector = host.build(Options(), Context(hostname="here"))

    assert isinstance(collector, host.HostCollector)
    assert collector.hostname == "here"


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("i-0abc123def4567890\n", {"instance": "i-0abc123def4567890"}),
        ("Default string\n", None),
        (None, None),
    ],
)
def test_the_firmware_tells_the_instance(machine: Machine, text: str | None, labels: object) -> None:
    """On EC2 the host has the label of its instance; elsewhere nothing is said of any."""
    if text is not None:
        machine.write("sys/class/dmi/id/board_asset_tag", text)
    told = [item.labels for item in machine.collector.look(AT).samples if item.resource == HOST]

    assert all(item == labels for item in told)
    assert told
