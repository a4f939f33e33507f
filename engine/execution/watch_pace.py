"""What a step has brought: the pace of its job before and after, as money."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from stoploss.engine.costs.money import money
from stoploss.engine.planning.pace import Pace

CLEAR = 0.05
"""Money per step that differs by less than this share is the same."""
ERRORS = 2.45
"""Standard errors by which two paces must differ: 95 % at six degrees of freedom, of 2 x 4 quarters."""
SEEN = 0.2
"""Share of the steps of an hour before that must have been made since."""

State: TypeAlias = Literal["better", "same", "worse", "hours", "unknown"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a step has brought.

    Attributes:
        state: `better`, `same` or `worse` by money per step; `hours`: there are no steps to compare, and
            `got` is money per hour alone; `unknown`: nothing can be said.
        got: money per hour that it saves, at the speed of now; negative is a loss; None is unknown.
        words: for people.
    """

    state: State
    got: float | None
    words: str


def judge(before: Pace | None, after: Pace | None, promised: float | None) -> Judgement:
    """Compare the pace of a job before and after a step that was to save `promised` money per hour."""
    if before is None or after is None:
        which, known = ("before", after) if before is None else ("since", before)
        currency = "" if known is None else known.currency
        return _told("unknown", None, promised, f"its pace {which} is not known", currency)
    currency = after.currency
    lacking = _lacking(before, after)
    if lacking is not None:
        return _told("unknown", None, promised, lacking, currency)
    assert before.per_hour is not None, "what lacks a bill is unknown"
    assert after.per_hour is not None, "what lacks a bill is unknown"
    if not before.steps_per_hour:
        why = "no step of the hour before is known, so money per hour alone"
        return _told("hours", before.per_hour - after.per_hour, promised, why, currency)
    thin = _thin(before, after)
    was, now, speed = before.per_step, after.per_step, after.steps_per_hour
    if thin is not None or was is None or now is None or speed is None:
        return _told("unknown", None, promised, thin or "no step of the last hour is known", currency)
    noise = ERRORS * math.hypot(before.noise or 0.0, after.noise or 0.0)
    dearer = _ratio(was, now)
    state: State = "same"
    if abs(dearer) > max(math.log1p(CLEAR), noise):
        state = "worse" if dearer > 0 else "better"
    why = f"{was:.4g} a step before, {now:.4g} a step now, at {speed:,.0f} steps an hour"
    if state == "same" and abs(dearer) > math.log1p(CLEAR):
        why += f" (they vary by {noise:.0%}, so that says nothing)"
    return _told(state, (was - now) * speed, promised, why, currency)


def _lacking(before: Pace, after: Pace) -> str | None:
    """What is missing of the money, or of the steps before."""
    if before.currency != after.currency:
        return f"prices were in {before.currency}, and are in {after.currency}"
    for which, pace in (("before", before), ("since", after)):
        if pace.per_hour is None:
            return f"{which}: {pace.missing}"
    if before.counted and before.steps_per_hour is None:
        return f"before: {before.missing}"
    return None


def _thin(before: Pace, after: Pace) -> str | None:
    """Why the steps since do not suffice."""
    if after.steps_per_hour is None:
        return f"since: {after.missing}"
    least = SEEN * (before.steps_per_hour or 0.0)
    if after.seen is None or after.seen < least:
        return f"{after.seen or 0:,.0f} steps were seen since, of {least:,.0f} that are needed"
    if before.noise is None or after.noise is None:
        return "how much its steps vary is not known"
    return None


def _ratio(was: float, now: float) -> float:
    """The logarithm of how many times dearer a step is: seen the other way round, the same with a minus."""
    if was == now:
        return 0.0
    if not was or not now:
        return math.inf if now else -math.inf
    return math.log(now / was)


def _told(state: State, got: float | None, promised: float | None, why: str, currency: str) -> Judgement:
    amounts = ["no figure" if x is None else f"{money(x, currency).strip()}/h" for x in (promised, got)]
    return Judgement(state, got, f"promised {amounts[0]}, got {amounts[1]}: {why}")


def said(pace: Pace | None) -> dict[str, Any] | None:
    """A pace as JSON values."""
    if pace is None:
        return None
    return {
        "job": pace.job,
        "at": pace.at.isoformat(),
        "seconds": pace.seconds,
        "currency": pace.currency,
        "per_hour": pace.per_hour,
        "steps_per_hour": pace.steps_per_hour,
        "per_step": pace.per_step,
        "noise": pace.noise,
        "seen": pace.seen,
        "counted": pace.counted,
        "missing": pace.missing,
    }


def pace_of(values: Mapping[str, Any] | None) -> Pace | None:
    """The pace that `said` wrote; None where there is none."""
    if values is None:
        return None
    own = {name: value for name, value in values.items() if name != "per_step"}
    return Pace(**{**own, "at": datetime.fromisoformat(own["at"])})
