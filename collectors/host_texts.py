"""What the kernel tells and psutil does not, parsed: texts in, numbers out, nothing is read here."""

from __future__ import annotations

import re
from dataclasses import dataclass


class Unparsable(ValueError):
    """A text that is not what the kernel writes; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Throttling:
    """Scheduler periods of a control group, and those in which it was held back."""

    periods: int
    throttled: int


def parse_instance(text: str) -> str | None:
    """The id of an instance of EC2 from /sys/class/dmi/id/board_asset_tag; None for what is none."""
    match = re.fullmatch(r"\s*(i-[0-9a-f]{8,17})\s*", text)
    return match[1] if match else None


def parse_oom_kills(text: str) -> int:
    """Processes killed for want of memory since boot, from /proc/vmstat.

    Raises:
        Unparsable: this kernel does not count them.
    """
    match = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    if match is None:
        raise Unparsable("the kernel counts no OOM kills")
    return int(match[1])


def parse_pressure(text: str) -> float:
    """The share of the last 10 seconds in which some task was stalled, from /proc/pressure/*.

    Raises:
        Unparsable: there is no such line, or it is no share.
    """
    match = re.search(r"^some avg10=(\d+(?:\.\d+)?) ", text, re.MULTILINE)
    if match is None:
        raise Unparsable("no line `some avg10=`")
    share = float(match[1]) / 100
    if share > 1:
        raise Unparsable(f"{match[1]} is no percentage")
    return share


def parse_throttling(text: str) -> Throttling:
    """The bandwidth periods of a control group, from its cpu.stat.

    A group without a limit counts no periods, or has no such lines: nothing holds it back.

    Raises:
        Unparsable: the text is no cpu.stat.
    """
    words = [line.split() for line in text.splitlines()]
    if not words or any(len(pair) != 2 for pair in words):
        raise Unparsable("no list of names and numbers")
    counts = {name: _whole(number) for name, number in words}
    if ("nr_periods" in counts) != ("nr_throttled" in counts):
        raise Unparsable("only one of nr_periods and nr_throttled")
    return Throttling(counts.get("nr_periods", 0), counts.get("nr_throttled", 0))


def _whole(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise Unparsable(f"{word[:20]!r} is not a count")
    return int(word)
