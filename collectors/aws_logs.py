"""Log groups of CloudWatch: how long they are kept, and how fast they grow."""

from __future__ import annotations

from collections.abc import Mapping

from stoploss.aws import FAILURES, reason
from stoploss.collectors import aws_metrics as metrics
from stoploss.collectors.aws_calls import Asker, Found, Seen
from stoploss.collectors.aws_metrics import Figure
from stoploss.engine.model import Bad, Reading

SIGNALS = ("logs.retention", "logs.size", "logs.rate")

FOR_EVER = 100.0 * 365 * 86_400
"""Seconds that stand for no end."""

PERIOD = 300
WINDOW = 900.0
"""Seconds back in which the newest datapoint is looked for."""


def read(asker: Asker, which: frozenset[str]) -> Found:
    """All log groups of a scope.

    Raises:
        ClientError, BotoCoreError: they cannot be listed.
    """
    groups = list(asker.pages("logs", "describe_log_groups", "logGroups"))
    figures = {
        item["logGroupName"]: Figure(
            "AWS/Logs", "IncomingBytes", (("LogGroupName", item["logGroupName"]),), "Sum", PERIOD
        )
        for item in groups
    }
    points = metrics.ask(asker, list(figures.values()), WINDOW) if "cloudwatch" in which else {}
    found = []
    for item in groups:
        name, days = item["logGroupName"], item.get("retentionInDays")
        readings: dict[str, Reading] = {
            "logs.retention": days * 86_400.0 if days else FOR_EVER,
            "logs.size": float(item["storedBytes"]) if "storedBytes" in item else Bad("no size is told"),
        }
        if "cloudwatch" in which:
            readings["logs.rate"] = metrics.newest(points[figures[name]], WINDOW, 1 / PERIOD)
        tags = _tags(asker, item["arn"].removesuffix(":*"))
        found.append(Seen("log", asker.scope.named(name), readings, asker.scope.labels, tags))
    return Found(tuple(found))


def _tags(asker: Asker, arn: str) -> Mapping[str, str] | Bad:
    try:
        answer: Mapping[str, str] = (
            asker.client("logs").list_tags_for_resource(resourceArn=arn).get("tags", {})
        )
    except FAILURES as error:
        return Bad(reason(error))
    return answer
