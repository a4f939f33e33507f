"""How far the declared target is, if the trend holds."""

from __future__ import annotations

import math

import numpy as np

from stoploss.engine.losses.clean import Track, view
from stoploss.engine.losses.model import Forecast

LEAST = 5
MOST = 2000


def forecast(track: Track, target: float, steps_per_hour: float | None) -> Forecast | None:
    """Steps until a curve meets its target, by a line over the logarithm of steps.

    Curves flatten; a line over steps would promise an end that comes too soon. The line is drawn
    through the newest half (at most 2,000 records); the interval is two standard errors of its
    slope. None where the target is met, fewer than five points are there, or the trend does not
    lead to it.
    """
    count = len(track)
    first = max(count // 2 if count >= 2 * LEAST else 0, count - MOST)
    steps, values = view(track.steps)[first:], track.sign * view(track.values)[first:]
    good = np.isfinite(values) & (steps > 0)
    steps, values = steps[good], values[good]
    if len(values) < LEAST:
        return None
    last = float(steps[-1])
    x = np.log(steps) - math.log(last)
    centred = x - x.mean()
    width = float(centred @ centred)
    slope = float(centred @ values) / width
    rest = values - values.mean() - slope * centred
    error = math.sqrt(float(rest @ rest) / (len(values) - 2) / width)
    here = float(values.mean()) - slope * float(x.mean())
    missing = here - track.sign * target
    if missing <= 0 or slope >= 0:
        return None
    ways = [_ahead(missing, bend, last) for bend in (slope, slope - 2 * error, slope + 2 * error)]
    if not math.isfinite(ways[0]):
        return None
    seconds = ways[0] / steps_per_hour * 3600 if steps_per_hour else None
    return Forecast(ways[0], ways[1], ways[2], seconds)


def _ahead(missing: float, slope: float, last: float) -> float:
    """Steps from `last` until a fall of `slope` per e-fold of steps has covered `missing`."""
    if slope >= 0 or missing / -slope > 50:
        return math.inf
    return last * math.expm1(missing / -slope)
