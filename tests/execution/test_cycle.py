"""A cycle stepped minute by minute over jobs that are files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from support.toys import BEGIN, CHAIN, MINUTE, Fleet, kinds, verdicts

from stoploss.engine.ledger import Ledger
from stoploss.engine.people import People


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Three idle jobs."""
    made = Fleet(tmp_path)
    made.start("a", "b", "c")
    return made


def ledger(fleet: Fleet) -> Ledger:
    """The ledger beside the fleet."""
    return Ledger(fleet.url, environ={})


def test_an_idle_job_is_told_of_then_saved_then_ended(fleet: Fleet) -> None:
    """Warned first, asked to save two minutes later, ended after two more; each once, and told once."""
    fleet.run(fleet.cycle(), 20)

    assert sorted(kinds(fleet.lines("calls"))) == sorted(
        f"{what} {job}" for job in "abc" for what in ("snapshot", "terminate")
    )
    assert all("saved=None" not in line for line in fleet.lines("calls") if line.startswith("terminate"))
    assert fleet.running() == []
    assert kinds(fleet.lines("told"))[0] == "firing owner"
    assert sum(line.startswith("firing") for line in fleet.lines("told")) == 1
    assert ledger(fleet).verify() == ()


def test_a_word_before_the_first_start_hinders_nothing(fleet: Fleet) -> None:
    """A state that another program began, to keep one of the jobs, has room for all that comes after."""
    said = ["keep", "a", "--for", "4h", "--reason", "it is needed", "--state", fleet.url]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    subprocess.run([sys.executable, "-m", "stoploss", *said], check=True, env=environment)
    fleet.minutes = round((time.time() - BEGIN) / MINUTE)
    fleet.run(fleet.cycle(), 20)

    assert sum(line.startswith("firing") for line in fleet.lines("told")) == 1
    assert fleet.running() == ["a"]


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_fresh_look_came_to_is_written_once(tmp_path: Path, restarted: bool) -> None:
    """A step that is stopped by what it sees right before is told of once, by whoever comes next too."""
    fleet = Fleet(tmp_path)
    fleet.start("a")
    text = CHAIN.replace("policies:", "protect: ['label.keep == \"true\"']\npolicies:")
    cycle = fleet.cycle(text)
    for _ in range(20):
        fleet.minutes += 1
        fleet.look()
        result = cycle.plan()
        if any(d.action == "terminate" and d.due and d.due <= result.at for d in result.decisions):
            fleet.labels["a"] = {"keep": "true"}
        cycle.step()
        cycle = fleet.cycle(text) if restarted else cycle
    lines = ledger(fleet).entries(kinds=("decision",))

    assert fleet.running() == ["a"]
    assert [line.verdict for line in lines if line.action == "terminate"] == ["held", "would", "blocked"]


def test_the_plan_is_what_is_then_carried_out(fleet: Fleet) -> None:
    """What a plan says would be done, with its parameters, is what the ledger says was done."""
    cycle = fleet.cycle()
    fleet.run(cycle, 7)
    planned = {
        (d.resource, d.step, d.action, d.target, tuple(sorted(d.parameters.items())))
        for d in cycle.plan().decisions
        if d.action != "alert"
    }
    fleet.run(cycle, 15)
    done = {
        (e.resource, (e.evidence or {})["step"], e.action, e.target, tuple(sorted(e.parameters.items())))
        for e in ledger(fleet).entries(kinds=("intent",))
        if e.action != "alert"
    }

    assert planned == done


def test_audit_and_warn_carry_out_no_step(fleet: Fleet) -> None:
    """In mode audit nobody is even told; in mode warn people are told and nothing else is done."""
    fleet.run(fleet.cycle(CHAIN.replace("mode: enforce", "mode: audit")), 20)
    assert (fleet.lines("calls"), fleet.lines("told")) == ([], [])
    written = [(e.action, e.verdict) for e in ledger(fleet).entries(kinds=("decision",))]
    assert ("terminate", "held") in written
    assert ledger(fleet).entries(kinds=("intent", "result")) == ()

    fleet.run(fleet.cycle(CHAIN.replace("mode: enforce", "mode: warn")), 20)
    assert fleet.lines("calls") == []
    assert kinds(fleet.lines("told")) == ["firing owner"]


