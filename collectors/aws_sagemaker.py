"""Training jobs of SageMaker: where they stand, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from stoploss.aws import FAILURES, reason, tags_of
from stoploss.collectors import aws_ec2
from stoploss.collectors.aws_calls import Asker, Found, Seen
from stoploss.engine.model import Bad, Reading

SIGNALS = (
    "job.state",
    "job.exit_reason",
    "job.runtime",
    "job.since_end",
    "job.nodes",
    "job.gpus",
    "job.time_limit",
)

SCHEDULER = "sagemaker"
"""The label that says who runs these jobs, and carries out actions on them."""

ENDED_WITHIN = 86_400.0
"""Seconds for which a job that has ended is still told."""

_STATES = {
    "InProgress": "running",
    "Stopping": "running",
    "Completed": "ended",
    "Stopped": "ended",
    "Failed": "failed",
}
_ENDS = {"Completed": "completed", "Failed": "failed", "Stopped": "cancelled"}
_SECONDARY_ENDS = {
    "MaxRuntimeExceeded": "timeout",
    "Interrupted": "preempted",
    "MaxWaitTimeExceeded": "timeout",
}


def read(asker: Asker, which: frozenset[str]) -> Found:
    """The training jobs of a scope that run, or ended within a day.

    Raises:
        ClientError, BotoCoreError: they cannot be listed.
    """
    since = datetime.fromtimestamp(asker.at - ENDED_WITHIN, UTC)
    listed: dict[str, Any] = {}
    running = {"StatusEquals": "InProgress"}, {"StatusEquals": "Stopping"}
    for chosen in (*running, {"LastModifiedTimeAfter": since}):
        for item in asker.pages("sagemaker", "list_training_jobs", "TrainingJobSummaries", **chosen):
            listed[item["TrainingJobName"]] = item
    found = []
    for name, item in listed.items():
        try:
            told = asker.client("sagemaker").describe_training_job(TrainingJobName=name)
            readings, kind = _readings(asker, told)
        except FAILURES as error:
            # The listing tells the state of the job at least.
            readings, kind = dict.fromkeys(SIGNALS, Bad(reason(error))), None
            readings["job.state"] = _state(item["TrainingJobStatus"])
        tags = _tags(asker, item["TrainingJobArn"])
        labels = {**asker.scope.labels, "instance_type": kind, "scheduler": SCHEDULER}
        found.append(Seen("job", asker.scope.named(name), readings, labels, tags))
    return Found(tuple(found))


def _state(status: str) -> Reading:
    return _STATES.get(status) or Bad(f"unknown status {status}")


def _readings(asker: Asker, told: Mapping[str, Any]) -> tuple[dict[str, Reading], str]:
    status, secondary = told["TrainingJobStatus"], told.get("SecondaryStatus", "")
    started, ended = told.get("TrainingStartTime"), told.get("TrainingEndTime")
    until = ended.timestamp() if ended else asker.at
    waiting = status == "InProgress" and secondary in ("Pending", "Starting")
    over = status in _ENDS
    since_end: Reading = 0.0
    if over:
        since_end = max(0.0, asker.at - until) if ended else Bad("the end is not told")
    held = told.get("ResourceConfig", {})
    groups = held.get("InstanceGroups") or [held]
    nodes = sum(group.get("InstanceCount", 0) for group in groups)
    limit = told.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    return {
        "job.state": "queued" if waiting else _state(status),
        "job.exit_reason": (_SECONDARY_ENDS.get(secondary) or _ENDS[status]) if over else "none",
        "job.runtime": max(0.0, until - started.timestamp()) if started else 0.0,
        "job.since_end": since_end,
        "job.nodes": float(nodes),
        "job.gpus": _gpus(asker, groups),
        "job.time_limit": float(limit) if limit else Bad("no limit is told"),
    }, str(groups[0].get("InstanceType", ""))


def _gpus(asker: Asker, groups: list[Mapping[str, Any]]) -> Reading:
    """GPUs of all instances; SageMaker's types are those of EC2 with a prefix."""
    kinds = [str(group.get("InstanceType", "")).removeprefix("ml.") for group in groups]
    known = aws_ec2.sizes(asker, kinds)
    total = 0.0
    for kind, group in zip(kinds, groups, strict=True):
        each = known[kind]["instance.gpus"]
        if not isinstance(each, float):
            return each
        total += each * group.get("InstanceCount", 0)
    return total


def _tags(asker: Asker, arn: str) -> Mapping[str, str] | Bad:
    try:
        return tags_of(list(asker.pages("sagemaker", "list_tags", "Tags", ResourceArn=arn)))
    except FAILURES as error:
        return Bad(reason(error))
