"""The network collector looking at this machine, at odd machines in a folder, and at a lossy link."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stoploss.actions.registry import action_options
from stoploss.collectors import network
from stoploss.collectors.contract import Context, NotHere
from stoploss.collectors.registry import load as load_collectors
from stoploss.collectors.registry import option_models
from stoploss.engine.audit import audit
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.model import Bad, Look, Reading, ResourceId, Sample
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load

AT = 1_700_000_040.0
HOST = ResourceId("host", "n1")
STATISTICS = (
    "rx_bytes",
    "tx_bytes",
    "rx_dropped",
    "tx_dropped",
    "rx_missed_errors",
    "rx_errors",
    "tx_errors",
)
SS = "State\nESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t rtt:2/0.5\n"


class Machine:
    """A machine whose /proc and /sys are real files in a folder, and a collector looking at it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.then: dict[str, str] = {}
        self.write("proc/net/snmp", "Tcp: OutSegs RetransSegs\nTcp: 100 3\n")
        (root / "sys/class/net").mkdir(parents=True)
        self.collector = network.NetworkCollector("n1", self.sleep, (), lambda: SS, root)

    def write(self, path: str, text: str) -> None:
        """Write one file of the kernel's."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def interface(self, name: str, *, physical: bool = True, speed: str = "1000", **counts: int) -> Path:
        """An interface that is up, with counters that are 0 where they are not given."""
        folder = f"sys/class/net/{name}"
        for statistic in STATISTICS:
            self.write(f"{folder}/statistics/{statistic}", f"{counts.get(statistic, 0)}\n")
        for file, text in {"operstate": "up", "speed": speed, "carrier_down_count": "1", "type": "1"}.items():
            self.write(f"{folder}/{file}", text + "\n")
        if physical:
            (self.root / folder / "device").mkdir(exist_ok=True)
        return self.root / folder

    def port(self, device: str, counters: Mapping[str, int], rate: str = "100 Gb/sec (4X EDR)") -> None:
        """A port of an RDMA device."""
        folder = f"sys/class/infiniband/{device}/ports/1"
        self.write(f"{folder}/state", "4: ACTIVE\n")
        self.write(f"{folder}/rate", rate + "\n")
        for name, value in counters.items():
            self.write(f"{folder}/{name}", f"{value}\n")

    def sleep(self, _: float) -> None:
        """Between two readings the machine goes on."""
        for path, text in self.then.items():
            self.write(path, text)

    def look(self, at: float = AT) -> dict[str, Reading]:
        """Signal -> reading at one look."""
        return {item.signal: item.reading for item in self.collector.look(at).samples}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine in a folder."""
    return Machine(tmp_path)


def test_this_machine_is_told_whole() -> None:
    """A look at the real machine has every signal that needs no RDMA, each a number or a reason."""
    look = load_collectors().build("network", {"every": "30s"}, Context("n1")).look(AT)

    elsewhere = {"network.cross_zone", "network.cross_region", "network.internet"}
    optional = {"network.rtt", "network.rtt_jitter", "network.rdma.errors", "network.rdma.retransmits"}
    told = {item.signal for item in look.samples}
    assert told - optional == {s.name for s in catalogue().of_collector("network")} - elsewhere - optional
    assert {item.resource for item in look.samples} == {HOST}
    assert all(isinstance(item.reading, Bad) or item.reading >= 0 for item in look.samples)  # type: ignore[operator]


def test_physical_interfaces_are_added_up(machine: Machine) -> None:
    """Loopback, bridges and containers' ends are left out, and a bond counts once, by its members."""
    machine.interface("eth0", rx_bytes=100, tx_bytes=10, rx_dropped=1, rx_missed_errors=2, tx_errors=5)
    machine.interface("eth1", speed="100", rx_bytes=200, tx_bytes=20, tx_dropped=4, rx_errors=6)
    for name in ("lo", "veth7", "docker0", "bond0"):
        machine.interface(name, physical=False, rx_bytes=10_000, rx_dropped=10_000)
    found = machine.look()

    assert found["network.received"] == 300.0
    assert found["network.sent"] == 30.0
    assert found["network.bytes"] == 330.0
    assert found["network.drops"] == 7.0
    assert found["network.errors"] == 11.0
    assert found["network.link_downs"] == 2.0
    assert found["network.link_speed"] == 12.5e6


