"""Costs, budgets and advice of single runs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.curves import curve, log

from stoploss.engine.costs.book import Book, book_for, shipped
from stoploss.engine.costs.intervals import checkpoint_interval, lost_share
from stoploss.engine.losses.advice import advice_on
from stoploss.engine.losses.diagnosis import Diagnosis, diagnose
from stoploss.engine.losses.incremental import judge
from stoploss.engine.losses.run_cost import RunCost, cost_of
from stoploss.engine.model import TrainingLog
from stoploss.rules.declarations import Declarations, Declared
from stoploss.rules.units import parse_quantity

TWO_DOLLARS = book_for({"gpu-hour": {"default": parse_quantity("$2/GPU-hour")}}, "USD")
HOUR = 3600.0


def clocked(values: list[float], step: float = 60.0, **facts: str | float) -> TrainingLog:
    times = [1e9 + step * n for n in range(len(values))]
    return log({"train.loss": curve("train.loss", values, times=times)}, **facts)


def one(run: TrainingLog, declared: Declared, book: Book = TWO_DOLLARS) -> Diagnosis:
    return diagnose([run], Declarations(runs=(("*", declared),)), book)[0]


def test_gpu_hours_are_gpus_times_time() -> None:
    """GPU-hours are the GPUs times the time from the first to the last record, and money their price."""
    cost = cost_of(clocked([1.0] * 61, gpus=8.0), Declared(), TWO_DOLLARS, 0.25)

    assert (cost.gpu_hours, cost.amount, cost.currency) == (8.0, 16.0, "USD")
    assert (cost.wasted_gpu_hours, cost.wasted) == (2.0, 4.0)
    assert cost.per_hour == 16.0
    assert cost.how == "8.00 GPU-hours x $2.00/GPU-hour"


def test_declared_start_and_end_count_before_records() -> None:
    """A run that says when it began and ended is paid for from then to then."""
    cost = cost_of(
        clocked([1.0] * 3, gpus=2.0, started=1e9 - HOUR, ended=1e9 + HOUR), Declared(), TWO_DOLLARS, 0
    )

    assert cost.gpu_hours == 4.0


def test_counted_money_wins_over_reckoned() -> None:
    """Money that the log counts is the cost, whatever GPUs and prices would give."""
    cost = cost_of(
        clocked([1.0] * 61, gpus=8.0, cost=15.307, cost_currency="EUR"), Declared(), TWO_DOLLARS, None
    )

    assert (cost.amount, cost.currency, cost.wasted) == (15.307, "EUR", None)


@pytest.mark.parametrize(
    ("run", "declared", "book", "missing"),
    [
        (clocked([1.0] * 9), Declared(), TWO_DOLLARS, "declares no GPUs"),
        (log({"train.loss": [1.0] * 9}, gpus=4.0), Declared(), TWO_DOLLARS, "no clock"),
        (clocked([1.0] * 9, gpus=4.0), Declared(), shipped(), "no price"),
        (clocked([1.0] * 9, gpus=4.0), Declared(gpu="NoSuch9000"), shipped(), "does not know"),
    ],
)
def test_an_unknown_cost_says_why(run: TrainingLog, declared: Declared, book: Book, missing: str) -> None:
    """Money that cannot be known is unknown with its reason, never 0."""
    cost = cost_of(run, declared, book, 0.5)

    assert cost.amount is None
    assert cost.wasted is None
    assert missing in str(cost.missing)


def test_silence_of_a_hung_run_is_its_waste() -> None:
    """The time in which a log went on without a step is what a hang has wasted."""
    run = clocked([1.0] * 61, gpus=10.0, quiet_from=1e9 + HOUR, quiet_to=1e9 + 4 * HOUR)

    cost = cost_of(run, Declared(), TWO_DOLLARS, None)

    assert (cost.gpu_hours, cost.wasted_gpu_hours) == (40.0, 30.0)


FALLING = [3 * n**-0.3 for n in range(1, 62)]


@pytest.mark.parametrize(
    ("limit", "alert"), [("20 GPU-hours", False), ("9.9 GPU-hours", True), ("$25", False), ("$19.99", True)]
)
def test_a_budget_alerts_from_80_percent_on(limit: str, alert: bool) -> None:
    """A run that has not converged alerts once four fifths of its GPU-hours or its money are used."""
    found = one(clocked(FALLING, gpus=8.0), Declared(budget=parse_quantity(limit)))

    assert found.budget is not None
    assert found.budget.alert is alert


def test_a_use_that_is_unknown_alerts() -> None:
    """A budget whose use cannot be told is not silent."""
    found = one(clocked(FALLING), Declared(budget=parse_quantity("9 GPU-hours")))

    assert found.budget is not None
    assert found.budget.alert
    assert "unknown" in found.budget.line


def test_money_of_another_currency_is_not_compared() -> None:
    """A budget in euro says nothing about dollars."""
    found = one(clocked(FALLING, gpus=8.0), Declared(budget=parse_quantity("€9")))

    assert found.budget is not None
    assert (found.budget.used, found.budget.share) == (None, None)


def test_G_78_checkpoint_interval() -> None:
    """At a save of 60 s and 3.09 h between failures a checkpoint every 19 minutes loses least."""
    assert checkpoint_interval(60, 3.09 * HOUR) / 60 == pytest.approx(19.3, abs=0.1)


@pytest.mark.parametrize(("every", "word"), [(3 * HOUR, "too rare"), (60.0, "too often"), (1200.0, None)])
def test_G_78_too_rare_and_too_often(every: float, word: str | None) -> None:
    """Every three hours is too rare, every minute too often, and twenty minutes needs no word."""
    declared = Declared(checkpoint_every=every, save_time=60.0, mtbf=3.09 * HOUR)
    run = log({"train.loss": FALLING})

    advice = advice_on(run, judge(run), RunCost(), declared)

    assert [word in item.why for item in advice] == ([] if word is None else [True])
    assert all(item.change.endswith("every 19m") for item in advice)


@given(st.floats(1, 1e4), st.floats(1, 1e7), st.floats(0.5, 2))
def test_no_other_interval_loses_less(save: float, mtbf: float, other: float) -> None:
    """The interval loses no more than any other one."""
    best = checkpoint_interval(save, mtbf)

    assert lost_share(best, save, mtbf) <= lost_share(min(best * other, mtbf), save, mtbf) * (1 + 1e-9)


@pytest.mark.parametrize(("save", "mtbf"), [(0, 1), (-1, 1), (1, 0), (1, math.inf), (math.nan, 1)])
def test_an_impossible_interval_is_refused(save: float, mtbf: float) -> None:
    """Times that are no positive numbers are an error."""
    with pytest.raises(ValueError, match="between failures"):
        checkpoint_interval(save, mtbf)


def test_loader_workers_by_the_runs_own_numbers() -> None:
    """A run that waits 60 % of each step for data with 4 workers per rank needs ten."""
    curves = {"train.loss": FALLING, "train.step_time": [1.0] * 61, "train.data_time": [0.6] * 61}
    run = log({**curves, "data.workers": [4.0] * 61})

    change = advice_on(run, judge(run), RunCost(), Declared())[0].change

    assert change == "raise loader workers per rank from 4 to 10"
