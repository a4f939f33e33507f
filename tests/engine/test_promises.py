"""Promised against got: the next run of an experiment that no longer needs an advice."""

from __future__ import annotations

from typing import Any

import pytest
from support.scenes import Scene, recording

POLICIES = "version: 1\ninclude: [pack:advice]\nprices: {gpu-hour: {default: $4/GPU-hour}}\n"
LONG = 200


def audit(scene: Scene, speed: float, *, experiment: str = "e1", data_time: float = 0.01) -> dict[str, Any]:
    """Job a waits 0.2 s of each 0.3 s step for data; job b, of the same experiment, comes after it."""
    first, second = [None] * LONG, [None] * LONG
    a = {
        "train.data_time": [0.2] * LONG + second,
        "train.step_time": [0.3] * LONG + second,
        "data.workers": [4] * LONG + second,
        "train.step": [200 * n for n in range(LONG)] + second,
    }
    b = {
        "train.data_time": first + [data_time] * LONG,
        "train.step_time": first + [0.12] * LONG,
        "data.workers": first + [12] * LONG,
        "train.step": first + [200 * speed * n for n in range(LONG)],
    }
    values: dict[tuple[str, str, str], list[object]] = {
        **{("job", "a", name): list(column) for name, column in a.items()},
        **{("job", "b", name): list(column) for name, column in b.items()},
        ("gpu", "g", "gpu.model"): ["H100"] * LONG + list(second),
        ("gpu", "h", "gpu.model"): list(first) + ["H100"] * LONG,
    }
    labels = {
        "a": {"experiment": "e1", "job": ""},
        "b": {"experiment": experiment, "job": ""},
        "g": {"job": "a", "experiment": ""},
        "h": {"job": "b", "experiment": ""},
    }
    return scene.audit(POLICIES, recording(values, labels=labels))


def test_what_an_advice_brought_is_measured_as_money_per_step(scene: Scene) -> None:
    """Twice the steps an hour on the same GPU: $4 an hour of b would have been $8 at a's price per step."""
    [promise] = audit(scene, speed=2)["promises"]

    assert (promise["policy"], promise["before"], promise["after"]) == ("more-loader-workers", "a", "b")
    assert promise["change"] == "raise the loader workers of each rank from 4 to 12"
    assert promise["promised_per_hour"] == pytest.approx(4 * 2 / 3)
    assert promise["got_per_hour"] == pytest.approx(4.0)


def test_a_change_that_made_it_dearer_is_told_as_a_loss(scene: Scene) -> None:
    """Half the steps for the same $4: at a's price per step they would have been $2."""
    [promise] = audit(scene, speed=0.5)["promises"]

    assert promise["got_per_hour"] == pytest.approx(-2.0)


def test_a_run_of_another_experiment_or_that_still_waits_says_nothing(scene: Scene) -> None:
    """Only the next run of the same experiment, and only when the advice is no longer needed."""
    assert audit(scene, speed=2, experiment="e2")["promises"] == []
    assert audit(scene, speed=2, data_time=0.1)["promises"] == []