def test_a_function_below_a_virtual_card_counts_once(machine: Machine) -> None:
    """A virtual function that its machine's own card counts already is left out."""
    card = machine.interface("eth0", rx_bytes=100)
    function = machine.interface("enP1", rx_bytes=90)
    (function / "master").symlink_to(card)

    assert machine.look()["network.received"] == 100.0


def test_named_interfaces_count_instead(machine: Machine) -> None:
    """With `interfaces` those that match count, physical or not."""
    machine.interface("eth0", rx_bytes=100)
    machine.interface("veth7", physical=False, rx_bytes=7)
    machine.collector.interfaces = ("veth*",)

    assert machine.look()["network.received"] == 7.0


def test_a_machine_without_hardware_says_so(machine: Machine) -> None:
    """Where only virtual interfaces are seen traffic is a bad reading, and TCP is told all the same."""
    machine.interface("eth0", physical=False, rx_bytes=100)
    found = machine.look()

    assert found["network.bytes"] == found["network.utilization"] == network.NOTHING_PHYSICAL
    assert (found["network.segments_sent"], found["network.retransmits"]) == (100.0, 3.0)


def test_one_interface_that_cannot_be_read_hides_the_sum(machine: Machine) -> None:
    """A sum that lacks a part is a bad reading that names the part; other sums stand."""
    machine.interface("eth0", rx_bytes=100, tx_bytes=1)
    machine.interface("eth1", tx_bytes=2)
    machine.write("sys/class/net/eth1/statistics/rx_bytes", "many\n")
    found = machine.look()

    assert found["network.received"] == found["network.bytes"] == Bad("eth1: 'many' is not a count")
    assert found["network.sent"] == 3.0


def test_a_link_that_goes_or_comes_does_not_reset_the_sum(machine: Machine) -> None:
    """What a link that is gone had counted stays; one that is new, or began again, adds what it counts."""
    machine.interface("eth0", rx_bytes=1000)
    gone = machine.interface("eth1", rx_bytes=500)
    sums = [machine.look(AT)["network.received"]]
    shutil.rmtree(gone)
    sums.append(machine.look(AT + 60)["network.received"])
    machine.interface("eth2", rx_bytes=7)
    sums.append(machine.look(AT + 120)["network.received"])
    machine.interface("eth0", rx_bytes=30)
    sums.append(machine.look(AT + 180)["network.received"])

    assert sums == [1500.0, 1500.0, 1507.0, 1537.0]


def test_utilization_is_of_the_busiest_direction(machine: Machine) -> None:
    """The first look takes two readings 100 ms apart, later ones the look before, of the busiest link."""
    machine.interface("eth0")
    machine.interface("eth1", speed="-1")
    machine.then = {"sys/class/net/eth0/statistics/tx_bytes": "6250000\n"}
    first = machine.look(AT)["network.utilization"]
    machine.interface("eth0", rx_bytes=750_000_000, tx_bytes=6_250_000)
    second = machine.look(AT + 60)["network.utilization"]

    assert first == pytest.approx(0.5)
    assert second == pytest.approx(0.1)
    assert machine.look(AT + 60)["network.utilization"] == Bad("no time has passed since the look before")


def test_a_speed_that_no_link_tells_is_bad(machine: Machine) -> None:
    """Speed and utilization are bad where no link that is up tells its speed, and where none is up."""
    machine.interface("eth0", speed="-1")
    assert machine.look()["network.link_speed"] == Bad("no link that is up tells its speed")

    machine.write("sys/class/net/eth0/operstate", "down\n")
    assert machine.look(AT + 60)["network.utilization"] == Bad("no link is up")


