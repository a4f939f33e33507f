"""After a step that should save: money per step is watched, told and, where it is dearer, taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.toys import Act
from support.watched import SMALLER, Stepping

from stoploss.engine.execution import watch
from stoploss.engine.execution.undoing import undo
from stoploss.engine.history.store_errors import StoreError
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import Found, Order, Outcome, ResourceId
from stoploss.engine.people import People

DAY = 24 * 60


@pytest.fixture
def jobs(tmp_path: Path) -> Stepping:
    """One job that is less than half as fast when it is smaller, at the same price."""
    made = Stepping(tmp_path, factor=0.4)
    made.start("a")
    return made


def ledger(jobs: Stepping) -> Ledger:
    """The ledger beside the jobs."""
    return Ledger(jobs.url, environ={})


def intent(jobs: Stepping) -> Entry:
    """The line before the job was made smaller."""
    [found] = [e for e in ledger(jobs).entries(kinds=("intent",)) if e.action == "downscale"]
    return found


def test_the_pace_before_an_act_is_in_its_line(jobs: Stepping) -> None:
    """Two GPUs at $2 and 100 steps a minute, over the hour before."""
    jobs.act()
    pace = intent(jobs).evidence["pace"]

    assert (pace["job"], pace["per_hour"], pace["steps_per_hour"]) == ("a", 4.0, 6000.0)
    assert (pace["seconds"], pace["currency"], pace["missing"]) == (3600.0, "USD", "")


def test_the_pace_of_a_gpu_is_that_of_its_job(jobs: Stepping) -> None:
    """A GPU that is about to be capped: its job's two GPUs and steps, not its own half."""
    text = SMALLER.replace("each: job", "each: gpu").replace("replicas: 1", "power-cap: 300W")
    cycle = jobs.cycle(text)
    jobs.live(cycle, 60, every=60)
    paces = cycle.plan().paces

    assert {(str(name), pace.job, pace.per_hour) for name, pace in paces.items()} == {
        ("gpu a/0", "a", 4.0),
        ("gpu a/1", "a", 4.0),
    }
    assert all(pace.steps_per_hour == pytest.approx(6000.0) for pace in paces.values())


def test_a_step_that_makes_it_dearer_is_taken_back_once(jobs: Stepping) -> None:
    """Not before two looks after half an hour agree; then at once, with what was promised and got."""
    cycle = jobs.act()
    jobs.live(cycle, 28)
    assert (jobs.undone(), jobs.notes()) == ([], [])
    jobs.live(cycle, 12)
    [note] = jobs.notes()

    assert (jobs.undone(), jobs.smaller()) == (["a"], [])
    assert note.promised == pytest.approx(2.0)
    assert note.got == pytest.approx(4.0 * 0.4 - 4.0)
    assert (note.currency, note.evidence["state"], note.evidence["line"]) == (
        "USD",
        "backfired",
        intent(jobs).seq,
    )
    assert note.evidence["pace_now"]["steps_per_hour"] == pytest.approx(2400.0)
    assert (note.why or "").startswith("promised $2.00/h, got -$2.40/h: ")
    [back] = [e for e in ledger(jobs).entries(kinds=("intent",)) if e.action == "undo"]
    assert (back.who, back.why) == ("stoploss", f"it backfired: {note.why}")

    jobs.live(cycle, DAY, every=60)
    assert (jobs.undone(), len(jobs.notes()), jobs.warned()) == (["a"], 1, [])
    assert ledger(jobs).verify() == ()


def test_what_backfired_is_not_done_again_in_a_later_episode(jobs: Stepping) -> None:
    """The job works for a while and is idle once more: the plan refuses the step, and says why."""
    cycle = jobs.act()
    jobs.live(cycle, 40)
    jobs.busy = {"a"}
    jobs.live(cycle, 30)
    jobs.busy = set()
    jobs.live(cycle, 90)
    [decision] = [item for item in cycle.plan().decisions if item.action == "downscale"]

    assert sum(line.startswith("downscale") for line in jobs.lines("calls")) == 1
    assert decision.verdict == "blocked"
    assert f"by stoploss: line {intent(jobs).seq} backfired: promised $2.00/h" in decision.why


