"""Looks of live collectors as frames."""

from __future__ import annotations

import numpy as np
import pytest

from stoploss.engine.history.frame import BAD, FAILED, LOOKED, VALID
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.model import UNREADABLE, Bad, Look, Reading, ResourceId, Sample
from stoploss.rules.catalogue import Catalogue, Signal, SignalKind

CATALOGUE = Catalogue(
    (
        Signal("gpu.utilization", SignalKind.GAUGE, "share", ("gpu",), "m", "gpu"),
        Signal("job.state", SignalKind.STATE, "text", ("job",), "m", "slurm", values=("running", "failed")),
        Signal("train.loss", SignalKind.CURVE, "1", ("job",), "m", "training", better="lower"),
    )
)
GPU, JOB, OTHER = ResourceId("gpu", "0"), ResourceId("job", "1"), ResourceId("job", "2")


def look(resource: ResourceId, signal: str, reading: Reading, **labels: object) -> Look:
    """A look with one sample."""
    return Look((Sample(0.0, resource, signal, reading, labels or None),))  # type: ignore[arg-type]


def test_looks_become_slots() -> None:
    """A sample lies in the slot of its look, and the cadence is the collector's interval."""
    buffer = SampleBuffer(CATALOGUE, {"gpu": 120.0})
    buffer.add("gpu", look(GPU, "gpu.utilization", 0.5, job="1"), slot_time=60.0)
    buffer.add("gpu", look(GPU, "gpu.utilization", 0.7), slot_time=180.0)

    frame = buffer.frame(60.0, 240.0)

    plane = frame.planes["gpu.utilization"]
    assert (frame.first, frame.slots) == (1, 4)
    assert plane.status[:, 0].tolist() == [VALID, 0, VALID, 0]
    assert plane.cadence.tolist() == [2]
    assert frame.looks["gpu"].tolist() == [LOOKED, 0, LOOKED, 0]
    assert frame.look_cadence == {"gpu": 2}
    assert frame.resources[GPU].changes[0].labels == {"job": "1"}


def test_failed_look_is_told_with_its_reason() -> None:
    """A failed look marks its slot and keeps its reason."""
    buffer = SampleBuffer(CATALOGUE, {"gpu": 60.0})
    buffer.add("gpu", look(GPU, "gpu.utilization", 0.5), slot_time=60.0)
    buffer.add_failure("gpu", 120.0, "driver mismatch")

    frame = buffer.frame(60.0)

    assert frame.looks["gpu"].tolist() == [LOOKED, FAILED]
    assert frame.look_reasons == {"gpu": "driver mismatch"}


def test_look_that_saw_nothing_still_looked() -> None:
    """An empty look counts as a look."""
    buffer = SampleBuffer(CATALOGUE, {"slurm": 60.0})
    buffer.add("slurm", Look(()), slot_time=120.0)

    assert buffer.frame(60.0).looks["slurm"].tolist() == [LOOKED]


def test_resource_missing_from_an_inventory_is_absent_until_it_is_seen_again() -> None:
    """An inventory without a known resource begins its absence; the next sample ends it."""
    buffer = SampleBuffer(CATALOGUE, {"slurm": 60.0})
    jobs = frozenset({"job"})
    both = (Sample(0, JOB, "job.state", "running"), Sample(0, OTHER, "job.state", "running"))
    buffer.add("slurm", Look(both, jobs), slot_time=60.0)
    buffer.add("slurm", Look(both[:1], jobs), slot_time=120.0)
    buffer.add("slurm", Look(both[:1], jobs), slot_time=180.0)
    buffer.add("slurm", Look(both, jobs), slot_time=240.0)

    frame = buffer.frame(60.0)

    assert frame.resources[JOB].absences == ()
    assert frame.resources[OTHER].absences == ((2, 4),)
    assert buffer.frame(60.0, 180.0).resources[OTHER].absences == ((2, None),)


def test_reading_that_does_not_fit_is_bad() -> None:
    """A reading outside the signal's type is a bad reading, and a loss that is NaN is the worst value."""
    buffer = SampleBuffer(CATALOGUE)
    buffer.add("gpu", look(GPU, "gpu.utilization", float("nan")), slot_time=60.0)
    buffer.add("slurm", look(JOB, "job.state", "sleeping"), slot_time=60.0)
    buffer.add("training", look(JOB, "train.loss", float("nan")), slot_time=60.0)
    buffer.add("training", look(OTHER, "train.loss", Bad("log cannot be read")), slot_time=60.0)

    frame = buffer.frame(60.0)

    reasons = [frame.reasons[frame.planes[n].status[0, 0] - BAD] for n in ("gpu.utilization", "job.state")]
    assert reasons == ["not a number", "unknown value sleeping"]
    assert frame.planes["train.loss"].values[0, 0] == np.inf
    assert frame.reasons[frame.planes["train.loss"].status[0, 1] - BAD] == "log cannot be read"


def test_unreadable_label_is_kept_as_unreadable() -> None:
    """A label that could not be read is neither present nor absent."""
    buffer = SampleBuffer(CATALOGUE)
    buffer.add("gpu", look(GPU, "gpu.utilization", 0.1, job=UNREADABLE, team=None), slot_time=60.0)

    assert buffer.frame(60.0).resources[GPU].changes[0].labels == {"job": UNREADABLE, "team": None}


def test_samples_after_the_slot_was_given_out_are_late_and_kept() -> None:
    """A sample for a slot that was sealed is counted as late and still lies in its slot."""
    buffer = SampleBuffer(CATALOGUE, {"gpu": 60.0})
    buffer.add("gpu", look(GPU, "gpu.utilization", 0.5), slot_time=60.0)
    buffer.frame(60.0, 125.0)
    buffer.add("gpu", look(GPU, "gpu.utilization", 0.6), slot_time=120.0)
    buffer.add("gpu", look(GPU, "gpu.utilization", 0.7), slot_time=180.0)

    frame = buffer.frame(60.0, 185.0)

    assert frame.late == 1
    assert frame.planes["gpu.utilization"].values[:, 0].tolist() == [0.5, 0.6, 0.7]


def test_later_frame_keeps_the_columns_of_an_earlier_one() -> None:
    """New series are added at the end, whatever their names."""
    buffer = SampleBuffer(CATALOGUE)
    buffer.add("slurm", look(OTHER, "job.state", "running"), slot_time=60.0)
    before = buffer.frame(60.0).planes["job.state"]
    buffer.add("slurm", look(JOB, "job.state", "failed"), slot_time=120.0)
    after = buffer.frame(60.0).planes["job.state"]

    assert before.series == (OTHER,)
    assert after.series == (OTHER, JOB)
    assert after.words == ("running", "failed")


def test_unknown_signal_is_refused_whole() -> None:
    """A look with a signal outside the catalogue leaves the buffer as it was."""
    buffer = SampleBuffer(CATALOGUE)
    samples = (Sample(0, GPU, "gpu.utilization", 0.5), Sample(0, GPU, "gpu.util", 0.5))

    with pytest.raises(ValueError, match=r"gpu\.util, which is not in the catalogue"):
        buffer.add("gpu", Look(samples), slot_time=60.0)

    assert buffer.frame(60.0).slots == 0
