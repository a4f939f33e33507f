"""What the API asks of whoever runs: the newest result, its health, and where samples go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from stoploss.engine.audit import Audit
from stoploss.engine.ledger import Ledger
from stoploss.rules.policy import PolicySet


class BusyError(Exception):
    """Samples cannot be taken now, as too many wait already; the same batch may be sent again later."""


@dataclass(frozen=True, slots=True)
class CollectorHealth:
    """How the newest look of a collector went.

    Attributes:
        ok: whether it could look.
        reason: why it could not, for people; None where it could.
        age_seconds: since the look; None where it has not looked yet.
        seconds: how long the look took; None where that is not known.
    """

    ok: bool
    reason: str | None = None
    age_seconds: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """How the program is that runs; instants have a time zone.

    Attributes:
        started: when it began.
        now: the present instant.
        ready: it has what it needs to answer.
        last_tick: when the newest tick was done; None before the first.
        tick_seconds: how long that took.
        interval_seconds: time from one tick to the next.
        ticks: ticks that were done.
        missed: ticks that were skipped, as the one before took too long.
        standby: another one ticks, and this one only waits to take over.
        collectors: name -> its newest look.
        problems: what else is wrong, for people and without secrets.
    """

    started: datetime
    now: datetime
    ready: bool
    interval_seconds: float
    last_tick: datetime | None = None
    tick_seconds: float | None = None
    ticks: int = 0
    missed: int = 0
    standby: bool = False
    collectors: Mapping[str, CollectorHealth] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class Service(Protocol):
    """A running stoploss. Every method may be called from several threads at once."""

    @property
    def policies(self) -> PolicySet:
        """The policy set in force."""
        ...

    @property
    def ledger(self) -> Ledger:
        """The ledger, open for writing."""
        ...

    def latest(self) -> Audit | None:
        """The result of the newest tick; None before the first. A new tick gives a new object."""
        ...

    def health(self) -> Health:
        """How it is."""
        ...

    def take(self, node: str, batch: Mapping[str, Any]) -> int:
        """Take the samples of a node; returns how many.

        Args:
            node: its name, as the batch gives it.
            batch: the whole body of the request, strict JSON.

        Raises:
            ValueError: the batch is wrong; the text says what and how it is right.
            BusyError: too many wait already.
        """
        ...

    def curves(self, job: str) -> Mapping[str, Sequence[tuple[float, float]]]:
        """`train.loss`, `eval.loss` and `cost` of a job: (seconds since the epoch, value) in order of time.

        A curve that is not there has no entry; values may be not finite.
        """
        ...

    def saved(self) -> Mapping[str, float]:
        """Money that was saved so far by price kind, in the policy set's currency."""
        ...

    def costs(self) -> Mapping[str, Any]:
        """The statement of costs as `stoploss costs --format json` says it; empty where there is none."""
        ...
