"""Diagnosed runs as JSON: strict, versioned, complete."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from stoploss.engine.losses.diagnosis import Diagnosis, Report
from stoploss.engine.losses.model import Point
from stoploss.reports.diagnose_view import has_clock


def render(report: Report) -> str:
    """The report as one JSON object and a newline; null is unknown."""
    return json.dumps(as_dict(report), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def as_dict(report: Report) -> dict[str, Any]:
    """The report as JSON values."""
    return {
        "version": 1,
        "runs": [_run(run) for run in report.runs],
        "unreadable": [{"path": path, "reason": reason} for path, reason in report.problems],
    }


def _run(run: Diagnosis) -> dict[str, Any]:
    verdict, log, cause = run.verdict, run.log, run.cause
    return {
        "run": log.run,
        "source": log.source,
        "format": log.format,
        "verdict": verdict.verdict,
        "since_step": _finite(verdict.since_step),
        "points": verdict.points,
        "curve": verdict.curve,
        "best": _point(verdict.best),
        "last": _point(verdict.last),
        "sudden": verdict.sudden,
        "synchronous": _finite(verdict.synchronous),
        "persistent": verdict.persistent,
        "evidence": list(verdict.evidence),
        "cause": None if cause is None else cause.cause,
        "cause_between": [] if cause is None else list(cause.between),
        "evidence_for": [] if cause is None else list(cause.evidence_for),
        "evidence_against": [] if cause is None else list(cause.evidence_against),
        "advice": [{k: _finite(v) for k, v in asdict(item).items()} for item in run.advice],
        "also": _also(run),
        "wasted_share": _finite(verdict.wasted_share),
        "cost": _cost(run),
        "budget": None if run.budget is None else {k: _finite(v) for k, v in asdict(run.budget).items()},
        "clock": has_clock(run),
        "numbers": _numbers(run),
        "notes": list(log.notes),
    }


def _finite(value: Any) -> Any:
    """Strict JSON has no infinity, and nothing but money needs more than its digits."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _point(point: Point | None) -> dict[str, Any] | None:
    if point is None:
        return None
    if math.isfinite(point.value):
        return {"step": _finite(point.step), "value": point.value}
    kind = "nan" if math.isnan(point.value) else "inf" if point.value > 0 else "-inf"
    return {"step": _finite(point.step), "value": None, "non_finite": kind}


def _also(run: Diagnosis) -> dict[str, Any]:
    also = run.verdict.also
    return {
        "spikes": [
            {"step": item.step, "end": item.end, "records": item.records, "peak": _finite(item.peak)}
            for item in also.spikes
        ],
        "spike_count": also.spike_count,
        "resumes": also.resumes,
        "redone_records": also.redone_records,
        "duplicates": also.duplicates,
        "non_finite": also.non_finite,
        "strategy": list(run.verdict.strategy),
        "grad_norm_lead": run.verdict.grad_norm_lead,
        "notes": list(also.notes),
    }


def _cost(run: Diagnosis) -> dict[str, Any]:
    return {name: _finite(value) for name, value in asdict(run.cost).items()}


def _numbers(run: Diagnosis) -> dict[str, Any]:
    numbers = {name: _finite(value) for name, value in asdict(run.verdict.numbers).items()}
    ahead = run.verdict.numbers.forecast
    numbers["forecast"] = (
        None if ahead is None else {name: _finite(value) for name, value in asdict(ahead).items()}
    )
    return numbers
