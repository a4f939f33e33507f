"""How often to save: a checkpoint costs time, and so does the work that a failure takes with it."""

from __future__ import annotations

import math


def checkpoint_interval(save_time: float, mtbf: float) -> float:
    """The time between two checkpoints that loses least, all in seconds.

    The square root of twice the save time times the mean time between failures (Young 1974,
    Daly 2006), and never more than that mean time.

    Raises:
        ValueError: one of the two is not a positive number.
    """
    if not (0 < save_time < math.inf and 0 < mtbf < math.inf):
        raise ValueError(f"a save of {save_time} s and {mtbf} s between failures")
    return min(math.sqrt(2 * save_time * mtbf), mtbf)


def lost_share(interval: float, save_time: float, mtbf: float) -> float:
    """The share of time that saving, and redoing what failures lost, cost at an interval (all in seconds)."""
    return save_time / interval + interval / (2 * mtbf)
