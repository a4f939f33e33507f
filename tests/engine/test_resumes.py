"""Jobs that are owed a resume: by how they ended, by notices, and until when."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from support.frames import START, Said, Series, frame_of

from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.model import Bad, Look, ResourceId, Sample
from stoploss.engine.resumes import SIGNAL, owed
from stoploss.rules.catalogue import catalogue

MINUTE = 60.0
STATE, REASON = ("job", "a", "job.state"), ("job", "a", "job.exit_reason")
NOTICE = ("instance", "i", "instance.reclaim_notices")
Values = Sequence[float | str | None]


def on_instance(name: str, slot: int) -> Mapping[str, str | None]:
    """Instance i works for job a."""
    return {"job": "a"} if name == "i" else {}


def minutes(series: Series, said: Said | None = None, job: str = "a") -> list[float]:
    """The minutes for which the job has been owed a resume, slot by slot; -1 where that is not known."""
    frame = owed(frame_of(series, said), catalogue())
    plane = frame.planes[SIGNAL]
    column = plane.values[:, plane.series.index(ResourceId("job", job))] / MINUTE
    return [-1.0 if math.isnan(value) else round(float(value), 3) for value in column]


def ended(
    reason: str | None = None, state: str = "ended", more: int = 0
) -> dict[tuple[str, str, str], Values]:
    """A job that runs for two minutes and then has ended for four."""
    series: dict[tuple[str, str, str], Values] = {STATE: ["running"] * (2 + more) + [state] * 4}
    return series if reason is None else {**series, REASON: ["none"] * (2 + more) + [reason] * 4}


@pytest.mark.parametrize(("reason", "state"), [("preempted", "ended"), ("node-failure", "failed")])
def test_what_was_taken_back_is_owed_from_its_end_on(reason: str, state: str) -> None:
    """A job that its scheduler calls preempted, or whose node was lost, is owed a resume."""
    assert minutes(ended(reason, state)) == [0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "reason",
    ["completed", "failed", "cancelled", "timeout", "out-of-memory", "gpu-out-of-memory", "none", None],
)
def test_what_ended_otherwise_is_not_owed(reason: str | None) -> None:
    """A job that completed, failed by itself or was cancelled is known, and owed nothing."""
    assert minutes(ended(reason)) == [0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("reason", "is_owed"),
    [("failed", True), ("none", True), (None, True), ("completed", False), ("cancelled", False)],
)
def test_a_notice_explains_an_end_that_says_nothing_else(reason: str | None, is_owed: bool) -> None:
    """An end after a notice is a reclaim, unless the job completed or somebody cancelled it."""
    told = minutes({**ended(reason), NOTICE: [0, 1, 0, 0, 0, 0]}, on_instance)

    assert told == ([0, 0, 0, 1, 2, 3] if is_owed else [0] * 6)


@pytest.mark.parametrize(("before", "is_owed"), [(9, True), (10, False), (30, False)])
def test_a_notice_explains_the_ten_minutes_after_it(before: int, is_owed: bool) -> None:
    """What ended longer after a notice ended for another reason."""
    notices = [0.0] * 42
    notices[38 - before] = 1.0
    told = minutes({**ended(more=36), NOTICE: notices}, on_instance)

    assert told[38:] == ([0, 1, 2, 3] if is_owed else [0, 0, 0, 0])


def test_the_time_that_is_left_is_a_notice_too() -> None:
    """A reading of the time until the reclaim says that there was one."""
    left: Values = [None, 90.0, None, None, None, None]

    assert minutes({**ended(), ("instance", "i", "instance.reclaim_in"): left}, on_instance)[-1] == 3


def test_a_notice_of_another_instance_explains_nothing() -> None:
    """An instance that is not the job's, or not any more, does not count."""
    series = {**ended(), NOTICE: [0, 1, 0, 0, 0, 0]}
    left: Said = lambda name, slot: {"job": "a" if slot == 0 else "b"} if name == "i" else {}  # noqa: E731

    assert minutes(series)[-1] == 0
    assert minutes(series, left)[-1] == 0


