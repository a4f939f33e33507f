"""How budgets stand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.frames import Said, accrual_of, busy, frame_of, of_job
from support.scenes import START, Scene, policy, reasons, recording, states

from stoploss.engine.costs.budgets import Standing, period_starts, standings
from stoploss.rules.catalogue import catalogue
from stoploss.rules.conditions.check import check_condition
from stoploss.rules.diagnostics import Position
from stoploss.rules.policy import Budget
from stoploss.rules.units import parse_quantity

USED, MODEL = "budget.used", "gpu.model"
H100 = "NVIDIA H100 80GB HBM3"
OWN = "prices: {gpu-hour: {H100: $4/GPU-hour}}\n"


def budget(limit: str, *, each: str = "job", where: str | None = None, per: str = "life") -> Budget:
    """A budget named b."""
    condition = None
    if where is not None:
        condition, problems = check_condition(where, each=each, catalogue=catalogue(), labels_only=True)
        assert not problems
    return Budget("b", each, parse_quantity(limit), Position("f"), condition, per)


def stand(
    series: Any, said: Said, *budgets: Budget, zone: str = "UTC", step: float = 60.0
) -> tuple[Standing, ...]:
    """How budgets stand over a recording."""
    return standings(accrual_of(frame_of(series, said, step=step)), budgets, zone, catalogue())


def moments(starts: list[float]) -> list[str]:
    """Instants in UTC."""
    return [f"{datetime.fromtimestamp(start, UTC):%m-%d %H:%M}" for start in starts]


@pytest.mark.parametrize(
    ("per", "begin", "hours", "starts"),
    [
        ("day", "2026-03-29T00:30+01:00", 30, ["03-28 23:00", "03-29 22:00", "03-30 22:00"]),
        ("day", "2026-10-25T00:30+02:00", 30, ["10-24 22:00", "10-25 23:00", "10-26 23:00"]),
        ("week", "2026-03-27T12:00+01:00", 96, ["03-22 23:00", "03-29 22:00", "04-05 22:00"]),
        ("month", "2026-10-31T12:00+01:00", 24, ["09-30 22:00", "10-31 23:00", "11-30 23:00"]),
    ],
)
def test_periods_begin_by_the_wall_clock(per: str, begin: str, hours: float, starts: list[str]) -> None:
    """In Berlin the day of a change of the clock has 23 or 25 hours."""
    at = datetime.fromisoformat(begin).timestamp()

    assert moments(period_starts(per, "Europe/Berlin", at, at + hours * 3600)) == starts


@given(st.sampled_from(["day", "week", "month"]), st.integers(0, 40_000), st.integers(0, 2_000))
def test_periods_follow_each_other_without_a_gap(per: str, begin: int, hours: int) -> None:
    """The first holds the beginning, the last starts after the end, and they grow."""
    at = 1.7e9 + begin * 3600.0
    starts = period_starts(per, "America/New_York", at, at + hours * 3600.0)

    assert starts[0] <= at < starts[1]
    assert starts[-2] <= at + hours * 3600.0 < starts[-1]
    assert starts == sorted(set(starts))


def test_use_counts_from_the_start_of_the_day() -> None:
    """Thirty hours of one GPU: 24 count on the first day, 6 on the second."""
    (found,) = stand(busy(1, 30), of_job(), budget("48 GPU-hours", per="day"), step=3600.0)

    assert found.used[23] == pytest.approx(0.5)
    assert found.used[24] == pytest.approx(1 / 48)
    assert found.used[-1] == pytest.approx(6 / 48)
    assert found.until == START + 48 * 3600


def test_a_day_of_23_hours_spends_23_gpu_hours() -> None:
    """Hour by hour over the change of the clock, each slot lies in one day."""
    zone = "Europe/Berlin"
    slots = 24 * 90
    (found,) = stand(busy(1, slots), of_job(), budget("10 GPU-hours", per="day"), zone=zone, step=3600.0)
    peaks = [float(found.spent[n]) for n in range(slots - 1) if found.spent[n + 1] < found.spent[n]]

    assert set(np.round(peaks, 6)) == {23.0, 24.0}
    assert (
        np.round(peaks, 6).tolist().count(23.0) == 2
    )  # the day of the change, and the first, begun at 01:00


def test_labels_of_a_team_budget_are_judged_on_what_spends() -> None:
    """Only the team's training counts; a team has no class, its jobs have."""
    said = {
        "g0": {"job": "a", "team": "t", "class": "train"},
        "g1": {"job": "b", "team": "t", "class": "serve"},
        "g2": {"job": "c", "team": "u", "class": "train"},
    }
    where = 'team == "t" and class == "train"'
    (found,) = stand(busy(3, 60), lambda name, slot: said[name], budget("$8", each="team", where=where))

    assert (found.resource.id, float(found.used[-1])) == ("t", pytest.approx(0.5))