def test_infiniband_ports_are_added_and_their_interfaces_are_not(machine: Machine) -> None:
    """A port's data counts in units of four bytes, and what runs over it is not counted again."""
    machine.interface("eth0", rx_bytes=1)
    machine.interface("ib0", rx_bytes=4000)
    machine.write("sys/class/net/ib0/type", "32\n")
    machine.port(
        "mlx5_0",
        {
            "counters/port_rcv_data": 1000,
            "counters/port_xmit_data": 10,
            "counters/symbol_error": 3,
            "counters/port_rcv_errors": 4,
            "counters/link_downed": 5,
            "hw_counters/local_ack_timeout_err": 6,
            "hw_counters/packet_seq_err": 7,
            "hw_counters/out_of_sequence": 8,
        },
    )
    found = machine.look()

    assert (found["network.received"], found["network.sent"]) == (4001.0, 40.0)
    assert (found["network.rdma.errors"], found["network.rdma.retransmits"]) == (7.0, 21.0)
    assert found["network.link_downs"] == 6.0


def test_a_port_that_counts_bytes_is_taken_at_its_word(machine: Machine) -> None:
    """A driver with counters of its own is read as far as it has them; what it lacks is a reason."""
    machine.interface("eth0", rx_bytes=1)
    machine.port(
        "efa_0", {"hw_counters/rx_bytes": 100, "hw_counters/tx_bytes": 9, "hw_counters/retrans_pkts": 2}
    )
    found = machine.look()

    assert (found["network.received"], found["network.rdma.retransmits"]) == (101.0, 2.0)
    assert found["network.rdma.errors"] == Bad("efa_0/1: its driver does not count them")


