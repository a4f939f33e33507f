"""The heat map: means per span, unknown where nothing was seen, small enough for a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenes import Scene, policy, recording

from stoploss.cli import loading
from stoploss.cli.audit import run
from stoploss.engine.evaluation.columns import World
from stoploss.engine.heatmap import HeatMap, heat_map
from stoploss.engine.history.frame import BAD, VALID, Frame, LabelChange, Plane, Presence
from stoploss.engine.model import UNREADABLE, ResourceId
from stoploss.rules.catalogue import catalogue

Cell = float | None


def frame(
    cells: Sequence[Sequence[Cell]],
    *,
    first: int = 1,
    resolution: float = 60.0,
    cadence: int = 1,
    labels: Mapping[str, Mapping[str, object]] | None = None,
    mig: Sequence[Sequence[str | None]] | None = None,
) -> Frame:
    """GPUs g0, g1, … with one list of utilisations per GPU; None is a slot without a sample."""
    gpus = tuple(ResourceId("gpu", f"g{n}") for n in range(len(cells)))
    values = np.array([[math.nan if v is None else v for v in row] for row in cells], dtype=float).T
    status = np.where(np.isnan(values), 0, VALID).astype(np.uint8)
    every = np.full(len(gpus), cadence, dtype=np.int32)
    planes = {"gpu.utilization": Plane(catalogue()["gpu.utilization"], gpus, values, status, every)}
    if mig is not None:
        words = ("disabled", "enabled")
        codes = np.array([[math.nan if w is None else words.index(w) for w in row] for row in mig]).T
        seen = np.where(np.isnan(codes), 0, VALID).astype(np.uint8)
        planes["gpu.mig"] = Plane(catalogue()["gpu.mig"], gpus, codes, seen, every, None, words)
    said = labels or {}
    presences = {gpu: Presence(first, (LabelChange(first, said.get(gpu.id, {})),)) for gpu in gpus}
    return Frame(resolution, first, len(values), planes, presences)


def drawn(of: Frame, **keys: int) -> HeatMap:
    """The heat map of a frame."""
    world = World()
    world.update(of)
    found = heat_map(of, world, **keys)
    assert found is not None
    return found


def test_a_span_without_a_valid_sample_is_unknown_and_never_zero() -> None:
    """Slots that nobody read and bad readings leave a cell None, beside true zeros."""
    of = frame([[0.0, 0.0, None, None, 0.5, None], [0.0] * 6])
    of.planes["gpu.utilization"].status[2:4, 1] = BAD

    assert [row.cells for row in drawn(of, columns=3).rows] == [(0.0, None, 0.5), (0.0, None, 0.0)]


def test_a_gpu_in_mig_mode_is_unknown_while_it_is() -> None:
    """Zeros that an exporter writes under MIG are no idleness, until the mode is seen to be off."""
    of = frame([[0.0] * 6], mig=[["disabled", None, "enabled", None, "disabled", None]])

    assert drawn(of, columns=6).rows[0].cells == (0.0, 0.0, None, None, 0.0, 0.0)


def test_no_gpu_is_no_map_and_a_gpu_without_readings_is_unknown() -> None:
    """Where no GPU was seen there is nothing to draw; a silent GPU has a row of unknowns."""
    nothing = Frame(60.0, 1, 2, {}, {})
    silent = Frame(60.0, 1, 2, {}, {ResourceId("gpu", "a"): Presence(1, (LabelChange(1, {}),))})

    assert heat_map(nothing, World()) is None
    assert drawn(silent).rows[0].cells == (None, None)


def test_rows_are_grouped_by_job_then_host_then_number() -> None:
    """g10 comes after g2, and GPUs without a known job come last."""
    labels: dict[str, dict[str, object]] = {f"g{n}": {"job": "b", "host": "h1"} for n in range(11)}
    labels |= {
        "g3": {"job": None},
        "g4": {"job": UNREADABLE},
        "g5": {"job": "a"},
        "g6": {"job": "b", "host": "h0"},
    }
    rows = drawn(frame([[0.5]] * 11, labels=labels)).rows

    assert [row.gpu for row in rows] == ["g5", "g6", "g0", "g1", "g2", "g7", "g8", "g9", "g10", "g3", "g4"]
    assert [(row.job, row.host) for row in rows[:3]] == [("a", None), ("b", "h0"), ("b", "h1")]


def test_of_too_many_gpus_the_least_used_are_kept_and_the_others_counted() -> None:
    """A page of few rows shows what burns; GPUs of which nothing is known go before none that is."""
    found = drawn(frame([[0.9], [0.1], [None], [0.0]]), rows=2)

    assert [row.gpu for row in found.rows] == ["g1", "g3"]
    assert found.left_out == 2


@pytest.mark.parametrize(
    ("slots", "resolution", "cadence", "span"),
    [
        (168, 3600, 1, 3600),
        (10_080, 60, 5, 3600),
        (60, 60, 5, 300),
        (60, 60, 1, 60),
        (7, 7, 1, 7),
        (3, 60, 60, 300),
    ],
    ids=["hours", "week", "cadence", "slots", "odd", "one look"],
)
def test_a_column_is_a_round_span_that_holds_a_look(
    slots: int, resolution: float, cadence: int, span: float
) -> None:
    """Spans are round, begin at multiples of themselves, and are not narrower than the cadence."""
    row = [1.0 if slot % cadence == 0 else None for slot in range(slots)]
    found = drawn(frame([row], resolution=resolution, cadence=cadence))

    assert found.span == span
    assert all(start % span == 0 for start in found.starts)
    assert None not in found.rows[0].cells


@given(
    st.lists(st.sampled_from([None, 0.0, 0.25, 1.0]), min_size=1, max_size=60),
    st.integers(1, 200),
    st.integers(2, 9),
    st.sampled_from([1, 3, 90]),
    st.sampled_from([7.0, 60.0, 300.0]),
)
def test_every_cell_is_the_mean_of_its_samples(
    row: list[Cell], first: int, columns: int, cadence: int, resolution: float
) -> None:
    """Each sample counts in exactly the column that holds its slot, and there are not too many columns."""
    found = drawn(frame([row], first=first, cadence=cadence, resolution=resolution), columns=columns)
    naive: dict[int, list[float]] = {}
    for slot, value in enumerate(row, first):
        column = next(k for k, s in enumerate(found.starts) if s < slot * resolution <= s + found.span)
        naive.setdefault(column, []).extend([] if value is None else [value])

    cells = found.rows[0].cells
    assert len(cells) == len(found.starts) <= columns
    assert [cell is None for cell in cells] == [not naive[k] for k in range(len(cells))]
    assert [cell for cell in cells if cell is not None] == pytest.approx(
        [sum(naive[k]) / len(naive[k]) for k in range(len(cells)) if naive[k]]
    )


def test_an_audit_brings_its_heat_map(scene: Scene) -> None:
    """Recorded GPUs have their map in the audit of the real command."""
    values = {("gpu", "a", "gpu.utilization"): [0.5] * 60, ("gpu", "b", "gpu.utilization"): ["N/A"] * 60}
    file = scene.write("p.yaml", policy("max(gpu.utilization, 30m) < 5%"))
    signals = scene.write("s.csv", recording(values, labels={"a": {"job": "j"}}))
    heat = run(loading.policies((file,), "audit"), (signals,), at=None, watch=None).heat

    assert heat is not None
    assert [(row.gpu, row.job, set(row.cells)) for row in heat.rows] == [
        ("a", "j", {0.5}),
        ("b", None, {None}),
    ]