def test_what_is_projected_is_what_is_spent_and_the_present_speed_to_the_end() -> None:
    """After 6 hours at one GPU a day will have cost 24 GPU-hours."""
    (found,) = stand(busy(1, 6), of_job(), budget("32 GPU-hours", per="day"), step=3600.0)

    assert found.share_projected[-1] == pytest.approx(0.75)


def test_a_budget_for_life_ends_with_the_planned_steps() -> None:
    """A quarter of the steps took one hour: four hours will be needed; without a plan nothing is told."""
    series = {**busy(1, 60), ("job", "j", "train.step"): range(60)}
    planned = {("job", "j", "train.steps_planned"): [240.0] * 60}
    (told,) = stand({**series, **planned}, of_job(), budget("8 GPU-hours"))
    (untold,) = stand(series, of_job(), budget("8 GPU-hours"))

    assert told.share_projected[-1] == pytest.approx(0.5, rel=0.03)
    assert np.isnan(untold.share_projected).all()


def test_P_C12_exactly_80_percent_is_at_least_80_percent(scene: Scene) -> None:
    """Eight of ten GPU-hours: `>= 80%` fires and `> 80%` does not."""
    signals = recording({("gpu", "g0", "gpu.utilization"): [0.9] * 480}, labels={"g0": {"job": "j"}})
    budgets = "budgets: [{name: b, each: job, limit: 10 GPU-hours}]\n"
    found = [
        states(scene.audit(policy(f"{USED} {op} 80%", each="job") + budgets, signals)) for op in (">=", ">")
    ]

    assert found == [{"j": "firing"}, {}]


def job_budget(scene: Scene, verdict: str, used_hours: int = 48) -> dict[str, Any]:
    """The audit of budget-80 over eight GPUs that used so many of 60 GPU-hours."""
    slots = used_hours * 60 // 8
    series: dict[tuple[str, str, str], Any] = {
        ("gpu", f"g{n}", "gpu.utilization"): [0.9] * slots for n in range(8)
    }
    series["job", "j", "train.step"] = range(slots)
    series["job", "j", "train.steps_planned"] = [slots * 1.2] * slots
    series["job", "j", "loss.verdict"] = [verdict] * slots
    text = policy([f"{USED} >= 80%", 'not loss.verdict == "converged"'], each="job", on_unknown="alert")
    text += "budgets: [{name: one-job, each: job, limit: 60 GPU-hours}]\n"
    return scene.audit(text, recording(series, labels={f"g{n}": {"job": "j"} for n in range(8)}))


def test_G_63_at_80_percent_a_run_that_has_not_converged_alerts_and_names_its_budget(scene: Scene) -> None:
    """The evidence says which budget, and how much of it is spent."""
    result = job_budget(scene, "healthy")

    assert states(result) == {"j": "firing"}
    first = result["findings"][0]["evidence"][0]
    assert first["value"] == pytest.approx(0.8)
    assert first["note"] == "budget one-job: 48 of 60 GPU-hours"


def test_G_63_the_projection_is_told(scene: Scene) -> None:
    """At 80 % with a sixth of the steps left the budget will just do: 96 %."""
    series = {
        ("gpu", "g0", "gpu.utilization"): [0.9] * 480,
        ("job", "j", "train.step"): range(480),
        ("job", "j", "train.steps_planned"): [576] * 480,
    }
    text = (
        policy("budget.projected > 90%", each="job")
        + "budgets: [{name: b, each: job, limit: 10 GPU-hours}]\n"
    )
    result = scene.audit(text, recording(series, labels={"g0": {"job": "j"}}))

    evidence = result["findings"][0]["evidence"][0]
    assert evidence["value"] == pytest.approx(0.96, abs=0.01)
    assert "by the planned end" in evidence["note"]


def test_G_64_a_run_that_has_converged_gets_no_budget_alert(scene: Scene) -> None:
    """Neither a finding nor an unknown."""
    result = job_budget(scene, "converged")

    assert (result["findings"], result["unknown"]) == ([], [])


def test_a_loss_that_cannot_be_read_does_not_silence_the_budget(scene: Scene) -> None:
    """`on-unknown: alert`: the unknown is to be told; below 80 % the loss does not matter."""
    above, below = job_budget(scene, "N/A"), job_budget(scene, "N/A", 40)

    assert [item["alert"] for item in above["unknown"]] == [True]
    assert (below["findings"], below["unknown"]) == ([], [])


def test_an_unknown_alerts_only_after_the_policy_s_for(scene: Scene) -> None:
    """Unknown for 10 slots is not longer than 10m, for 11 it is."""
    for slots, alert in ((10, False), (11, True)):
        text = policy("gpu.power > 5 W", **{"for": "10m"}, on_unknown="alert")
        result = scene.audit(text, recording({("gpu", "g", "gpu.utilization"): [0.5] * slots}))
        assert [item["alert"] for item in result["unknown"]] == [alert]


