"""What people decided and what was done, as the plan asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from stoploss.engine.execution.deeds import Deed, deeds
from stoploss.engine.execution.watching import with_watched
from stoploss.engine.history.store_errors import StoreError
from stoploss.engine.ledger import Ledger
from stoploss.engine.people import People
from stoploss.engine.people_schema import Request
from stoploss.engine.planning.model import ALERT, Standing, StepKey


def standing_of(
    ledger: Ledger,
    findings: Sequence[str],
    *,
    now: datetime,
    running: frozenset[StepKey] = frozenset(),
) -> Standing:
    """How things stand for some findings.

    What cannot be read stops everything: nobody knows then what must not be done.
    """
    people = People(ledger)
    try:
        # A state that has lived for years holds many that nothing asks for any more.
        requests = people.requests(episodes=findings)
        pause = people.paused()
        kept = {
            keep.job: f"until {keep.until:%Y-%m-%d %H:%M %Z} by {keep.who}: {keep.reason}"
            for keep in people.keeps(now=now)
        }
        found = deeds(ledger, findings)
        watched = with_watched(Standing(), ledger, now=now)
    except StoreError as error:
        return Standing(unreadable=str(error), paused="the state cannot be read")
    return Standing(
        approved=frozenset(r.id for r in requests if r.state(now) == "approved"),
        rejected={
            (r.wanted.episode, r.wanted.action, r.wanted.target): _no(r)
            for r in requests
            if r.state(now) == "rejected"
        },
        kept=kept,
        paused=None if pause is None else pause.reason,
        done={key: deed.at for key, deed in found.items() if deed.done and deed.undone is None},
        failed={
            key: why for key, deed in found.items() if key not in running and (why := _failed(deed, now))
        },
        undelivered={
            key: deed.result.why or "not delivered"
            for key, deed in found.items()
            if deed.intent.action == ALERT
            and not deed.done
            and deed.result
            and deed.result.verdict == "failed"
        },
        told={
            key: {name: deed.told[who] for name, who in deed.receivers.items() if who in deed.told}
            for key, deed in found.items()
            if deed.intent.action == ALERT and "receivers" in (deed.intent.evidence or {})
        },
        actions={key: deed.intent.action or "" for key, deed in found.items()},
        running=running,
        saved={key[0]: deed.saved for key, deed in found.items() if deed.saved is not None},
        watched=watched.watched,
        backfired=watched.backfired,
    )


def _no(request: Request) -> str:
    return f"by {request.who}: {request.reason or 'no reason is given'}"


def _failed(deed: Deed, now: datetime) -> str | None:
    """Why a step is not tried now; alerts are told again by their own rules."""
    if deed.intent.action == ALERT:
        return None
    if deed.undone is not None:
        return f"taken back by {deed.undone.who}; it is not done again in this episode"
    if deed.result is None:
        return "it was begun, and what came of it is not known yet"
    if deed.done:
        return None
    again = deed.next_try()
    if again is not None and again <= now:
        return None
    later = "" if again is None else f"; tried again at {again:%H:%M %Z}"
    return f"{deed.result.verdict}: {deed.result.why}{later}"
