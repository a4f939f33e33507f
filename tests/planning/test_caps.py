"""Caps of one run, surges and storms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.plans import AT, READY, candidate, decide, policy, step

from stoploss.engine.model import ResourceId
from stoploss.engine.planning.model import Candidate, Decision, Situation, Standing
from stoploss.engine.planning.plan import plan
from stoploss.engine.planning.storms import Turn, freeze
from stoploss.rules.units import parse_quantity


def jobs(number: int, **facts: Any) -> list[Candidate]:
    return [candidate(f"j{at:03}", facts=replace(READY, job=f"j{at:03}", **facts)) for at in range(number)]


def ends(decisions: list[Decision]) -> list[Decision]:
    return [item for item in decisions if item.action == "terminate"]


def verdicts(decisions: list[Decision]) -> set[str]:
    return {item.verdict for item in ends(decisions)}


def test_P_D1_share_of_nothing_and_of_one() -> None:
    """0 of 0 is fine; 1 of 1 is over half, unless the population is too small to count shares."""
    half = {"share-of-population": 0.5}

    assert decide(population={}, limits=half) == []
    assert verdicts(decide(*jobs(1), population={"idle": 1}, limits=half)) == {"blocked"}
    assert verdicts(decide(*jobs(1), population={"idle": 1}, limits=half | {"min-population": 2})) == {
        "would"
    }


@pytest.mark.parametrize("key", ["actions-per-run", "share-of-population", "gpus-per-run", "jobs-per-team"])
def test_P_D2_zero_means_none(key: str) -> None:
    """A cap of 0 is no missing cap: nothing may be acted on, however few there are."""
    found = decide(*jobs(1), limits={key: 0, "min-population": 10}, population={"idle": 3})

    assert verdicts(found) == {"blocked"}


def test_P_D2_no_money_means_none() -> None:
    """$0/h lets nothing through."""
    limits = {"money-per-hour": parse_quantity("$0/h")}

    assert verdicts(decide(*jobs(1, price_per_hour=0.0), limits=limits)) == {"blocked"}


def test_P_D4_the_population_is_that_of_the_policy() -> None:
    """Another policy's many resources make no room, and each policy has its own share."""
    other = policy("other")
    found = decide(
        *jobs(2),
        *(candidate(f"k{at}", of=other) for at in range(2)),
        population={"idle": 10, "other": 1000},
        limits={"share-of-population": 0.1},
    )

    assert {(item.policy, item.verdict) for item in ends(found)} == {("idle", "blocked"), ("other", "would")}


def test_P_D5_a_cap_that_is_exceeded_blocks_and_reports() -> None:
    """The whole report is there, says by how much, and every alert goes out."""
    found = decide(*jobs(51), limits={"actions-per-run": 50})

    assert len(ends(found)) == 51
    assert {item.why for item in ends(found)} == {"would be blocked: 51 > 50 actions per run"}
    assert {item.verdict for item in found if item.action == "alert"} == {"would"}


def test_the_share_is_rounded_down() -> None:
    """A tenth of 29 is 2."""
    limits = {"share-of-population": 0.1}

    assert verdicts(decide(*jobs(2), population={"idle": 29}, limits=limits)) == {"would"}
    assert verdicts(decide(*jobs(3), population={"idle": 29}, limits=limits)) == {"blocked"}


def test_a_large_job_is_one_unit() -> None:
    """512 GPUs are over a cap of 64 as a whole, and under one of 512 as a whole."""
    assert verdicts(decide(*jobs(1, gpus=512), limits={"gpus-per-run": 64})) == {"blocked"}
    assert verdicts(decide(*jobs(1, gpus=512), limits={"gpus-per-run": 512})) == {"would"}


def test_jobs_of_one_team_are_capped() -> None:
    """Three jobs of vision are too many; the one of speech goes on."""
    mine = [*jobs(3), candidate("s", facts=replace(READY, job="s", team="speech"))]
    found = ends(decide(*mine, limits={"jobs-per-team": 2}))

    assert [item.verdict for item in found] == ["blocked"] * 3 + ["would"]
    assert found[0].why == "would be blocked: 3 > 2 jobs of team vision per run"