def test_P_D9_a_snapshot_that_fails_holds_only_its_own_job(fleet: Fleet) -> None:
    """Of three one cannot save: it is not ended, the others are; the round says so, and somebody is told."""
    fleet.faults["snapshot", "b"] = "fail"
    steps = fleet.run(fleet.cycle(), 12)
    asked = next(item.round for item in steps if item.round.failed)

    assert fleet.running() == ["b"]
    assert fleet.saved() == ["a", "c"]
    assert asked.partial
    assert asked.words() == "2 of 3 steps done; job b: it says no"
    assert any("snapshot failed, so nothing more is done" in line for line in fleet.lines("told"))


def test_P_D11_a_step_that_applies_to_nothing_is_no_success(fleet: Fleet) -> None:
    """What says that it was done, and was not when looked at, is a failure with its reason: 0 of 3."""
    for job in "abc":
        fleet.faults["snapshot", job] = "lie"
    steps = fleet.run(fleet.cycle(), 10)
    tried = next(item.round for item in steps if item.round.failed)

    assert tried.words().startswith("0 of 3 steps done; job a: nothing was saved")
    assert fleet.running() == ["a", "b", "c"]


def test_P_D12_what_a_fresh_look_does_not_confirm_is_left_alone(fleet: Fleet) -> None:
    """A job that works again between the evaluation and the act is not ended."""
    cycle = fleet.cycle()
    fleet.run(cycle, 10)
    assert fleet.saved() == ["a", "b", "c"]
    fleet.minutes += 1
    fleet.look()
    # A minute passes until the look before the act, in which a works.
    fleet.minutes += 1
    fleet.busy = {"a"}
    did = cycle.step().round
    fleet.run(cycle, 10)

    assert [(item.resource.id, why) for item, why in did.skipped] == [
        ("a", "a fresh look does not find it any more")
    ]
    assert fleet.running() == ["a"]


def test_nobody_is_ended_whose_owner_was_not_reached(fleet: Fleet) -> None:
    """An alert that is not delivered holds what follows; delivered later, the time is waited from then."""
    fleet.undeliverable.add("owner")
    cycle = fleet.cycle()
    fleet.run(cycle, 20)
    assert fleet.lines("calls") == []
    assert "no connection" in next(
        d.why for d in cycle.plan().decisions if d.action == "terminate" and d.resource.id == "a"
    )

    fleet.undeliverable.clear()
    fleet.run(cycle, 2)
    assert fleet.saved() == []
    fleet.run(cycle, 4)
    assert fleet.running() == []


def test_what_breaks_off_is_not_done_again_by_itself(fleet: Fleet) -> None:
    """An act that raises may have done half: it is not tried again, and its words hold no secret."""
    fleet.faults["terminate", "a"] = "raise"
    cycle = fleet.cycle()
    fleet.run(cycle, 200)
    failed = [e for e in ledger(fleet).entries(kinds=("result",)) if e.action == "terminate"]

    assert fleet.running() == ["a"]
    assert sum(e.resource is not None and e.resource.id == "a" for e in failed) == 1
    assert "hunter2" not in "".join(str(e.why) for e in failed)


def test_a_failure_is_tried_again_later_and_not_for_ever(fleet: Fleet) -> None:
    """After 5 minutes, 15, an hour and 4 hours; then no more in this episode."""
    fleet.faults["terminate", "a"] = "fail"
    fleet.run(fleet.cycle(), 60)
    tries = [e for e in ledger(fleet).entries(kinds=("intent",)) if e.action == "terminate"]
    mine = [e.at for e in tries if e.resource is not None and e.resource.id == "a"]

    assert [later - first for first, later in pairwise(mine)] == [
        timedelta(minutes=5),
        timedelta(minutes=15),
    ]


def test_a_kept_job_is_not_ended_until_the_keep_is_over(fleet: Fleet) -> None:
    """`keep` holds what ends a job; afterwards it is ended."""
    with_people = People(ledger(fleet))
    with_people.keep("a", timedelta(minutes=30), who="ann", now=fleet.now(), reason="demo")
    cycle = fleet.cycle()
    fleet.run(cycle, 25)

    assert fleet.running() == ["a"]
    assert "kept until" in next(d.why for d in cycle.plan().decisions if d.action == "terminate")
    fleet.run(cycle, 10)
    assert fleet.running() == []


