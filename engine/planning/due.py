"""When the steps of a finding are due.

`after` is true time since firing; it stands while the condition is unknown or held. A step
that is late keeps its distance to the one before, so that whoever is warned has the time that
the policy gives.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from stoploss.engine.planning.model import Answer, Candidate, Draft, Situation
from stoploss.engine.planning.schedule import quiet_until
from stoploss.rules.policy import ANSWER, Step


def drafts(candidate: Candidate, situation: Situation) -> list[Draft]:
    """The steps of a finding in order, each with when it is due; None while the clock stands."""
    found: list[Draft] = []
    before: datetime | None = situation.at
    after = 0.0
    for number, step in enumerate(candidate.policy.steps, 1):
        draft = _draft(candidate, number, step, situation)
        if not draft.done:
            natural = due = _natural(candidate, step.after, situation.at)
            if found and before is not None and natural is not None:
                due = max(natural, before + timedelta(seconds=max(0.0, step.after - after)))
            draft = replace(draft, due=due)
            if draft.alert:
                due, notes = _loud(candidate, due, situation)
                draft = replace(draft, due=due, notes=notes)
            elif before is None:
                draft = replace(draft, due=None)
        found.append(draft)
        before, after = draft.due, step.after
    return [*found, *_answers(candidate, found, situation)]


def _draft(candidate: Candidate, number: int, step: Step, situation: Situation) -> Draft:
    """A step with what has become of it so far; its `due` is when it was done."""
    key = candidate.finding or "", number
    done = situation.standing.done.get(key)
    return Draft(
        candidate, number, step, done, done=done is not None, failed=situation.standing.failed.get(key)
    )


def _answers(candidate: Candidate, found: list[Draft], situation: Situation) -> list[Draft]:
    """Steps that follow where nobody answers within the time that a step gives, counted from its end.

    Who says yes to the first of them says it to all, and they need not wait for the end of the time.
    """
    before = {draft.number: draft for draft in found}
    approved: dict[int, bool] = {}
    out: list[Draft] = []
    for number, step in candidate.policy.numbered[len(candidate.policy.steps) :]:
        asking = before[number // ANSWER]
        assert asking.step.require_ack is not None, "only a step that asks is followed by an answer"
        draft = _draft(candidate, number, step, situation)
        first = asking.number not in approved
        yes = approved.setdefault(asking.number, draft.request_id in situation.standing.approved)
        if not draft.done and asking.due is not None:
            until = asking.due + timedelta(seconds=asking.step.require_ack["within"])
            begin = asking.due if asking.done and yes else until
            due = max(situation.at, begin + timedelta(seconds=step.after)) if candidate.running else None
            wait = Answer(until, ask=first, now=asking.done) if until > situation.at and not yes else None
            draft = replace(draft, due=due, answer=wait)
        out.append(draft)
    return out


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
