"""Times of day, days and cron fields, inside and outside, with both changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from stoploss.engine.planning.schedule import maintenance, matches, quiet_until, why_outside

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


@pytest.mark.parametrize(
    ("window", "when", "why"),
    [
        ({"from": "2026-12-02"}, "2026-12-01T23:59", "not yet active: from 2026-12-02"),
        ({"from": "2026-12-02"}, "2026-12-02T00:00", None),
        ({"from": "2026-12-02", "timezone": BERLIN}, "2026-12-01T23:30", None),
        (
            {"from": "2026-12-02T08:00+01:00"},
            "2026-12-02T06:59",
            "not yet active: from 2026-12-02T08:00+01:00",
        ),
        ({"until": "2026-12-02"}, "2026-12-02T23:59", None),
        ({"until": "2026-12-02"}, "2026-12-03T00:00", "no longer active: until 2026-12-02"),
        ({"until": "2026-12-02T08:00"}, "2026-12-02T08:00", "no longer active: until 2026-12-02T08:00"),
        ({"from": "08:00", "until": "18:00"}, "2026-12-02T08:00", None),
        ({"from": "08:00", "until": "18:00"}, "2026-12-02T18:00", "not active at 18:00: 08:00 to 18:00"),
        ({"from": "22:00", "until": "06:00"}, "2026-12-02T05:59", None),
        ({"from": "22:00", "until": "06:00"}, "2026-12-02T21:59", "not active at 21:59: 22:00 to 06:00"),
        ({"from": "08:00"}, "2026-12-02T07:59", "not active at 07:59: 08:00 to 24:00"),
        ({"schedule": "* 9-17 * * mon-fri"}, "2026-12-04T17:59", None),
        (
            {"schedule": "* 9-17 * * mon-fri"},
            "2026-12-05T12:00",
            "not active at Sat 12:00: schedule * 9-17 * * mon-fri",
        ),
    ],
)
def test_an_instant_lies_inside_or_outside(window: dict[str, str], when: str, why: str | None) -> None:
    """Days begin and end in the window's zone, and the last day is part of it."""
    assert why_outside(window, at(when), "UTC") == why


def test_P_B10_aware_and_naive_times_in_one_set() -> None:
    """A start with an offset and an end without one are both read, each as what it says."""
    window = {"from": "2026-12-01T08:00+01:00", "until": "2026-12-01T18:00"}

    assert why_outside(window, at("2026-12-01T07:00"), BERLIN) is None
    assert why_outside(window, at("2026-12-01T06:59"), BERLIN) is not None
    assert why_outside(window, at("2026-12-01T16:59"), BERLIN) is None
    assert why_outside(window, at("2026-12-01T17:00"), BERLIN) is not None


@pytest.mark.parametrize(
    ("schedule", "when", "hit"),
    [
        ("*/15 * * * *", "2026-12-01T10:45", True),
        ("*/15 * * * *", "2026-12-01T10:46", False),
        ("5/10 * * * *", "2026-12-01T10:25", True),
        ("0-30/5 * * jan,dec *", "2026-12-01T10:30", True),
        ("0-30/5 * * jan *", "2026-12-01T10:30", False),
        ("* * 1 * fri", "2026-12-01T10:30", True),
        ("* * 2 * fri", "2026-12-01T10:30", False),
        ("* * */2 * tue", "2026-12-02T10:30", False),
        ("* * * * sat-sun", "2026-12-06T10:30", True),
    ],
)
def test_cron_fields_match_minutes(schedule: str, when: str, hit: bool) -> None:
    """Steps, ranges, names, and a day of month and a weekday of which either will do."""
    assert matches(schedule, at(when)) is hit


@pytest.mark.parametrize(
    ("quiet", "now", "end"),
    [
        ("22:00-07:00", "2026-12-01T21:59+01:00", None),
        ("22:00-07:00", "2026-12-01T22:00+01:00", "2026-12-02T07:00+01:00"),
        ("22:00-07:00", "2026-12-02T07:00+01:00", None),
        # The clock leaps from 02:00 to 03:00: a quiet time until 02:30 ends where it lands.
        ("22:00-02:30", "2026-03-29T01:30+01:00", "2026-03-29T03:00+02:00"),
        ("22:00-07:00", "2026-03-28T23:00+01:00", "2026-03-29T07:00+02:00"),
        # It goes back from 03:00 to 02:00: the night is an hour longer.
        ("22:00-07:00", "2026-10-24T23:00+02:00", "2026-10-25T07:00+01:00"),
    ],
)
def test_a_quiet_time_ends_by_the_wall_clock(quiet: str, now: str, end: str | None) -> None:
    """On the days on which the clock is changed as well."""
    expected = None if end is None else datetime.fromisoformat(end).astimezone(UTC)

    assert quiet_until(quiet, datetime.fromisoformat(now), BERLIN) == expected


def test_a_daily_window_is_an_hour_shorter_and_longer_at_the_changes() -> None:
    """01:00 to 04:00 in Berlin has 2, 4 and 3 hours in spring, in autumn and else."""
    window = {"from": "01:00", "until": "04:00", "timezone": BERLIN}

    def minutes(day: str) -> int:
        start = at(day, BERLIN).astimezone(UTC)
        return sum(
            why_outside(window, start + timedelta(minutes=n), "UTC") is None for n in range(0, 1380, 30)
        )

    assert [minutes(day) / 2 for day in ("2026-03-29", "2026-10-25", "2026-12-01")] == [2, 4, 3]


def test_maintenance_says_until_when_and_why() -> None:
    """The first window that holds the instant is told."""
    windows = ({"from": "2026-12-02", "until": "2026-12-03", "reason": "move"}, {"schedule": "* * * * sun"})

    assert maintenance(windows, at("2026-12-02T10:00"), "UTC") == "maintenance until 2026-12-03: move"
    assert maintenance(windows, at("2026-12-06T10:00"), "UTC") == "maintenance"
    assert maintenance(windows, at("2026-12-07T10:00"), "UTC") is None
