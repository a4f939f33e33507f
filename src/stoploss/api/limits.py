"""How much anybody may ask: token buckets, told the time."""

from __future__ import annotations

import threading
from dataclasses import dataclass

MOST = 10_000
"""Callers that are remembered; beyond it those that have not asked for long are forgotten."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one caller may ask.

    Attributes:
        per_second, burst: requests in the long run, and at once.
        wrong_per_second, wrong_burst: the same for wrong tokens, of an address.
        body: bytes of a decision.
        samples: bytes of a batch of samples.
        body_seconds: within which a body has to be there.
    """

    per_second: float = 20.0
    burst: float = 200.0
    wrong_per_second: float = 0.2
    wrong_burst: float = 20.0
    body: int = 16 * 1024
    samples: int = 8 * 1024 * 1024
    body_seconds: float = 20.0


class Buckets:
    """A bucket per caller: `burst` requests at once, refilled at `per_second`."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._rate, self._burst = per_second, burst
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, caller: str, at: float) -> float | None:
        """Take one at `at` (seconds); None where it may, else the seconds until it may."""
        with self._lock:
            left, since = self._left.pop(caller, (self._burst, at))
            # A clock that went back refills nothing.
            left = min(self._burst, left + max(0.0, at - since) * self._rate)
            wait = None if left >= 1 else (1 - left) / self._rate
            self._left[caller] = (left if wait is not None else left - 1), at
            if len(self._left) > MOST:
                # The one at the front asked the longest ago.
                del self._left[next(iter(self._left))]
            return wait