def test_slower_but_cheaper_per_step_is_a_saving(jobs: Stepping) -> None:
    """A fifth slower at half the price: after a day one line says what it brought, and it stays."""
    jobs.factor, jobs.cheaper = 0.8, 0.5
    cycle = jobs.act()
    jobs.live(cycle, DAY - 60, every=60)
    jobs.live(cycle, 180, every=20)
    [note] = jobs.notes()

    assert (jobs.undone(), jobs.warned(), jobs.smaller()) == ([], [], ["a"])
    assert note.evidence["state"] == "better"
    assert (note.promised, note.got) == (pytest.approx(2.0), pytest.approx(4.0 * 0.8 - 2.0))
    assert timedelta(hours=24) <= note.at - intent(jobs).at < timedelta(hours=24, minutes=30)


@pytest.mark.parametrize(("factor", "cheaper"), [(0.96, 1.0), (1.0, 1.04), (0.5, 0.52)])
def test_less_than_5_percent_is_nothing(jobs: Stepping, factor: float, cheaper: float) -> None:
    """A step that costs 4 % more is as dear as before."""
    jobs.factor, jobs.cheaper = factor, cheaper
    cycle = jobs.act()
    jobs.live(cycle, 150, every=5)

    assert (jobs.undone(), jobs.warned(), jobs.notes()) == ([], [], [])


def test_a_difference_within_the_noise_is_nothing(jobs: Stepping) -> None:
    """Where the speed varies by a third within the hour, 20 % less say nothing."""
    jobs.factor, jobs.uneven = 0.8, 0.35
    cycle = jobs.act()
    jobs.live(cycle, 150, every=5)

    assert (jobs.undone(), jobs.warned(), jobs.notes()) == ([], [], [])


def test_a_restart_at_any_minute_changes_nothing(jobs: Stepping) -> None:
    """All that is known of it is in the ledger: taken back once, and said once."""
    jobs.act()
    for _ in range(25):
        jobs.live(jobs.cycle(SMALLER), 2, every=2)

    assert (jobs.undone(), len(jobs.notes()), jobs.warned()) == (["a"], 1, [])


