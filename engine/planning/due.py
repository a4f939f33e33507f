"""When the steps of a finding are due.

`after` is true time since firing; it stands while the condition is unknown or held. A step
that is late keeps its distance to the one before, so that whoever is warned has the time that
the policy gives.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from stoploss.engine.planning.model import Candidate, Draft, Situation
from stoploss.engine.planning.schedule import quiet_until


def drafts(candidate: Candidate, situation: Situation) -> list[Draft]:
    """The steps of a finding in order, each with when it is due; None while the clock stands."""
    found: list[Draft] = []
    before: datetime | None = situation.at
    after = 0.0
    for number, step in enumerate(candidate.policy.steps, 1):
        done = situation.done.get((candidate.finding or "", number))
        if done is not None:
            found.append(Draft(candidate, number, step, done, done=True))
            before, after = done, step.after
            continue
        natural = due = _natural(candidate, step.after, situation.at)
        if found and before is not None and natural is not None:
            due = max(natural, before + timedelta(seconds=max(0.0, step.after - after)))
        draft = Draft(candidate, number, step, due)
        if draft.alert:
            due, notes = _loud(candidate, due, situation)
            draft = Draft(candidate, number, step, due, notes=notes)
        elif before is None:
            draft = Draft(candidate, number, step, None)
        found.append(draft)
        before, after = draft.due, step.after
    return found


def _natural(candidate: Candidate, after: float, at: datetime) -> datetime | None:
    left = after - candidate.true_seconds
    if left <= 0:
        return at
    return at + timedelta(seconds=left) if candidate.running else None


def _loud(
    candidate: Candidate, due: datetime | None, situation: Situation
) -> tuple[datetime | None, tuple[str, ...]]:
    """An alert that would come in a quiet time waits for its end."""
    active = candidate.policy.active or {}
    if due is None or "quiet" not in active:
        return due, ()
    until = quiet_until(active["quiet"], due, active.get("timezone") or situation.timezone)
    return (due, ()) if until is None else (until, (f"quiet {active['quiet']}",))
