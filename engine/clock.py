"""The only place that asks what time it is; everything else is told `now`."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The present instant, in UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds on a clock that never goes back, for measuring how long something took."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)