@pytest.mark.parametrize(
    ("price", "verdict", "why"),
    [
        (50.0, "would", "ok"),
        (50.01, "blocked", "would be blocked: 100.02 > 100.00 per hour and run"),
        (None, "blocked", "would be blocked: an unknown price counts as over $100/h per run"),
    ],
)
def test_money_is_capped_and_an_unknown_price_is_over_it(price: float | None, verdict: str, why: str) -> None:
    """Exactly the cap is allowed."""
    found = ends(decide(*jobs(2, price_per_hour=price), limits={"money-per-hour": parse_quantity("$100/h")}))

    assert [(item.verdict, item.why) for item in found] == [(verdict, why)] * 2


def test_a_policy_has_caps_of_its_own() -> None:
    """They count its own steps only."""
    strict = policy("strict", limits={"actions-per-run": 1})
    found = decide(
        *jobs(5), *(candidate(f"k{at}", of=strict) for at in range(2)), population={"idle": 9, "strict": 9}
    )

    assert {(item.policy, item.verdict) for item in ends(found)} == {("idle", "would"), ("strict", "blocked")}


def test_the_defaults_hold_where_nothing_is_said() -> None:
    """10 actions, a fifth of at least 10 resources, 64 GPUs."""
    situation = Situation(AT, population={"idle": 100})
    for number, verdict in ((8, "would"), (9, "blocked")):
        assert verdicts(list(plan(jobs(number), situation))) == {verdict}
    for number, verdict in ((10, "would"), (11, "blocked")):
        assert verdicts(list(plan(jobs(number, gpus=0), situation))) == {verdict}


def test_what_a_cap_stops_holds_what_comes_after() -> None:
    """No job ends whose snapshot was one too many, although its end alone is within the cap."""
    of = policy("ends", steps=(step("alert"), step("snapshot"), step("terminate", after=600.0)))
    saves = policy("saves", steps=(step("alert"), step("snapshot")))
    mine = [candidate("a", of=of), *(candidate(name, of=saves) for name in "bc")]
    found = decide(*mine, limits={"actions-per-run": 2})

    assert {item.verdict for item in found if item.action == "snapshot"} == {"blocked"}
    assert [(item.verdict, item.why) for item in ends(found)] == [("held", "waits for step 2: snapshot")]


def test_P_D6_a_surge_is_held_for_approval() -> None:
    """0, 0, 1 and 0 in the last runs, now 50: a person has to say that it is right."""
    found = ends(decide(*jobs(50), recent={"idle": 1}))

    assert {item.verdict for item in found} == {"held"}
    assert found[0].why == "surge: 50 resources, at most 1 in the last 24 h; needs approval"
    assert found[0].request is not None
    approved = frozenset({item.request.id for item in found if item.request})
    assert verdicts(decide(*jobs(50), recent={"idle": 1}, standing=Standing(approved=approved))) == {"would"}


@pytest.mark.parametrize(
    ("number", "most", "verdict"), [(3, 0, "would"), (4, 0, "held"), (4, 2, "would"), (7, 2, "held")]
)
def test_a_surge_is_more_than_three_and_more_than_three_times(number: int, most: int, verdict: str) -> None:
    """Few are no surge, nor is what happened lately as well."""
    assert verdicts(decide(*jobs(number), recent={"idle": most})) == {verdict}


def turns(number: int, every: float, **labels: str) -> list[Turn]:
    return [
        Turn(ResourceId("job", f"j{at}"), AT.timestamp() - 60.0 - at * every, labels) for at in range(number)
    ]


def test_a_storm_names_what_its_resources_share() -> None:
    """More than 5 % within ten minutes are a storm, and the narrowest common label is told."""
    fleet = {"job": 79}

    found = freeze(turns(4, 60.0, zone="a", switch="s1"), fleet, AT.timestamp())

    assert found == "frozen: 4 of 79 jobs turned idle or unknown within 10m; they share switch s1"
    assert freeze(turns(4, 60.0), {"job": 80}, AT.timestamp()) is None
    assert freeze(turns(4, 60.0), fleet, AT.timestamp() + 3600) is None
    assert freeze(turns(4, 300.0), fleet, AT.timestamp()) is None
    assert freeze(turns(3, 60.0), {"job": 3}, AT.timestamp()) is None
