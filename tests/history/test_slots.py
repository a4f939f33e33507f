"""Folding readings into slots."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoploss.engine.history.frame import BAD, NONE, NOT_A_NUMBER, VALID, Plane
from stoploss.engine.history.slots import Readings, fold
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Signal, SignalKind

GPU = ResourceId("gpu", "0")


def plane(
    kind: SignalKind,
    rows: list[tuple[float, float, int]],
    slots: tuple[int, int] = (1, 3),
    *,
    rewinds: bool = False,
) -> Plane:
    """Fold (time, value, status) rows of one series at a resolution of 60 s."""
    signal = Signal("s.s", kind, "1", ("gpu",), "m", "c", rewinds=rewinds)
    times, values, status = (np.array(column) for column in zip(*rows, strict=True))
    readings = Readings(
        signal,
        (GPU,),
        times.astype(float),
        np.zeros(len(rows), np.int32),
        values.astype(float),
        status.astype(np.uint8),
        (),
        np.array([60.0]),
    )
    return fold(readings, 60.0, *slots)


def test_gauge_is_the_mean_of_its_slot() -> None:
    """A slot is left-open and right-closed, and a gauge in it is the mean of its samples."""
    folded = plane(SignalKind.GAUGE, [(60, 1, VALID), (61, 2, VALID), (120, 4, VALID)])

    assert folded.values[:2, 0].tolist() == [1.0, 3.0]
    assert math.isnan(folded.values[2, 0])
    assert folded.status[:, 0].tolist() == [VALID, VALID, NONE]


def test_gauge_whose_last_reading_is_bad_is_bad() -> None:
    """A sensor that fails within the slot makes the slot bad; one that recovers makes it good."""
    folded = plane(
        SignalKind.GAUGE, [(10, 5, VALID), (20, math.nan, BAD), (70, math.nan, BAD), (80, 7, VALID)]
    )

    assert math.isnan(folded.values[0, 0])
    assert folded.status[:, 0].tolist() == [BAD, VALID, NONE]
    assert folded.values[1, 0] == 7.0


@pytest.mark.parametrize(
    "kind", [SignalKind.COUNTER, SignalKind.STATE, SignalKind.CURVE, SignalKind.ATTRIBUTE]
)
def test_last_good_reading_counts(kind: SignalKind) -> None:
    """What is not a mean is the slot's last good reading, also where a bad one follows."""
    folded = plane(kind, [(10, 1, VALID), (20, 2, VALID), (30, math.nan, BAD + 3), (70, math.nan, BAD + 3)])

    assert folded.values[0, 0] == 2.0
    assert folded.status[:, 0].tolist() == [VALID, BAD + 3, NONE]


def test_events_are_summed() -> None:
    """Events of a slot add up."""
    folded = plane(SignalKind.EVENT, [(10, 1, VALID), (20, 2, VALID), (70, 0, VALID)])

    assert folded.values[:2, 0].tolist() == [3.0, 0.0]


def test_non_finite_curve_keeps_its_kind() -> None:
    """A loss that is not a number is the worst value, and its slot says so."""
    folded = plane(SignalKind.CURVE, [(10, 1, VALID), (20, math.inf, NOT_A_NUMBER)])

    assert folded.values[0, 0] == math.inf
    assert folded.status[0, 0] == NOT_A_NUMBER


def test_P_A10_counter_reset() -> None:
    """A counter that begins again adds its new value: 100, 160, 10, 40 is an increase of 100."""
    folded = plane(
        SignalKind.COUNTER, [(60, 100, VALID), (120, 160, VALID), (180, 10, VALID), (240, 40, VALID)], (1, 4)
    )

    assert folded.increase is not None
    assert folded.increase[:, 0].tolist() == [0.0, 60.0, 10.0, 30.0]


def test_counter_increases_over_a_gap_and_past_bad_readings() -> None:
    """The increase since the sample before a gap lands in the slot after it."""
    folded = plane(
        SignalKind.COUNTER, [(60, 5, VALID), (120, math.nan, BAD), (240, 9, VALID), (250, 10, VALID)], (1, 5)
    )

    assert folded.increase is not None
    assert folded.increase[:, 0].tolist() == [0.0, 0.0, 0.0, 4.0, 1.0]


def test_rewinding_counter_gains_nothing_when_it_goes_back() -> None:
    """A step counter of a resumed run goes back without gaining."""
    folded = plane(SignalKind.COUNTER, [(60, 90, VALID), (120, 50, VALID), (180, 60, VALID)], rewinds=True)

    assert folded.increase is not None
    assert folded.increase[:, 0].tolist() == [0.0, 0.0, 10.0]


rows_of_a_series = st.lists(
    st.tuples(st.integers(1, 600), st.integers(-5, 100), st.sampled_from([VALID, VALID, BAD, BAD + 1])),
    min_size=1,
    max_size=40,
    unique_by=lambda row: row[0],
).map(sorted)


def oracle(kind: SignalKind, rows: list[tuple[int, int, int]], slot: int) -> tuple[float | None, int]:
    """Value and status of a slot, by the plainest way."""
    inside = [row for row in rows if (slot - 1) * 60 < row[0] <= slot * 60]
    good = [value for _, value, status in inside if status == VALID]
    if not inside:
        return None, NONE
    if not good or (kind is SignalKind.GAUGE and inside[-1][2] != VALID):
        return None, inside[-1][2]
    if kind is SignalKind.GAUGE:
        return sum(good) / len(good), VALID
    return float(sum(good) if kind is SignalKind.EVENT else good[-1]), VALID


@settings(max_examples=150, deadline=None)
@given(
    rows_of_a_series,
    st.sampled_from([SignalKind.GAUGE, SignalKind.EVENT, SignalKind.STATE, SignalKind.COUNTER]),
)
def test_folding_equals_the_oracle(rows: list[tuple[int, int, int]], kind: SignalKind) -> None:
    """Any readings fold to what the rules say, slot by slot."""
    folded = plane(kind, [(float(t), math.nan if s >= BAD else float(v), s) for t, v, s in rows], (1, 10))

    for slot in range(1, 11):
        value, status = oracle(kind, rows, slot)
        found = float(folded.values[slot - 1, 0])
        assert (None if math.isnan(found) else found, int(folded.status[slot - 1, 0])) == (value, status)


@settings(max_examples=100, deadline=None)
@given(rows_of_a_series)
def test_increases_are_never_negative_and_add_up(rows: list[tuple[int, int, int]]) -> None:
    """Without resets the increases add up to last minus first."""
    good = sorted(value for _, value, status in rows if status == VALID)
    counts = iter(good)
    rising = [(float(t), float(next(counts)) if s == VALID else math.nan, s) for t, _, s in rows]
    folded = plane(SignalKind.COUNTER, rising, (1, 10))

    assert folded.increase is not None
    assert (folded.increase >= 0).all()
    assert folded.increase.sum() == (good[-1] - good[0] if good else 0)
