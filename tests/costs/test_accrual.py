"""What jobs used, slot by slot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.frames import PRICE, accrual_of, busy, frame_of, of_job

from stoploss.engine.costs.use import Accrual
from stoploss.rules.units import parse_quantity

GIB = 2**30
LOAD = "gpu.utilization"


def hours(accrual: Accrual, job: str | None = "j") -> float:
    """GPU-hours of a job."""
    return float(sum(s.gpu_hours.sum() for s in accrual.streams if s.key.job == job))


def money(accrual: Accrual, category: str, job: str | None = "j") -> float:
    """Money of a job in a category."""
    found = (s for s in accrual.streams if s.key.job == job and s.key.category == category)
    return float(sum(stream.money.sum() for stream in found))


def test_gpu_hours_are_gpus_times_wall_time() -> None:
    """Eight GPUs for two hours are 16 GPU-hours, idle or not."""
    series = {**busy(4, 120), **{("gpu", f"g{n}", LOAD): [0.0] * 120 for n in range(4, 8)}}
    accrual = accrual_of(frame_of(series, of_job(team="t")))

    assert hours(accrual) == pytest.approx(16)
    assert money(accrual, "compute") == pytest.approx(16 * PRICE)
    assert {(s.key.team, s.key.idle, s.key.basis) for s in accrual.streams} == {
        ("t", False, "allocated"),
        ("t", True, "allocated"),
    }


def test_a_hole_between_two_sights_of_one_job_is_billed_whole() -> None:
    """Ten minutes, an hour without data, ten minutes: 80 minutes are paid."""
    load = [0.9] * 10 + [None] * 60 + [0.9] * 10
    accrual = accrual_of(frame_of({("gpu", "g0", LOAD): load}, of_job()))

    assert hours(accrual) == pytest.approx(80 / 60)
    assert accrual.known["j"].tolist() == [True] * 10 + [False] * 60 + [True] * 10


def test_a_hole_before_another_job_is_nobodys() -> None:
    """Who held the GPU in between is not known: each job pays for what was seen."""
    load = [0.9] * 10 + [None] * 60 + [0.9] * 5
    frame = frame_of({("gpu", "g0", LOAD): load}, lambda name, slot: {"job": "a" if slot < 40 else "b"})
    accrual = accrual_of(frame)

    assert hours(accrual, "a") == pytest.approx(10 / 60)
    assert hours(accrual, "b") == pytest.approx(5 / 60)


def test_after_the_newest_sight_nothing_is_billed() -> None:
    """A GPU that went silent is not billed until it is seen again."""
    series = {("gpu", "g0", LOAD): [0.9] * 10, ("gpu", "g1", LOAD): [0.9] * 60}
    accrual = accrual_of(frame_of(series, of_job()))

    assert hours(accrual) == pytest.approx(70 / 60)
    assert not accrual.known["j"][-1]


def test_a_gpu_without_a_job_has_a_line_of_its_own() -> None:
    """An hour of a GPU that no job held is paid by nobody that is known."""
    series = {("gpu", "g0", LOAD): [0.0] * 60}
    accrual = accrual_of(frame_of(series, lambda name, slot: {"job": None}))

    assert hours(accrual, None) == pytest.approx(1)
    assert accrual.jobs == ()


def test_slices_are_billed_in_place_of_their_gpu() -> None:
    """Two slices of an eighth each come to a quarter of a GPU, not to more."""
    series = {
        **busy(1, 60),
        ("gpu", "g0", "gpu.memory.total"): [80e9] * 60,
        **{("gpu", f"g0/{n}", "gpu.memory.total"): [10e9] * 60 for n in (1, 2)},
    }
    said = {"g0": {"job": None}, "g0/1": {"job": "j", "parent": "g0"}, "g0/2": {"job": "k", "parent": "g0"}}
    accrual = accrual_of(frame_of(series, lambda name, slot: said[name]))

    assert [hours(accrual, job) for job in ("j", "k", None)] == pytest.approx([0.125, 0.125, 0])


def test_a_job_of_which_only_a_number_of_gpus_is_known_is_billed_by_it() -> None:
    """A scheduler's word for four GPUs over half an hour makes two GPU-hours."""
    accrual = accrual_of(frame_of({("job", "j", "job.gpus_held"): [4.0] * 30}))

    assert hours(accrual) == pytest.approx(2)
    assert money(accrual, "compute") == pytest.approx(2 * PRICE)


