"""Figures from CloudWatch, asked in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from stoploss.aws import FAILURES, reason
from stoploss.collectors.aws_calls import Asker
from stoploss.engine.model import Bad, Reading
from stoploss.rules.units import format_duration

BATCH = 300
"""Figures in one call; CloudWatch takes 500, but a refused call should cost few resources."""

Points: TypeAlias = "tuple[tuple[float, float], ...]"
"""Time (seconds since the epoch) at which a period began, and its value; the newest first."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: which metric of what, folded how over each period (seconds)."""

    namespace: str
    metric: str
    dimensions: tuple[tuple[str, str], ...]
    stat: str
    period: int


def ask(
    asker: Asker, figures: Sequence[Figure], window: float, region: str | None = None
) -> dict[Figure, Points | Bad]:
    """The datapoints of each figure over the last `window` seconds.

    A batch that fails is bad for the figures in it; the others are asked all the same.
    """
    found: dict[Figure, Points | Bad] = {}
    for begin in range(0, len(figures), BATCH):
        batch = figures[begin : begin + BATCH]
        try:
            found.update(_batch(asker, batch, window, region))
        except FAILURES as error:
            found.update(dict.fromkeys(batch, Bad(reason(error))))
    return found


def _batch(
    asker: Asker, batch: Sequence[Figure], window: float, region: str | None
) -> Mapping[Figure, Points | Bad]:
    points: dict[str, list[tuple[float, float]]] = {f"q{number}": [] for number in range(len(batch))}
    status: dict[str, str] = {}
    pages = asker.client("cloudwatch", region).get_paginator("get_metric_data")
    for page in pages.paginate(
        MetricDataQueries=[_query(f"q{number}", figure) for number, figure in enumerate(batch)],
        StartTime=datetime.fromtimestamp(asker.at - window, UTC),
        EndTime=datetime.fromtimestamp(asker.at, UTC),
        ScanBy="TimestampDescending",
    ):
        for result in page["MetricDataResults"]:
            status[result["Id"]] = result.get("StatusCode", "Complete")
            times = [stamp.timestamp() for stamp in result["Timestamps"]]
            points[result["Id"]] += zip(times, map(float, result["Values"]), strict=False)
    found: dict[Figure, Points | Bad] = {}
    for number, figure in enumerate(batch):
        name = f"q{number}"
        told = status.get(name, "no answer")
        whole = told == "Complete"
        found[figure] = tuple(sorted(points[name], reverse=True)) if whole else Bad(f"CloudWatch: {told}")
    return found


def _query(name: str, figure: Figure) -> dict[str, Any]:
    dimensions = [{"Name": key, "Value": value} for key, value in figure.dimensions]
    metric = {"Namespace": figure.namespace, "MetricName": figure.metric, "Dimensions": dimensions}
    return {"Id": name, "MetricStat": {"Metric": metric, "Period": figure.period, "Stat": figure.stat}}


def newest(points: Points | Bad, window: float, factor: float = 1.0) -> Reading:
    """The newest value times `factor`; without one it is not known, and never zero."""
    if isinstance(points, Bad):
        return points
    return points[0][1] * factor if points else Bad(f"no datapoint in {format_duration(window)}")


def since_used(points: Points | Bad, period: int, window: float, at: float) -> Reading:
    """Seconds since the end of the newest period with use.

    Where no datapoint shows use, the time that datapoints cover: it is at least as long.
    """
    if isinstance(points, Bad):
        return points
    if not points:
        return Bad(f"no datapoint in {format_duration(window)}")
    used = [time + period for time, value in points if value > 0]
    return max(0.0, at - (used[0] if used else points[-1][0]))
