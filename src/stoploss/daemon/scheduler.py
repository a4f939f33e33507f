"""Keeps the time: looks of each collector at multiples of its interval, ticks when slots can be sealed.

One collector that hangs, or one step that takes long, delays nothing else. What was missed is counted and
made up for by one look or tick, not by many.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stoploss.daemon.history import SEAL

if TYPE_CHECKING:
    from apscheduler.schedulers.base import BaseScheduler

    from stoploss.daemon.service import Service

LOG = logging.getLogger("stoploss.daemon")

THREADS = 16
"""Collectors that may look at the same time."""
GRACE = 3600
"""Seconds after its instant until a look or a tick is not made up for any more."""
TICK = "tick"


def scheduler() -> BaseScheduler:
    """A scheduler with threads of its own for looks, and one for ticks."""
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    return BackgroundScheduler(
        timezone=UTC,
        executors={"default": ThreadPoolExecutor(THREADS), TICK: ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "misfire_grace_time": GRACE, "max_instances": 1},
    )


def schedule(keeper: BaseScheduler, service: Service, now: Callable[[], datetime]) -> None:
    """Give a scheduler the looks and ticks of a service, in place of those that it had."""
    from apscheduler.triggers.interval import IntervalTrigger

    keeper.remove_all_jobs()
    for name, every in service.live.every.items():
        keeper.add_job(
            _look,
            IntervalTrigger(seconds=every, start_date=_next(now(), every), timezone=UTC),
            args=(service, name, every, now),
            id=f"look {name}",
        )
    resolution = service.policies.settings.resolution
    begin = _next(now(), resolution, SEAL)
    trigger = IntervalTrigger(seconds=resolution, start_date=begin, timezone=UTC)
    keeper.add_job(_tick, trigger, args=(service, resolution, now), id=TICK, executor=TICK)


def tell_broken(keeper: BaseScheduler, service: Service) -> None:
    """Note what broke off, until it has come to its end once more."""
    from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED

    def ended(event: Any) -> None:
        if event.code == EVENT_JOB_EXECUTED:
            service.vitals.problems.pop(event.job_id, None)
            return
        LOG.error("%s broke off: %s", event.job_id, type(event.exception).__name__)
        service.vitals.problems[event.job_id] = f"broke off ({type(event.exception).__name__})"

    keeper.add_listener(ended, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)


def _tick(service: Service, resolution: float, now: Callable[[], datetime]) -> None:
    """One tick; counts the instants since the one before that passed without one, whyever they did."""
    slot = (now().timestamp() - SEAL) // resolution
    before = service.ticked
    if before is not None and slot > before[1] and before[0] == resolution:
        service.vitals.missed += int(slot - before[1]) - 1
    service.ticked = resolution, slot
    service.tick()


def _look(service: Service, name: str, every: float, now: Callable[[], datetime]) -> None:
    """One look, filed under the newest multiple of the interval."""
    service.look([name], now().timestamp() // every * every)


def _next(now: datetime, every: float, offset: float = 0.0) -> datetime:
    """The next multiple of an interval since the epoch, and so many seconds."""
    seconds = ((now.timestamp() - offset) // every + 1) * every + offset
    return datetime.fromtimestamp(seconds, UTC)
