"""The use of every GPU over time, small enough for a page."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoploss.engine.evaluation.columns import World
from stoploss.engine.evaluation.kleene import Bools
from stoploss.engine.history.frame import VALID, Floats, Frame, Plane
from stoploss.engine.model import ResourceId

SIGNAL, SLICED = "gpu.utilization", "gpu.mig"
SPANS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800)
"""Widths of a column in seconds that people read easily on an axis."""


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One GPU: its owner at the end, and its mean utilisation per column (None is unknown)."""

    gpu: str
    job: str | None
    host: str | None
    cells: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Rows of GPUs grouped by job; columns are equal spans of time.

    Attributes:
        starts: the beginning of each column in seconds since the epoch.
        span: seconds per column.
        rows: the GPUs.
        left_out: GPUs beyond the number of rows shown.
    """

    starts: tuple[float, ...]
    span: float
    rows: tuple[HeatRow, ...]
    left_out: int = 0


def heat_map(frame: Frame, world: World, *, columns: int = 168, rows: int = 256) -> HeatMap | None:
    """The mean utilisation of every GPU per span of time; None where no GPU was seen.

    A cell without a valid sample is unknown, never 0: nobody looked, the reading failed, or the
    GPU was in MIG mode, where some exporters say 0. There are at most `columns` (2 or more)
    columns, none narrower than the time between two looks, so that a regular series has no
    holes. Of more than `rows` GPUs the least used are kept.
    """
    gpus = sorted(resource for resource in frame.resources if resource.kind == "gpu")
    if not gpus or not frame.slots:
        return None
    plane = frame.planes.get(SIGNAL)
    width = _width(frame, plane, columns)
    first = (frame.first - 1) // width
    count = _count(frame, width)
    means = np.full((len(gpus), count), np.nan)
    total = np.full(len(gpus), np.inf)
    if plane is not None:
        index = {resource: at for at, resource in enumerate(plane.series)}
        known = [at for at, gpu in enumerate(gpus) if gpu in index]
        series = [index[gpus[at]] for at in known]
        valid = (plane.status == VALID) & ~_sliced(frame, plane)
        starts = np.maximum((first + np.arange(count)) * width + 1 - frame.first, 0)
        means[known], total[known] = _means(plane.values[:, series], valid[:, series], starts)
    kept = sorted(np.argsort(total, kind="stable")[:rows].tolist())
    found = [_row(gpus[at], means[at], frame, world) for at in kept]
    return HeatMap(
        tuple(float((first + k) * width * frame.resolution) for k in range(count)),
        width * frame.resolution,
        tuple(sorted(found, key=_order)),
        len(gpus) - len(kept),
    )


def _width(frame: Frame, plane: Plane | None, columns: int) -> int:
    """Slots per column."""
    cadence = int(plane.cadence.max()) if plane is not None and len(plane.cadence) else 1
    least = max(-(-frame.slots // columns), min(cadence, frame.slots))
    for span in SPANS:
        width = round(span / frame.resolution)
        # An odd resolution meets the round spans only far away, where too little would be seen.
        if (
            width * frame.resolution == span
            and least <= width <= 6 * least
            and _count(frame, width) <= columns
        ):
            return width
    # Columns begin at whole multiples of their width, which may take one column more.
    while _count(frame, least) > columns:
        least += 1
    return least


def _count(frame: Frame, width: int) -> int:
    """Columns of a width that a frame touches."""
    return (frame.last - 1) // width - (frame.first - 1) // width + 1


def _sliced(frame: Frame, plane: Plane) -> Bools:
    """Where a GPU was in MIG mode by its newest word on that, in the shape of `plane`."""
    modes = frame.planes.get(SLICED)
    sliced = np.zeros(plane.status.shape, dtype=np.bool_)
    if modes is None or "enabled" not in modes.words:
        return sliced
    told = np.where(modes.status == VALID, np.arange(frame.slots)[:, None], -1)
    newest = np.maximum.accumulate(told, axis=0)
    words = np.take_along_axis(modes.values, np.maximum(newest, 0), axis=0)
    enabled = (newest >= 0) & (words == modes.words.index("enabled"))
    index = {resource: at for at, resource in enumerate(modes.series)}
    for at, resource in enumerate(plane.series):
        if resource in index:
            sliced[:, at] = enabled[:, index[resource]]
    return sliced


def _means(values: Floats, valid: Bools, starts: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Means per series and column, and per series (infinite where nothing is known)."""
    sums = np.add.reduceat(np.where(valid, values, 0.0), starts, axis=0)
    counts = np.add.reduceat(valid, starts, axis=0, dtype=np.int64)
    means = np.full(sums.shape, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    looks = counts.sum(axis=0)
    total = np.full(len(looks), np.inf)
    np.divide(sums.sum(axis=0), looks, out=total, where=looks > 0)
    return means.T, total


def _row(gpu: ResourceId, means: Floats, frame: Frame, world: World) -> HeatRow:
    job, host = (world.label_at(gpu, label, frame.last) for label in ("job", "host"))
    return HeatRow(
        gpu.id,
        job if isinstance(job, str) else None,
        host if isinstance(host, str) else None,
        tuple(None if np.isnan(mean) else float(mean) for mean in means),
    )


def _order(row: HeatRow) -> tuple[bool, str, str, list[tuple[int, str]]]:
    """By job, those without one last, then host, then the numbers within the GPU's name."""
    parts = [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", row.gpu)]
    return row.job is None, row.job or "", row.host or "", parts
