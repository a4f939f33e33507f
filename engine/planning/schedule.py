"""Whether an instant lies in an `active:`, `quiet:` or `maintenance:` time.

Times are those of the wall clock in their zone, so that 22:00-07:00 begins and ends at what
people read there also on the days on which the clock is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from stoploss.rules.models.times import MONTHS, WEEKDAYS

_MINUTE = timedelta(minutes=1)
_LOWEST = (0, 0, 1, 1)
_HIGHEST = (59, 23, 31, 12)


def why_outside(window: Mapping[str, Any] | None, at: datetime, timezone: str) -> str | None:
    """Why an instant lies outside a window, None where it lies inside; no window is always."""
    if not window:
        return None
    zone = ZoneInfo(window.get("timezone") or timezone)
    start, end = window.get("from"), window.get("until")
    if start is not None and not _is_clock(start) and at < _moment(start, zone):
        return f"not yet active: from {start}"
    if end is not None and not _is_clock(end) and at >= _end(end, zone):
        return f"no longer active: until {end}"
    here = at.astimezone(zone)
    low = start if start is not None and _is_clock(start) else None
    high = end if end is not None and _is_clock(end) else None
    if (low or high) and not _within(here.time(), low or "00:00", high):
        return f"not active at {here:%H:%M}: {low or '00:00'} to {high or '24:00'}"
    schedule = window.get("schedule")
    if schedule is not None and not matches(schedule, here):
        return f"not active at {here:%a %H:%M}: schedule {schedule}"
    return None


def maintenance(windows: tuple[Mapping[str, Any], ...], at: datetime, timezone: str) -> str | None:
    """Why nothing is acted on at an instant, or None."""
    for window in windows:
        if why_outside(window, at, timezone) is None:
            until = f" until {window['until']}" if "until" in window else ""
            return f"maintenance{until}" + (f": {window['reason']}" if "reason" in window else "")
    return None


def matches(schedule: str, local: datetime) -> bool:
    """Whether a minute of a wall clock matches five cron fields, weekdays by name.

    As cron has it, a day of month and a weekday that are both given match either.
    """
    fields = schedule.split()
    values = (local.minute, local.hour, local.day, local.month)
    minute, hour, day, month = (
        any(_hit(part, values[at], at) for part in fields[at].split(",")) for at in range(4)
    )
    weekday = fields[4] == "*" or any(_on(part, local.weekday()) for part in fields[4].split(","))
    either = not fields[2].startswith("*") and fields[4] != "*"
    return minute and hour and month and (day or weekday if either else day and weekday)


@lru_cache(maxsize=1024)
def quiet_until(quiet: str | None, at: datetime, timezone: str) -> datetime | None:
    """When a quiet range such as 22:00-07:00 that holds an instant ends; None outside of it."""
    if quiet is None:
        return None
    start, _, end = quiet.partition("-")
    zone = ZoneInfo(timezone)
    if not _within(at.astimezone(zone).time(), start, end):
        return None
    # Minute by minute in UTC: an end that the clock leaps over is found where the leap lands.
    moment = at.astimezone(UTC).replace(second=0, microsecond=0)
    while _within(moment.astimezone(zone).time(), start, end):
        moment += _MINUTE
    return moment


def _within(clock: time, start: str, end: str | None) -> bool:
    low = time.fromisoformat(start)
    if end is None:
        return clock >= low
    high = time.fromisoformat(end)
    return low <= clock < high if low < high else clock >= low or clock < high


def _is_clock(text: str) -> bool:
    return len(text) == 5


def _moment(text: str, zone: ZoneInfo) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def _end(text: str, zone: ZoneInfo) -> datetime:
    """The end of a window; one that is given as a day lasts through it."""
    if len(text) > 10:
        return _moment(text, zone)
    return (datetime.fromisoformat(text) + timedelta(days=1)).replace(tzinfo=zone)


def _hit(part: str, value: int, field: int) -> bool:
    span, _, step = part.partition("/")
    low, high = _LOWEST[field], _HIGHEST[field]
    if span != "*":
        first, dash, last = span.partition("-")
        low = _number(first, field)
        high = _number(last, field) if dash else high if step else low
    return low <= value <= high and (value - low) % int(step or 1) == 0


def _number(text: str, field: int) -> int:
    return MONTHS.index(text) + 1 if field == 3 and text in MONTHS else int(text)


def _on(part: str, weekday: int) -> bool:
    first, _, last = part.partition("-")
    return WEEKDAYS.index(first) <= weekday <= WEEKDAYS.index(last or first)
