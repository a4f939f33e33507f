"""A disk that is full, and a state that another program holds: told, and nothing is destroyed or lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.months import Life, life
from support.toys import CHAIN, Fleet

from stoploss.engine import state_database, vitals
from stoploss.engine.execution.cycle import Cycle
from stoploss.engine.history import looks, store
from stoploss.engine.history.looks import LookStore
from stoploss.engine.ledger import Ledger


class Disk(Fleet):
    """A fleet whose state lies on a disk of its own."""

    disk = Path()

    @property
    def url(self) -> str:
        return f"sqlite:///{self.disk}/state.db"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk; skipped where none may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)]
    if os.getuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk cannot be mounted here; run as root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def busy_life(folder: Path, place: Path) -> Life:
    """A life in which jobs idle and are ended."""
    fleet = Disk(folder)
    fleet.disk = place
    one = life(fleet, 7, datetime(2026, 11, 10, 3, tzinfo=UTC))
    one.text = one.text.replace(
        '"https://night.example.org"', '"https://night.example.org", each: "mailto:{user}"'
    )
    return one


def fill(place: Path) -> Path:
    """Leave no room."""
    hole = place / "hole"
    with hole.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(b"\0" * 4096)
        except OSError:
            pass
    return hole


def acted(one: Life) -> list[str]:
    return one.fleet.lines("calls")


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path, disk: Path) -> None:
    """While nothing can be written nothing is done, and people are told, once; then it goes on."""
    one = busy_life(tmp_path, disk)
    for _ in range(40):
        one.pass_()
    hole = fill(disk)
    before, told = acted(one), len(one.fleet.lines("told"))
    problems = []
    for _ in range(8):
        with pytest.raises(AssertionError):
            one.pass_()
        assert one.service is not None
        problems.append(dict(one.service.vitals.problems))
    new = one.fleet.lines("told")[told:]
    assert all("disk" in item["state"] for item in problems)
    assert acted(one) == before
    assert [line.split(":")[0] for line in new] == ["firing people stoploss", "firing night stoploss"]
    hole.unlink()
    one.pass_()
    assert one.service is not None
    after = one.fleet.lines("told")[told + 2 :]

    assert one.service.vitals.problems == {}
    assert sum(line.startswith("resolved") and "stoploss:state" in line for line in after) == 2
    frame = one.service.history.frame(900.0)
    assert (frame.looks["gpu"][-9:] > 0).all()
    for _ in range(40):
        one.pass_()
    assert len(acted(one)) > len(before)
    assert one.service.ledger.verify() == ()
    kept = {look.at for look in LookStore(one.fleet.url, read_only=True).read()}
    assert kept
    one.kill()


@pytest.mark.slow
def test_another_program_holds_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held for longer than is waited: told, nothing is done meanwhile, and the next tick makes up for all."""
    one = busy_life(tmp_path, tmp_path)
    for _ in range(30):
        one.pass_()
    one.kill()
    # What is waited for is shortened; the program holds on four times as long.
    for module in (state_database, looks, store, vitals):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.5)
    one.start()
    holder = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    before = acted(one)
    for _ in range(4):
        with pytest.raises(AssertionError):
            one.pass_()
        assert one.service is not None
        assert "another program is writing to it" in one.service.vitals.problems["state"]
        assert "another program is writing to it" in one.service.vitals.problems["samples"]
    while_held = acted(one)
    holder.execute("ROLLBACK")
    holder.close()
    one.pass_()

    assert while_held == before
    assert one.service.vitals.problems == {}
    assert (one.service.history.frame(900.0).looks["gpu"][-5:] > 0).all()
    assert len({kept.at for kept in LookStore(one.fleet.url, read_only=True).read()}) >= 5
    one.kill()


def test_no_step_without_its_intent(tmp_path: Path) -> None:
    """Where the ledger cannot be written when a step is due nothing is touched."""
    fleet = Fleet(tmp_path)
    fleet.start("a", "b")
    cycle: Cycle = fleet.cycle(CHAIN)
    fleet.run(cycle, 8)
    before = fleet.lines("calls")
    ledger = Ledger(fleet.url, environ={})
    with ledger.writing() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER full BEFORE INSERT ON ledger_lines "
            "BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
        )
    for _ in range(10):
        fleet.minutes += 1
        fleet.look()
        with pytest.raises(Exception, match="the disk is full"):
            cycle.step()
    while_full = fleet.lines("calls")
    with ledger.writing() as connection:
        connection.exec_driver_sql("DROP TRIGGER full")
    fleet.run(cycle, 3)

    assert while_full == before
    assert sorted(line.split()[1] for line in fleet.lines("calls") if line.startswith("terminate")) == [
        "a",
        "b",
    ]
