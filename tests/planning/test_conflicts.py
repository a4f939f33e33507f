"""One resource, several policies: one plan, the same whatever the order."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from support.plans import ENDS, READY, candidate, decide, policy, step

IDLE = policy("idle", (step("alert", to=("owner",)), step("downscale", after=600.0)))
BUDGET = policy("budget", (step("alert", to=("finance",)), *ENDS[1:]))


def test_P_D20_two_policies_one_action() -> None:
    """The stronger step is done once and names both policies; both alerts go out."""
    plans = [decide(*order) for order in permutations([candidate(of=IDLE), candidate(of=BUDGET)])]
    found = {(item.policy, item.action): item for item in plans[0]}

    assert plans[0] == plans[1]
    assert found["budget", "terminate"].verdict == "would"
    assert found["budget", "terminate"].policies == ("budget", "idle")
    assert found["idle", "downscale"].verdict == "skipped"
    assert found["idle", "downscale"].why == "one plan per resource: terminate of budget"
    assert [found[name, "alert"].verdict for name in ("idle", "budget")] == ["would", "would"]


def test_the_strongest_that_is_allowed_acts() -> None:
    """Where the end is forbidden to one policy, the weaker step of the other is done."""
    kept = replace(BUDGET, active={"until": "2026-01-01"})
    found = {
        (item.policy, item.action): item.verdict for item in decide(candidate(of=IDLE), candidate(of=kept))
    }

    assert found["idle", "downscale"] == "would"
    assert found["budget", "terminate"] == "skipped"


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ("snapshot", "retain"),
        ("retain", "tier"),
        ("tier", "prune"),
        ("prune", "release"),
        ("release", "downscale"),
        ("downscale", "terminate"),
    ],
)
def test_actions_have_an_order(weaker: str, stronger: str) -> None:
    """terminate, downscale, release, prune, tier, retain, snapshot."""
    first = policy("a", (step("alert"), step(weaker)))
    second = policy("b", (step("alert"), step(stronger)))
    found = decide(candidate(of=first), candidate(of=second))

    assert {item.action: item.verdict for item in found if item.action != "alert"} == {
        weaker: "skipped",
        stronger: "would",
    }


def test_the_same_step_of_two_policies_is_done_once() -> None:
    """The sooner one wins."""
    late = replace(BUDGET, name="a", steps=(ENDS[0], step("terminate", after=7200.0)))
    found = decide(candidate(of=late), candidate(of=BUDGET))

    assert [(item.policy, item.verdict) for item in found if item.action == "terminate"] == [
        ("a", "skipped"),
        ("budget", "would"),
    ]


def test_the_order_is_that_of_resource_and_step() -> None:
    """A plan is read from the first resource to the last, step after step."""
    found = decide(*(candidate(name) for name in ("b", "a", "c")))

    assert [(item.resource.id, item.step) for item in found] == [
        (name, number) for name in "abc" for number in (1, 2)
    ]


def test_P_D17_a_job_says_which_checkpoints_would_go() -> None:
    """A prune lists what it would delete, and is blocked where nothing may go."""
    of = policy(steps=(step("alert"), step("prune", options={"keep": 2})))
    _, found = decide(candidate(of=of, facts=replace(READY, checkpoints=("step-9000", "step-9100"))))
    _, none = decide(candidate(of=of, facts=replace(READY, kept="no checkpoint may be deleted")))

    assert found.verdict == "would"
    assert found.parameters == {"keep": 2, "checkpoints": ["step-9000", "step-9100"]}
    assert (none.verdict, none.why) == ("blocked", "no checkpoint may be deleted")
