"""Whatever befalls a fleet, nothing is done that the model of what may be done cannot justify."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.model import VARIANTS, WINDOW, Rules
from support.toys import CHAIN, Fleet, kinds, verdicts
from support.trials import ACTIONS, FAULTS, HOWS, LABELS, Trial

from stoploss.engine.ledger import Ledger
from stoploss.engine.people import People

JOBS = st.integers(0, 5)
LIVES, STEPS = 67, 150
FIRES = WINDOW + 2
"""Minutes until an idle job is told of."""


class Life(RuleBasedStateMachine):
    """Hypothesis looks for the shortest life in which something is done that may not be."""

    @initialize(few=st.booleans())
    def begin(self, few: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.trial = Trial(Path(self.folder.name), "abc" if few else "abcdef")

    def job(self, number: int) -> str:
        return self.trial.jobs[number % len(self.trial.jobs)]

    @rule(number=st.integers(1, 8))
    def minutes(self, number: int) -> None:
        self.trial.minutes(number)

    @rule(number=st.integers(2, 200))
    def gap(self, number: int) -> None:
        self.trial.gap(number)

    @rule(number=st.integers(1, 15))
    def back(self, number: int) -> None:
        self.trial.back(number)

    @rule(job=JOBS, how=st.sampled_from(HOWS))
    def behave(self, job: int, how: str) -> None:
        self.trial.behave(self.job(job), how)

    @rule(job=JOBS, label=st.sampled_from(LABELS))
    def label(self, job: int, label: tuple[str, Any]) -> None:
        self.trial.label(self.job(job), *label)

    @rule(job=JOBS, action=st.sampled_from(ACTIONS), kind=st.sampled_from(FAULTS))
    def fault(self, job: int, action: str, kind: str) -> None:
        self.trial.fault(action, self.job(job), kind)

    @rule(name=st.sampled_from(["owner", "boss"]), reached=st.booleans())
    def receiver(self, name: str, reached: bool) -> None:
        self.trial.receiver(name, reached)

    @precondition(lambda self: self.trial.people.requests())
    @rule(choice=st.integers(0, 7), yes=st.booleans())
    def answer(self, choice: int, yes: bool) -> None:
        self.trial.answer(choice, yes)

    @rule(job=JOBS, number=st.integers(1, 40))
    def keep(self, job: int, number: int) -> None:
        self.trial.keep(self.job(job), number)

    @rule(job=JOBS, policy=st.sampled_from(["idle", "small"]))
    def exempt(self, job: int, policy: str) -> None:
        self.trial.exempt(policy, self.job(job))

    @rule(on=st.booleans())
    def pause(self, on: bool) -> None:
        self.trial.pause(on)

    @rule(number=st.integers(0, len(VARIANTS) - 1))
    def reload(self, number: int) -> None:
        self.trial.reload(number)

    @rule(at=st.integers(1, 12))
    def crash(self, at: int) -> None:
        self.trial.crash(at)

    @rule(job=JOBS)
    def lose(self, job: int) -> None:
        self.trial.lose(self.job(job))

    @rule()
    def start(self) -> None:
        self.trial.start()

    @invariant()
    def justified(self) -> None:
        if hasattr(self, "trial"):
            assert self.trial.model.faults_found == []

    def teardown(self) -> None:
        if hasattr(self, "trial"):
            found = self.trial.model.ended_well()
            self.trial.end()
            self.folder.cleanup()
            assert found == []


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=8, stateful_step_count=40, deadline=None)


def lives(folder: Path, seeds: range, steps: int) -> Counter[str]:
    """How often each action was called over many lives, none of which broke a rule."""
    count: Counter[str] = Counter()
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        draw = random.Random(seed)
        trial = Trial(place, "abcdef"[: draw.choice([3, 3, 6])])
        for _ in range(steps):
            trial.befall(draw)
        found = trial.model.ended_well()
        trial.end()
        assert found == [], f"seed {seed}"
        count.update(trial.model.count)
    return count


def test_some_lives_by_chance(tmp_path: Path) -> None:
    """Two lives of 75 steps, in which something is really ended."""
    assert lives(tmp_path, range(2), STEPS // 2)["terminate"] > 0


@pytest.mark.slow
def test_ten_thousand_steps_by_chance(tmp_path: Path) -> None:
    """67 lives of 150 steps each; a step is a minute or whatever befalls a fleet."""
    count = lives(tmp_path, range(100, 100 + LIVES), STEPS)

    assert min(count[name] for name in ACTIONS) > 0


# ---- what such lives have found --------------------------------------------------------------


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """One idle job, and one that works."""
    made = Fleet(tmp_path, busy={"z"})
    made.start("a", "z")
    return made


def ends(fleet: Fleet) -> list[str]:
    """The jobs that were ended."""
    return [line.split()[1] for line in fleet.lines("calls") if line.startswith("terminate")]


def test_another_owner_is_given_the_time_too(fleet: Fleet) -> None:
    """After a reload that tells somebody else, nothing is ended on what the one before was told."""
    fleet.run(fleet.cycle(), FIRES + 3)
    assert fleet.saved() == ["a"]
    cycle = fleet.cycle(CHAIN.replace("to: owner", "to: boss"))
    fleet.undeliverable.add("boss")
    fleet.run(cycle, 10)
    assert ends(fleet) == []
    fleet.undeliverable.clear()
    fleet.run(cycle, 4)
    early = ends(fleet)
    fleet.run(cycle, 1)

    assert (early, ends(fleet)) == ([], ["a"])


def test_a_step_that_took_the_number_of_another_is_not_done(fleet: Fleet) -> None:
    """After a reload the second step is another action: what was done under its number does not count."""
    fleet.run(fleet.cycle(), FIRES + 3)
    text = CHAIN.replace("- snapshot: {after: 2m}", "- downscale: {after: 2m, gpus: 1}")
    cycle = fleet.cycle(text)
    assert verdicts(cycle.plan(), "downscale")["a"] == "would"

    fleet.run(cycle, 10)
    assert kinds(fleet.lines("calls")) == ["snapshot a", "downscale a"]


def test_in_mode_audit_nobody_is_told_that_it_is_over(fleet: Fleet) -> None:
    """A policy set back to audit sends nothing, least of all that what goes on is over."""
    fleet.run(fleet.cycle(), FIRES)
    told = list(fleet.lines("told"))
    fleet.run(fleet.cycle(CHAIN.replace("mode: enforce", "mode: audit")), 10)

    assert kinds(told) == ["firing owner"]
    assert fleet.lines("told") == told


def test_who_was_told_that_it_is_over_is_warned_anew(fleet: Fleet) -> None:
    """Told, told that it is over by another policy file, and told again: the time runs from the last."""
    fleet.run(fleet.cycle(), FIRES)
    fleet.run(fleet.cycle(CHAIN.replace("to: owner", "to: boss")), 1)
    assert any(line.startswith("resolved owner") for line in fleet.lines("told"))
    cycle = fleet.cycle()
    fleet.run(cycle, 30)
    assert ends(fleet) == []
    fleet.run(cycle, 40)
    firing = [line for line in fleet.lines("told") if line.startswith("firing owner")]

    assert len(firing) == 2
    assert ends(fleet) == ["a"]


def test_while_the_clock_is_behind_nothing_is_ended(fleet: Fleet) -> None:
    """What is seen then is filed under times that were seen before; a job that works again lives on."""
    cycle = fleet.cycle()
    fleet.run(cycle, FIRES + 2)
    people = People(Ledger(fleet.url, environ={}))
    people.pause(who="ann", now=fleet.now(), reason="the clock is wrong")
    fleet.run(cycle, 5)
    fleet.minutes -= 11
    fleet.busy.add("a")
    people.resume(who="ann", now=fleet.now())
    fleet.run(cycle, 1)
    why = next(d.why for d in cycle.plan().decisions if d.action == "terminate" and d.resource.id == "a")
    fleet.run(cycle, 20)

    assert "the clock was put back" in why
    assert ends(fleet) == []


def test_an_approval_for_other_parameters_is_none(fleet: Fleet) -> None:
    """Approved with one grace, edited to another: it is asked again."""
    asks = CHAIN.replace("terminate: {after: 4m}", "terminate: {after: 4m, approve: required, grace: 1m}")
    fleet.run(fleet.cycle(asks), FIRES + 6)
    people = People(Ledger(fleet.url, environ={}))
    [request] = people.requests()
    people.approve(request.id, who="ann", now=fleet.now())
    fleet.run(fleet.cycle(asks.replace("grace: 1m", "grace: 0s")), 5)

    assert ends(fleet) == []
    assert len(people.requests()) == 2


# ---- what is known to be wrong ---------------------------------------------------------------


def test_a_job_that_comes_again_under_its_name_is_another(fleet: Fleet) -> None:
    """The first one was warned and has saved; the second is warned for itself."""
    cycle = fleet.cycle()
    fleet.run(cycle, FIRES + 3)
    (fleet.folder / "running" / "a").unlink()
    fleet.run(cycle, 10)
    fleet.start("a")
    fleet.run(cycle, FIRES)

    assert ends(fleet) == []


def test_a_step_that_may_fail_holds_nothing(fleet: Fleet) -> None:
    """`on-failure: continue`: the end comes though the snapshot before it fails."""
    fleet.faults["snapshot", "a"] = "fail"
    text = CHAIN.replace("snapshot: {after: 2m}", "snapshot: {after: 2m, on-failure: continue}")
    fleet.run(fleet.cycle(text.replace("{after: 4m}", "{after: 4m, snapshot: not-needed}")), 30)

    assert ends(fleet) == ["a"]


def test_jobs_that_are_over_are_no_population(fleet: Fleet) -> None:
    """Of two jobs one is the half; ten that ran before do not make it a smaller part."""
    fleet.start(*(f"old{at}" for at in range(10)))
    fleet.busy |= {f"old{at}" for at in range(10)}
    cycle = fleet.cycle(
        CHAIN.replace("share-of-population: 100%", "share-of-population: 20%, min-population: 0")
    )
    fleet.run(cycle, 1)
    for at in range(10):
        (fleet.folder / "running" / f"old{at}").unlink()
    fleet.run(cycle, 20)

    assert ends(fleet) == []


def test_the_variants_are_policy_files() -> None:
    """Every variant of the model has a text, and no two are the same."""
    assert len({rules.text() for rules in VARIANTS}) == len(VARIANTS)
    assert all(isinstance(rules, Rules) for rules in VARIANTS)
