"""The GPU heat map of a page: one picture per job, in one scale, and its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from zoneinfo import ZoneInfo

from markupsafe import Markup

from stoploss.engine.heatmap import HeatMap, HeatRow
from stoploss.reports import svg
from stoploss.rules.units import format_duration

IDLE_BELOW = 0.05
"""A span whose mean use is less than this share is outlined as idle."""
_STEPS = (60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000)


@dataclass(frozen=True, slots=True)
class Use:
    """The numbers of a row or of a group, as texts; `seen` is the share of time that is known."""

    name: str
    job: str
    where: str
    mean: str
    idle: str
    seen: float

    @property
    def seen_text(self) -> str:
        """The share of time that is known, rounded towards what is missing."""
        return f"{int(self.seen * 100)}%"


@dataclass(frozen=True, slots=True)
class Group:
    """The GPUs of one job: their picture and what it shows."""

    use: Use
    gpus: int
    picture: Markup
    bullet: Markup


@dataclass(frozen=True, slots=True)
class Picture:
    """A heat map ready to be placed; `rows` are its numbers per GPU."""

    groups: tuple[Group, ...]
    rows: tuple[Use, ...]
    axis: Markup
    begin: str
    end: str
    span: str
    seen: float
    left_out: int

    @property
    def thin(self) -> tuple[Group, ...]:
        """Groups of which not all was seen, the least seen first."""
        return tuple(sorted((group for group in self.groups if group.use.seen < 1), key=lambda g: g.use.seen))


def picture(heat: HeatMap, timezone: str) -> Picture:
    """The heat map as pictures and texts; times are in `timezone`."""
    zone = ZoneInfo(timezone)
    begin, end = heat.starts[0], heat.starts[-1] + heat.span
    height = 12 if len(heat.rows) <= 64 else 6
    groups = []
    for _, members in groupby(heat.rows, key=lambda row: row.job):
        rows = list(members)
        use = _use(rows, _where(rows))
        cells = [row.cells for row in rows]
        drawn = svg.heat_rows(cells, idle_below=IDLE_BELOW, row_height=height)
        groups.append(Group(use, len(rows), drawn, svg.bullet(use.seen, 0.8)))
    return Picture(
        tuple(groups),
        tuple(_use([row], row.host or "no host known") for row in heat.rows),
        svg.axis(list(_ticks(begin, end, zone))),
        f"{datetime.fromtimestamp(begin, zone):%Y-%m-%d %H:%M}",
        f"{datetime.fromtimestamp(end, zone):%Y-%m-%d %H:%M} {datetime.fromtimestamp(end, zone).tzname()}",
        format_duration(heat.span),
        _use(heat.rows, "").seen,
        heat.left_out,
    )


def _use(rows: Sequence[HeatRow], where: str) -> Use:
    known = [cell for row in rows for cell in row.cells if cell is not None]
    cells = sum(len(row.cells) for row in rows)
    idle = sum(cell < IDLE_BELOW for cell in known)
    return Use(
        rows[0].gpu,
        rows[0].job or "no job known",
        where,
        f"{sum(known) / len(known):.0%}" if known else "unknown",
        f"{idle / len(known):.0%}" if known else "unknown",
        len(known) / cells if cells else 0.0,
    )


def _where(rows: Sequence[HeatRow]) -> str:
    hosts = list(dict.fromkeys(row.host for row in rows if row.host is not None))
    return ", ".join(hosts) if len(hosts) <= 2 else f"{len(hosts)} hosts"


def _ticks(begin: float, end: float, zone: ZoneInfo) -> Iterator[tuple[float, str]]:
    """At most five round local times between two instants, with their place as a share."""
    step = next((step for step in _STEPS if (end - begin) / step <= 5), (end - begin) / 4)
    first = datetime.fromtimestamp(begin, zone)
    offset = (first.utcoffset() or timedelta()).total_seconds()
    at = -(-(begin + offset) // step) * step - offset
    while at < end:
        when = datetime.fromtimestamp(at, zone)
        yield (at - begin) / (end - begin), f"{when:%H:%M}" if step < 86_400 else f"{when.day} {when:%b}"
        at += step
