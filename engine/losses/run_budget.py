"""One run against its budget: an alert from 80 % on, unless the loss has converged."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from stoploss.engine.costs.money import money
from stoploss.engine.losses.facts import number
from stoploss.engine.losses.incremental import judge
from stoploss.engine.losses.model import LossVerdict
from stoploss.engine.losses.run_cost import RunCost, bounds
from stoploss.engine.model import Curve, TrainingLog
from stoploss.rules.declarations import is_gpu_time
from stoploss.rules.units import Quantity

ALERT_AT = 0.8
"""Share of a budget from which the run's owner should know."""


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """How a run stands to its budget.

    Attributes:
        limit, used: GPU-hours, or money in `unit`.
        unit: GPU-hours, or an ISO currency code.
        share: used / limit; None where the use is unknown.
        alert: whether the line is to be told as one.
        line: what there is to say.
    """

    limit: float
    used: float | None
    unit: str
    share: float | None
    alert: bool
    line: str


def budget_use(log: TrainingLog, verdict: LossVerdict, cost: RunCost, limit: Quantity) -> BudgetUse:
    """The use of a budget, and whether it gets an alert.

    A run that has converged gets none; one whose loss cannot be judged does.
    """
    in_gpu_time = is_gpu_time(limit)
    most = limit.value / 3600 if in_gpu_time else limit.value
    unit = "GPU-hours" if in_gpu_time else str(limit.dimension.money)
    used = cost.gpu_hours if in_gpu_time else cost.amount
    shown = f"{most:g} GPU-hours" if in_gpu_time else money(most, unit)
    if used is None or (not in_gpu_time and cost.currency != unit):
        why = cost.missing or f"its cost is counted in {cost.currency}"
        return BudgetUse(most, None, unit, None, True, f"use of the budget of {shown} is unknown: {why}")
    share = used / most
    if verdict.verdict == "converged":
        line = f"{share:.0%} of {shown} used, and the target is met: stop, and keep the best checkpoint"
        return BudgetUse(most, used, unit, share, False, line)
    if share < ALERT_AT:
        return BudgetUse(most, used, unit, share, False, f"{share:.0%} of {shown} used")
    line = f"{share:.0%} of {shown} used and not converged"
    parts = [line, *_then(log, ALERT_AT / share, shown), *_end(log, verdict)]
    return BudgetUse(most, used, unit, share, True, "; ".join(parts))


def _then(log: TrainingLog, share_of_time: float, shown: str) -> list[str]:
    """How it looked when four fifths of the budget were used, with a projection from there."""
    span = bounds(log)
    if span is None:
        return []
    until = span[0] + min(1.0, share_of_time) * (span[1] - span[0])
    early = _until(log, until)
    then = judge(early)
    if then.last is None:
        return []
    name, steps = then.curve, _steps(early)
    told = f"at {ALERT_AT:.0%} (step {steps:,.0f}) {name} was {then.last.value:.4g}"
    target = number(log.facts, "target")
    if target is None:
        return [told]
    told += f" of {target:g}"
    ahead = then.numbers.forecast
    if ahead is None or not math.isfinite(ahead.steps):
        return [f"{told}, and its trend did not lead to the target"]
    pace = [
        ALERT_AT * (steps + more) / steps if steps > 0 else math.inf
        for more in (ahead.steps, ahead.low, ahead.high)
    ]
    shares = [f"{share:.0%}" if math.isfinite(share) else "never" for share in pace]
    return [f"{told}; at that pace it would be met at {shares[0]} of {shown} ({shares[1]} to {shares[2]})"]


def _until(log: TrainingLog, time: float) -> TrainingLog:
    curves = {}
    for name, curve in log.curves.items():
        # A record without a time is kept where those around it are.
        count = next((n for n, at in enumerate(curve.times) if at > time), len(curve.times))
        if count:
            curves[name] = Curve(name, curve.steps[:count], curve.values[:count], curve.times[:count])
    kept = {key: value for key, value in log.facts.items() if key not in ("ended", "status")}
    return replace(log, curves=curves, facts=kept)


def _steps(log: TrainingLog) -> float:
    steps = [step for curve in log.curves.values() for step in curve.steps if math.isfinite(step)]
    return max(steps, default=0.0)


def _end(log: TrainingLog, verdict: LossVerdict) -> list[str]:
    target, best = number(log.facts, "target"), verdict.best
    if target is None or best is None:
        return []
    missed = abs(best.value - target)
    digits = max(1, 1 - math.floor(math.log10(missed))) if missed > 0 else 4
    short = f"{missed:.{digits - 1}f}" if missed < 0.1 else f"{missed:.4g}"
    return [f"it ended at {best.value:.4g}: missed by {short.lstrip('0') or '0'}"]
