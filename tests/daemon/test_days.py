"""Days of a daemon that is killed, stopped and reloaded: what comes out is that of one that is not."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support import months
from support.months import Life, life
from support.toys import Fleet

from stoploss.daemon import service

DAYS = 12
EACH = round(86_400 / months.STEP)


def sleeps(seed: int, steps: int) -> set[int]:
    """Steps in which nothing looks and nothing ticks, for both lives."""
    draw, at, found = random.Random(seed), 0, set[int]()
    while at < steps:
        at += draw.randint(20, 200)
        found |= set(range(at, at + draw.choice([1, 1, 2, 5, 12])))
    return found


def lived(
    folder: Path, seed: int, begin: datetime, days: int, *, disturbed: bool
) -> tuple[Life, dict[str, Any]]:
    """A life, and all that came of it."""
    folder.mkdir()
    one = life(Fleet(folder), seed, begin)
    one.asleep = sleeps(seed + 1, days * EACH)
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
    """What must be the same; several notices of one tick, and their lines, may come in any order.

    What would have been decided at the end of a slot that was only evaluated later (it is written with the
    instant of that end, and not of a tick) was never carried out, and is not told by who starts after it.
    """
    lines = [str(line) for line in told["ledger"] if line[1] != "decision" or ticked(line[0])]
    return {**told, "notices": sorted(told["notices"]), "ledger": sorted(lines)}


def ticked(instant: str) -> bool:
    """Whether something bears the instant of a tick."""
    return bool(datetime.fromisoformat(instant).second)


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
def test_twelve_days(tmp_path: Path, seed: int, begin: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a change of the clocks, with slots pruned, all findings, acts and money are the same."""
    monkeypatch.setattr(months, "STEP", 1800.0)
    monkeypatch.setattr(months, "PLACES", 2)
    monkeypatch.setattr(months, "TEXT", months.TEXT.replace("resolution: 15m", "resolution: 30m"))
    monkeypatch.setattr(service, "CARRY_EVERY", timedelta(hours=1))
    monkeypatch.setitem(globals(), "EACH", 48)

    one = check(tmp_path, seed, begin, DAYS)

    assert one.restarts > 20
    assert one.edits > 6


@pytest.mark.slow
def test_a_day(tmp_path: Path) -> None:
    """As the twelve days, in short, and at a finer resolution."""
    one = check(tmp_path, 5, datetime(2026, 10, 24, 12, tzinfo=UTC), 1)

    assert one.restarts > 3
