"""What the host collector makes of psutil's tuples and the kernel's texts, on typed-in ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoploss.collectors import host_readings as readings
from stoploss.collectors import host_texts as texts
from stoploss.collectors.host_texts import Throttling, Unparsable
from stoploss.engine.model import Bad

AT = 1_700_000_040.0

CpuTimes: Any = type(psutil.cpu_times())
Memory: Any = type(psutil.virtual_memory())

BEFORE = CpuTimes(1.0, 0.0, 0.5, 8.0, 0.4, 0.0, 0.1, 0.05, 0.03, 0.0)

PRESSURE = (
    "some avg10=12.50 avg60=0.90 avg300=0.21 total=2624630\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=0\n"
)
THROTTLED = "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 200\nnr_throttled 50\nthrottled_usec 7\n"

PARSERS = {
    texts.parse_oom_kills: "pgfault 12\noom_kill 3\nnuma_hit 4\n",
    texts.parse_pressure: PRESSURE,
    texts.parse_throttling: THROTTLED,
}


def test_cpu_shares_cover_the_time_between_two_readings() -> None:
    """Utilization leaves out idle, I/O wait and steal; guest time is a part of user time."""
    now = CpuTimes(1.4, 0.0, 0.6, 8.3, 0.6, 0.0, 0.1, 0.15, 0.4, 0.0)

    shares = readings.cpu_shares(BEFORE, now)

    assert shares == {
        "host.cpu.utilization": pytest.approx(0.5 / 1.1),
        "host.cpu.steal": pytest.approx(0.1 / 1.1),
        "host.io_wait": pytest.approx(0.2 / 1.1),
    }


def test_an_io_wait_that_steps_back_is_no_negative_share() -> None:
    """The kernel may count I/O wait back a little; the share is then 0."""
    shares = readings.cpu_shares(BEFORE, BEFORE._replace(user=1.5, iowait=0.3))

    assert shares["host.io_wait"] == 0.0
    assert shares["host.cpu.utilization"] == 1.0


@pytest.mark.parametrize("now", [BEFORE, BEFORE._replace(user=0.0)])
def test_cpu_times_that_stand_still_or_go_back_are_bad(now: Any) -> None:
    """Without advancing CPU times there is no share rather than 0."""
    shares = readings.cpu_shares(BEFORE, now)

    assert set(shares.values()) == {Bad("the CPU times did not advance")}


def test_a_share_needs_both_readings() -> None:
    """A reading that failed spoils the shares that need it, with its reason."""
    denied = Bad("denied")
    alone = Bad("needs two readings, and the one before failed: denied")

    assert set(readings.cpu_shares(BEFORE, denied).values()) == {denied}
    assert set(readings.cpu_shares(denied, BEFORE).values()) == {alone}
    assert readings.throttled(Throttling(1, 1), denied) == denied
    assert readings.throttled(denied, Throttling(1, 1)) == alone


def test_throttling_is_the_share_of_periods() -> None:
    """Periods held back are set against all; no periods at all are 0, a reset is bad."""
    assert readings.throttled(Throttling(200, 50), Throttling(210, 54)) == 0.4
    assert readings.throttled(Throttling(0, 0), Throttling(0, 0)) == 0.0
    assert readings.throttled(Throttling(200, 50), Throttling(3, 1)) == Bad(
        "cgroup cpu.stat: the counters were reset"
    )


def test_memory_used_is_what_programs_cannot_have() -> None:
    """Total less available is used, whatever else psutil calls used."""
    found = Memory(1000, 250, 0.0, 500, 100, *[0] * (len(Memory._fields) - 5))

    assert list(readings.memory(found).values()) == [1000.0, 750.0, 0.75]


@pytest.mark.parametrize(("total", "available"), [(0, 0), (1000, 1001), (1000, -1)])
def test_impossible_memory_is_bad(total: int, available: int) -> None:
    """No memory at all, or more available than there is, is bad and never a share."""
    found = Memory(total, available, *[0] * (len(Memory._fields) - 2))

    assert set(readings.memory(found).values()) == {Bad(f"{available} of {total} bytes of memory available")}


def test_disks_are_whole_disks() -> None:
    """Only whole disks are added up; where there are none there is no reading."""
    disk, part = SimpleNamespace(read_bytes=10, write_bytes=7), SimpleNamespace(read_bytes=9, write_bytes=6)
    found: Any = {"sda": disk, "sda1": part, "nvme0n1": disk, "dm-0": disk}

    assert readings.disks(found, {"sda", "nvme0n1", "sdz"}) == {
        "host.disk.read": 20.0,
        "host.disk.written": 14.0,
    }
    assert set(readings.disks(found, ()).values()) == {Bad("no counters of any whole disk")}


def test_uptime_counts_from_the_boot_to_the_look() -> None:
    """Uptime is the time since boot; a boot after the look is a bad reading."""
    assert readings.uptime(AT - 60, AT) == 60.0
    assert readings.uptime(AT + 1, AT) == Bad("the boot lies after the look")


def test_what_psutil_cannot_tell_is_bad() -> None:
    """A count that psutil gives as None is a bad reading, never 0."""
    assert readings.number(None) == Bad("the system does not tell")
    assert readings.number(2) == 2.0


def test_small_texts_are_read() -> None:
    """OOM kills, pressure and throttling are read from their files."""
    assert texts.parse_oom_kills("oom_kill_disabled 1\noom_kill 3\n") == 3
    assert texts.parse_pressure(PRESSURE) == 0.125
    assert texts.parse_throttling(THROTTLED) == Throttling(200, 50)


def test_a_group_without_a_limit_has_no_periods() -> None:
    """A control group without a CPU limit counts no periods and is not throttled."""
    assert texts.parse_throttling("usage_usec 9\nuser_usec 5\n") == Throttling(0, 0)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (texts.parse_oom_kills, "pgfault 12\n"),
        (texts.parse_oom_kills, "oom_kill \n"),
        (texts.parse_pressure, "full avg10=1.00 avg60=0.00 avg300=0.00 total=0\n"),
        (texts.parse_pressure, "some avg10=250.00 avg60=0.00 avg300=0.00 total=0\n"),
        (texts.parse_pressure, "some avg10="),
        (texts.parse_throttling, ""),
        (texts.parse_throttling, "nr_periods 10\n"),
        (texts.parse_throttling, "nr_periods ten\nnr_throttled 0\n"),
        (texts.parse_throttling, "nr_periods\n"),
    ],
)
def test_texts_cut_short_or_odd_are_refused_P_A5(parse: Callable[[str], object], text: str) -> None:
    """What is cut short or is no number is refused, and never read as 0."""
    with pytest.raises(Unparsable):
        parse(text)


@given(parse=st.sampled_from(list(PARSERS)), cut=st.integers(0, 200), garbage=st.text(max_size=30))
def test_no_text_breaks_a_parser(parse: Callable[[str], object], cut: int, garbage: str) -> None:
    """A whole text is read; cut anywhere and continued with anything it is read or refused, no more."""
    whole = PARSERS[parse]
    parse(whole)

    with contextlib.suppress(Unparsable):
        parse(whole[:cut] + garbage)
