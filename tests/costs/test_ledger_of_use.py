"""The ledger of use: nothing is lost, nothing counted twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.frames import PRICE, accrual_of, frame_of, of_job

from stoploss.engine.costs.goodput import classify, rows
from stoploss.engine.costs.ledger_of_use import LedgerOfUse, Line, lines_of
from stoploss.engine.history.frame import Frame
from stoploss.engine.history.store_errors import StoreError

ROOT = Path(__file__).parents[2]
LOAD = ("gpu", "g0", "gpu.utilization")
BY_JOB = ("job",)


def line(slot: int, job: str = "j", hours: float = 0.5, money: float | None = 2.0) -> Line:
    """Use in a slot."""
    return Line(
        slot, job, "t", None, "compute", "elastic", "allocated", "on-demand", "useful", "", hours, money
    )


def url(folder: Path) -> str:
    """A ledger in a folder."""
    return f"sqlite:///{folder / 'use.db'}"


def record(ledger: LedgerOfUse, frame: Frame) -> None:
    """Write all slots of a frame."""
    accrual = accrual_of(frame)
    ledger.record(frame.first, frame.last, lines_of(rows(accrual, classify(accrual)), frame.first))


def test_a_line_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Also one without a price, and after opening anew."""
    written = (line(1), line(1, "k", 0.25, None), line(2))
    ledger = LedgerOfUse(url(tmp_path), 60.0)
    ledger.record(1, 3, written)
    ledger.close()
    again = LedgerOfUse(url(tmp_path), 60.0)

    assert again.lines(0, 9) == written
    assert again.last_slot == 3
    assert again.totals(0, 9, BY_JOB) == {("j",): (1.0, 4.0), ("k",): (0.25, 0.0)}
    again.close()


def test_a_slot_that_is_written_again_counts_once(tmp_path: Path) -> None:
    """What stood there is replaced, in that slot only."""
    ledger = LedgerOfUse(url(tmp_path), 60.0)
    ledger.record(1, 2, [line(1), line(2)])
    ledger.record(2, 2, [line(2, hours=0.75, money=3.0)])

    assert ledger.totals(0, 9, BY_JOB) == {("j",): (1.25, 5.0)}
    ledger.close()


def test_a_line_outside_the_slots_is_refused(tmp_path: Path) -> None:
    """Nothing is written then."""
    ledger = LedgerOfUse(url(tmp_path), 60.0)
    with pytest.raises(ValueError, match="slot 7 lies outside"):
        ledger.record(1, 2, [line(1), line(7)])

    assert ledger.last_slot is None
    ledger.close()


def test_slots_of_another_length_are_refused(tmp_path: Path) -> None:
    """The message says both lengths."""
    LedgerOfUse(url(tmp_path), 60.0).close()

    with pytest.raises(StoreError, match="slots of 60 s, not of 30 s"):
        LedgerOfUse(url(tmp_path), 30.0)


def test_a_hole_that_closes_is_written_with_its_use(tmp_path: Path) -> None:
    """Recorded tick by tick, an hour without data is paid once the GPU is seen again."""
    load = [0.9] * 10 + [None] * 60 + [0.9] * 10
    ledger = LedgerOfUse(url(tmp_path), 60.0)
    totals = []
    for until in (10, 40, 80):
        record(ledger, frame_of({LOAD: load}, of_job(), until=until))
        totals.append(ledger.totals(0, 2**40, BY_JOB)["j",])

    assert [hours for hours, _ in totals] == pytest.approx([10 / 60, 10 / 60, 80 / 60])
    assert totals[-1][1] == pytest.approx(80 / 60 * PRICE)
    ledger.close()


def test_the_ledger_adds_up_to_the_frame(tmp_path: Path) -> None:
    """By goodput class and by category the sums are those of what accrued."""
    series = {LOAD: [0.9] * 30 + [0.0] * 30, ("job", "j", "train.step"): [*range(1, 31), *([30] * 30)]}
    ledger = LedgerOfUse(url(tmp_path), 60.0)
    record(ledger, frame_of(series, of_job()))
    hours = {name: found for (name,), (found, _) in ledger.totals(0, 2**40, ("goodput",)).items()}

    assert hours == {"useful": pytest.approx(0.5), "idle": pytest.approx(0.5)}
    categories = ledger.totals(0, 2**40, ("category",))
    assert {name: money for (name,), (_, money) in categories.items()} == {
        "compute": pytest.approx(2.0),
        "hidden": pytest.approx(2.0),
    }
    ledger.close()


CRASHES = """
import os, random, signal, sys, time
from stoploss.engine.costs.ledger_of_use import LedgerOfUse, Line

url, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
SLOTS = 1500

def lines(slot):
    return [
        Line(slot, f"j{n}", "t", None, "compute", "elastic", "allocated", "on-demand", "useful", "", 0.25,
             round(0.01 * (slot % 97) + n, 2))
        for n in range(3)
    ]

def work(begun=None):
    ledger = LedgerOfUse(url, 60.0)
    while True:
        last = ledger.last_slot or 0
        if last >= SLOTS and begun is None:
            return
        # Goes on where the ledger ends, and writes some slots of before once more.
        first, end = max(1, last - 3), min(SLOTS, last + 2)
        ledger.record(first, end, [line for slot in range(first, end + 1) for line in lines(slot)])
        if begun is not None:
            os.write(begun, b".")

# What is slow at first is done once, so that the kills hit the writing.
LedgerOfUse(url, 60.0).close()
reached = set()
for trial in range(kills):
    children, (heard, begun) = [], os.pipe()
    for _ in range(1 + trial % 2):  # every other time two at once
        child = os.fork()
        if not child:
            work(begun)
        children.append(child)
    # Each has begun to write before its moment comes.
    os.read(heard, 1)
    time.sleep(rng.uniform(0.0, 0.01))
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(heard)
    os.close(begun)
    ledger = LedgerOfUse(url, 60.0)
    reached.add(ledger.last_slot)
    ledger.close()
assert len(reached) > kills // 8, reached
work()
ledger = LedgerOfUse(url, 60.0)
hours, money = ledger.totals(0, 10**9, ("team",))["t",]
oracle = sum(line.money for slot in range(1, SLOTS + 1) for line in lines(slot))
assert len(ledger.lines(0, 10**9)) == 3 * SLOTS, len(ledger.lines(0, 10**9))
assert hours == 0.75 * SLOTS, hours
assert round(money, 2) == round(oracle, 2), (money, oracle)
print("whole")
"""


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_kill_9_at_any_moment_neither_loses_nor_doubles(tmp_path: Path, kills: int) -> None:
    """Programs that write, one or two at a time, are killed again and again; the sum is right to the cent."""
    done = subprocess.run(
        [sys.executable, "-c", CRASHES, url(tmp_path), str(kills), "1"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        check=False,
    )

    assert done.stdout == "whole\n", done.stderr
