"""What the kernel and `ss` tell of the network, parsed: texts in, numbers out, nothing is read here."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from statistics import median


class Unparsable(ValueError):
    """A text that is not what the kernel or `ss` writes; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Segments:
    """TCP segments since boot: those sent for the first time, and those sent again."""

    sent: int
    again: int


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """The median round-trip time and its median spread over connections, in seconds."""

    time: float
    spread: float
    connections: int


def parse_count(text: str) -> int:
    """A file that holds one count.

    Raises:
        Unparsable: it holds something else.
    """
    word = text.strip()
    if not (word.isascii() and word.isdigit()):
        raise Unparsable(f"{word[:20]!r} is not a count")
    return int(word)


def parse_segments(text: str) -> Segments:
    """The TCP counters of /proc/net/snmp.

    Raises:
        Unparsable: its two lines on TCP are missing, cut short or no counts.
    """
    lines = [line.split() for line in text.splitlines() if line.startswith("Tcp:")]
    if len(lines) != 2 or len(lines[0]) != len(lines[1]):
        raise Unparsable("no pair of lines `Tcp:`")
    counts = dict(zip(*lines, strict=True))
    try:
        return Segments(parse_count(counts["OutSegs"]), parse_count(counts["RetransSegs"]))
    except KeyError as error:
        raise Unparsable(f"no {error.args[0]}") from None


def parse_round_trips(text: str) -> RoundTrips | None:
    """Round trips of the established connections to other hosts in what `ss -tin` prints.

    None where there is no such connection. A connection of which the kernel has not measured
    any round trip is left out; so is one within this host, which tells nothing of the network.

    Raises:
        Unparsable: the text is not what `ss` prints.
    """
    lines = text.splitlines()
    if not lines or not lines[0].startswith("State"):
        raise Unparsable("no heading `State`")
    pairs: list[tuple[float, float]] = []
    remote = False
    for line in lines[1:]:
        if line[:1].isspace():
            match = re.search(r"(?:^|\s)rtt:(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)(?:\s|$)", line)
            if remote and match:
                pairs.append((float(match[1]) / 1000, float(match[2]) / 1000))
            remote = False
            continue
        words = line.split()
        remote = len(words) >= 5 and words[0] == "ESTAB" and not _local(words[3], words[4])
    if not pairs:
        return None
    return RoundTrips(median(time for time, _ in pairs), median(spread for _, spread in pairs), len(pairs))


def parse_speed(text: str) -> float:
    """Bytes a second of a network interface, from its file `speed`, which holds Mbit/s.

    Raises:
        Unparsable: the interface does not tell, which it says as -1.
    """
    word = text.strip()
    if word in ("-1", "0", "4294967295"):
        raise Unparsable("the interface does not tell its speed")
    return parse_count(word) * 1e6 / 8


def parse_rate(text: str) -> float:
    """Bytes a second of an RDMA port, from its file `rate`: `100 Gb/sec (4X EDR)`.

    Raises:
        Unparsable: it is no rate.
    """
    match = re.match(r"(\d+(?:\.\d+)?) Gb/sec(?: |$)", text.strip())
    if match is None or float(match[1]) == 0:
        raise Unparsable(f"{text.strip()[:20]!r} is no rate")
    return float(match[1]) * 1e9 / 8


def _local(here: str, there: str) -> bool:
    """Whether a connection stays within this host; an address that cannot be read does."""
    try:
        addresses = [ipaddress.ip_address(_host(end)) for end in (here, there)]
    except ValueError:
        return True
    return addresses[0] == addresses[1] or any(address.is_loopback for address in addresses)


def _host(end: str) -> str:
    """The address of `10.0.0.1:22`, `10.0.0.1%eth0:22`, `[fe80::1]%eth0:22` or `[::ffff:10.0.0.1]:22`."""
    address = end.rpartition(":")[0].partition("%")[0].strip("[]")
    return address.removeprefix("::ffff:")