def test_P_A13_late_cost_data_alerts_on_projection_and_tells_both_numbers(scene: Scene) -> None:
    """70 % was reported 14 h ago: the reported share is stale, what is projected fires and says so."""
    hours = 31 * 24 - 23
    reported: list[float | None] = [None] * hours
    for n in range(hours - 14):
        reported[n] = 0.7 * n / (hours - 15)
    series = {
        ("gpu", "g0", "gpu.utilization"): [0.9] * hours,
        ("job", "j", USED): reported,
    }
    text = policy(["budget.projected >= 73%"], each="job", resolution="1h")
    text += (
        policy([f"{USED} >= 71%"], each="job", resolution="1h")
        .partition("policies:\n")[2]
        .replace(": p\n", ": q\n")
    )
    text += "budgets: [{name: month, each: job, limit: 1000 GPU-hours, per: month}]\n"
    result = scene.audit(text, recording(series, labels={"g0": {"job": "j"}}, step=3600.0))

    assert [(f["policy"], f["state"]) for f in result["findings"]] == [("p", "firing")]
    note = result["findings"][0]["evidence"][0]["note"]
    assert "70% reported 14h ago" in note
    assert "by 2026-02-01 00:00" in note
    assert "stale" in reasons(result)["j"]


def test_a_recorded_share_stands_before_what_is_reckoned(scene: Scene) -> None:
    """The bill knows better."""
    series = {("gpu", "g0", "gpu.utilization"): [0.9] * 60, ("job", "j", USED): [0.95] * 60}
    text = policy(f"{USED} > 90%", each="job") + "budgets: [{name: b, each: job, limit: 100 GPU-hours}]\n"
    result = scene.audit(text, recording(series, labels={"g0": {"job": "j"}}))

    assert result["findings"][0]["evidence"][0]["note"] == "as recorded"


def test_the_highest_of_several_budgets_counts_and_a_policy_may_pin_one(scene: Scene) -> None:
    """Half of one and a tenth of another: 50 %, or what is pinned."""
    signals = recording({("gpu", "g0", "gpu.utilization"): [0.9] * 60}, labels={"g0": {"job": "j"}})
    budgets = "budgets:\n"
    for name, limit in (("small", 2), ("big", 10)):
        budgets += f"  - {{name: {name}, each: job, limit: {limit} GPU-hours}}\n"
    values = {}
    for name in ("", "small", "big"):
        keys = {"budget": name} if name else {}
        result = scene.audit(policy(f"{USED} > 1%", each="job", **keys) + budgets, signals)
        evidence = result["findings"][0]["evidence"][0]
        values[name] = (evidence["value"], evidence["note"].partition(":")[0])

    assert values == {
        "": (pytest.approx(0.5), "budget small"),
        "small": (pytest.approx(0.5), "budget small"),
        "big": (pytest.approx(0.1), "budget big"),
    }


def test_a_money_budget_without_a_price_is_unknown_and_says_why(scene: Scene) -> None:
    """An unknown price is not 0."""
    series = {("gpu", "g0", "gpu.utilization"): [0.9] * 60, ("gpu", "g0", MODEL): ["Riva TNT"] * 60}
    text = policy(f"{USED} > 1%", each="job") + "budgets: [{name: b, each: job, limit: $10}]\n"
    result = scene.audit(text, recording(series, labels={"g0": {"job": "j"}}))

    assert states(result) == {}
    assert "budget b: the price book does not know" in reasons(result)["j"]
    assert scene.status == 0


def test_a_silent_gpu_makes_the_budget_unknown(scene: Scene) -> None:
    """What one of two GPUs used since it was last seen is not known."""
    series = {
        ("gpu", "g0", "gpu.utilization"): [0.9] * 60,
        ("gpu", "g1", "gpu.utilization"): [0.9] * 30 + [None] * 30,
    }
    text = policy(f"{USED} > 99%", each="job") + "budgets: [{name: b, each: job, limit: 100 GPU-hours}]\n"
    result = scene.audit(text, recording(series, labels={"g0": {"job": "j"}, "g1": {"job": "j"}}))

    assert (states(result), list(reasons(result))) == ({}, ["j"])


def test_a_budget_of_the_team_counts_for_its_jobs(scene: Scene) -> None:
    """`budget.count` is 0 only where nothing limits a job, its team included."""
    series = {("gpu", f"g{n}", "gpu.utilization"): [0.9] * 10 for n in range(2)}
    labels = {"g0": {"job": "a", "team": "t"}, "g1": {"job": "b", "team": "u"}}
    text = policy("budget.count == 0", each="job")
    text += "budgets: [{name: b, each: team, limit: 1 GPU-hours, where: 'team == \"t\"'}]\n"

    assert states(scene.audit(text, recording(series, labels=labels))) == {"b": "firing"}