def test_round_trips_come_from_ss(machine: Machine) -> None:
    """Round-trip time and spread are told in seconds, and both are left out where nothing is connected."""
    found = machine.look()
    assert (found["network.rtt"], found["network.rtt_jitter"]) == (0.002, 0.0005)

    machine.collector.ask_ss = lambda: "State\n"
    assert "network.rtt" not in machine.look(AT + 60)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "ss failed with status 3"),
        ("exec sleep 5", "ss does not answer"),
        ("echo garbage", "ss: no heading `State`"),
    ],
)
def test_an_ss_that_fails_is_a_bad_reading(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    """A failing, hanging or foreign `ss` makes bad readings of round trips alone."""
    program = tmp_path / "ss"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(network, "SS_TIME_LIMIT", 0.5)
    machine.collector.ask_ss = network.ask_ss
    found = machine.look()

    assert found["network.rtt"] == found["network.rtt_jitter"] == Bad(reason)
    assert found["network.retransmits"] == 3.0


def test_a_machine_without_ss_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ss is not installed, that is the reason."""
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)

    assert network.ask_ss() == Bad("ss is not installed")


def test_ss_can_be_left_alone() -> None:
    """With `ss: false` round trips are not told."""
    look = load_collectors().build("network", {"ss": False}, Context("n1")).look(AT)

    assert not {item.signal for item in look.samples} & {"network.rtt", "network.rtt_jitter"}


def test_no_sys_is_not_a_failure(tmp_path: Path) -> None:
    """Where there is no /sys/class/net there is nothing to look at."""
    with pytest.raises(NotHere):
        network.NetworkCollector("n1", lambda _: None, root=tmp_path).look(AT)


RECEIVER = """
import socket
server = socket.create_server(("10.99.7.2", 5001))
server.settimeout(20)
print("ready", flush=True)
connection, _ = server.accept()
connection.settimeout(20)
while connection.recv(1 << 16):
    pass
connection.close()
"""

SENDER = """
import json, socket, time
from stoploss.collectors import registry
from stoploss.collectors.contract import Context
from stoploss.engine.model import Bad

looking = registry.load().build("network", {"interfaces": ["near"]}, Context("n1"))
looks = [looking.look(60.0)]
connection = socket.create_connection(("10.99.7.2", 5001), timeout=10)
connection.settimeout(1)
deadline, left = time.monotonic() + 2, 3_000_000
while left > 0 and time.monotonic() < deadline:
    try:
        left -= connection.send(bytes(min(left, 20_000)))
    except TimeoutError:
        continue
looks.append(looking.look(120.0))
connection.close()
print(json.dumps([[
    [item.time, item.signal, item.reading.reason if isinstance(item.reading, Bad) else item.reading]
    for item in look.samples
] for look in looks]))
"""


def failure(command: str) -> str:
    """Why a command failed; empty where it did not."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    return done.stderr.strip() or f"status {done.returncode}" if done.returncode else ""


@pytest.fixture
def lossy() -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a link that loses packets; skips where there can be none."""
    if not all(shutil.which(name) for name in ("ip", "tc", "ss")):
        pytest.skip("ip, tc and ss (iproute2) are not installed")
    near, far = (f"stoploss-{uuid.uuid4().hex[:8]}" for _ in range(2))
    steps = [
        f"ip netns add {near}",
        f"ip netns add {far}",
        f"ip -n {near} link add near type veth peer name far netns {far}",
        f"ip -n {near} address add 10.99.7.1/24 dev near",
        f"ip -n {far} address add 10.99.7.2/24 dev far",
        f"ip -n {near} link set near up",
        f"ip -n {far} link set far up",
    ]
    tc = f"ip netns exec {near} tc qdisc add dev near root"
    # Not every kernel can lose packets at random; a queue that is far too short drops them as well.
    ways = (f"{tc} netem delay 5ms loss 8%", f"{tc} tbf rate 5mbit burst 3kb limit 6kb")
    try:
        for step in steps:
            if why := failure(step):
                pytest.skip(f"no network namespaces on this machine: {step}: {why}")
        if (why := failure(ways[0])) and failure(ways[1]):
            pytest.skip(f"no lossy link on this machine: {why}")
        yield near, far
    finally:
        for name in (near, far):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@pytest.mark.slow
@pytest.mark.real
def test_packet_loss_between_two_hosts_is_found(lossy: tuple[str, str], tmp_path: Path) -> None:
    """Losses on a real link raise retransmits and the round-trip time, and a packet-loss policy fires."""
    near, far = lossy
    receiver = subprocess.Popen(
        ["ip", "netns", "exec", far, sys.executable, "-IS", "-c", RECEIVER], stdout=subprocess.PIPE, text=True
    )
    try:
        assert receiver.stdout
        assert receiver.stdout.readline() == "ready\n"
        sender = ["ip", "netns", "exec", near, sys.executable, "-c", SENDER]
        looks = json.loads(subprocess.check_output(sender, text=True, timeout=20))
    finally:
        receiver.kill()
        receiver.communicate()
    policies = tmp_path / "p.yaml"
    policies.write_text(
        "version: 1\npolicies:\n  - name: packet-loss\n    each: host\n    when:\n"
        "      - increase(network.retransmits, 1m) / increase(network.segments_sent, 1m) > 1%\n"
    )
    loaded = load(
        [policies], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
    )
    assert loaded.policies, loaded.diagnostics
    buffer = SampleBuffer(catalogue(), {"network": 60.0})
    for look in looks:
        samples = tuple(Sample(at, HOST, name, reading) for at, name, reading in look)
        taken = tuple(item for item in samples if not isinstance(item.reading, str))
        buffer.add("network", Look(taken), slot_time=samples[0].time)
    now = datetime.fromtimestamp(120, UTC)
    result = audit(loaded.policies, lambda resolution: buffer.frame(resolution, 120.0), catalogue(), now=now)

    before, after = ({name: reading for _, name, reading in look} for look in looks)
    assert after["network.retransmits"] > before["network.retransmits"]
    assert after["network.sent"] - before["network.sent"] > 100_000
    assert 0.001 <= after["network.rtt"] < 1
    [finding] = result.firing
    assert finding.resource == HOST
