"""Tells people that stoploss itself cannot go on, where it can still reach them: nobody else would.

What was told is kept in memory only, as what it is about is that nothing can be written.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoploss.engine.alerts import FIRING, RESOLVED
from stoploss.engine.execution.tidings import TELLS
from stoploss.engine.model import Notice

if TYPE_CHECKING:
    from datetime import datetime

    from stoploss.daemon.service import Service

LOG = logging.getLogger("stoploss.daemon")

PATIENCE = 60.0
"""Seconds that it may last untold: another program may hold the state that long."""
ABOUT = ("state", "samples")
"""Problems without whose end nothing is decided."""
KEY = "stoploss:state"


@dataclass(slots=True)
class Trouble:
    """What is wrong with the state, since when, and who knows of it."""

    since: float | None = None
    told: set[str] = field(default_factory=set)

    def look(self, service: Service, at: datetime, monotonic: float) -> None:
        """Tell what has lasted too long, and what is over; once each.

        Args:
            service: whose problems they are.
            at: the present instant.
            monotonic: seconds on a clock that never goes back.
        """
        problems = service.vitals.problems
        why = next((problems[about] for about in ABOUT if about in problems), None)
        if why is None:
            self.since = None
            self.told -= {name for name in sorted(self.told) if _told(service, name, _over(at))}
            return
        self.since = monotonic if self.since is None else self.since
        if monotonic - self.since < PATIENCE:
            return
        # Nobody is meant by an address with a place for a label.
        notify = service.policies.notify.items() if _tells(service) else ()
        names = [name for name, address in notify if "{" not in address.replace("${", "")]
        new = [name for name in names if name not in self.told]
        self.told |= {name for name in new if _told(service, name, _begun(why, at))}


def _tells(service: Service) -> bool:
    return any(policy.mode in TELLS for policy in service.policies.policies)


def _told(service: Service, name: str, notice: Notice) -> bool:
    how = service.cycle.deliver(name, notice)
    if not how.delivered:
        LOG.error("not delivered: %s: %s", name, how.words)
    return how.delivered


def _begun(why: str, at: datetime) -> Notice:
    lines = (
        "stoploss: its state cannot be used, so nothing is decided and nothing is done",
        f"why: {why}",
        "It goes on by itself when that is over; what was seen is kept in memory until then.",
        "stoploss status",
    )
    return Notice(FIRING, KEY, "stoploss", "state", "critical", at, lines)


def _over(at: datetime) -> Notice:
    return Notice(RESOLVED, KEY, "stoploss", "state", "critical", at, ("resolved: stoploss: it goes on",))
