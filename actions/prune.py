"""Deletes checkpoints that nobody needs, by way of a trash folder that is emptied after 24 hours.

Never the newest complete one, and never so that fewer than two complete ones are left: that is looked at once
more on the file system, at the moment of the act.
"""

from __future__ import annotations

from stoploss.actions.contract import Action, Means
from stoploss.actions.routing import Routed

NAME = "prune"

TARGETS = {
    "job/process": "stoploss.actions.targets.trash:PruneJob",
    "job/slurm": "stoploss.actions.targets.trash:PruneJob",
    "job/kubernetes": "stoploss.actions.targets.trash:PruneJob",
    "checkpoint": "stoploss.actions.targets.trash:PruneOne",
}
"""Place -> who carries it out there."""


def build(means: Means) -> Action:
    """The action, with what it needs."""
    return Routed(NAME, TARGETS, means)
