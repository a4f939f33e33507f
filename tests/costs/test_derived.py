"""Figures of cost in conditions, through the real command."""

from __future__ import annotations

from typing import Any

import pytest
from support.scenes import Scene, policy, reasons, recording, states

OWN = "prices: {gpu-hour: {default: $4/GPU-hour}}\n"
SLOTS = 120


def series(slots: int = SLOTS, **signals: Any) -> dict[tuple[str, str, str], Any]:
    """Two busy GPUs of job j for two hours ($16), and signals of the job (underscores for dots)."""
    found: dict[tuple[str, str, str], Any] = {
        ("gpu", f"g{n}", "gpu.utilization"): [0.9] * slots for n in range(2)
    }
    found["job", "j", "train.step"] = range(1, slots + 1)
    for name, values in signals.items():
        found["job", "j", name.replace("__", ".")] = values
    return found


def value(
    scene: Scene, signal: str, values: dict[tuple[str, str, str], Any], each: str = "job", unit: str = "$"
) -> float:
    """What a signal came to on the job or its team."""
    limit = {"$": "$0", "h": "0 GPU-hours", "%": "0%", "$/h": "$0/h"}[unit]
    labels = {name: {"job": "j", "team": "t", "experiment": "x"} for name in ("g0", "g1", "j")}
    result = scene.audit(policy(f"{signal} >= {limit}", each=each) + OWN, recording(values, labels=labels))
    assert len(result["findings"]) == 1, result["unknown"]
    return float(result["findings"][0]["evidence"][0]["value"])


def why_unknown(scene: Scene, signal: str, values: dict[tuple[str, str, str], Any], prices: str = OWN) -> str:
    """Why a signal of job j is not known."""
    labels = {f"g{n}": {"job": "j"} for n in range(2)}
    result = scene.audit(policy(f"{signal} >= $0", each="job") + prices, recording(values, labels=labels))
    assert result["findings"] == []
    return reasons(result)["j"]


def points(*pairs: tuple[int, float], slots: int = SLOTS) -> list[float | None]:
    """Readings in some slots only."""
    found: list[float | None] = [None] * slots
    for slot, reading in pairs:
        found[slot] = reading
    return found


@pytest.mark.parametrize("each", ["job", "team", "experiment"])
def test_cost_is_gpus_times_price_times_time(scene: Scene, each: str) -> None:
    """$4 x 2 GPUs x 2 h, for the job, its team and its experiment."""
    assert value(scene, "cost.total", series(), each) == pytest.approx(16)
    assert value(scene, "cost.per_hour", series(), each, "$/h") == pytest.approx(8)
    assert value(scene, "cost.gpu_hours", series(), each, "h") == pytest.approx(4)


def test_hidden_cost_and_the_rest_add_up(scene: Scene) -> None:
    """A quarter of the time before the first step: $4 hidden, all of it start-up, $12 compute."""
    values = series(train__step=[0] * 30 + list(range(1, 91)))

    assert value(scene, "cost.hidden", values) == pytest.approx(4)
    assert value(scene, "cost.startup", values) == pytest.approx(4)
    assert value(scene, "cost.compute", values) == pytest.approx(12)
    assert value(scene, "cost.goodput", values, unit="%") == pytest.approx(0.75)


def test_idle_failed_and_redone_have_figures(scene: Scene) -> None:
    """One GPU idle for an hour is $4; an attempt that failed in its first half hour is $4."""
    idle = series()
    idle["gpu", "g1", "gpu.utilization"] = [0.9] * 60 + [0.0] * 60
    state = ["running"] * 30 + ["failed"] + ["running"] * 89
    failed = series(job__state=state, train__step=[*range(1, 31), 30, *range(1, 90)])
    again = series(train__step=[*range(1, 61), *range(31, 91)])

    assert value(scene, "cost.idle", idle) == pytest.approx(4)
    assert value(scene, "cost.failed", failed) == pytest.approx(4)
    assert value(scene, "cost.redone", again) == pytest.approx(4, rel=0.05)


def test_waiting_has_a_figure(scene: Scene) -> None:
    """A quarter of every step on data, an eighth on the network."""
    values = series(data__wait_share=[0.25] * SLOTS, train__comm_share=[0.125] * SLOTS)

    assert value(scene, "cost.waiting", values) == pytest.approx(16 * 0.375)


def test_since_best_counts_from_the_best_evaluation(scene: Scene) -> None:
    """Best after one hour, worse later: the second hour is $8; what logs tell stands before that."""
    loss = points((29, 2.0), (59, 1.0), (89, 1.5))

    assert value(scene, "cost.since_best", series(eval__loss=loss)) == pytest.approx(8)
    told = series(eval__loss=loss, loss__since_best=[n * 60 for n in range(SLOTS)])
    assert value(scene, "cost.since_best", told) == pytest.approx(16 - 16 / SLOTS)


