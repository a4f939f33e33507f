"""Use of jobs that are not there any more."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.frames import accrual_of, busy, frame_of, of_job
from support.scenes import START

from stoploss.engine.costs.accrual import with_past
from stoploss.engine.costs.budgets import asked_labels, standings
from stoploss.engine.costs.claims import Claim, joined, settle, total
from stoploss.engine.costs.figures import figures_of
from stoploss.engine.costs.gone import forgotten, is_stand_in, together
from stoploss.engine.costs.past import APART, Day, Past, past_of
from stoploss.engine.costs.sights import Sights
from stoploss.engine.costs.use import Accrual, Key
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import catalogue
from stoploss.rules.conditions.check import check_condition
from stoploss.rules.diagnostics import Position
from stoploss.rules.policy import Budget
from stoploss.rules.units import parse_quantity

TODAY = datetime.fromtimestamp(START, UTC).date()


def budget(name: str, *, each: str = "team", where: str | None = None, per: str = "life") -> Budget:
    """A budget of $1000."""
    condition = None
    if where is not None:
        condition, problems = check_condition(where, each=each, catalogue=catalogue(), labels_only=True)
        assert not problems
    return Budget(name, each, parse_quantity("$1000"), Position("f"), condition, per)


BUDGETS = (
    budget("all"),
    budget("trainers", where='class == "train"'),
    budget("monthly", where='class != "train" and env == "research"', per="month"),
    budget("jobs", each="job"),
    budget("experiments", each="experiment"),
)
NAMED = budget("released", where='job =~ "^release-"')


def key(job: str | None, team: str = "vision", experiment: str | None = None) -> Key:
    """A stream of GPUs."""
    return Key(job, team, experiment, "compute", "elastic", "allocated")


def past_of_many(seed: int, jobs: int = 60) -> Past:
    """What many jobs used over two months, and one that is there."""
    draw, days, labels = random.Random(seed), dict[Key, tuple[Day, ...]](), dict[str, dict[str, str]]()
    until = START - 3600.0
    for number in range(jobs):
        job = "j" if not number else f"{draw.choice(['release', 'trial'])}-{number}"
        begin = draw.randint(1, 60)
        names = [(TODAY.toordinal() - begin + at) for at in range(draw.randint(1, min(3, begin)))]
        rows = tuple(
            Day(datetime.fromordinal(name).date().isoformat(), draw.random() * 8, draw.random() * 32)
            for name in names
        )
        team = "vision" if job == "j" else draw.choice(["vision", "speech"])
        days[key(job, team, draw.choice([None, "e1", "e2"]) if number else None)] = rows
        labels[job] = {"class": draw.choice(["train", "eval"]), "env": draw.choice(["research", "prod"])}
    labels["j"] = {"class": "train"}
    return Past(until, days, labels)


def here() -> Accrual:
    """Two GPUs of the job j of a team."""
    return accrual_of(frame_of(busy(2, 60), of_job(team="vision", **{"class": "train"})))


def spent(accrual: Accrual, *budgets: Budget) -> dict[tuple[str, str], float]:
    """Budget and team -> what is spent of it."""
    return {
        (item.budget.name, str(item.resource)): round(float(item.spent[-1]), 6)
        for item in standings(accrual, budgets, "UTC", catalogue())
    }


def expected(past: Past, chosen: Any, team: str, since: str = "") -> float:
    """What a team's jobs used before, one by one."""
    return sum(
        day.money
        for item, rows in past.days.items()
        for day in rows
        if item.team == team and day.day >= since and chosen(past.labels[item.job or ""], item.job or "")
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_budgets_count_jobs_that_are_gone_by_their_labels(seed: int) -> None:
    """A team's budget holds what its jobs used that are gone, as far as its `where` selects them."""
    past, now = past_of_many(seed), here()
    found = spent(with_past(now, past, asked_labels(BUDGETS)), *BUDGETS)
    used = 2 * 4.0
    month = TODAY.replace(day=1).isoformat()

    def research(labels: dict[str, str], _: str) -> bool:
        return labels["class"] != "train" and labels.get("env") == "research"

    train = expected(past, lambda labels, _: labels["class"] == "train", "vision")
    assert found["all", "team vision"] == pytest.approx(used + expected(past, lambda *_: True, "vision"))
    assert found["trainers", "team vision"] == pytest.approx(used + train)
    assert found.get(("monthly", "team vision"), 0.0) == pytest.approx(
        expected(past, research, "vision", month), abs=1e-5
    )
    assert found["jobs", "job j"] == pytest.approx(used + expected(past, lambda _, job: job == "j", "vision"))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_forgetting_who_changes_no_sum(seed: int) -> None:
    """Totals and budgets of teams are the same when old jobs are not told apart, over and over, any more."""
    past, now = past_of_many(seed), here()
    asked = asked_labels(BUDGETS)
    less = past
    for days in (50, 30, 5):
        since = datetime.fromordinal(TODAY.toordinal() - days).date().isoformat()
        less = Past.from_json(json.loads(json.dumps(forgotten(less, {"j"}, since, asked).as_json())))
    one, other = with_past(now, past, asked), with_past(now, less, asked)

    assert spent(one, *BUDGETS) == pytest.approx(spent(other, *BUDGETS))
    totals = [
        {
            figures.resource: (figures.total()[-1], figures.gpu_hours()[-1])
            for figures in figures_of(accrual, {}, Sights(accrual.frame))
            if figures.resource.kind in ("team", "job")
        }
        for accrual in (one, other)
    ]
    assert totals[0].keys() == totals[1].keys() >= {ResourceId("team", "speech"), ResourceId("job", "j")}
    for resource, amounts in totals[0].items():
        assert amounts == pytest.approx(totals[1][resource], nan_ok=True)


def test_what_is_told_apart_does_not_grow_with_jobs_that_are_gone() -> None:
    """After ten times as many jobs there are as many streams, and as many lines of what was used before."""
    few, many = past_of_many(1, 100), past_of_many(1, 1000)
    asked = asked_labels(BUDGETS)

    assert len(with_past(here(), many, asked).streams) <= len(with_past(here(), few, asked).streams)
    assert len(forgotten(many, {"j"}, "9999", asked).days) <= len(forgotten(few, {"j"}, "9999", asked).days)
    assert len(many.days) == 1000


def test_a_budget_that_names_jobs_keeps_them_apart() -> None:
    """Where a budget of a team selects jobs by their names they are known by their names for good."""
    past = past_of_many(3)
    asked = asked_labels((NAMED,))
    found = spent(with_past(here(), forgotten(past, {"j"}, "9999", asked), asked), NAMED)

    wanted = expected(past, lambda _, job: job.startswith("release-"), "vision")
    assert found["released", "team vision"] == pytest.approx(wanted)


def test_a_job_that_comes_back_is_known() -> None:
    """What is taken together for a while is told apart again when the job is there."""
    past, asked = past_of_many(4), ("class",)
    away = together(past, {"j"}, (), asked)
    back = together(past, {"j", *(item.job or "" for item in list(past.days)[5:6])}, (), asked)

    assert sum(not is_stand_in(item.job) for item in away.days) == 1
    assert sum(not is_stand_in(item.job) for item in back.days) == 2
    assert together(past, {"j"}, (), asked) is back


def test_days_of_long_ago_are_one() -> None:
    """Use of more than the longest period ago is one amount; no sum changes by it."""
    days = tuple(
        Day(datetime.fromordinal(TODAY.toordinal() - back).date().isoformat(), 1.0, 2.0)
        for back in range(3 * APART.days, 0, -1)
    )
    before = Past(START - 1.0, {key("j"): days})
    after = past_of(here(), before, "UTC")
    rows = after.days[key("j")]

    assert len(rows) <= APART.days + 3
    assert sum(row.money for row in rows) == pytest.approx(sum(day.money for day in days), abs=8.0)
    assert [row.day for row in rows] == sorted(row.day for row in rows)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_claims_that_are_joined_come_to_the_same(seed: int) -> None:
    """A finding that lasts claims one stretch, not one for each time that it was carried on."""
    draw = random.Random(seed)
    edges = np.cumsum([draw.choice([900.0, 1800.0]) for _ in range(40)]).tolist()
    claims = [
        Claim(ResourceId("gpu", leaf), price, ((begin, end),), 0.0)
        for begin, end in pairwise(edges)
        for leaf, price in (("a", 2.0), ("b", draw.choice([1.0, 3.0])))
    ]
    fewer = joined(claims)

    assert len(fewer) == 3
    assert sum(len(claim.spans) for claim in fewer if claim.leaf.id == "a") == 1
    assert total(settle(fewer, {})).so_far == pytest.approx(total(settle(claims, {})).so_far)
