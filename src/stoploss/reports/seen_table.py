"""What one look saw, for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from zoneinfo import ZoneInfo

import click

from stoploss.engine.model import Bad
from stoploss.reports.counts import count
from stoploss.reports.seen import Seen, SeenCollector, SeenResource, SeenSignal
from stoploss.rules.units import format_value

WIDTH = 80
SHOWN = 8
"""Resources of a kind that a person is shown; all of them are in the json."""
_CELL = 37


def as_text(told: Seen, timezone: str) -> str:
    """Resource by resource: what was read, and what was not and why."""
    when = told.at.astimezone(ZoneInfo(timezone))
    kinds = {
        kind: list(group) for kind, group in groupby(told.resources, key=lambda item: item.resource.kind)
    }
    counted = ", ".join(count(len(items), kind) for kind, items in kinds.items()) or "nothing was seen"
    lines = textwrap.wrap(
        f"stoploss signals · {when:%Y-%m-%d %H:%M} {when.tzname()} · {counted} · nothing was touched", WIDTH
    )
    for kind, items in kinds.items():
        for item in items[:SHOWN]:
            lines += ["", *_resource(item)]
        if len(items) > SHOWN:
            lines += ["", f"… and {count(len(items) - SHOWN, f'more {kind}')}; all of them: --format json"]
    if told.unseen:
        lines += ["", click.style("NOT SEEN", bold=True)]
        for entry in told.unseen:
            names = _names([signal.name for signal in entry.signals])
            lines += _wrapped(f"  {entry.collector:<12}", f"{names}: {entry.reason}")
    lines += ["", click.style("COLLECTORS", bold=True)]
    for collector in told.collectors:
        lines += _wrapped(f"  {collector.name:<12}{collector.state:<10}", _outcome(collector))
    for note in told.notes:
        lines += textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _resource(item: SeenResource) -> Iterator[str]:
    labels = ", ".join(
        f"{name} {_printable(value) if isinstance(value, str) else '?'}"
        for name, value in sorted(item.labels.items())
        if value is not None
    )
    name = _printable(str(item.resource))
    yield from _wrapped(click.style(name, bold=True) + ("  " if labels else ""), labels, 4)
    read = [entry for entry in item.signals if not isinstance(entry.reading, Bad)]
    yield from _columns([(entry.signal.name, shown(entry)) for entry in read])
    bad: dict[str, list[str]] = {}
    for entry in item.signals:
        if isinstance(entry.reading, Bad):
            bad.setdefault(entry.reading.reason, []).append(entry.signal.name)
    if len(bad) == 1 and not read:
        yield from _wrapped("  nothing could be read: ", next(iter(bad)), 4)
        return
    for reason, names in bad.items():
        yield from _wrapped("  not read: ", f"{', '.join(names)} ({reason})", 4)


def _columns(read: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Names and values side by side, down the left column first; a long one has its row alone."""
    cells = [f"{name}{value:>{max(_CELL - len(name), len(value) + 1)}}" for name, value in read]
    short = [cell for cell in cells if len(cell) <= _CELL]
    half = -(-len(short) // 2)
    for number in range(half):
        right = short[half + number] if half + number < len(short) else ""
        yield f"  {short[number]}  {right}".rstrip()
    for cell in cells:
        if len(cell) > _CELL:
            yield from _wrapped("  ", cell, 4)


def shown(entry: SeenSignal) -> str:
    """A reading as a person would write it."""
    reading = entry.reading
    if isinstance(reading, Bad):
        return reading.reason
    return _printable(reading) if isinstance(reading, str) else format_value(reading, entry.signal.unit)


def _printable(text: str) -> str:
    """A text from elsewhere without what would steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _outcome(collector: SeenCollector) -> str:
    if collector.state != "ok":
        return str(collector.reason)
    unread = sum(len(names) for names in (collector.bad or {}).values())
    told = count(collector.readings, "reading")
    if unread:
        told += f", {count(unread, 'signal')} not read everywhere"
    return told if collector.seconds is None else f"{told}, {collector.seconds:.2f} s"


def _names(names: Sequence[str], most: int = 4) -> str:
    listed = ", ".join(names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def _wrapped(start: str, text: str, indent: int | None = None) -> Iterable[str]:
    width = len(click.unstyle(start))
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=" " * width,
        subsequent_indent=" " * (width if indent is None else indent),
    )
    return [start + lines[0][width:], *lines[1:]] if lines else [start.rstrip()]