def test_per_improvement_is_the_price_of_the_newest_percent(scene: Scene) -> None:
    """From 2.0 to 1.9, 5 % for half an hour or $4: $0.80 a percent."""
    loss = points((29, 2.0), (59, 1.9), (89, 1.95))

    assert value(scene, "cost.per_improvement", series(eval__loss=loss)) == pytest.approx(0.8)


def test_an_epoch_costs_what_passed_between_its_beginnings(scene: Scene) -> None:
    """Epochs begin every 40 minutes: $5.33."""
    epochs = [n // 40 for n in range(SLOTS)]

    assert value(scene, "cost.per_epoch", series(train__epoch=epochs)) == pytest.approx(16 / 3)


def test_to_target_and_projected_follow_the_forecast_and_the_plan(scene: Scene) -> None:
    """30 steps to the target at $8 per 60 steps; twice the steps planned cost twice as much."""
    values = series(loss__forecast__steps_to_target=[30] * SLOTS, train__steps_planned=[240] * SLOTS)

    assert value(scene, "cost.to_target", values) == pytest.approx(4)
    assert value(scene, "cost.projected", values) == pytest.approx(32)
    assert value(scene, "cost.per_step", values) == pytest.approx(8 / 60)


@pytest.mark.parametrize(
    ("signal", "reason"),
    [
        ("cost.since_best", "no evaluation was seen"),
        ("cost.to_target", "no forecast is there"),
        ("cost.per_epoch", "no epoch has ended yet"),
        ("cost.projected", "no planned end is known"),
    ],
)
def test_what_cannot_be_reckoned_says_what_it_wants(scene: Scene, signal: str, reason: str) -> None:
    """Unknown, never 0, and no failure of the audit."""
    assert reason in why_unknown(scene, signal, series())
    assert scene.status == 0


def test_without_a_price_money_is_unknown(scene: Scene) -> None:
    """The reason is that of the price book."""
    assert "gpu.model is unknown" in why_unknown(scene, "cost.total", series(), "")


def test_increase_of_a_cost_is_what_was_spent_in_the_window(scene: Scene) -> None:
    """Half an hour of two GPUs; what a hole held is counted where it closes."""
    text = policy("increase(cost.total, 30m) == $4", each="job") + OWN
    labels = {f"g{n}": {"job": "j"} for n in range(2)}

    assert states(scene.audit(text, recording(series(), labels=labels))) == {"j": "firing"}


def test_a_recorded_cost_stands(scene: Scene) -> None:
    """Of the job that it was recorded of; another job is still reckoned."""
    values = series(cost__total=[100] * SLOTS)
    values["gpu", "g1", "gpu.utilization"] = [0.9] * SLOTS
    labels = {"g0": {"job": "j"}, "g1": {"job": "k"}}
    result = scene.audit(policy("cost.total > $1", each="job") + OWN, recording(values, labels=labels))

    found = {f["resource"]["id"]: f["evidence"][0]["value"] for f in result["findings"]}
    assert found == {"j": 100, "k": pytest.approx(8)}


def test_an_instance_has_a_price_per_hour(scene: Scene) -> None:
    """By the book."""
    values = {("instance", "i", "instance.type"): ["p3.8xlarge"] * 10}
    result = scene.audit(policy("cost.per_hour > $12/h", each="instance"), recording(values))

    assert states(result) == {"i": "firing"}


def test_explain_shows_a_reckoned_value(scene: Scene) -> None:
    """The tree of a pinned budget says what it came to."""
    text = policy("budget.used > 10%", each="job", budget="b") + OWN
    text += "budgets: [{name: b, each: job, limit: $32}]\n"
    labels = {f"g{n}": {"job": "j"} for n in range(2)}
    files = scene.write("p.yaml", text), scene.write("s.csv", recording(series(), labels=labels))
    out = scene.run("explain", "--policy", "p", "--resource", "j", "--file", files[0], "--signals", files[1])

    assert "is 50%" in out


def test_G_69_twelve_hours_of_metrics_are_too_few_to_call_an_instance_too_large(scene: Scene) -> None:
    """A rule over 30 hours is unknown, as young, until there are 30 hours of them."""
    text = policy("max(instance.cpu.utilization, 30h) < 40%", each="instance", resolution="1h")
    key = ("instance", "i", "instance.cpu.utilization")
    young, old = (scene.audit(text, recording({key: [0.1] * hours}, step=3600.0)) for hours in (12, 30))

    assert (states(young), states(old)) == ({}, {"i": "firing"})
    assert "young, 12 of 30 samples" in reasons(young)["i"]
