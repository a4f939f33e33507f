"""Whether a snapshot fits into the notice of a reclaim, and what a reclaim costs.

Notices are short and fixed by the provider:

- AWS: 120 s ("Spot Instance interruption notices", Amazon EC2 User Guide).
- Azure: 30 s at least ("Preempt" of Scheduled Events, Azure Spot Virtual Machines).
- Google Cloud: 30 s from the soft-off on, at best ("Preemption process", Compute Engine); hard-off came 11 s
  after the notice in mozilla/translations#964.

Part of a notice passes before anybody has seen it, and the process needs time to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stoploss.rules.units import format_duration

NOTICES: Mapping[str, float] = {"aws": 120.0, "azure": 30.0, "gcp": 30.0}
"""Provider -> seconds that it announces."""

HARD_OFF = 11.0
"""Seconds after which Google Cloud was seen to switch an instance off."""

MARGIN = 0.25
"""Share of a notice that goes into noticing and ending; 90 s of 120 s are left for saving."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A snapshot beside a notice, in seconds.

    Attributes:
        save: how long saving takes.
        notice: how long the notice is, or what is left of it.
        usable: the part of it in which a save can be made.
    """

    save: float
    notice: float
    usable: float

    @property
    def fits(self) -> bool:
        """Whether the save ends in time."""
        return self.save <= self.usable

    @property
    def words(self) -> str:
        """For people, with what to do where it does not fit."""
        save, notice = (format_duration(round(seconds)) for seconds in (self.save, self.notice))
        told = f"a save takes {save} of {notice} of notice"
        if self.fits:
            return f"{told}: it fits"
        return f"{told}: it does not fit, so rely on periodic checkpoints and shorten their interval"


def save_time(size: float, bandwidth: float) -> float:
    """Seconds to write `size` bytes at `bandwidth` bytes per second.

    Raises:
        ValueError: nothing is written at that bandwidth.
    """
    if not bandwidth > 0:
        raise ValueError("a bandwidth is more than 0")
    return size / bandwidth


def fit(save: float, notice: float = NOTICES["aws"], margin: float = MARGIN) -> Fit:
    """Whether a save fits into a notice.

    Args:
        save: seconds that it takes, measured or by `save_time`.
        notice: seconds from the notice to the end.
        margin: share of the notice that is not there for saving.
    """
    return Fit(save, notice, notice * (1 - margin))


def lost_gpu_hours(gpus: float, age: float) -> float:
    """Work that a reclaim throws away, in GPU-hours.

    Args:
        gpus: of the job.
        age: seconds since its last complete checkpoint that outlives the instance.
    """
    return gpus * age / 3600.0
