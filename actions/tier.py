"""Moves data to cheaper storage."""

from __future__ import annotations

from stoploss.actions.contract import Action, Means
from stoploss.actions.routing import Routed

NAME = "tier"

TARGETS = {
    "bucket/aws?storage-class": "stoploss.actions.targets.s3:StorageClass",
    "checkpoint?path": "stoploss.actions.targets.cold_path:Move",
    "volume?path": "stoploss.actions.targets.cold_path:Move",
}
"""Place -> who carries it out there."""


def build(means: Means) -> Action:
    """The action, with what it needs."""
    return Routed(NAME, TARGETS, means)
