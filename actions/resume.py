"""Starts again what a spot reclaim or a stop has interrupted."""

from __future__ import annotations

from stoploss.actions.contract import Action, Means
from stoploss.actions.routing import Routed

NAME = "resume"

_EXEC = "stoploss.actions.exec:Exec"
TARGETS = {
    **{f"job/{where}?command": _EXEC for where in ("process", "slurm", "kubernetes", "sagemaker")},
    "instance?command": _EXEC,
    "job/slurm": "stoploss.actions.targets.slurm:Resume",
    "job/kubernetes": "stoploss.actions.targets.kubernetes:Resume",
    "job/process": "stoploss.actions.targets.asg:Restored",
    "instance?replicas": "stoploss.actions.targets.asg:Restored",
    "instance": "stoploss.actions.targets.ec2:Start",
}
"""Place -> who carries it out there."""


def build(means: Means) -> Action:
    """The action, with what it needs."""
    return Routed(NAME, TARGETS, means)