@pytest.mark.parametrize("by", ["gpu", "label"])
def test_the_instance_of_a_job_is_found_through_its_host(by: str) -> None:
    """A job lies on the hosts of its GPUs, or on the one that it names, and these on instances."""

    def said(name: str, slot: int) -> Mapping[str, str | None]:
        if name == "h":
            return {"instance": "i"}
        if by == "gpu":
            return {"job": "a" if slot < 2 else None, "host": "h"} if name == "g" else {}
        return {"host": "h"} if name == "a" else {}

    series = {
        **ended(),
        NOTICE: [0, 1, 0, 0, 0, 0],
        ("gpu", "g", "gpu.utilization"): [0.9] * 6,
        ("host", "h", "host.cpu.utilization"): [0.5] * 6,
    }

    assert minutes(series, said) == [0, 0, 0, 1, 2, 3]


def test_nothing_is_owed_from_the_next_start_on() -> None:
    """Queued or running again it is owed nothing; taken back a second time it is owed anew."""
    states = ["running", "ended", "ended", "queued", "running", "ended", "ended"]
    reasons = ["none", "preempted", "preempted", "preempted", "none", "preempted", "preempted"]

    assert minutes({STATE: states, REASON: reasons}) == [0, 0, 1, 0, 0, 0, 1]


def test_an_attempt_that_came_and_went_between_two_looks_counts() -> None:
    """More attempts at the next look mean another end, with its own reason."""
    series = {
        STATE: ["running", "ended", "ended", "ended", "ended"],
        REASON: ["none", "preempted", "preempted", "failed", "failed"],
        ("job", "a", "job.attempts"): [1.0, 1.0, 1.0, 2.0, 2.0],
    }

    assert minutes(series) == [0, 0, 1, 0, 0]


@pytest.mark.parametrize(("recipe", "told"), [("r1", [0, 0, 1, 0, 0]), ("r2", [0, 0, 1, 2, 3])])
def test_another_job_of_its_configuration_goes_on_in_its_place(recipe: str, told: list[float]) -> None:
    """A job that a launcher starts anew under another name is the resume; one of another recipe is not."""
    recipes = {"a": "r1", "b": recipe}
    series = {
        STATE: ["running", *["ended"] * 4],
        REASON: ["none", *["preempted"] * 4],
        ("job", "b", "job.state"): [None, None, None, "running", "running"],
    }

    assert minutes(series, lambda job, slot: {"experiment": "e", "recipe": recipes[job]}) == told


def test_the_end_is_taken_from_whoever_tells_it() -> None:
    """The time since the end counts, not the time since it was seen."""
    since: Values = [0.0, 0.0, 600.0, 660.0, 720.0, 780.0]

    assert minutes({**ended("preempted"), ("job", "a", "job.since_end"): since}) == [0, 0, 10, 11, 12, 13]


def test_a_job_that_was_suspended_after_it_ran_is_owed() -> None:
    """What was suspended while it ran was stopped to go on later; what never ran waits for its start."""
    assert minutes({STATE: ["running", "suspended", "suspended", "running"]}) == [0, 0, 1, 0]
    assert minutes({STATE: ["queued", "queued", "queued", "ended"]}) == [0, 0, 0, 0]
    assert minutes({STATE: ["suspended", "suspended", "suspended"]}) == [0, 0, 0]


def test_what_vanishes_with_its_instance_is_owed_since_its_last_sight() -> None:
    """Neither the job nor the instance that had a notice is seen any more, while others are."""
    series = {
        STATE: ["running", "running", None, None, None],
        NOTICE: [0, 1, None, None, None],
        ("host", "other", "host.cpu.utilization"): [0.5] * 5,
    }

    assert minutes(series, on_instance) == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "change",
    [
        {NOTICE: [0, 1, 0, 0, 0]},
        {NOTICE: [0, 0, None, None, None]},
    ],
    ids=["the instance lives", "no notice"],
)
def test_silence_alone_says_nothing(change: Series) -> None:
    """A job that is not seen is unknown where its instance lives or had no notice."""
    series = {
        STATE: ["running", "running", None, None, None],
        NOTICE: [0, 1, None, None, None],
        ("host", "other", "host.cpu.utilization"): [0.5] * 5,
    }

    assert minutes({**series, **change}, on_instance)[-3:] == [-1, -1, -1]