def test_an_unknown_price_leaves_hours_without_money() -> None:
    """The reason is kept, and the GPU-hours count."""
    frame = frame_of({**busy(1, 60), ("gpu", "g0", "gpu.model"): ["Riva TNT"] * 60}, of_job())
    from stoploss.engine.costs.accrual import accrue
    from stoploss.engine.costs.book import shipped
    from stoploss.engine.costs.priced import Prices
    from stoploss.rules.catalogue import catalogue

    (stream,) = accrue(frame, Prices(frame, shipped(), catalogue())).streams

    assert stream.gpu_hours.sum() == pytest.approx(1)
    assert stream.money.sum() == 0
    assert stream.key.missing is not None
    assert "Riva TNT" in stream.key.missing


def test_G_65_a_counter_that_begins_again_is_summed_over_its_rises() -> None:
    """Log bytes that fall back to 1 GiB and rise to 3 have written what rose, not what stands there."""
    written = [5 * GIB, 10 * GIB, 14 * GIB, 1 * GIB, 3 * GIB]
    accrual = accrual_of(frame_of({("log", "l", "logs.bytes"): written}, lambda n, s: {"job": "j"}))

    assert money(accrual, "logs") == pytest.approx((5 + 4 + 1 + 2) * 0.50)


def test_storage_and_traffic_have_lines_of_their_own() -> None:
    """A bucket by size and time for its team, data sent across zones for the job on the host."""
    series = {
        ("bucket", "b", "storage.size"): [730.0 * GIB] * 60,
        ("host", "h", "network.cross_zone"): [100.0 * GIB * n for n in range(60)],
        **busy(1, 60),
    }
    said = {"b": {"team": "t"}, "h": {}, "g0": {"job": "j", "host": "h"}}
    accrual = accrual_of(frame_of(series, lambda name, slot: said[name]))

    assert money(accrual, "storage", None) == pytest.approx(0.023)
    assert {s.key.team for s in accrual.streams if s.key.category == "storage"} == {"t"}
    assert money(accrual, "network") == pytest.approx(5900 * 0.01)


def test_fixed_costs_are_shared_by_a_label_and_the_rest_is_a_line_of_its_own() -> None:
    """$6/h over three GPUs: two of a job with a team pay two thirds, what the other used is left."""
    said = {"g0": {"job": "j", "team": "t"}, "g1": {"job": "j"}, "g2": {"job": "k"}}
    cost = {"name": "cluster", "cost": parse_quantity("$6/h"), "category": "database", "share-by": "team"}
    accrual = accrual_of(frame_of(busy(3, 60), lambda name, slot: said[name]), [cost])

    assert money(accrual, "database") == pytest.approx(4)
    assert money(accrual, "database", "k") == 0
    assert money(accrual, "database", None) == pytest.approx(2)
    fixed = [s.key for s in accrual.streams if s.key.category == "database"]
    assert {(key.elasticity, key.basis, key.name) for key in fixed} == {("fixed", "declared", "cluster")}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b", None])), min_size=25, max_size=25),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 25),
)
def test_what_was_known_in_a_slot_is_what_a_shorter_recording_says(
    gpus: list[list[tuple[bool, str | None]]], until: int
) -> None:
    """Later data changes only slots that were unknown: whole and tick by tick agree."""
    series = {
        ("gpu", f"g{n}", LOAD): [0.9 if seen else None for seen, _ in gpu] for n, gpu in enumerate(gpus)
    }
    jobs = {f"g{n}": [job for _, job in gpu] for n, gpu in enumerate(gpus)}
    for column in series.values():
        column[0] = column[0] or 0.9

    def said(name: str, slot: int) -> dict[str, str | None]:
        return {"job": jobs[name][slot]}

    whole, part = accrual_of(frame_of(series, said)), accrual_of(frame_of(series, said, until=until))
    for job in part.jobs:
        if part.frame.slots == until and part.known[job][-1]:
            slots = part.frame.slots
            sums = [
                sum((s.gpu_hours[:slots] for s in a.streams if s.key.job == job), np.zeros(slots)).sum()
                for a in (whole, part)
            ]
            assert sums[0] == pytest.approx(sums[1])
