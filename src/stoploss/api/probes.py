"""Whether it lives, and whether it can answer; in words that anybody may read."""

from __future__ import annotations

from typing import Any

from stoploss.api.contract import Health
from stoploss.rules.units import format_duration

GRACE = 30.0
"""Seconds that a tick may be late beside a whole interval."""


def late(health: Health) -> str | None:
    """Why it is not ticking in time; None where it is, or where another one ticks."""
    if health.standby:
        return None
    allowed = 2 * health.interval_seconds + GRACE
    since = (health.now - (health.last_tick or health.started)).total_seconds()
    if since <= allowed:
        return None
    if health.last_tick is None:
        return f"started {format_duration(since)} ago, and no tick was done yet"
    every = format_duration(health.interval_seconds)
    return f"the newest tick was done {format_duration(since)} ago; one is due every {every}"


def healthy(health: Health) -> tuple[dict[str, Any], int]:
    """The answer to whether it lives, and its status."""
    why = late(health)
    status = "late" if why else "standby" if health.standby else "ok"
    return {"version": 1, "status": status, "why": why}, 503 if why else 200


def ready(health: Health) -> tuple[dict[str, Any], int]:
    """The answer to whether it can answer, and its status."""
    why = None if health.ready else "it is still starting, or cannot use its state"
    return {
        "version": 1,
        "status": "ready" if health.ready else "not ready",
        "why": why,
    }, 200 if health.ready else 503
