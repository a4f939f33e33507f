"""The dead-man ping: whoever expects it and does not get it knows that nothing is watched any more."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stoploss.engine import clock
from stoploss.rules.environment import VariableError, expand

if TYPE_CHECKING:
    from stoploss.daemon.service import Service

LOG = logging.getLogger("stoploss.daemon")

EVERY = 60.0
"""Seconds between two pings."""
LIMIT = 5.0
"""Seconds that one may take."""
LATE = 3
"""Intervals after which a service that does not tick is not well, and does not ping."""


def beat(service: Service, environ: Mapping[str, str], beaten: float | None) -> float | None:
    """Ping `settings.heartbeat` where it is time and ticks come; returns when that was done last."""
    address = service.policies.settings.heartbeat
    now = clock.monotonic()
    if address is None or (beaten is not None and now - beaten < EVERY) or not well(service):
        return beaten
    try:
        _ping(expand(address, environ))
    except VariableError as error:
        service.vitals.problems["heartbeat"] = f"settings.heartbeat: {error}"
    except Exception as error:
        # The text of the error may hold the address, which is a secret.
        service.vitals.problems["heartbeat"] = f"the heartbeat was not delivered ({type(error).__name__})"
    else:
        service.vitals.problems.pop("heartbeat", None)
    return now


def well(service: Service) -> bool:
    """Whether ticks come in time."""
    last = service.vitals.last_tick
    if last is None:
        return False
    return (clock.now() - last).total_seconds() <= LATE * service.policies.settings.resolution + 60.0


def _ping(url: str) -> None:
    import urllib3

    if not url.startswith(("http://", "https://")):
        raise ValueError("no web address")
    answer = urllib3.PoolManager(retries=False, timeout=LIMIT).request("GET", url, redirect=False)
    if answer.status >= 400:
        raise ValueError(f"answered {answer.status}")