def test_a_crash_between_the_line_and_the_undo_is_made_good(
    jobs: Stepping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says that it backfired, and nothing came of that: the next run takes it back."""
    cycle = jobs.act()

    def broken(intent: Entry, reason: str) -> bool:
        raise StoreError("the disk is full")

    monkeypatch.setattr(cycle._watch, "_take_back", broken)
    with pytest.raises(StoreError):
        jobs.live(cycle, 60)
    assert (jobs.undone(), len(jobs.notes())) == ([], 1)
    jobs.live(jobs.cycle(SMALLER), 5)

    assert (jobs.undone(), len(jobs.notes()), jobs.warned()) == (["a"], 1, [])


def test_without_steps_money_per_hour_is_told_and_nothing_is_taken_back(jobs: Stepping) -> None:
    """A job that logs no step and costs twice as much afterwards: a loss per hour is all that is known."""
    jobs.mute, jobs.cheaper = True, 2.0
    cycle = jobs.act()
    jobs.live(cycle, DAY, every=60)
    [note] = jobs.notes()

    assert (jobs.undone(), jobs.warned(), jobs.smaller()) == ([], [], ["a"])
    assert (note.evidence["state"], note.got) == ("hours", pytest.approx(-4.0))
    assert "money per hour alone" in (note.why or "")


@pytest.mark.parametrize("what", ["steps", "nothing"])
def test_what_is_not_known_decides_nothing(jobs: Stepping, what: str) -> None:
    """Its steps, or all of it, cannot be seen since: it stays, and the line has no figure."""
    cycle = jobs.act()
    jobs.mute = True
    jobs.silent = {"a"} if what == "nothing" else set()
    jobs.live(cycle, DAY, every=60)
    [note] = jobs.notes()

    assert (jobs.undone(), jobs.warned(), jobs.smaller()) == ([], [], ["a"])
    assert (note.evidence["state"], note.got) == ("unknown", None)


def test_few_steps_decide_nothing_until_there_are_enough(jobs: Stepping) -> None:
    """A twentieth of the speed: 300 steps an hour, of 1,200 that are needed; after four hours there are."""
    jobs.factor = 0.05
    cycle = jobs.act()
    jobs.live(cycle, 180, every=10)
    assert (jobs.undone(), jobs.notes()) == ([], [])
    jobs.live(cycle, 80, every=10)

    assert jobs.undone() == ["a"]


def test_what_somebody_keeps_is_told_once_and_taken_back_when_that_is_over(jobs: Stepping) -> None:
    """A kept job is left alone: its owner is told, with the figures and the command."""
    cycle = jobs.act()
    People(ledger(jobs)).keep("a", timedelta(hours=2), who="ann", now=jobs.now(), reason="demo")
    jobs.live(cycle, 110, every=5)
    assert (jobs.undone(), len(jobs.notes())) == ([], 1)
    assert len(jobs.warned()) == 1
    assert jobs.warned()[0].startswith("firing owner")
    jobs.live(cycle, 20)

    assert jobs.undone() == ["a"]


MAINTENANCE = "[{from: 2026-12-01, until: 2026-12-02}]"
EXEMPT = "exemptions: [{policy: too-large, where: has(job), reason: demo, owner: ml, expires: 2099-01-31}]\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SMALLER + "protect: ['team == \"vision\"']\n", 1),
        (SMALLER + EXEMPT, 1),
        (SMALLER.replace("mode: enforce", "mode: warn"), 1),
        (SMALLER.replace("mode: enforce", "mode: audit"), 0),
        (SMALLER.replace("too-large", "other"), 1),
        (SMALLER.replace("mode: enforce,", f"mode: enforce, maintenance: {MAINTENANCE},"), 1),
    ],
    ids=["protected", "exempt", "warn", "audit", "its policy is gone", "maintenance"],
)
def test_what_must_not_be_touched_by_itself_is_told(jobs: Stepping, text: str, told: int) -> None:
    """Protected or exempt since, another mode, or no policy any more: told once, as the mode lets."""
    jobs.act()
    jobs.live(jobs.cycle(text), 60, every=5)

    assert (jobs.undone(), jobs.smaller(), len(jobs.notes())) == ([], ["a"], 1)
    assert len(jobs.warned()) == told


def test_a_pause_stops_it(jobs: Stepping) -> None:
    """While paused nothing is taken back and nothing said; afterwards it is."""
    cycle = jobs.act()
    People(ledger(jobs)).pause(who="ann", now=jobs.now(), reason="storage outage")
    jobs.live(cycle, 90, every=5)
    assert (jobs.undone(), jobs.notes(), jobs.warned()) == ([], [], [])
    People(ledger(jobs)).resume(who="ann", now=jobs.now())
    jobs.live(cycle, 2)

    assert jobs.undone() == ["a"]


def test_an_undo_that_fails_is_told_and_not_tried_again(
    jobs: Stepping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be taken back is for people."""

    def fails(self: Act, order: Order, found: Found) -> Outcome:
        self.fleet.write("calls", f"undo {order.resource.id} {order.id}")
        return Outcome("failed", "there is no room for it", retry=True)

    monkeypatch.setattr(Act, "undo", fails)
    cycle = jobs.act()
    jobs.live(cycle, 200, every=10)

    assert (jobs.undone(), len(jobs.notes()), len(jobs.warned())) == (["a"], 1, 1)


def test_what_cannot_be_taken_back_is_told(jobs: Stepping, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that remembers nothing stays."""
    find = Act.find
    monkeypatch.setattr(Act, "find", lambda self, order: replace(find(self, order), undoable=False))
    cycle = jobs.act()
    jobs.live(cycle, 60, every=5)

    assert (jobs.undone(), len(jobs.notes()), len(jobs.warned())) == ([], 1, 1)


def test_the_end_of_a_job_settles_it(jobs: Stepping) -> None:
    """Half an hour after nothing of it is there any more, the line says what it brought until then."""
    jobs.factor, jobs.cheaper = 0.8, 0.5
    cycle = jobs.act()
    jobs.start("b")
    jobs.live(cycle, 60, every=5)
    (jobs.folder / "running" / "a").unlink()
    jobs.live(cycle, 25, every=5)
    assert jobs.notes() == []
    jobs.live(cycle, 60, every=5)
    [note] = [item for item in jobs.notes() if item.evidence["line"] == intent_of(jobs, "a")]

    assert (note.evidence["state"], note.got) == ("better", pytest.approx(4.0 * 0.8 - 2.0))


def intent_of(jobs: Stepping, job: str) -> int:
    """The line before a job was made smaller."""
    [found] = [
        e.seq
        for e in ledger(jobs).entries(kinds=("intent",))
        if e.action == "downscale" and e.resource is not None and e.resource.id == job
    ]
    return found or 0


def test_a_person_who_takes_it_back_ends_the_watch(jobs: Stepping) -> None:
    """What is as it was is not watched, and nothing is said of it."""
    cycle = jobs.act()
    undo(ledger(jobs), intent(jobs), cycle.executor.action, who="ann", reason="slow", now=jobs.now)
    jobs.live(cycle, DAY + 60, every=60)

    assert (jobs.undone(), jobs.notes(), jobs.warned()) == (["a"], [], [])


def test_a_job_that_is_started_anew_is_not_over(jobs: Stepping) -> None:
    """Ten minutes of which nothing is there settle nothing; what comes after them is judged."""
    cycle = jobs.act()
    running = jobs.folder / "running" / "a"
    running.unlink()
    jobs.live(cycle, 10, every=5)
    running.touch()
    jobs.live(cycle, 15, every=5)
    assert jobs.notes() == []
    jobs.live(cycle, 60, every=5)

    assert jobs.undone() == ["a"]


def test_an_undo_that_takes_its_time_is_begun_once(jobs: Stepping, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it goes on, beside the instants, it is not begun again and nobody is told."""
    work: list[Callable[[], None]] = []
    tools = replace(jobs.tools(), submit=work.append)
    cycle = jobs.act()
    monkeypatch.setattr(jobs, "tools", lambda: tools)
    cycle = jobs.cycle(SMALLER)
    jobs.live(cycle, 60, every=5)
    assert (len(work), jobs.undone(), jobs.warned()) == (1, [], [])
    work.pop()()
    jobs.live(cycle, 30, every=5)

    assert (len(work), jobs.undone(), jobs.warned()) == (0, ["a"], [])


def test_a_later_step_on_the_same_ends_the_watch_of_the_first(jobs: Stepping) -> None:
    """Two steps are not told apart: the first is settled without a figure, the second is watched."""
    jobs.factor, jobs.cheaper = 0.8, 0.5
    again = "      - downscale: {after: 120m, snapshot: not-needed, replicas: 2}\n"
    cycle = jobs.act(SMALLER + again)
    jobs.live(cycle, DAY + 120, every=30)
    first, second = jobs.notes()

    assert (first.got, first.evidence["state"]) == (None, "unknown")
    assert f"line {second.evidence['line']} followed on the same" in (first.why or "")
    assert second.got is not None


@pytest.mark.parametrize(
    ("kind", "parameters", "ends"),
    [
        ("instance", {"instance-type": "m5.large"}, True),
        ("instance", {}, True),
        ("instance", {"replicas": 2}, False),
        ("gpu", {"power-cap": 300.0}, False),
        ("job", {"replicas": 2}, False),
    ],
)
def test_an_undo_that_would_end_work_is_for_people(
    kind: str, parameters: dict[str, object], ends: bool
) -> None:
    """An instance gets its type back by being stopped: what runs there would end, saved or not."""
    at = datetime(2026, 12, 1, tzinfo=UTC)
    line = Entry(
        at=at, kind="intent", action="downscale", resource=ResourceId(kind, "x"), parameters=parameters
    )

    assert watch._interrupts(line) is ends


def test_a_dry_plan_shows_nothing_and_writes_nothing(jobs: Stepping) -> None:
    """Planning alone looks at what is watched, and takes nothing back."""
    cycle = jobs.act()
    for _ in range(60):
        jobs.minutes += 1
        jobs.look()
    before = ledger(jobs).head()
    result = cycle.plan()

    assert [str(item) for item in result.watched] == ["job a"]
    assert (ledger(jobs).head(), jobs.undone()) == (before, [])
