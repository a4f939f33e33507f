"""Loss signals of jobs in frames: causal, the same in pieces, and silent where nothing is known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.curves import curve, log
from support.scenes import Scene, policy, reasons, recording, states

from stoploss.engine.history.frame import BAD, VALID, Frame
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.losses.incremental import judge
from stoploss.engine.losses.signals import DERIVED, LossSignals, conclude
from stoploss.engine.model import Bad, Look, Reading, ResourceId, Sample
from stoploss.rules.catalogue import catalogue

Looks = Sequence[Mapping[str, Reading]]
FALLING: list[dict[str, Reading]] = [
    {"train.loss": 3 * n**-0.3, "train.step": 10.0 * n} for n in range(1, 101)
]
JOB = ResourceId("job", "a")


def frame(
    jobs: Mapping[str, Looks], *, others: Sequence[Sample] = (), labels: Mapping[str, str] | None = None
) -> Frame:
    """One look a minute; the n-th entry of a job is what its n-th look read."""
    buffer = SampleBuffer(catalogue(), {"training": 60.0})
    for number in range(max((len(looks) for looks in jobs.values()), default=1)):
        at = 60.0 * (number + 1)
        samples = [
            Sample(at, ResourceId("job", name), signal, reading, labels)
            for name, looks in jobs.items()
            if number < len(looks)
            for signal, reading in looks[number].items()
        ]
        buffer.add("training", Look(tuple(samples)), slot_time=at)
    if others:
        buffer.add("gpu", Look(tuple(others)), slot_time=others[0].time)
    return buffer.frame(60.0)


def words(of: Frame, job: ResourceId = JOB, signal: str = "loss.verdict") -> list[str | None]:
    """The words of a text signal by slot; None where there is none."""
    plane = of.planes[signal]
    at = plane.series.index(job)
    rows = zip(plane.values[:, at], plane.status[:, at], strict=True)
    return [plane.words[int(value)] if status == VALID else None for value, status in rows]


def derived(of: Frame) -> Frame:
    return LossSignals(catalogue()).extend(of)


def newest(of: Frame, signal: str, job: ResourceId = JOB) -> float:
    plane = of.planes[signal]
    return float(plane.values[-1, plane.series.index(job)])


def test_a_verdict_is_on_what_was_read_so_far() -> None:
    """Each slot has the verdict on its past: warming up first, healthy later, broken when it breaks."""
    looks = [*FALLING, *({"train.loss": math.nan, "train.step": 1000.0 + n} for n in range(1, 9))]

    told = words(derived(frame({"a": looks})))

    assert told[0] == "warming-up"
    assert told[99] == "healthy"
    assert told[-1] == "non-finite"


def test_it_is_the_verdict_of_the_whole_log() -> None:
    """The verdict of the newest slot is what the log itself would get."""
    loss = 3.0 + 0.001 * np.random.default_rng(3).normal(size=200)
    looks = [{"train.loss": float(value), "train.step": 10.0 * n} for n, value in enumerate(loss, 1)]
    expected = judge(log({"train.loss": curve("train.loss", loss, [10.0 * n for n in range(1, 201)])}))

    assert words(derived(frame({"a": looks})))[-1] == expected.verdict == "flat"


def test_a_repeated_reading_is_no_new_record() -> None:
    """Looks that repeat the newest record add no points, and the time since the best goes on."""
    looks = [FALLING[n // 3] for n in range(60)]

    found = derived(frame({"a": looks}))

    assert newest(found, "loss.since_best") == 120.0
    assert words(found)[-1] == words(derived(frame({"a": FALLING[:20]})))[-1]


def test_a_run_that_stops_moving_is_hung() -> None:
    """Looks that go on seeing the same step make a run hung, and one new step makes it move again."""
    looks = [*FALLING, *[FALLING[-1]] * 30, {"train.loss": 0.7, "train.step": 1010.0}]

    told = words(derived(frame({"a": looks})))

    assert told[100:103] == ["healthy"] * 3
    assert told[129] == "hung"
    assert told[130] == "healthy"


def test_evaluations_since_the_best() -> None:
    """Evaluations that are repeated between steps count once each."""
    evals = [0.9, 0.7, 0.5, 0.6, 0.7, 0.8]
    looks: list[dict[str, Reading]] = [
        {**look, "eval.loss": evals[n // 16]} for n, look in enumerate(FALLING[:96])
    ]

    assert newest(derived(frame({"a": looks})), "loss.evals_since_best") == 3.0


def test_progress_and_time_left() -> None:
    """With a plan, the share that is done and the time to the end at the present speed are told."""
    looks: list[dict[str, Reading]] = [{**look, "train.steps_planned": 4000.0} for look in FALLING]

    found = derived(frame({"a": looks}))

    assert newest(found, "train.progress") == 0.25
    assert newest(found, "train.time_left") == pytest.approx(300 * 60)


def test_a_declared_target_has_a_forecast() -> None:
    """Labels declare the target and direction of the metric, and the steps to it are foretold."""
    looks: list[dict[str, Reading]] = [
        {"eval.metric": 0.9 - 0.5 * n**-0.5, "train.step": 10.0 * n} for n in range(1, 61)
    ]

    found = derived(frame({"a": looks}, labels={"target": "0.85", "better": "higher"}))

    assert newest(found, "loss.forecast.steps_to_target") > 0
    assert "loss.forecast.steps_to_target" not in derived(frame({"a": looks})).planes


def test_P_A6_an_unreadable_log_is_unknown() -> None:
    """A log that exists and cannot be read has no verdict but the reason why."""
    found = derived(frame({"a": [*FALLING[:30], {"train.loss": Bad("permission denied")}]}))

    plane = found.planes["loss.verdict"]
    assert words(found)[28:] == ["healthy", "healthy", None]
    assert found.reasons[plane.status[-1, 0] - BAD] == "permission denied"


def gpu(job: str) -> list[Sample]:
    return [Sample(60.0, ResourceId("gpu", "n1/0"), "gpu.utilization", 0.5, {"job": job})]


def test_a_job_whose_logs_were_not_found_cannot_be_told() -> None:
    """A job that a GPU works for, and of which the collector of logs found none, is cannot-tell: known."""
    found = derived(frame({"a": FALLING[:10]}, others=gpu("b")))

    assert words(found, ResourceId("job", "b")) == ["cannot-tell"] * 10


def test_a_log_that_comes_later_ends_cannot_tell() -> None:
    """From the first record on the verdict is that on the record."""
    late: list[dict[str, Reading]] = [{}, {}, *FALLING[:3]]

    told = words(derived(frame({"a": late, "c": FALLING[:5]}, others=gpu("a"))))

    assert told == ["cannot-tell", "cannot-tell", "warming-up", "warming-up", "warming-up"]


def test_nobody_looked_for_logs() -> None:
    """Without a collector of logs there is no verdict at all, not even that there is none to give."""
    buffer = SampleBuffer(catalogue())
    buffer.add("gpu", Look(tuple(gpu("b"))), slot_time=60.0)

    assert "loss.verdict" not in derived(buffer.frame(60.0)).planes


def test_a_recorded_verdict_wins() -> None:
    """From the first recorded verdict of a job on none is concluded for it; other jobs get theirs."""
    looks: list[dict[str, Reading]] = [
        {**look, **({"loss.verdict": "diverged"} if n in (50, 60) else {})} for n, look in enumerate(FALLING)
    ]

    found = derived(frame({"a": looks, "b": FALLING}))

    told = words(found)
    assert set(told[:50]) <= {"warming-up", "healthy"}
    assert [n for n, word in enumerate(told) if word == "diverged"] == [50, 60]
    assert set(told[51:60]) == {None}
    assert words(found, ResourceId("job", "b"))[-1] == "healthy"


reading = st.sampled_from([0.5, 1.0, 3.0, 3.0, math.nan, math.inf, -1.0]).map(float)
one_look = st.fixed_dictionaries(
    {},
    optional={
        "train.loss": st.one_of(reading, st.just(Bad("cut off"))),
        "eval.loss": reading,
        "train.grad_norm": reading,
        "train.lr": st.sampled_from([0.0, 1e-3]),
        "train.step": st.integers(0, 30).map(float),
        "loss.verdict": st.sampled_from(["healthy", "flat"]),
    },
)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(one_look, min_size=1, max_size=25), min_size=1),
    st.lists(st.integers(1, 24), max_size=4),
)
def test_pieces_say_what_the_whole_says(jobs: dict[str, Looks], cuts: list[int]) -> None:
    """A frame in one piece, cut anywhere, or tick by tick has the same readings in every slot."""
    whole_frame = frame(jobs, others=gpu("z"))
    whole = derived(whole_frame)
    last = whole_frame.last

    for bounds in (
        {first for first in cuts if first < last} | {last},
        set(range(whole_frame.first, last + 1)),
    ):
        follower, first = LossSignals(catalogue()), whole_frame.first
        for end in sorted(bounds):
            piece = follower.extend(whole_frame.cut(first, end))
            for name in DERIVED:
                same(piece, whole, name, first, end)
            first = end + 1


def same(piece: Frame, whole: Frame, name: str, first: int, end: int) -> None:
    """Series by series; one that the piece lacks has not begun."""
    if name not in whole.planes:
        assert name not in piece.planes
        return
    full = whole.planes[name]
    rows = slice(first - whole.first, end + 1 - whole.first)
    for at, resource in enumerate(full.series):
        expected = full.status[rows, at]
        part = piece.planes.get(name)
        if part is None or resource not in part.series:
            assert not expected.any()
            continue
        column = part.series.index(resource)
        assert (part.status[:, column] == expected).all()
        mine, theirs = part.values[:, column], full.values[rows, at]
        if part.words:
            assert [part.words[int(v)] for v in mine[expected == VALID]] == [
                full.words[int(v)] for v in theirs[expected == VALID]
            ]
        else:
            assert np.array_equal(mine, theirs, equal_nan=True)


def test_series_keep_their_places() -> None:
    """A later frame adds series at the end and moves none."""
    whole = frame({"b": FALLING[:6], "a": [{}, {}, {}, *FALLING[:3]]}, others=gpu("c"))
    follower = LossSignals(catalogue())

    orders = [
        follower.extend(whole.cut(slot, slot)).planes["loss.verdict"].series
        for slot in range(whole.first, whole.last + 1)
    ]

    assert all(later[: len(early)] == early for early, later in pairwise(orders))


def test_readings_of_one_log() -> None:
    """A log on its own gives the same words, without a time since the best where it has no clock."""
    said = conclude(log({"train.loss": [3 * n**-0.3 for n in range(1, 101)]}), None)

    assert said["loss.verdict"] == "healthy"
    assert "loss.since_best" not in said


@pytest.mark.parametrize(("bad", "firing"), [(True, {"a": "firing"}), (False, {})])
def test_an_audit_of_recorded_curves(scene: Scene, bad: bool, firing: dict[str, str]) -> None:
    """A policy on loss.verdict fires from recorded losses alone."""
    values = [3 * n**-0.3 for n in range(1, 101)] + [math.nan if bad else 0.75] * 10
    curves = {("job", "a", "train.loss"): values, ("job", "a", "train.step"): range(1, 111)}

    result = scene.audit(policy('loss.verdict == "non-finite"', each="job"), recording(curves))

    assert states(result) == firing
    assert reasons(result) == {}
    assert json.dumps(result)
