"""A reclaim from its notice to the resume: saved in time, gone, owed, and started again exactly once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.toys import BEGIN, Act, Fleet, kinds

from stoploss.engine.execution.cycle import Cycle, Tools
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import Found, Look, Order, Outcome, Refused, ResourceId, Sample
from stoploss.engine.people import People

PACK = """
version: 1
settings: {mode: enforce, limits: {share-of-population: 100%, actions-per-run: 100, gpus-per-run: 1000}}
include: [pack:spot]
"""
TICK, MINUTE = 5.0, 60.0
NOTICE = 120.0
"""Seconds between a notice and the end of the instance."""
JOB = ResourceId("job", "a")


class Crashed(BaseException):
    """Stands for a kill -9."""


@dataclass
class Spot(Fleet):
    """Job a on instance i, looked at every five seconds, and every minute once it is gone.

    Attributes:
        passed: seconds since the begin.
        state, reason: of the job.
        told: whether the instance has a notice now.
        gone: whether the instance is.
        stuck: whether a job that was queued again never gets there.
        tagged: whether the instance itself says whose it is; else a GPU tells its host, and that it.
    """

    passed: float = 0.0
    state: str = "running"
    reason: str = "none"
    told: bool = False
    gone: bool = False
    stuck: bool = False
    tagged: bool = True

    def now(self) -> datetime:
        """The instant of the clock."""
        return datetime.fromtimestamp(BEGIN + self.passed, UTC)

    def look(self, minutes: int | None = None) -> None:
        """See the job, and its instance as long as that is there."""
        at = BEGIN + self.passed
        state = self.state
        if (self.folder / "queued" / "a").exists() and not self.stuck:
            state = "queued"
        labels = {"class": "train", "user": "ann"}
        samples = [
            Sample(at, JOB, "job.state", state, labels),
            Sample(at, JOB, "job.exit_reason", self.reason if state == self.state else "none", labels),
        ]
        if not self.gone:
            instance = ResourceId("instance", "i")
            tags = {"job": "a"} if self.tagged else None
            samples.append(Sample(at, instance, "instance.reclaim_notices", float(self.told), tags))
            self.told = False
            if not self.tagged:
                gpu, host = ResourceId("gpu", "g"), ResourceId("host", "h")
                samples.append(Sample(at, gpu, "gpu.utilization", 0.9, {"job": "a", "host": "h"}))
                samples.append(Sample(at, host, "host.cpu.utilization", 0.9, {"instance": "i"}))
        self.buffer.add("gpu", Look(tuple(samples)), slot_time=at)

    def tools(self) -> Tools:
        """Those of a fleet, and what starts a job again."""
        tools = super().tools()
        return replace(tools, actions={**tools.actions, "resume": lambda: Again(self, "resume")})

    def live(self, cycle: Cycle, seconds: float, tick: float = TICK) -> Cycle:
        """Live through some time."""
        for _ in range(round(seconds / tick)):
            self.passed += tick
            self.look()
            cycle.step()
        return cycle

    def reclaimed(self) -> Cycle:
        """Run for six minutes, get a notice, and be taken back two minutes later."""
        cycle = self.live(self.cycle(PACK), 6 * MINUTE, MINUTE)
        self.told = True
        self.live(cycle, NOTICE, 4 * TICK)
        self.state, self.reason, self.gone = "ended", "preempted", True
        (self.folder / "running" / "a").rename(self.folder / "ended" / "a")
        return cycle

    def results(self, action: str, kind: str = "result") -> list[Entry]:
        """What came of an action, or was intended, in order."""
        entries = Ledger(self.url, environ={}).entries(kinds=(kind,))
        return [entry for entry in entries if entry.action == action]

    def approve(self) -> int:
        """Say yes to everything that is asked; how much it was."""
        people = People(Ledger(self.url, environ={}))
        asked = [item for item in people.requests() if item.wanted.action == "resume"]
        for item in asked:
            people.approve(item.id, who="ann", now=self.now())
        return len(asked)

    def calls(self, action: str) -> int:
        """How often an action has changed something."""
        return sum(line.startswith(action) for line in self.lines("calls"))


class Again(Act):
    """Queues a job again that has ended."""

    fleet: Spot

    def find(self, order: Order) -> Found:
        """The job as it ended."""
        if self._path(order, "running").exists():
            raise Refused("it runs")
        return Found(f"would queue {order.resource} again", {"file": order.resource.id})

    def act(self, order: Order, found: Found) -> Outcome:
        """Queue it once."""
        before = self.look(order, found)
        if before.state == "done":
            return before
        self.fleet.point()
        self.fleet.write("calls", f"resume {order.resource.id} {order.id}")
        self._path(order, "queued").touch()
        self.fleet.point()
        return self.look(order, found)

    def look(self, order: Order, found: Found) -> Outcome:
        """Whether it is queued."""
        queued = self._path(order, "queued").exists()
        return Outcome("done", "it is queued again") if queued else Outcome("undone", "it has ended")


@pytest.fixture
def spot(tmp_path: Path) -> Spot:
    """A job that runs on a spot instance."""
    made = Spot(tmp_path)
    made.start("a")
    (tmp_path / "queued").mkdir()
    return made


@pytest.mark.parametrize("tagged", [True, False])
def test_a_notice_is_answered_by_one_verified_snapshot_within_it(spot: Spot, tagged: bool) -> None:
    """At the notice the job is told of and saves, once, long before the instance goes; nothing is ended.

    An instance without a tag is that of the host of the job's GPUs.
    """
    spot.tagged = tagged
    cycle = spot.live(spot.cycle(PACK), 6 * MINUTE, MINUTE)
    noticed = spot.passed
    assert spot.lines("calls") == []
    spot.told = True
    spot.live(cycle, NOTICE)
    [saved] = spot.results("snapshot")

    assert saved.verdict == "done"
    assert saved.evidence is not None
    assert spot.lacks(saved.evidence["after"]["path"]) is None
    assert saved.at.timestamp() - BEGIN - noticed <= 2 * TICK
    assert kinds(spot.lines("calls")) == ["snapshot a"]
    assert spot.running() == ["a"]
    [intent] = spot.results("snapshot", "intent")
    assert intent.parameters["timeout"] < NOTICE


def test_the_snapshot_does_not_wait_for_its_alert(spot: Spot) -> None:
    """An owner who cannot be reached costs no work."""
    spot.undeliverable.add("owner")
    cycle = spot.live(spot.cycle(PACK), 6 * MINUTE, MINUTE)
    spot.told = True
    spot.live(cycle, NOTICE)

    assert [item.verdict for item in spot.results("snapshot")] == ["done"]


def test_without_a_notice_nothing_is_done(spot: Spot) -> None:
    """A spot instance that nobody wants back is left alone."""
    spot.live(spot.cycle(PACK), 12 * MINUTE, MINUTE)

    assert (spot.lines("calls"), spot.lines("told")) == ([], [])


def test_what_is_owed_is_resumed_once_after_an_approval(spot: Spot) -> None:
    """Owed half an hour it is told, asked for a quarter later, and resumed once when somebody says yes."""
    cycle = spot.reclaimed()
    spot.live(cycle, 50 * MINUTE, MINUTE)
    assert spot.approve() == 0
    spot.live(cycle, 20 * MINUTE, MINUTE)
    assert spot.calls("resume") == 0
    assert spot.approve() == 1
    spot.live(cycle, 30 * MINUTE, MINUTE)

    assert [item.verdict for item in spot.results("resume")] == ["done"]
    assert spot.calls("resume") == 1
    assert [item.policy.name for item in cycle.plan().findings if item.policy.name == "owed-a-resume"] == []


@pytest.mark.slow
def test_a_finding_that_lasts_on_resumes_nothing_again(spot: Spot) -> None:
    """A job that never gets to the queue stays owed, and is not started a second time."""
    spot.stuck = True
    cycle = spot.reclaimed()
    spot.live(cycle, 70 * MINUTE, MINUTE)
    assert spot.approve() == 1
    spot.live(cycle, 90 * MINUTE, MINUTE)

    assert spot.calls("resume") == 1
    assert any(item.policy.name == "owed-a-resume" for item in cycle.plan().findings)


@pytest.mark.slow
def test_a_restart_at_any_point_resumes_nothing_again(spot: Spot) -> None:
    """Started anew after the snapshot, while it is owed, asked, approved and done: still once of each."""
    spot.stuck = True
    spot.reclaimed()

    def restarted() -> Cycle:
        cycle = spot.cycle(PACK)
        cycle.reconcile()
        return cycle

    spot.live(restarted(), 40 * MINUTE, MINUTE)
    spot.live(restarted(), 30 * MINUTE, MINUTE)
    assert spot.approve() == 1
    for _ in range(3):
        spot.live(restarted(), 10 * MINUTE, MINUTE)

    assert (spot.calls("snapshot"), spot.calls("resume")) == (1, 1)
    assert Ledger(spot.url, environ={}).verify() == ()


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2])
def test_a_crash_while_it_is_resumed_resumes_once(spot: Spot, at: int) -> None:
    """Killed right before or right after the job was queued, it looks first: the job is queued once."""
    spot.stuck = True
    cycle = spot.reclaimed()
    spot.live(cycle, 70 * MINUTE, MINUTE)
    spot.approve()
    count = 0

    def crash() -> None:
        nonlocal count
        count += 1
        if count == at:
            raise Crashed

    spot.point = crash
    with pytest.raises(Crashed):
        spot.live(cycle, 5 * MINUTE, MINUTE)
    spot.point = lambda: None
    cycle = spot.cycle(PACK)
    cycle.reconcile()
    spot.live(cycle, 60 * MINUTE, MINUTE)

    assert spot.calls("resume") == 1
    assert [item.verdict for item in spot.results("resume")][-1] == "done"
