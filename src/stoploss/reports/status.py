"""How the daemon is, for people and as JSON."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

from stoploss.rules.units import format_duration

if TYPE_CHECKING:
    from stoploss.engine.vitals import Vitals

WIDTH = 80


@dataclass(frozen=True, slots=True)
class Told:
    """What `stoploss status` tells.

    Attributes:
        running: whether a daemon holds the state.
        vitals: what it wrote down last; None where it never did.
        paused: why nothing is carried out; None where it is.
        waiting: requests that wait for an answer.
        late: it has not ticked for too long.
    """

    running: bool
    vitals: Vitals | None
    paused: str | None
    waiting: int
    late: bool


def as_json(told: Told) -> dict[str, Any]:
    """All of it as JSON values."""
    return {
        "version": 1,
        "running": told.running,
        "late": told.late,
        "paused": told.paused,
        "waiting_requests": told.waiting,
        "vitals": None if told.vitals is None else told.vitals.as_json(),
    }


def as_text(told: Told, now: datetime, zone: tzinfo) -> str:
    """A few lines for a terminal of 80 columns."""
    vitals = told.vitals
    head = "runs" if told.running else "does not run"
    lines = [f"stoploss status · {head}" + (" · late" if told.late and told.running else "")]
    if vitals is not None:
        lines += _vitals(vitals, now, zone)
    if told.paused is not None:
        lines.append(f"paused: {told.paused}; stoploss pause --resume goes on")
    if told.waiting:
        lines.append(f"{told.waiting} requests wait for an answer: stoploss requests")
    if not told.running:
        lines.append("start it: stoploss run POLICIES")
    return (
        "\n".join(line for text in lines for line in textwrap.wrap(text, WIDTH, subsequent_indent="  "))
        + "\n"
    )


def _vitals(vitals: Vitals, now: datetime, zone: tzinfo) -> list[str]:
    last = vitals.last_tick
    ticked = "no tick yet"
    if last is not None:
        ago = format_duration(max(0.0, round((now - last).total_seconds())))
        ticked = f"last tick {last.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}, {ago} ago"
    lines = [
        f"{ticked}; it took {vitals.tick_seconds:.2f} s of {format_duration(vitals.interval)}",
        f"{vitals.ticks:,} ticks since {vitals.started.astimezone(zone):%Y-%m-%d %H:%M %Z}, "
        f"{vitals.missed:,} missed · {vitals.findings} firing, {vitals.unknown} unknown",
    ]
    for name, seen in sorted(vitals.collectors.items()):
        if not seen.ok:
            lines.append(f"collector {name} failed: {seen.reason or 'no reason given'}")
    lines += [f"{about}: {why}" for about, why in sorted(vitals.problems.items())]
    return lines
