"""Every guard by itself, on a finding that nothing else would stop."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.plans import AT, ENDS, READY, candidate, decide, ending, policy, step

from stoploss.engine.planning.model import Standing
from stoploss.rules.catalogue import catalogue
from stoploss.rules.conditions import typed
from stoploss.rules.conditions.typed import CheckedCondition


def test_what_no_guard_stops_would_be_done() -> None:
    """The alert is due now, and the end after the time between the two steps."""
    alert, end = decide(candidate())

    assert (alert.verdict, alert.due, alert.target) == ("would", AT, "owner")
    assert (end.verdict, end.why, end.due) == ("would", "ok", AT + timedelta(minutes=30))


@pytest.mark.parametrize(
    ("facts", "verdict", "why"),
    [
        ({"protected": 'protected: label.keep == "true"'}, "blocked", "protected: label.keep"),
        ({"unreadable": "whether it is exempt cannot be read"}, "blocked", "cannot be read"),
        ({"exempt": "exempt through 2027-01-31: by design"}, "blocked", "by design"),
        ({"stale": "unknown now: stale since 2026-12-01 13:00 UTC"}, "blocked", "unknown now"),
        ({"workload_class": None}, "blocked", "class unknown: alerts only"),
        ({"workload_class": "serve"}, "blocked", "serve is never ended"),
        ({"stage": "interactive"}, "blocked", "interactive is never ended"),
        ({"thin": "at 90% coverage: 26 of 30 samples, needs 27"}, "held", "26 of 30 samples, needs 27"),
        ({"saved": False}, "held", "waits for a verified snapshot"),
        ({"part": "holds for 1 of 8 gpus of job j"}, "blocked", "1 of 8"),
        ({"jobs": 2}, "blocked", "its name matches 2 jobs"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_guard_stops_the_end_and_says_why(facts: dict[str, Any], verdict: str, why: str) -> None:
    """One fact that speaks against it is enough."""
    found = ending(candidate(facts=replace(READY, **facts)))

    assert found.verdict == verdict
    assert why in found.why


def test_only_an_exemption_silences_the_alert() -> None:
    """Whoever is protected is still told what burns."""
    protected = decide(candidate(facts=replace(READY, protected="protected: x", workload_class=None)))
    exempt = decide(candidate(facts=replace(READY, exempt="exempt through 2027-01-31: by design")))

    assert [item.verdict for item in protected] == ["would", "blocked"]
    assert [item.verdict for item in exempt] == ["blocked", "blocked"]


def test_a_step_may_say_that_it_needs_no_snapshot() -> None:
    """`snapshot: not-needed` lets a job end without one."""
    steps = (ENDS[0], step("terminate", snapshot="not-needed"))

    assert ending(candidate(of=policy(steps=steps), facts=replace(READY, saved=False))).verdict == "would"


def test_a_protected_job_is_not_even_saved() -> None:
    """Nothing but an alert touches what is protected or of unknown class."""
    steps = (ENDS[0], step("snapshot"))
    for facts in ({"protected": "protected: x"}, {"workload_class": None}):
        _, snapshot = decide(candidate(of=policy(steps=steps), facts=replace(READY, **facts)))
        assert snapshot.verdict == "blocked"


@pytest.mark.parametrize(("saves", "verdict"), [(0.0, "blocked"), (None, "would"), (0.01, "would")])
def test_a_step_without_net_gain_is_refused(saves: float | None, verdict: str) -> None:
    """Where prices are known it has to save something; where not, nobody can tell."""
    assert ending(candidate(saves_per_hour=saves)).verdict == verdict


def test_an_owner_who_is_not_warned_keeps_the_job() -> None:
    """Without an alert before it nothing is ended."""
    found = ending(candidate(of=policy(steps=[step("terminate")])))

    assert (found.verdict, found.why) == ("blocked", "the owner is not warned: no alert comes before it")


def test_a_late_warning_gives_its_whole_time() -> None:
    """The end keeps its distance from when the alert was delivered, not from when it was due."""
    warned = AT - timedelta(minutes=10)
    found = ending(candidate(), standing=Standing(done={("f-idle-j", 1): warned}))

    assert found.due == warned + timedelta(minutes=30)


def test_steps_wait_for_the_one_before() -> None:
    """An end comes only after the snapshot before it, unless that may fail."""
    for failing, verdict in ((None, "held"), ("continue", "would")):
        steps = (ENDS[0], step("snapshot", approve="required", on_failure=failing), step("terminate"))
        *_, end = decide(candidate(of=policy(steps=steps)))
        assert end.verdict == verdict

    assert end.why == "ok"


@pytest.mark.parametrize("true_seconds", [600.0, 3600.0])
def test_the_clock_of_after_stands_while_it_is_not_true(true_seconds: float) -> None:
    """What was due before it stopped stays due; what was not has no time."""
    steps = (ENDS[0], step("snapshot", after=1800.0))
    _, snapshot = decide(candidate(of=policy(steps=steps), true_seconds=true_seconds, running=False))

    assert (snapshot.due is None, snapshot.verdict) == (
        (true_seconds < 1800),
        "held" if true_seconds < 1800 else "would",
    )


@pytest.mark.parametrize(
    ("mode", "verdicts"),
    [("audit", ["would", "would"]), ("warn", ["would", "held"]), ("enforce", ["would", "would"])],
)
def test_the_mode_of_a_policy_decides_what_would_be_done(mode: str, verdicts: list[str]) -> None:
    """warn sends alerts only; a dry pass of audit and enforce says the same."""
    assert [item.verdict for item in decide(candidate(of=policy(mode=mode)))] == verdicts


def test_an_approval_is_asked_for_exactly_this() -> None:
    """The request names episode, action, target and parameters, and lasts 24 hours after it is due."""
    steps = (ENDS[0], step("terminate", after=1800.0, approve="required", options={"grace": 60.0}))
    found = ending(candidate(of=policy(steps=steps)))
    request = found.request
    other = ending(candidate("k", of=policy(steps=steps))).request

    assert (found.verdict, found.why) == ("held", "needs approval")
    assert request is not None
    assert other is not None
    assert (request.finding, request.action, request.target) == ("f-idle-j", "terminate", "job j")
    assert request.parameters == {"grace": 60.0}
    assert request.valid_until == AT + timedelta(hours=24, minutes=30)
    assert request.id != other.id
    assert (
        ending(candidate(of=policy(steps=steps)), standing=Standing(approved=frozenset({request.id}))).verdict
        == "would"
    )
    assert (
        ending(candidate(of=policy(steps=steps)), standing=Standing(approved=frozenset({other.id}))).verdict
        == "held"
    )


def test_P_B15_a_future_start_is_labelled() -> None:
    """The policy is evaluated, its steps stand in the plan, and say that it is not yet active."""
    found = decide(candidate(of=policy(active={"from": "2027-01-01"})))

    assert [item.verdict for item in found] == ["blocked", "blocked"]
    assert all(item.whys[0] == "not yet active: from 2027-01-01" for item in found)


def test_an_alert_waits_for_the_end_of_a_quiet_time() -> None:
    """It goes out at seven, and the end keeps its distance from that."""
    alert, end = decide(candidate(of=policy(active={"quiet": "13:00-07:00"})))

    assert (alert.verdict, alert.due) == ("would", AT + timedelta(hours=17))
    assert end.due == AT + timedelta(hours=17, minutes=30)


def test_in_maintenance_nothing_is_acted_on() -> None:
    """Alerts go out, everything else waits."""
    window = {"from": "13:00", "until": "18:00", "reason": "new switch"}
    alert, end = decide(candidate(), maintenance=(window,))

    assert alert.verdict == "would"
    assert (end.verdict, end.why) == ("held", "maintenance until 18:00: new switch")


def test_a_storm_freezes_only_what_destroys() -> None:
    """Alerts and snapshots go on."""
    steps = (ENDS[0], step("snapshot"), step("terminate"))
    found = decide(candidate(of=policy(steps=steps)), freeze="frozen: they share switch s1")

    assert [item.verdict for item in found] == ["would", "would", "held"]
    assert found[2].why == "frozen: they share switch s1"


def test_G_80_budget_against_unsaved_progress() -> None:
    """Snapshot, verify, then stop, never without approval; a snapshot that costs more is said to."""
    signal = catalogue()["budget.used"]
    spent = CheckedCondition("budget.used >= 100%", "", typed.Has("job", "job", ""), (signal,))
    steps = (ENDS[0], step("snapshot"), step("terminate", after=600.0))
    of = policy(steps=steps, conditions=(spent,))
    facts = replace(READY, gpus=512, saved=False, save_seconds=9000.0, at_risk_seconds=7200.0)

    _, snapshot, end = decide(candidate(of=of, facts=facts))
    *_, saved = decide(candidate(of=of, facts=replace(facts, saved=True)))
    *_, bare = decide(
        candidate(of=replace(of, steps=(*steps[:2], replace(steps[2], snapshot="not-needed"))), facts=facts)
    )

    assert snapshot.verdict == "would"
    assert snapshot.why == "costs more than it saves: it takes 2h 30m and saves 2h of work"
    assert (end.verdict, end.whys[0]) == ("held", "waits for a verified snapshot")
    for item in (saved, bare):
        assert (item.verdict, item.why) == ("held", "needs approval: a budget alone ends no job")
