"""Folds readings of one signal into slots.

Gauges become the mean of the slot, events the sum, everything else the last. A counter also
gets what was added since the sample before it, over gaps too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoploss.engine.history.cadence import whole_slots
from stoploss.engine.history.frame import BAD, NONE, Bytes, Floats, Ints, Plane
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Signal, SignalKind

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Readings:
    """All readings of one signal, in order of series and time, one per instant of a series.

    Attributes:
        resources: the resource of each series.
        times: seconds since the epoch.
        series: index into `resources`.
        values: as in a plane; NaN for a bad reading.
        status: as in a plane, never NONE.
        words: the texts that values index.
        seconds: per series, the time between two looks; NaN where it is not known.
    """

    signal: Signal
    resources: tuple[ResourceId, ...]
    times: Floats
    series: Ints
    values: Floats
    status: Bytes
    words: tuple[str, ...]
    seconds: Floats


def slots_of(times: Floats, resolution: float) -> Longs:
    """The slot of each instant: slot k is (k-1, k] x resolution."""
    return np.ceil(times / resolution).astype(np.int64)


def fold(readings: Readings, resolution: float, first: int, last: int) -> Plane:
    """The slots `first` to `last`, both included, of one signal.

    In a slot with good and bad readings the good ones count; only for a gauge does the last
    reading decide, so that a mean does not hide a sensor that has just failed.
    """
    signal, width = readings.signal, len(readings.resources)
    values = np.full((max(last - first + 1, 0), width), np.nan)
    status = np.zeros(values.shape, np.uint8)
    slots = slots_of(readings.times, resolution)
    cells = (slots - first) * width + readings.series
    inside = (slots >= first) & (slots <= last)
    good = readings.status < BAD

    places = np.flatnonzero(inside & good)
    folded, ends = _fold_good(signal.kind, readings.values[places], cells[places])
    last_good = places[ends]
    values.reshape(-1)[cells[last_good]] = folded
    status.reshape(-1)[cells[last_good]] = readings.status[last_good]

    if signal.kind is SignalKind.GAUGE:
        places = np.flatnonzero(inside)
        newest = places[_ends(cells[places])]
        spoiled = newest[~good[newest]]
        values.reshape(-1)[cells[spoiled]] = np.nan
    else:
        bad = np.flatnonzero(inside & ~good)
        bad = bad[_ends(cells[bad])]
        spoiled = bad[status.reshape(-1)[cells[bad]] == NONE]
    status.reshape(-1)[cells[spoiled]] = readings.status[spoiled]

    increase = None
    if signal.kind is SignalKind.COUNTER:
        rows = np.flatnonzero(good)
        added = increases(readings.values[rows], readings.series[rows], rewinds=signal.rewinds)
        kept = inside[rows]
        increase = np.zeros(values.shape)
        if kept.any():
            sums = _sums(added[kept], cells[rows[kept]])
            increase.reshape(-1)[cells[rows[kept]][_ends(cells[rows[kept]])]] = sums
    cadence = whole_slots(readings.seconds, resolution)
    return Plane(signal, readings.resources, values, status, cadence, increase, readings.words)


def increases(values: Floats, series: Ints, *, rewinds: bool) -> Floats:
    """What a counter gained since the sample before it; the first sample of a series gains 0.

    After a drop the counter began again at 0, so its value is the gain; a counter that may
    rewind gains nothing.
    """
    gained = np.diff(values, prepend=values[:1])
    dropped = gained < 0
    gained[dropped] = 0.0 if rewinds else values[dropped]
    gained[np.diff(series, prepend=-1) != 0] = 0.0
    return np.maximum(gained, 0.0)


def _fold_good(kind: SignalKind, values: Floats, cells: Longs) -> tuple[Floats, Longs]:
    """One value per cell, and the place of the cell's last reading."""
    ends = _ends(cells)
    if kind not in (SignalKind.GAUGE, SignalKind.EVENT) or len(ends) == len(values):
        return values[ends], ends
    sums = _sums(values, cells)
    if kind is SignalKind.EVENT:
        return sums, ends
    return sums / np.diff(ends, prepend=-1), ends


def _ends(cells: Longs) -> Longs:
    """The last place of each run of equal cells."""
    return np.flatnonzero(np.diff(cells, append=-1) != 0)


def _sums(values: Floats, cells: Longs) -> Floats:
    """The sum of each run of equal cells, added up in order."""
    run = np.cumsum(np.diff(cells, prepend=-1) != 0) - 1
    sums: Floats = np.bincount(run, weights=values).astype(np.float64, copy=False)
    return sums
