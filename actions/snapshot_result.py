"""What became of a snapshot, and how long one is waited for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What became of a snapshot.

    Attributes:
        state: `verified` only where it was looked at and found whole; what failed or came too late is
            `failed`; `pending` while it may still come.
        path: where it lies, also of one that failed, where that is known.
        step: of the training, where that is known.
        began: when its oldest file was written, in seconds since the epoch.
        bytes: of its files.
        why: what was found, in words.
    """

    state: Literal["verified", "failed", "pending"]
    path: str | None = None
    step: int | None = None
    began: float | None = None
    bytes: int | None = None
    why: str = ""

    @property
    def verified(self) -> bool:
        """Whether a step that needs a snapshot may rely on it."""
        return self.state == "verified"


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long something is waited for, and by whose clocks.

    Attributes:
        now: seconds since the epoch.
        monotonic: seconds that never go back.
        sleep: waits so many seconds.
        limit: seconds after which it has failed.
        every: seconds between two looks.
    """

    now: Callable[[], float]
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    limit: float = 600.0
    every: float = 1.0

    def hurry(self) -> Callable[[], None]:
        """What raises TimeoutError when it is called after the limit, which begins now."""
        end = self.monotonic() + self.limit

        def look() -> None:
            if self.monotonic() > end:
                raise TimeoutError(f"it took longer than {self.limit:g} s")

        return look

    def until_over(self, look: Callable[[], Snapshot]) -> Snapshot:
        """Look until it is no longer pending; what is pending at the limit has failed."""
        end = self.monotonic() + self.limit
        while True:
            found = look()
            if found.state != "pending":
                return found
            left = end - self.monotonic()
            if left <= 0:
                return Snapshot("failed", why=f"not done within {self.limit:g} s: {found.why}")
            self.sleep(min(self.every, left))
