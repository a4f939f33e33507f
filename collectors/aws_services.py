"""Databases and queues that training leans on: whether anything still uses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoploss.aws import FAILURES, reason, tags_of
from stoploss.collectors import aws_metrics as metrics
from stoploss.collectors.aws_calls import Asker, Found, Seen
from stoploss.collectors.aws_metrics import Figure, Points
from stoploss.engine.model import Bad, Reading

DATABASE_SIGNALS = ("service.connections", "service.utilization", "service.last_used")
QUEUE_SIGNALS = ("service.queue_depth", "service.last_used")

HOUR = 3600
USED_WITHIN = 14.0 * 86_400
"""Seconds back in which the newest use is looked for."""

PERIOD = 300
WINDOW = 900.0


def databases(asker: Asker, which: frozenset[str]) -> Found:
    """All RDS instances of a scope.

    Raises:
        ClientError, BotoCoreError: they cannot be listed.
    """
    listed = list(asker.pages("rds", "describe_db_instances", "DBInstances"))
    names = [item["DBInstanceIdentifier"] for item in listed]
    asked = "cloudwatch" in which
    now = _ask(asker, names, ("DatabaseConnections", "CPUUtilization"), "Average", PERIOD) if asked else {}
    used = _ask(asker, names, ("DatabaseConnections",), "Maximum", HOUR) if asked else {}
    found = []
    for item in listed:
        name, readings = item["DBInstanceIdentifier"], {}
        if asked:
            readings = {
                "service.connections": metrics.newest(now[name, "DatabaseConnections"], WINDOW),
                "service.utilization": metrics.newest(now[name, "CPUUtilization"], WINDOW, 0.01),
                "service.last_used": metrics.since_used(
                    used[name, "DatabaseConnections"], HOUR, USED_WITHIN, asker.at
                ),
            }
        labels = {**asker.scope.labels, "service": "rds", "instance_type": item.get("DBInstanceClass")}
        tags = tags_of(item.get("TagList"))
        found.append(Seen("service", asker.scope.named(f"rds:{name}"), readings, labels, tags))
    return Found(tuple(found))


def _ask(
    asker: Asker, names: list[str], wanted: tuple[str, ...], stat: str, period: int
) -> dict[tuple[str, str], Points | Bad]:
    figures = {
        (name, metric): Figure("AWS/RDS", metric, (("DBInstanceIdentifier", name),), stat, period)
        for name in names
        for metric in wanted
    }
    points = metrics.ask(asker, list(figures.values()), USED_WITHIN if period == HOUR else WINDOW)
    return {key: points[figure] for key, figure in figures.items()}


def queues(asker: Asker, which: frozenset[str]) -> Found:
    """All SQS queues of a scope.

    Raises:
        ClientError, BotoCoreError: they cannot be listed.
    """
    addresses = list(asker.pages("sqs", "list_queues", "QueueUrls"))
    names = {address: address.rpartition("/")[2] for address in addresses}
    figures = {
        (name, metric): Figure("AWS/SQS", metric, (("QueueName", name),), "Sum", HOUR)
        for name in names.values()
        for metric in ("NumberOfMessagesSent", "NumberOfMessagesReceived")
    }
    points = metrics.ask(asker, list(figures.values()), USED_WITHIN) if "cloudwatch" in which else {}
    found = []
    for address, name in names.items():
        readings: dict[str, Reading] = {"service.queue_depth": _depth(asker, address)}
        if "cloudwatch" in which:
            both = [points[figure] for (owner, _), figure in figures.items() if owner == name]
            readings["service.last_used"] = metrics.since_used(_joined(both), HOUR, USED_WITHIN, asker.at)
        labels = {**asker.scope.labels, "service": "sqs"}
        found.append(
            Seen("service", asker.scope.named(f"sqs:{name}"), readings, labels, _queue_tags(asker, address))
        )
    return Found(tuple(found))


def _joined(figures: list[Points | Bad]) -> Points | Bad:
    points: list[tuple[float, float]] = []
    for figure in figures:
        if isinstance(figure, Bad):
            return figure
        points += figure
    return tuple(sorted(points, reverse=True))


def _depth(asker: Asker, address: str) -> Reading:
    key = "ApproximateNumberOfMessages"
    try:
        answer: Mapping[str, Any] = asker.client("sqs").get_queue_attributes(
            QueueUrl=address, AttributeNames=[key]
        )
    except FAILURES as error:
        return Bad(reason(error))
    told = answer.get("Attributes", {}).get(key)
    return Bad("the depth is not told") if told is None else float(told)


def _queue_tags(asker: Asker, address: str) -> Mapping[str, str] | Bad:
    try:
        answer: Mapping[str, str] = asker.client("sqs").list_queue_tags(QueueUrl=address).get("Tags", {})
    except FAILURES as error:
        return Bad(reason(error))
    return answer
