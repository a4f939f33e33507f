"""A real process is killed with SIGKILL at each place of every chain, and another takes up its work."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection
from support.toys import Fleet

from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry

MINUTES = 16
CRASHED = -signal.SIGKILL


class Crash:
    """Ends this process at the n-th place that it passes; without a number it counts them."""

    def __init__(self, at: int | None, counter: Path) -> None:
        self.at, self.passed, self.counter = at, 0, counter

    def __call__(self) -> None:
        """Pass a place."""
        self.passed += 1
        if self.passed == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def tell(self) -> None:
        """Write down how many places were passed."""
        self.counter.write_text(str(self.passed))


def guarded_ledger(crash: Crash, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each line of the ledger, and each end of a transaction, be a place."""
    append, writing = Ledger.append_within, Ledger.writing

    def appended(self: Ledger, connection: Connection, entry: Entry) -> Entry:
        crash()
        out = append(self, connection, entry)
        crash()
        return out

    @contextmanager
    def written(self: Ledger) -> Iterator[Connection]:
        with writing(self) as connection:
            yield connection
        crash()

    monkeypatch.setattr(Ledger, "append_within", appended)
    monkeypatch.setattr(Ledger, "writing", written)


def live(folder: Path, begin: int, crash_at: int | None) -> int:
    """Live through the minutes from `begin` on in a process of its own; returns how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        crash = Crash(crash_at, folder / "places")
        fleet = Fleet(folder, point=crash, minutes=begin)
        patch = pytest.MonkeyPatch()
        for minute in range(begin + 1):
            # What was seen before the restart is seen again from its store.
            fleet.look(minute)
        guarded_ledger(crash, patch)
        cycle = fleet.cycle()
        cycle.reconcile()
        for minute in range(begin, MINUTES):
            (folder / "minute").write_text(str(minute))
            fleet.run(cycle, 1)
        crash.tell()
        os._exit(0)
    except BaseException as error:
        (folder / "error").write_text(repr(error))
        os._exit(1)


def places(folder: Path) -> int:
    """How many places a run without a crash passes."""
    fleet = Fleet(folder)
    fleet.start("a", "b")
    assert live(folder, 0, None) == 0, (folder / "error").read_text()
    return int((folder / "places").read_text())


def survived(folder: Path, crashes: Iterator[int]) -> Fleet:
    """A run that is killed at the given places, each counted from the last start, and started again."""
    fleet = Fleet(folder)
    fleet.start("a", "b")
    begin = 0
    for at in crashes:
        status = live(folder, begin, at)
        assert status in (0, CRASHED), (folder / "error").read_text()
        if status == 0:
            return fleet
        begin = int((folder / "minute").read_text()) if (folder / "minute").exists() else 0
    assert live(folder, begin, None) == 0, (folder / "error").read_text()
    return fleet


def faults(fleet: Fleet, crashes: int) -> list[str]:
    """What is not as it should be after so many crashes."""
    ledger = Ledger(fleet.url, read_only=True, environ={})
    calls = [line.split() for line in fleet.lines("calls")]
    told = Counter(line.split(": ")[0] for line in fleet.lines("told") if line.startswith("firing"))
    ended_at = {job: at for at, (what, job, *_) in enumerate(calls) if what == "terminate"}
    saved_at = {job: at for at, (what, job, *_) in enumerate(calls) if what == "snapshot"}
    found = [f"done twice: {line}" for line in fleet.lines("again")]
    found += [f"ended unsaved: {job}" for job, at in ended_at.items() if saved_at.get(job, at) >= at]
    found += [str(fault) for fault in ledger.verify()]
    found += [f"still open: {entry.seq}" for entry in ledger.open_intents()]
    # Only where a crash comes right after a delivery is it told once more, under the same key.
    found += [f"told {count} times: {key}" for key, count in told.items() if count > 1 + crashes]
    if fleet.running():
        found.append(f"still running: {fleet.running()}")
    ledger.close()
    return found


@pytest.mark.slow
def test_killed_in_the_middle_the_work_is_taken_up(tmp_path: Path) -> None:
    """Killed at a place of the snapshot, of the end and of the alert: nothing twice, nothing unsaved."""
    (tmp_path / "whole").mkdir()
    count = places(tmp_path / "whole")
    assert count > 50
    for at in range(7, count, count // 8):
        folder = tmp_path / str(at)
        folder.mkdir()

        assert faults(survived(folder, iter([at])), 1) == [], at


@pytest.mark.slow
def test_killed_at_every_place(tmp_path: Path) -> None:
    """At each place once, and 120 times at two or three places drawn by chance."""
    (tmp_path / "whole").mkdir()
    count = places(tmp_path / "whole")
    draw = random.Random(5)
    runs = [[at] for at in range(1, count + 1)]
    runs += [[draw.randint(1, count) for _ in range(draw.randint(2, 3))] for _ in range(120)]
    for number, crashes in enumerate(runs):
        folder = tmp_path / str(number)
        folder.mkdir()

        assert faults(survived(folder, iter(crashes)), len(crashes)) == [], crashes
