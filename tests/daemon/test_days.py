"""Days of a daemon that is killed, stopped and reloaded: what comes out is that of one that is not.

Two daemons live through the same days: the same jobs, failures of the collector, hours in which nothing
runs, the change to summer or winter time, and a clock that somebody puts forward or back. Only one of them
is killed, stopped and reloaded besides, some times a day, before a look or between it and its tick.

Compared are all calls of actions, all notices, every line of the ledger, and, at every fourth tick, what
an audit says: findings with their beginnings, evidence and money, what is unknown and why, the decisions
with their reasons, and the totals.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support import months
from support.months import Life, life
from support.toys import Fleet

from stoploss.daemon import service

DAYS = int(os.environ.get("STOPLOSS_DAYS", "12"))
"""The long run (`make test-long`) has 30."""
EACH = round(86_400 / months.STEP)


def sleeps(seed: int, steps: int) -> set[int]:
    """Steps in which nothing looks and nothing ticks, for both lives."""
    draw, at, found = random.Random(seed), 0, set[int]()
    while at < steps:
        at += draw.randint(20, 200)
        found |= set(range(at, at + draw.choice([1, 1, 2, 5, 12])))
    return found


def leaps(seed: int, steps: int) -> dict[int, float]:
    """Steps before which the clock is put, and by how many seconds, for both lives.

    Some two days lie between two of them, and each of the ways comes before any comes again.
    """
    draw, at, found = random.Random(seed), 0, dict[int, float]()
    ways = [300.0, -300.0, 2220.0, -2220.0, 10_800.0, -9000.0]
    while True:
        for way in draw.sample(ways, len(ways)):
            at += draw.randint(EACH, 3 * EACH)
            if at >= steps:
                return found
            found[at] = way


def lived(
    folder: Path, seed: int, begin: datetime, days: int, *, disturbed: bool
) -> tuple[Life, dict[str, Any]]:
    """A life, and all that came of it."""
    folder.mkdir()
    one = life(Fleet(folder), seed, begin)
    one.asleep = sleeps(seed + 1, days * EACH)
    one.leaps = leaps(seed + 3, days * EACH)
    draw = random.Random(seed + 2)

    def disturb() -> None:
        chance = draw.random()
        if chance < 0.04:
            one.kill()
        elif chance < 0.06:
            one.stop()
        elif chance < 0.08:
            one.edit()

    for _ in range(days * EACH):
        one.pass_(disturb if disturbed else lambda: None)
    told = one.told()
    one.kill()
    return one, told


def compared(told: dict[str, Any]) -> dict[str, Any]:
    """What must be the same; several notices of one tick, and their lines, may come in any order."""
    return {**told, "notices": sorted(told["notices"]), "ledger": sorted(map(str, told["ledger"]))}


def check(folder: Path, seed: int, begin: datetime, days: int) -> Life:
    """Live twice, and compare."""
    _, whole = lived(folder / "whole", seed, begin, days, disturbed=False)
    one, disturbed = lived(folder / "disturbed", seed, begin, days, disturbed=True)
    first, second = compared(whole), compared(disturbed)
    for name in first:
        assert first[name] == second[name], name
    assert whole["again"] == []
    assert len(whole["calls"]) > days
    return one


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "begin"),
    [(11, datetime(2026, 10, 22, 3, tzinfo=UTC)), (12, datetime(2027, 3, 20, 3, tzinfo=UTC))],
    ids=["clocks-go-back", "clocks-go-forward"],
)
def test_many_days(tmp_path: Path, seed: int, begin: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a change to summer or winter time, a clock that is put, and pruned slots, all is the same."""
    monkeypatch.setattr(months, "STEP", 1800.0)
    monkeypatch.setattr(months, "PLACES", 2)
    monkeypatch.setattr(months, "TEXT", months.TEXT.replace("resolution: 15m", "resolution: 30m"))
    monkeypatch.setattr(service, "CARRY_EVERY", timedelta(hours=1))
    monkeypatch.setitem(globals(), "EACH", 48)

    one = check(tmp_path, seed, begin, DAYS)

    assert one.restarts > 20
    assert one.edits > 6
    assert min(one.leaps.values()) < 0 < max(one.leaps.values())


@pytest.mark.slow
def test_a_day(tmp_path: Path) -> None:
    """As the many days, in short, and at a finer resolution."""
    one = check(tmp_path, 5, datetime(2026, 10, 24, 12, tzinfo=UTC), 1)

    assert one.restarts > 3
