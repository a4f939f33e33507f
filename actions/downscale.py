"""Gives a resource less."""

from __future__ import annotations

from stoploss.actions.contract import Action, Means
from stoploss.actions.routing import Routed

NAME = "downscale"

TARGETS = {
    "gpu?power-cap": "stoploss.actions.targets.power_cap:CapGpu",
    "job/process?power-cap": "stoploss.actions.targets.power_cap:CapJob",
    "job/slurm?power-cap": "stoploss.actions.targets.power_cap:CapJob",
    "job/kubernetes?power-cap": "stoploss.actions.targets.power_cap:CapJob",
    "job/slurm": "stoploss.actions.targets.slurm:Shrink",
    "job/kubernetes": "stoploss.actions.targets.kubernetes:Scale",
    "instance": "stoploss.actions.targets.ec2:Resize",
}
"""Place -> who carries it out there."""


def build(means: Means) -> Action:
    """The action, with what it needs."""
    return Routed(NAME, TARGETS, means)
