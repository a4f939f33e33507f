"""Gives back what is left over: GPUs of a job that is over, a container, a volume, temporary folders.

What is given back is only what nothing would bring back, and what is looked at once more before.
"""

from __future__ import annotations

from stoploss.actions.contract import Action, Means
from stoploss.actions.routing import Routed

NAME = "release"

TARGETS = {
    "job/process": "stoploss.actions.targets.processes:Release",
    "job/slurm": "stoploss.actions.targets.slurm:Release",
    "job/kubernetes": "stoploss.actions.targets.kubernetes:Release",
    "volume/aws": "stoploss.actions.targets.ebs:Release",
    "volume": "stoploss.actions.targets.temporary:Release",
    "process?what=container": "stoploss.actions.targets.containers:Remove",
}
"""Place -> who carries it out there."""


def build(means: Means) -> Action:
    """The action, with what it needs."""
    return Routed(NAME, TARGETS, means)
