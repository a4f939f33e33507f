"""Readers of time zones, days, moments and schedules."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from stoploss.rules.models.fields import Reads, problem, read_text, shown

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12))
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_CLOCK = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d\Z", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?\Z", re.ASCII)


def read_zone(value: Any) -> str:
    """A name of the IANA time-zone database."""
    name = read_text(value)
    try:
        ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        raise problem("unknown-zone", f"{shown(name)} is not a time zone", _near_zones(name)) from None
    return name


def _near_zones(name: str) -> str:
    zones = {zone.lower(): zone for zone in available_timezones()}
    last = {zone.rpartition("/")[2]: zone for zone in zones}
    wanted = name.lower().replace(" ", "_")
    found = difflib.get_close_matches(wanted, sorted(zones), n=3, cutoff=0.5)
    found += [
        last[item]
        for item in difflib.get_close_matches(wanted.rpartition("/")[2], sorted(last), n=1, cutoff=0.7)
    ]
    names = list(dict.fromkeys(zones[item] for item in found))[:3]
    return f"did you mean {' or '.join(names)}?" if names else "write a name such as UTC or Europe/Berlin"


def read_day(value: Any) -> str:
    """A day as YYYY-MM-DD."""
    text = value if isinstance(value, str) else shown(value)
    if not (_DAY.match(text) and _exists(text)):
        raise problem("bad-value", f"{shown(value)} is not a day", "write a day such as 2027-01-31")
    return text


def read_moment(value: Any) -> str:
    """A day, a day with a time, or a time of day."""
    text = value if isinstance(value, str) else shown(value)
    if _CLOCK.match(text):
        return text
    if not ((_DAY.match(text) or _MOMENT.match(text)) and _exists(text)):
        fix = 'write a day such as 2027-01-31, a moment such as 2027-01-31T08:00, or a time such as "22:30"'
        raise problem("bad-value", f"{shown(value)} is neither a day nor a time", fix)
    return text


def _exists(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def read_quiet(value: Any) -> str:
    """A range of times of day, such as 22:00-07:00."""
    text = value if isinstance(value, str) else shown(value)
    start, _, end = text.partition("-")
    if not (_CLOCK.match(start) and _CLOCK.match(end)) or start == end:
        raise problem(
            "bad-value", f"{shown(value)} is not a range of times", "write a range such as 22:00-07:00"
        )
    return text


def read_schedule(value: Any) -> str:
    """Five cron fields; weekdays by name."""
    if not isinstance(value, str):
        raise _bad(f"{shown(value)} is not a schedule")
    fields = value.lower().split()
    if len(fields) != 5:
        raise _bad(f"{shown(value)} has {len(fields)} fields, not five")
    for field, (name, low, high) in zip(fields, _FIELDS, strict=False):
        names = {word: index for index, word in enumerate(MONTHS, 1)} if name == "month" else {}
        if not all(_fits(part, low, high, names) for part in field.split(",")):
            raise _bad(f"{shown(field)} is not a {name} ({low} to {high})")
    _check_weekdays(fields[4])
    return " ".join(fields)


def _bad(
    message: str, fix: str = "write minute, hour, day, month and weekday, such as 0 9 * * mon-fri"
) -> Exception:
    return problem("bad-schedule", message, fix)


def _fits(part: str, low: int, high: int, names: Mapping[str, int]) -> bool:
    """Whether `*`, `5`, `1-5`, `*/10` or `0-30/5` lies within a field's range."""
    span, slash, step = part.partition("/")
    if slash and not (step.isascii() and step.isdigit() and len(step) < 4 and int(step) > 0):
        return False
    if span == "*":
        return True
    start, dash, end = span.partition("-")
    bounds = [
        names.get(item, int(item) if re.fullmatch(r"[0-9]{1,2}", item) else -1)
        for item in (start, end if dash else start)
    ]
    return low <= bounds[0] <= bounds[1] <= high


def _check_weekdays(field: str) -> None:
    if field == "*":
        return
    if re.search(r"\d", field):
        fix = f"write {_named(field)}" if (_named(field)) else "write weekdays by name, such as mon-fri"
        raise _bad(f"the weekday {shown(field)} is a number, and programs disagree on which day 0 is", fix)
    for part in field.split(","):
        start, dash, end = part.partition("-")
        days = (start, end) if dash else (start,)
        if any(day not in WEEKDAYS for day in days):
            raise _bad(f"{shown(part)} is not a weekday", "weekdays are mon, tue, wed, thu, fri, sat, sun")
        if dash and WEEKDAYS.index(start) > WEEKDAYS.index(end):
            raise _bad(f"the range {part} runs backwards", f"write {start}-sun,mon-{end}")


def _named(field: str) -> str | None:
    """The weekdays of a numeric field as cron reads it, where that is plain."""
    days = ("sun", *WEEKDAYS)
    match = re.fullmatch(r"([0-7])(?:-([0-7]))?", field)
    if match is None:
        return None
    return days[int(match[1])] + (f"-{days[int(match[2])]}" if match[2] else "")


ZONE = Reads(read_zone, {"type": "string", "examples": ["UTC", "Europe/Berlin"]})
DAY = Reads(read_day, {"type": "string", "format": "date"})
MOMENT = Reads(read_moment, {"type": "string", "examples": ["2027-01-31", "2027-01-31T08:00", "22:30"]})
QUIET = Reads(read_quiet, {"type": "string", "examples": ["22:00-07:00"]})
SCHEDULE = Reads(read_schedule, {"type": "string", "examples": ["0 9 * * mon-fri", "* 8-17 * * *"]})
