"""A clock that is put forward or back while the daemon runs, and what is done at times of the wall."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support import months
from support.months import Life, life
from support.toys import BEGIN, CHAIN, Fleet, kinds

from stoploss.engine.ledger import Ledger

ACTIVE = "    active: {schedule: '%s', timezone: America/New_York}\n"


def leaping(folder: Path, leaps: dict[int, float], *, disturbed: bool = False) -> Life:
    """A day on a clock that leaps, from noon on."""
    folder.mkdir()
    one = life(Fleet(folder), 9, datetime(2026, 11, 10, 6, tzinfo=UTC))
    one.leaps = leaps
    draw = random.Random(4)

    def disturb() -> None:
        if disturbed and draw.random() < 0.06:
            one.kill()

    for _ in range(96):
        one.pass_(disturb)
    return one


@pytest.mark.slow
def test_put_forward_changes_nothing_for_restarts(tmp_path: Path) -> None:
    """Put forward by 15 minutes, and by three hours: restarts have no part in what comes of it."""
    leaps = {30: 900.0, 60: 10_800.0}
    whole = leaping(tmp_path / "whole", leaps)
    broken = leaping(tmp_path / "broken", leaps, disturbed=True)
    first, second = whole.told(), broken.told()

    assert broken.restarts > 3
    for name in ("calls", "again", "seen"):
        assert first[name] == second[name], name
    assert sorted(first["notices"]) == sorted(second["notices"])
    assert sorted(map(str, first["ledger"])) == sorted(map(str, second["ledger"]))
    assert first["calls"]
    whole.kill()
    broken.kill()


def test_put_back_what_was_settled_stays_so_after_a_restart(tmp_path: Path) -> None:
    """Put back by 37 minutes: what is seen meanwhile changes no slot that was settled before."""
    one = life(Fleet(tmp_path), 22, datetime(2027, 3, 24, 3, tzinfo=UTC))
    one.leaps = {20: -2220.0}

    def steps() -> list[float]:
        assert one.service is not None
        plane = one.service.history.store(months.STEP).read(last, last).planes["train.step"]
        return [value for value in plane.values[0].tolist() if value == value]

    for _ in range(19):
        one.pass_()
    assert one.service is not None
    last = one.service.history.store(months.STEP).last_slot or 0
    before = steps()
    for _ in range(5):
        one.pass_(one.kill)

    assert before
    assert steps() == before
    one.kill()


@pytest.mark.slow
@pytest.mark.parametrize("disturbed", [False, True], ids=["alone", "with-restarts"])
def test_put_back_decides_nothing_until_it_has_caught_up(tmp_path: Path, disturbed: bool) -> None:
    """Put back by two hours: it is told, nothing is ended meanwhile or twice, and then it goes on.

    Results cannot be those of a clock that was right: what is seen meanwhile is filed under times that were
    seen before, comes late, and is not evaluated.
    """
    folder = tmp_path / "life"
    folder.mkdir()
    one = life(Fleet(folder), 9, datetime(2026, 11, 10, 6, tzinfo=UTC))
    one.leaps = {40: -7200.0 - months.STEP}
    draw = random.Random(4)

    def disturb() -> None:
        if disturbed and draw.random() < 0.1:
            one.kill()

    for _ in range(39):
        one.pass_(disturb)
    before = kinds(one.fleet.lines("calls"))
    told = []
    for _ in range(8):
        one.pass_(disturb)
        assert one.service is not None
        told.append(one.service.vitals.problems.get("clock", ""))
    meanwhile = kinds(one.fleet.lines("calls"))[len(before) :]
    for _ in range(60):
        one.pass_(disturb)
    calls = one.fleet.lines("calls")

    assert all("it was put back" in words for words in told[:6])
    assert not [line for line in meanwhile if line.startswith("terminate")]
    assert one.service is not None
    assert "clock" not in one.service.vitals.problems
    assert one.fleet.lines("again") == []
    assert len({line.split()[2] for line in calls}) == len(calls)
    assert len(calls) > len(before)
    assert Ledger(one.fleet.url, read_only=True, environ={}).verify() == ()
    one.kill()


def once(folder: Path, first: datetime, schedule: str) -> tuple[Fleet, str]:
    """A job that idles since long, and a step at one time of the wall."""
    fleet = Fleet(folder, minutes=round((first.timestamp() - BEGIN) / 60.0))
    fleet.start("a")
    text = CHAIN.replace("    waste: 100%\n", ACTIVE % schedule).replace("{after: 2m}", "{}")
    return fleet, text.replace("      - terminate: {after: 4m}\n", "")


def test_P_B6_an_hour_that_does_not_come_is_not_lost(tmp_path: Path) -> None:
    """A time from 02:30 on, on the day without it in New York, is there when 03:00 comes, and acts once."""
    fleet = Fleet(
        tmp_path, minutes=round((datetime(2026, 3, 8, 6, 40, tzinfo=UTC).timestamp() - BEGIN) / 60.0)
    )
    fleet.start("a")
    active = '    active: {from: "02:30", until: "04:00", timezone: America/New_York}\n'
    text = CHAIN.replace("    waste: 100%\n", active).replace("{after: 2m}", "{}")
    cycle = fleet.cycle(text.replace("      - terminate: {after: 4m}\n", ""))
    fleet.run(cycle, 19)
    before = kinds(fleet.lines("calls"))
    fleet.run(cycle, 3)
    after = kinds(fleet.lines("calls"))
    fleet.run(cycle, 70)

    assert before == []
    assert after == ["snapshot a"]
    assert kinds(fleet.lines("calls")) == ["snapshot a"]


def test_P_B5_a_time_that_was_slept_through_acts_once_afterwards(tmp_path: Path) -> None:
    """Active from 19:00, busy until 20:04: it acts then, once, as the time lasts."""
    fleet = Fleet(
        tmp_path, minutes=round((datetime(2026, 12, 1, 23, 30, tzinfo=UTC).timestamp() - BEGIN) / 60.0)
    )
    fleet.start("a")
    active = '    active: {from: "19:00", until: "23:00", timezone: America/New_York}\n'
    text = CHAIN.replace("    waste: 100%\n", active).replace("{after: 2m}", "{}")
    cycle = fleet.cycle(text.replace("      - terminate: {after: 4m}\n", ""))
    fleet.run(cycle, 25)
    before = kinds(fleet.lines("calls"))
    # Nobody looked from 18:55 to 20:04.
    fleet.minutes += 69
    fleet.run(cycle, 10)

    assert before == []
    assert kinds(fleet.lines("calls")) == ["snapshot a"]


def test_P_B13_a_weekday_is_written_by_name(tmp_path: Path) -> None:
    """A number for a weekday is refused, and SUN is Sunday."""
    fleet, text = once(tmp_path, datetime(2026, 12, 6, 13, 50, tzinfo=UTC), "* 9 * * SUN")
    with pytest.raises(AssertionError):
        fleet.cycle(text.replace("SUN", "0"))
    cycle = fleet.cycle(text)
    fleet.run(cycle, 9)
    before = kinds(fleet.lines("calls"))
    fleet.run(cycle, 3)

    assert before == []
    assert kinds(fleet.lines("calls")) == ["snapshot a"]