@pytest.mark.parametrize("fails", [True, False], ids=["slurm fails", "nobody looks"])
def test_a_look_that_was_not_made_says_nothing(fails: bool) -> None:
    """Where what saw the job cannot look, or nobody does, the job is unknown and not gone."""
    buffer = SampleBuffer(catalogue(), {"slurm": MINUTE, "host": MINUTE, "aws": MINUTE})
    instance = ResourceId("instance", "i")
    for slot in range(1, 5):
        at = START + slot * MINUTE
        if slot < 3 or fails:
            host = Sample(at, ResourceId("host", "h"), "host.cpu.utilization", 0.5)
            buffer.add("host", Look((host,)), slot_time=at)
        if slot < 3:
            job = Sample(at, ResourceId("job", "a"), "job.state", "running")
            buffer.add("slurm", Look((job,)), slot_time=at)
            told = Sample(at, instance, "instance.reclaim_notices", float(slot == 2), {"job": "a"})
            buffer.add("aws", Look((told,)), slot_time=at)
        elif fails:
            buffer.add_failure("slurm", at, "timed out")
    values = owed(buffer.frame(MINUTE, START + 4 * MINUTE), catalogue()).planes[SIGNAL].values[:, 0]

    assert np.isnan(values).tolist() == [False, False, True, True]


def test_it_is_unknown_where_the_state_or_the_reason_is() -> None:
    """A bad reading of either stays one, with its reason; a gap in the states too."""
    buffer = SampleBuffer(catalogue(), {"slurm": MINUTE})
    for slot, (state, reason) in enumerate(
        [
            ("running", "none"),
            ("ended", Bad("no accounting")),
            (Bad("timed out"), "preempted"),
            ("ended", "preempted"),
        ]
    ):
        at, job = START + (slot + 1) * MINUTE, ResourceId("job", "a")
        samples = (Sample(at, job, "job.state", state), Sample(at, job, "job.exit_reason", reason))
        buffer.add("slurm", Look(samples), slot_time=at)
    frame = owed(buffer.frame(MINUTE), catalogue())
    plane = frame.planes[SIGNAL]

    assert np.isnan(plane.values[:, 0]).tolist() == [False, True, True, False]
    assert plane.values[3, 0] == 2 * MINUTE
    assert [frame.reasons[status - 16] for status in plane.status[1:3, 0]] == ["no accounting", "timed out"]
    assert minutes({STATE: ["running", None, "running"]}) == [0, -1, 0]


def test_what_was_recorded_stands() -> None:
    """A recorded signal is not worked out again."""
    frame = frame_of({**ended("preempted"), ("job", "a", SIGNAL): [7.0] * 6})

    assert owed(frame, catalogue()) is frame


@pytest.mark.parametrize("seed", range(20))
def test_a_value_depends_on_its_past_alone(seed: int) -> None:
    """Slot by slot the same comes out as at once, whatever happens to jobs and instances."""
    random = np.random.default_rng(seed)
    slots = 30

    def some(values: Sequence[float | str | None], shares: Sequence[float]) -> Values:
        drawn = random.choice(len(values), slots, p=shares)
        # Longer stretches of the same are likelier.
        held = np.maximum.accumulate(np.where(random.random(slots) < 0.4, np.arange(slots), 0))
        return [values[drawn[at]] for at in held]

    series: dict[tuple[str, str, str], Values] = {}
    for job in "ab":
        states = ("running", "ended", "failed", "suspended", "queued", None)
        series["job", job, "job.state"] = some(states, (0.3, 0.2, 0.1, 0.1, 0.1, 0.2))
        words = ("none", "preempted", "failed", "completed", None)
        series["job", job, "job.exit_reason"] = some(words, (0.3, 0.3, 0.2, 0.1, 0.1))
        series["instance", f"i{job}", "instance.reclaim_notices"] = some((0.0, 1.0, None), (0.6, 0.2, 0.2))
    series["host", "other", "host.cpu.utilization"] = [0.5] * slots
    said: Said = lambda name, slot: {"job": name[1:]} if name.startswith("i") else {}  # noqa: E731
    whole = owed(frame_of(series, said), catalogue()).planes[SIGNAL]
    for until in range(1, slots + 1):
        frame = frame_of(series, said, until=until)
        part = owed(frame, catalogue()).planes.get(SIGNAL)
        for at, job in enumerate(part.series if part is not None else ()):
            assert part is not None
            of_whole = whole.values[until - 1, whole.series.index(job)]
            assert np.array_equal(part.values[until - 1, at], of_whole, equal_nan=True), (job, until)
