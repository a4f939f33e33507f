"""What is said about diagnosed runs, as texts that several formats share."""

from __future__ import annotations

import math

from stoploss.engine.costs.money import money
from stoploss.engine.losses.diagnosis import Diagnosis, Report
from stoploss.engine.losses.model import Point
from stoploss.reports.counts import count

SEVERITY = {
    "diverged": "high",
    "non-finite": "high",
    "hung": "high",
    "overfit": "medium",
    "degrading": "medium",
    "oscillating": "medium",
    "flat": "medium",
    "transient-spike": "low",
    "cannot-tell": "low",
}
"""Verdict -> how it is coloured; the good ones are not."""


_LARGE = 1e13
"""Steps from here on are written with an exponent."""


def step(value: float | None) -> str:
    """A training step."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) >= _LARGE:
        return f"{value:.4g}"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def value(point: Point | None) -> str:
    """A value of a curve."""
    return "-" if point is None else number(point.value)


def number(amount: float) -> str:
    """A value with four digits, `nan` and `inf` by name."""
    return f"{amount:.4g}"


def share(part: float | None) -> str:
    """A part of the run; unknown is said."""
    return "unknown" if part is None else f"{part:.0%}"


def wasted(run: Diagnosis) -> str:
    """What a run went on after its useful end: share, GPU-hours and money."""
    cost = run.cost
    parts = [f"{share(run.verdict.wasted_share)} of the run"]
    if cost.wasted_gpu_hours is not None:
        parts.append(f"{cost.wasted_gpu_hours:,.2f} GPU-hours")
    if cost.wasted is not None and cost.currency:
        parts.append(money(cost.wasted, cost.currency))
    return " · ".join(parts)


def cost(run: Diagnosis) -> str:
    """What a run cost in all; empty where nothing is known."""
    parts = []
    if run.cost.gpu_hours is not None:
        parts.append(f"{run.cost.gpu_hours:,.2f} GPU-hours")
    if run.cost.amount is not None and run.cost.currency:
        parts.append(money(run.cost.amount, run.cost.currency))
    return " · ".join(parts)


def also(run: Diagnosis) -> list[str]:
    """The lesser facts as sentences."""
    found = run.verdict.also
    facts = []
    if found.spike_count:
        shown = ", ".join(step(item.step) for item in found.spikes[-5:])
        facts.append(f"{count(found.spike_count, 'spike')} of the training loss, the last at {shown}")
    if found.resumes:
        facts.append(
            f"{count(found.resumes, 'resume')}, {count(found.redone_records, 'record')} done a second time"
        )
    if found.duplicates:
        facts.append(f"{count(found.duplicates, 'record')} read twice, counted once")
    if found.non_finite:
        facts.append(f"{count(found.non_finite, 'value')} not finite")
    return [*facts, *found.notes, *run.verdict.strategy, *run.log.notes]


def has_clock(run: Diagnosis) -> bool:
    """Whether the log says when its records were made."""
    return run.cost.seconds is not None


def heading(report: Report) -> str:
    """How much was looked at, and how much of it is wrong."""
    files = len({run.log.source for run in report.runs})
    wrong = sum(run.anomalous for run in report.runs)
    parts = [f"{count(len(report.runs), 'run')} in {count(files, 'log')}"]
    if report.runs:
        parts.append(f"{wrong:,} with anomalies" if wrong else "no anomaly")
    unjudged = sum(not run.judged for run in report.runs)
    if unjudged:
        parts.append(f"{unjudged:,} without a curve")
    if report.problems:
        parts.append(f"{len(report.problems):,} not readable")
    return " · ".join(parts)


def totals(report: Report) -> list[str]:
    """Cost and waste of all runs together; currencies are not added up."""
    hours = [run.cost.gpu_hours for run in report.runs if run.cost.gpu_hours is not None]
    parts = [f"{sum(hours):,.2f} GPU-hours"] if hours else []
    for currency in sorted({run.cost.currency for run in report.runs if run.cost.currency}):
        amounts = [run for run in report.runs if run.cost.currency == currency]
        parts.append(money(sum(run.cost.amount or 0.0 for run in amounts), currency))
        lost = sum(run.cost.wasted or 0.0 for run in amounts)
        if lost:
            parts.append(f"{money(lost, currency)} of it wasted")
    unknown = sum(run.cost.gpu_hours is None and run.cost.amount is None for run in report.runs)
    if parts and unknown:
        parts.append(f"the cost of {count(unknown, 'run')} is unknown")
    return parts
