"""How often a series is looked at, in slots."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stoploss.engine.history.frame import Floats, Ints

_SLACK = 1e-6
"""Relative: an interval of 60.00001 s is one slot of a minute, not two."""


def whole_slots(seconds: Floats, resolution: float) -> Ints:
    """Intervals in seconds as slots, rounded up, at least 1; NaN (not known) is 1."""
    slots = np.ceil(np.nan_to_num(seconds, nan=0.0) / resolution * (1 - _SLACK))
    return np.maximum(slots, 1).astype(np.int32)


def median_gaps(times: Floats, series: Ints, groups: npt.NDArray[np.int64]) -> Floats:
    """The median gap in seconds between consecutive instants of a series, pooled per group.

    Args:
        times: instants, ascending and distinct within a series.
        series: the series of each instant, ascending.
        groups: the group of each series.

    Returns:
        Seconds per series: its group's median, NaN where no series of the group has two instants.
    """
    seconds = np.full(len(groups), np.nan)
    same = series[1:] == series[:-1]
    gaps = np.diff(times)[same]
    group_of_gap = groups[series[1:][same]]
    for group in np.unique(group_of_gap):
        seconds[groups == group] = np.median(gaps[group_of_gap == group])
    return seconds


def median_slots(marked: npt.NDArray[np.bool_]) -> int:
    """The median distance between marked slots, rounded up, at least 1."""
    places = np.flatnonzero(marked)
    if len(places) < 2:
        return 1
    return max(1, int(np.ceil(np.median(np.diff(places)) * (1 - _SLACK))))
