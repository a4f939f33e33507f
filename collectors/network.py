"""Traffic, losses and round-trip times of the machine that stoploss runs on.

It reads the kernel's counters, asks `ss` (a part of iproute2) for round-trip times, needs no
rights beyond those of any user, sends nothing and changes nothing.

- Bytes, drops and errors add up the physical interfaces: no loopback, bridges, tunnels, or
  those of containers. A bond counts once, through its members. `interfaces` names others
  instead, as in a container, which sees virtual ones alone.
- An RDMA port (InfiniBand, RoCE) passes the kernel by, so its data is added. An interface that
  runs over InfiniBand is left out, because the port counts its bytes too.
- `network.rdma.errors` and `network.rdma.retransmits` are told where there are RDMA ports.
- `network.link_speed` is that of the slowest link that is up, and `network.utilization` that of
  the busiest one in its busier direction, over the time since the look before. The first look
  takes two readings 100 ms apart. Virtual cards often do not tell their speed, which makes both
  bad readings.
- `network.segments_sent` and `network.retransmits` are of all TCP connections of the kernel's
  network namespace, those within the host too. Of segments sent the kernel leaves out those
  sent again.
- `network.rtt` is the median over established TCP connections to other hosts, and
  `network.rtt_jitter` the median of what the kernel keeps as the spread of each. Without such a
  connection there is nothing to measure, and neither is told. `ss: false` leaves both out.
- A link that goes away takes nothing from a total, and one that appears adds what it counted.

Where traffic goes is not told: `network.cross_zone`, `network.cross_region` and
`network.internet` are for recorded signals. What cannot be read is a bad reading with its reason.

Right:

```yaml
collectors:
  network: {every: 30s, interfaces: ["eth*"], ss: true}
```

Wrong, because `ss` is true or false:

```yaml
collectors:
  network: {ss: sometimes}
```
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoploss.collectors import network_sources as sources
from stoploss.collectors import network_texts as texts
from stoploss.collectors.contract import Collector, Context, NotHere
from stoploss.collectors.network_options import Options
from stoploss.engine.model import Bad, Look, Reading, ResourceId, Sample

NAME = "network"

FIRST_GAP = 0.1
"""Seconds between the two readings of the first look."""

SS_TIME_LIMIT = 3.0
"""Seconds that `ss` may take."""

SUMMED = (*sources.STATISTICS, "network.link_downs")
NOTHING_PHYSICAL = Bad("no physical network interface is seen from here")


@dataclass(slots=True)
class NetworkCollector:
    """Looks at one machine; `root` is where /proc and /sys lie, `ask_ss` gives what `ss -tin` prints."""

    hostname: str
    sleep: Callable[[float], None]
    interfaces: tuple[str, ...] = ()
    ask_ss: Callable[[], str | Bad] | None = None
    root: Path = Path("/")
    _totals: sources.Totals = field(default_factory=sources.Totals)
    _before: tuple[float, Mapping[str, tuple[int, int]]] | None = None

    def look(self, at: float) -> Look:
        """Look once; every sample carries `at`.

        Raises:
            NotHere: there is no /sys/class/net, so this is no Linux machine.
        """
        if not (self.root / sources.INTERFACES).is_dir():
            raise NotHere("no /sys/class/net: the network collector reads Linux machines only")
        links, ports = self._links()
        if self._before is None:
            self._before = (at - FIRST_GAP, _directions([*links, *ports]))
            self.sleep(FIRST_GAP)
            links, ports = self._links()
        host = ResourceId("host", self.hostname)
        samples = [Sample(at, host, signal, reading) for signal, reading in self._readings(links, ports, at)]
        return Look(tuple(samples))

    def _links(self) -> tuple[list[sources.Link], list[sources.Link]]:
        ports = sources.ports(self.root)
        links = sources.interfaces(self.root, self.interfaces)
        if ports:
            links = [link for link in links if not sources.is_infiniband(link.name, self.root)]
        return links, ports

    def _readings(
        self, links: Sequence[sources.Link], ports: Sequence[sources.Link], at: float
    ) -> Iterator[tuple[str, Reading]]:
        both = [*links, *ports]
        sums: dict[str, Reading] = {}
        for signal in SUMMED:
            counts = {link.name: link.counts[signal] for link in both if signal in link.counts}
            sums[signal] = self._totals.take(signal, counts) if counts else NOTHING_PHYSICAL
        yield from sums.items()
        received, sent = sums["network.received"], sums["network.sent"]
        if isinstance(received, float) and isinstance(sent, float):
            yield "network.bytes", received + sent
        else:
            yield "network.bytes", received if isinstance(received, Bad) else sent
        for signal in sources.PORT_COUNTS if ports else ():
            yield signal, self._totals.take(signal, {port.name: port.counts[signal] for port in ports})
        yield "network.link_speed", _slowest(both)
        yield "network.utilization", self._busiest(both, at)
        yield from self._tcp()

    def _busiest(self, links: Sequence[sources.Link], at: float) -> Reading:
        assert self._before is not None
        before_at, before = self._before
        now = _directions(links)
        self._before = (at, now)
        if at <= before_at:
            return Bad("no time has passed since the look before")
        speeds = {link.name: link.speed for link in links if link.up}
        shares = [
            max(max(new - old, 0) for new, old in zip(now[name], before[name], strict=True))
            / (at - before_at)
            / speed
            for name, speed in speeds.items()
            if isinstance(speed, float) and name in now and name in before
        ]
        if not shares:
            slowest = _slowest(links)
            return slowest if isinstance(slowest, Bad) else Bad("needs two readings")
        # A look that comes late makes its interval seem shorter than it was.
        return min(max(shares), 1.0)

    def _tcp(self) -> Iterator[tuple[str, Reading]]:
        segments = sources.read(self.root / "proc/net/snmp", texts.parse_segments)
        if isinstance(segments, Bad):
            segments = Bad(f"/proc/net/snmp: {segments.reason}")
        yield "network.segments_sent", segments if isinstance(segments, Bad) else float(segments.sent)
        yield "network.retransmits", segments if isinstance(segments, Bad) else float(segments.again)
        if self.ask_ss is None:
            return
        found = _round_trips(self.ask_ss())
        if found is not None:
            yield "network.rtt", found if isinstance(found, Bad) else found.time
            yield "network.rtt_jitter", found if isinstance(found, Bad) else found.spread


def _directions(links: Sequence[sources.Link]) -> dict[str, tuple[int, int]]:
    """Link -> bytes received and sent, of those that tell both."""
    found: dict[str, tuple[int, int]] = {}
    for link in links:
        received, sent = link.counts.get("network.received"), link.counts.get("network.sent")
        if isinstance(received, int) and isinstance(sent, int):
            found[link.name] = (received, sent)
    return found


def _slowest(links: Sequence[sources.Link]) -> Reading:
    if not links:
        return NOTHING_PHYSICAL
    speeds = [link.speed for link in links if link.up]
    if not speeds:
        return Bad("no link is up")
    known = [speed for speed in speeds if isinstance(speed, float)]
    return min(known) if known else Bad("no link that is up tells its speed")


def _round_trips(text: str | Bad) -> texts.RoundTrips | Bad | None:
    if isinstance(text, Bad):
        return text
    try:
        return texts.parse_round_trips(text)
    except texts.Unparsable as error:
        return Bad(f"ss: {error}")


def ask_ss() -> str | Bad:
    """What `ss -tin` prints, or why it cannot be asked."""
    # Services are often started without the folders of system programs.
    folders = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    program = shutil.which("ss", path=folders)
    if program is None:
        return Bad("ss is not installed")
    try:
        done = subprocess.run(  # noqa: S603
            [program, "-tin"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SS_TIME_LIMIT,
            check=False,
            env={"PATH": folders, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return Bad("ss does not answer")
    except OSError as error:
        return Bad(f"ss cannot be started: {(error.strerror or str(error)).lower()}")
    if done.returncode:
        return Bad(f"ss failed with status {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def build(options: Options, context: Context) -> Collector:
    """The running collector."""
    asked = ask_ss if options.ss else None
    return NetworkCollector(options.name or context.hostname, context.sleep, options.interfaces, asked)
