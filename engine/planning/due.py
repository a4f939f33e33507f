"""When the steps of a finding are due.

`after` is true time since firing; it stands while the condition is unknown or held. A step
that is late keeps its distance to the one before, so that whoever is warned has the time that
the policy gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from stoploss.engine.planning.model import ALERT, Answer, Candidate, Draft, Situation, Standing, StepKey
from stoploss.engine.planning.schedule import quiet_until
from stoploss.rules.policy import ANSWER, Step


def drafts(candidate: Candidate, situation: Situation) -> list[Draft]:
    """The steps of a finding in order, each with when it is due; None while the clock stands."""
    found: list[Draft] = []
    before: datetime | None = situation.at
    for number, step in enumerate(candidate.policy.steps, 1):
        draft = _draft(candidate, number, step, situation)
        if not draft.done:
            natural = due = _natural(candidate, step.after, situation.at)
            if found and before is not None and natural is not None:
                due = max([natural, *_distances(found, step)])
            draft = replace(draft, due=due)
            if draft.alert:
                due, notes = _loud(candidate, due, situation)
                draft = replace(draft, due=due, notes=notes)
            elif before is None:
                draft = replace(draft, due=None)
        found.append(draft)
        before = draft.due
    return [*found, *_answers(candidate, found, situation)]


def _distances(found: Sequence[Draft], step: Step) -> Iterator[datetime]:
    """When a step is due by its distance to each before it: an alert may come after what follows it."""
    for item in found:
        # One that may fail, and has, is not waited for.
        failed = item.failed is not None and item.step.on_failure == "continue"
        if item.due is not None and not failed:
            yield item.due + timedelta(seconds=max(0.0, step.after - item.step.after))


def _draft(candidate: Candidate, number: int, step: Step, situation: Situation) -> Draft:
    """A step with what has become of it so far; its `due` is when it was done."""
    key, standing = (candidate.finding or "", number), situation.standing
    if standing.actions.get(key, step.action) != step.action:
        # The policy was edited since: what was done under this number was another step.
        return Draft(candidate, number, step, None)
    done = _done(candidate, key, step, standing)
    return Draft(candidate, number, step, done, done=done is not None, failed=standing.failed.get(key))


def _done(candidate: Candidate, key: StepKey, step: Step, standing: Standing) -> datetime | None:
    """When a step was done; an alert: when the last of those whom it tells by now was reached."""
    told = standing.told.get(key)
    if step.action != ALERT or told is None:
        return standing.done.get(key)
    whom = step.to or (candidate.policy.contact or "log",)
    return max(told[name] for name in whom) if told.keys() >= set(whom) else None


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
