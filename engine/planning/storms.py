"""Storms: when much of a fleet turns idle or unknown at once, the fault is most often ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stoploss.engine.model import ResourceId

SHARE = 0.05
"""More than this part of the fleet,"""
FEW = 3
"""and more than this many resources, so that one job of six is no storm,"""
WITHIN = 600.0
"""within so many seconds,"""
LASTS = 3600.0
"""freezes destructive steps for so many."""
SHARED = ("host", "instance", "rack", "switch", "zone", "team")
"""Labels that may say why, the narrowest first."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A resource that was known to be well and turned idle or unknown, in seconds since the epoch."""

    resource: ResourceId
    time: float
    labels: Mapping[str, str]


def freeze(turns: Sequence[Turn], fleet: Mapping[str, int], now: float) -> str | None:
    """Why destructive steps are frozen, or None; `fleet` counts the resources of each kind."""
    for kind, size in sorted(fleet.items()):
        mine = {turn.resource: turn for turn in turns if turn.resource.kind == kind}
        recent = sorted((t for t in mine.values() if now - LASTS < t.time <= now), key=lambda t: t.time)
        for turn in recent:
            together = [t for t in recent if turn.time <= t.time <= turn.time + WITHIN]
            if len(together) > FEW and len(together) > SHARE * size:
                count = f"{len(together)} of {size} {kind}s turned idle or unknown within 10m"
                return f"frozen: {count}; {_share(together)}"
    return None


def _share(turns: Sequence[Turn]) -> str:
    for label in SHARED:
        values = {turn.labels.get(label) for turn in turns}
        value = next(iter(values))
        if len(values) == 1 and value:
            return f"they share {label} {value}"
    return "they share no host, rack, switch or zone that is known"
