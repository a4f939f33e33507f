"""Keeps logs for a shorter time, or a share of their lines; never the log itself, a warning or a metric."""

from __future__ import annotations

from stoploss.actions.contract import Action, Means
from stoploss.actions.routing import Routed

NAME = "retain"

TARGETS = {
    "log/aws?retention": "stoploss.actions.targets.cloudwatch:Retention",
    "log?retention": "stoploss.actions.targets.log_retention:Shorten",
    "log?sample": "stoploss.actions.targets.log_sampling:Sample",
    "job/process?sample": "stoploss.actions.targets.log_sampling:SampleJob",
    "job/slurm?sample": "stoploss.actions.targets.log_sampling:SampleJob",
    "job/kubernetes?sample": "stoploss.actions.targets.log_sampling:SampleJob",
}
"""Place -> who carries it out there."""


def build(means: Means) -> Action:
    """The action, with what it needs."""
    return Routed(NAME, TARGETS, means)