def test_a_pause_stops_everything_and_forgets_nothing(fleet: Fleet) -> None:
    """While paused nothing is done and nobody told; afterwards it goes on, and nobody is told twice."""
    cycle = fleet.cycle()
    fleet.run(cycle, 8)
    assert fleet.lines("told") != []
    told = list(fleet.lines("told"))
    People(ledger(fleet)).pause(who="ann", now=fleet.now(), reason="storage outage")
    fleet.run(cycle, 20)
    assert (fleet.running(), fleet.lines("told")) == (["a", "b", "c"], told)

    People(ledger(fleet)).resume(who="ann", now=fleet.now())
    fleet.run(cycle, 10)
    assert fleet.running() == []
    assert sum(line.startswith("firing owner stoploss:idle") for line in fleet.lines("told")) == 1


def test_an_approval_is_asked_once_and_lets_exactly_its_step_go(fleet: Fleet) -> None:
    """The question comes when the step is due and nothing else holds it, and is told with its commands."""
    text = CHAIN.replace("terminate: {after: 4m}", "terminate: {after: 4m, approve: required}")
    cycle = fleet.cycle(text)
    fleet.run(cycle, 20)
    requests = People(ledger(fleet)).requests()
    mine = next(item for item in requests if item.wanted.resource.id == "a")

    assert len(requests) == 3
    assert fleet.running() == ["a", "b", "c"]
    assert any("terminate needs a decision" in line or "3 firing" in line for line in fleet.lines("told"))
    People(ledger(fleet)).approve(mine.id, who="ann", now=fleet.now())
    fleet.run(cycle, 2)
    assert fleet.running() == ["b", "c"]


def test_a_rejection_holds_for_the_episode(fleet: Fleet) -> None:
    """What was rejected is neither done nor asked again."""
    text = CHAIN.replace("terminate: {after: 4m}", "terminate: {after: 4m, approve: required}")
    cycle = fleet.cycle(text)
    fleet.run(cycle, 15)
    for request in People(ledger(fleet)).requests():
        People(ledger(fleet)).reject(request.id, who="ann", now=fleet.now(), reason="paper")
    fleet.run(cycle, 60)

    assert fleet.running() == ["a", "b", "c"]
    assert len(People(ledger(fleet)).requests()) == 3
    assert verdicts(cycle.plan(), "terminate") == dict.fromkeys("abc", "blocked")


ASKING = CHAIN.replace(
    "      - alert: {to: owner}\n",
    "      - alert: {to: owner, require-ack: {within: 30m, then: [{snapshot: {}}, {terminate: {}}]}}\n",
).replace("      - snapshot: {after: 2m}\n      - terminate: {after: 4m}\n", "")


@pytest.mark.parametrize("answer", ["none", "approve", "reject"])
def test_an_answer_that_must_be_given(fleet: Fleet, answer: str) -> None:
    """Nobody answers: what follows is done in the end. Yes: at once. No: not in this episode."""
    cycle = fleet.cycle(ASKING)
    fleet.run(cycle, 15)
    assert fleet.running() == ["a", "b", "c"]
    for request in People(ledger(fleet)).requests():
        if answer == "approve":
            People(ledger(fleet)).approve(request.id, who="ann", now=fleet.now())
        elif answer == "reject":
            People(ledger(fleet)).reject(request.id, who="ann", now=fleet.now(), reason="carry on")
    fleet.run(cycle, 10)
    soon = fleet.running()
    fleet.run(cycle, 30)

    assert (soon, fleet.running()) == {
        "none": (["a", "b", "c"], []),
        "approve": ([], []),
        "reject": (["a", "b", "c"], ["a", "b", "c"]),
    }[answer]


def test_two_receivers_that_are_one_are_told_once(fleet: Fleet) -> None:
    """The owner is the team here: told once, and both of the step's receivers count as told."""
    text = CHAIN.replace("alert: {to: owner}", "alert: {to: [owner, vision]}")
    fleet.means["owner"] = "vision"
    fleet.run(fleet.cycle(text), 20)

    assert sum(line.startswith("firing") for line in fleet.lines("told")) == 1
    assert fleet.running() == []
