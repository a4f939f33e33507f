"""What the paid time of a job bought."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.frames import Series, accrual_of, busy, frame_of, of_job

from stoploss.engine.costs.goodput import CLASSES, classify, rows

STEP = "train.step"


def minutes(series: Series) -> dict[str, float]:
    """Minutes of one GPU of job j by class, without those of nothing."""
    accrual = accrual_of(frame_of(series, of_job()))
    totals = classify(accrual)["j"].hours[:, -1] * 60
    return {name: round(float(total), 6) for name, total in zip(CLASSES, totals, strict=True) if total > 1e-9}


def job(
    signal: str, values: Sequence[float | str | None]
) -> dict[tuple[str, str, str], Sequence[float | str | None]]:
    """A series of job j."""
    return {("job", "j", signal): values}


def test_time_before_the_first_step_is_starting() -> None:
    """Ten minutes without a step, then steps: ten minutes went into starting."""
    steps = [0.0] * 10 + [float(n) for n in range(1, 31)]

    assert minutes({**busy(1, 40), **job(STEP, steps)}) == {"starting": 10, "useful": 30}


def test_gpus_without_work_are_idle() -> None:
    """Of two GPUs one does nothing while the other steps."""
    series = {**busy(1, 30), ("gpu", "g1", "gpu.utilization"): [0.0] * 30, **job(STEP, range(1, 31))}

    assert minutes(series)["idle"] == 30


def test_evaluating_is_no_idleness() -> None:
    """A GPU that rests while the job evaluates is needed."""
    series = {**busy(1, 30, 0.0), **job("job.phase", ["evaluating"] * 30)}

    assert minutes(series) == {"useful": 30}


def test_without_logs_nobody_knows_what_a_busy_gpu_does() -> None:
    """No step was ever seen: busy time is unknown, not useful."""
    assert minutes(busy(1, 30)) == {"unknown": 30}


def test_G_60_steps_done_again_are_redone() -> None:
    """After 20 steps the run goes back by 10: ten minutes are done a second time."""
    steps = [float(n) for n in (*range(1, 21), *range(11, 31))]
    found = minutes({**busy(1, 40), **job(STEP, steps)})

    assert found["redone"] == pytest.approx(9, abs=1)
    assert found["useful"] == pytest.approx(31, abs=1)


def test_waiting_takes_its_share_of_a_slot() -> None:
    """With 25% of every step spent on data and 10% on the network, 65% is useful."""
    series = {
        **busy(1, 20),
        **job(STEP, range(1, 21)),
        **job("data.wait_share", [0.25] * 20),
        **job("train.comm_share", [0.1] * 20),
    }

    assert minutes(series) == {"waiting for data": 5, "waiting for the network": 2, "useful": 13}


def test_a_failed_attempt_is_lost() -> None:
    """It failed after 20 minutes and began anew: what it did counts as failed, the next is not redone."""
    state = ["running"] * 20 + ["failed"] * 2 + ["running"] * 18
    steps = [*range(1, 21), 20, 20, *range(1, 19)]
    found = minutes({**busy(1, 40), **job(STEP, steps), **job("job.state", state)})

    assert found["failed"] == 20
    assert "redone" not in found


def test_what_the_next_attempt_went_on_from_was_not_lost() -> None:
    """It failed after step 20 and did step 15 next: six steps were lost, nothing is redone."""
    state = ["running"] * 20 + ["failed"] * 2 + ["running"] * 18
    steps = [*range(1, 21), 20, 20, *range(15, 33)]
    found = minutes({**busy(1, 40), **job(STEP, steps), **job("job.state", state)})

    assert found["failed"] == 6
    assert "redone" not in found


def test_after_the_best_evaluation_the_time_to_worse_ones_is_past_best() -> None:
    """Best at minute 10, worse at 20 and 30: twenty minutes bought nothing; the last ten are open."""
    loss = [None] * 40
    for slot, value in ((9, 1.0), (19, 1.1), (29, 1.2)):
        loss[slot] = value
    found = minutes({**busy(1, 40), **job(STEP, range(1, 41)), **job("eval.loss", loss)})

    assert found == {"useful": 20, "past best": 20}


def test_a_better_evaluation_takes_past_best_back() -> None:
    """When the fourth evaluation is the best, nothing was past best."""
    loss = [None] * 40
    for slot, value in ((9, 1.0), (19, 1.1), (29, 1.2), (39, 0.9)):
        loss[slot] = value

    assert minutes({**busy(1, 40), **job(STEP, range(1, 41)), **job("eval.loss", loss)}) == {"useful": 40}


def test_a_job_that_ended_and_holds_its_gpus_is_idle() -> None:
    """Whatever the GPUs show."""
    series = {**busy(1, 30), **job("job.state", ["ended"] * 30)}

    assert minutes(series) == {"idle": 30}


LENGTH = 30
worlds = st.fixed_dictionaries(
    {
        STEP: st.lists(st.one_of(st.none(), st.integers(0, 12)), min_size=LENGTH, max_size=LENGTH),
        "eval.loss": st.lists(
            st.one_of(st.none(), st.none(), st.sampled_from([1.0, 2.0, 3.0])),
            min_size=LENGTH,
            max_size=LENGTH,
        ),
        "job.state": st.lists(
            st.sampled_from(["running", "running", "failed", "queued", None]),
            min_size=LENGTH,
            max_size=LENGTH,
        ),
        "job.attempts": st.lists(st.sampled_from([1.0, 1.0, 2.0, 3.0]), min_size=LENGTH, max_size=LENGTH),
        "data.wait_share": st.lists(st.sampled_from([0.0, 0.3, 1.0, None]), min_size=LENGTH, max_size=LENGTH),
        "train.comm_share": st.lists(st.sampled_from([0.0, 0.9, None]), min_size=LENGTH, max_size=LENGTH),
    }
)
loads = st.lists(
    st.lists(st.sampled_from([0.0, 0.9, 0.9, None]), min_size=LENGTH, max_size=LENGTH), min_size=1, max_size=2
)


def series_of(
    signals: dict[str, list[object]], gpus: list[list[float | None]]
) -> dict[tuple[str, str, str], list[object]]:
    """Series of job j and its GPUs, all of them seen in the first slot."""
    found: dict[tuple[str, str, str], list[object]] = {
        ("job", "j", name): values for name, values in signals.items()
    }
    for number, load in enumerate(gpus):
        found["gpu", f"g{number}", "gpu.utilization"] = [0.9, *load[1:]]
    found["job", "j", "job.gpus_held"] = [1.0] * LENGTH
    return found


@settings(max_examples=60, deadline=None)
@given(worlds, loads)
def test_classes_add_up_to_all_that_was_paid(
    signals: dict[str, list[object]], gpus: list[list[float | None]]
) -> None:
    """In every slot, in hours and in money, over totals and over lines."""
    accrual = accrual_of(frame_of(series_of(signals, gpus), of_job()))
    paid_hours = sum(stream.gpu_hours for stream in accrual.streams)
    paid = sum(stream.money for stream in accrual.streams)
    found = classify(accrual)

    np.testing.assert_allclose(found["j"].hours.sum(axis=0), np.cumsum(paid_hours), atol=1e-9)
    np.testing.assert_allclose(found["j"].money.sum(axis=0), np.cumsum(paid), atol=1e-9)
    np.testing.assert_allclose(found["j"].weights.sum(axis=1), 1.0)
    assert (found["j"].weights > -1e-9).all()
    lines = rows(accrual, found)
    np.testing.assert_allclose(sum(line.gpu_hours for line in lines), paid_hours, atol=1e-9)
    for at, name in enumerate(CLASSES):
        total = sum(float(line.gpu_hours.sum()) for line in lines if line.goodput == name)
        assert total == pytest.approx(found["j"].hours[at, -1], abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(worlds, loads, st.integers(2, LENGTH))
def test_totals_are_what_was_known_in_their_slot(
    signals: dict[str, list[object]], gpus: list[list[float | None]], until: int
) -> None:
    """A recording that ends in a slot says of it what the longer one says of it."""
    series = series_of(signals, gpus)
    whole = accrual_of(frame_of(series, of_job()))
    part = accrual_of(frame_of(series, of_job(), until=until))
    if part.known["j"][-1]:
        np.testing.assert_allclose(
            classify(whole)["j"].hours[:, until - 1], classify(part)["j"].hours[:, -1], atol=1e-9
        )
