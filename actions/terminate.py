"""Ends a job, a process or an instance, by whoever runs it.

What is ended is looked at once more before, and afterwards whether it is gone. What Slurm or Kubernetes
runs is ended through them.
"""

from __future__ import annotations

from stoploss.actions.contract import Action, Means
from stoploss.actions.routing import Routed

NAME = "terminate"

TARGETS = {
    "job/process": "stoploss.actions.targets.processes:End",
    "process": "stoploss.actions.targets.processes:EndOne",
    "job/slurm": "stoploss.actions.targets.slurm:Cancel",
    "job/kubernetes": "stoploss.actions.targets.kubernetes:End",
    "job/sagemaker": "stoploss.actions.targets.sagemaker:Stop",
    "instance": "stoploss.actions.targets.ec2:End",
}
"""Place -> who carries it out there."""


def build(means: Means) -> Action:
    """The action, with what it needs."""
    return Routed(NAME, TARGETS, means)
