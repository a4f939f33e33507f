"""Random findings, protections and caps against a small, slow account of what may never be."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.plans import AT, DESTRUCTIVE, READY, candidate, policy, step

from stoploss.engine.planning.model import Candidate, Decision, Facts, Situation
from stoploss.engine.planning.plan import plan

FACTS = st.builds(
    replace,
    st.just(READY),
    protected=st.sampled_from([None] * 4 + ["protected"]),
    exempt=st.sampled_from([None] * 4 + ["exempt"]),
    unreadable=st.sampled_from([None] * 4 + ["unreadable"]),
    stale=st.sampled_from([None] * 4 + ["stale"]),
    thin=st.sampled_from([None] * 4 + ["thin"]),
    part=st.sampled_from([None] * 4 + ["part"]),
    workload_class=st.sampled_from(["train"] * 4 + [None, "serve"]),
    jobs=st.sampled_from([1, 1, 1, 2]),
    saved=st.booleans(),
    kept=st.sampled_from([None, None, "kept"]),
    gpus=st.sampled_from([0, 1, 8, 512]),
    team=st.sampled_from(["a", "b", None]),
    price_per_hour=st.sampled_from([None, 0.0, 5.0]),
)
STEPS = st.lists(
    st.builds(
        step,
        st.sampled_from(["alert", "alert", "snapshot", "tier", "downscale", "terminate", "prune", "release"]),
        after=st.sampled_from([0.0, 600.0, 3600.0]),
        approve=st.sampled_from([None, None, None, "required"]),
        snapshot=st.sampled_from([None, None, "not-needed"]),
        on_failure=st.sampled_from([None, None, "continue"]),
    ),
    max_size=4,
)
POLICIES = st.lists(
    st.builds(
        lambda steps, mode, active, limits: policy("p", steps, mode=mode, active=active, limits=limits),
        STEPS,
        st.sampled_from(["audit", "enforce", "warn"]),
        st.sampled_from([None, None, None, {"from": "2027-01-01"}]),
        st.sampled_from([{}, {}, {"actions-per-run": 1}, {"share-of-population": 0.1}]),
    ),
    min_size=1,
    max_size=3,
).map(lambda found: [replace(item, name=f"p{at}") for at, item in enumerate(found)])


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[Candidate], Situation]:
    policies = draw(POLICIES)
    found = []
    for resource in draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6)):
        for of in policies:
            if draw(st.booleans()):
                seen = {
                    "facts": replace(draw(FACTS), job=resource),
                    "true_seconds": draw(st.sampled_from([0.0, 1200.0, 7200.0])),
                    "running": draw(st.booleans()),
                    "saves_per_hour": draw(st.sampled_from([None, 0.0, 4.0])),
                }
                found.append(candidate(resource, of=of, **seen))
    limits: dict[str, Any] = {
        "actions-per-run": draw(st.sampled_from([0, 2, 100])),
        "gpus-per-run": draw(st.sampled_from([0, 16, 10**6])),
        "share-of-population": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "min-population": draw(st.sampled_from([0, 10])),
        "jobs-per-team": draw(st.sampled_from([0, 1, 100])),
    }
    return found, Situation(
        AT,
        limits=limits,
        population={item.name: draw(st.integers(0, 12)) for item in policies},
        freeze=draw(st.sampled_from([None] * 4 + ["storm"])),
        recent=draw(st.sampled_from([None, None, {}])),
    )


def forbidden(found: Candidate, item: Decision, situation: Situation) -> bool:
    """Whether any guard of a single step forbids a destructive one."""
    of, facts = found.policy.steps[item.step - 1], found.facts
    lacks = item.action in ("terminate", "downscale") and of.snapshot != "not-needed" and not facts.saved
    return any(
        (
            facts.protected or facts.exempt or facts.unreadable or facts.stale or facts.thin or facts.part,
            facts.workload_class != "train",
            facts.jobs != 1,
            lacks,
            item.action == "prune" and facts.kept,
            found.saves_per_hour == 0,
            found.policy.mode == "warn",
            found.policy.active,
            of.approve,
            situation.freeze,
            not any(other.action == "alert" for other in found.policy.steps[: item.step - 1]),
            item.due is None,
        )
    )


@settings(max_examples=250, deadline=None)
@given(scenes())
def test_nothing_is_destroyed_where_a_guard_forbids_it(scene: tuple[list[Candidate], Situation]) -> None:
    """No destructive step is `would` against a guard, a cap, an order of steps or a stronger policy."""
    found, situation = scene
    by_id = {item.finding: item for item in found}
    decisions = plan(found, situation)
    would = [item for item in decisions if item.verdict == "would" and item.action != "alert"]
    ends = [item for item in would if item.action in DESTRUCTIVE]

    for item in ends:
        assert not forbidden(by_id[item.finding], item, situation)
    for item in would:
        assert item.due is not None
        assert item.due >= AT
        _former_done(item, by_id[item.finding], decisions)
    _caps_kept(would, by_id, situation)
    acting = {(item.resource, item.policy) for item in would}
    assert max(Counter(resource for resource, _ in acting).values(), default=0) <= 1
    for policy_name in {item.policy for item in ends} if situation.recent is not None else ():
        matched = {item.resource for item in ends if item.policy == policy_name}
        assert len(matched) <= 3


def _former_done(item: Decision, found: Candidate, decisions: tuple[Decision, ...]) -> None:
    """What comes before it would be done as well, or may fail."""
    for other in decisions:
        if other.finding == item.finding and other.step < item.step:
            may_fail = found.policy.steps[other.step - 1].on_failure == "continue"
            assert other.verdict == "would" or may_fail


def _caps_kept(would: list[Decision], by_id: dict[str | None, Candidate], situation: Situation) -> None:
    limits = situation.limits
    for due in {item.due for item in would}:
        run = [item for item in would if item.due == due]
        ends = {item.resource: by_id[item.finding].facts for item in run if item.action in DESTRUCTIVE}
        assert len(run) <= limits["actions-per-run"]
        assert sum(facts.gpus for facts in ends.values()) <= limits["gpus-per-run"]
        teams = Counter(facts.team for facts in ends.values())
        assert max(teams.values(), default=0) <= limits["jobs-per-team"]
        for name, own in {item.policy: by_id[item.finding].policy.limits for item in run}.items():
            mine = {item.resource for item in run if item.policy == name}
            share = own.get("share-of-population", limits["share-of-population"])
            population = situation.population[name]
            if share == 0 or population >= limits["min-population"]:
                assert len(mine) <= share * population
            assert sum(item.policy == name for item in run) <= own.get("actions-per-run", len(run))


@settings(max_examples=60, deadline=None)
@given(scenes(), st.integers(0, 1000))
def test_the_same_findings_give_the_same_plan(scene: tuple[list[Candidate], Situation], seed: int) -> None:
    """In whatever order they come; and every step of every finding is in the plan once."""
    found, situation = scene
    mixed = random.Random(seed).sample(found, len(found))
    decisions = plan(found, situation)

    assert plan(mixed, situation) == decisions
    assert len(decisions) == sum(len(item.policy.steps) for item in found)
    assert len({item.id for item in decisions}) == len(decisions)
    assert [item.resource for item in decisions] == sorted(item.resource for item in decisions)


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_no_cap_or_storm_holds_an_alert(scene: tuple[list[Candidate], Situation]) -> None:
    """An alert is sent unless its policy does not apply here or now, or its time has not come."""
    found, situation = scene
    by_id = {item.finding: item for item in found}

    for item in plan(found, situation):
        of = by_id[item.finding]
        if item.action == "alert" and not of.facts.exempt and not of.policy.active and item.due is not None:
            assert item.verdict == "would"


def test_a_job_that_a_guard_frees_again_is_ended() -> None:
    """The same finding is held without a snapshot and let go with one, so that the guards can pass."""
    of = policy("p", (step("alert"), step("terminate")))
    for saved, verdict in ((False, "held"), (True, "would")):
        facts = Facts(workload_class="train", ends_work=True, saved=saved)
        [_, end] = plan([candidate("a", of=of, facts=facts)], Situation(AT, population={"p": 1}))
        assert (end.verdict, end.due) == (verdict, AT + timedelta(0))
