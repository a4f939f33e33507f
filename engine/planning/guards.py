"""The guards of a single step: each says in words why a step is blocked, or what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stoploss.engine.planning.model import Candidate, Draft, Situation, Standing
from stoploss.engine.planning.schedule import maintenance, why_outside
from stoploss.rules.units import format_duration

SERVING = frozenset({"serve", "serving", "inference", "interactive", "notebook"})
NO_SNAPSHOT = frozenset({"prune", "retain", "release"})
"""Destructive actions that end no job; a prune is guarded by what it keeps."""


def guarded(draft: Draft, situation: Situation, unwarned: str | None) -> Draft:
    """The draft with everything that its guards say; `unwarned`: why its owner does not know of it."""
    if draft.done or draft.failed is not None:
        return draft
    standing = situation.standing
    if draft.key in standing.running:
        return draft.hold("it is being carried out")
    for why in _all_steps(draft, situation):
        draft = draft.block(why)
    if standing.paused is not None:
        draft = draft.hold(f"paused: {standing.paused}")
    if draft.alert:
        return draft if draft.due is not None else draft.hold("the clock of `after` stands")
    return _approval(_saving(_timed(_changing(draft, situation, unwarned), situation)), situation)


def _changing(draft: Draft, situation: Situation, unwarned: str | None) -> Draft:
    """Guards of what is more than an alert."""
    for why in (*_acting(draft.candidate), *_said_no(draft, situation.standing)):
        draft = draft.block(why)
    if draft.step.destructive:
        for why in _destructive(draft, unwarned):
            draft = draft.block(why)
        for why in _waiting(draft, situation):
            draft = draft.hold(why)
    return draft


def _timed(draft: Draft, situation: Situation) -> Draft:
    """What holds a step for now: its clock, its mode, or maintenance."""
    if draft.due is None:
        draft = draft.hold("the clock of `after` stands: not true now")
    if draft.candidate.policy.mode == "warn":
        draft = draft.hold("mode warn: only alerts are sent")
    closed = maintenance(situation.maintenance, draft.due or situation.at, situation.timezone)
    return draft if closed is None else draft.hold(closed)


def _all_steps(draft: Draft, situation: Situation) -> Iterator[str]:
    """Guards of alerts too: the policy does not apply here, or now."""
    if draft.candidate.facts.exempt is not None:
        yield draft.candidate.facts.exempt
    outside = why_outside(draft.candidate.policy.active, draft.due or situation.at, situation.timezone)
    if outside is not None:
        yield outside


def _acting(candidate: Candidate) -> Iterator[str]:
    """Guards of everything that is more than an alert."""
    facts = candidate.facts
    if facts.protected is not None:
        yield facts.protected
    if facts.unreadable is not None:
        yield facts.unreadable
    if facts.workload and facts.workload_class is None:
        yield "class unknown: alerts only"


def _said_no(draft: Draft, standing: Standing) -> Iterator[str]:
    """What people decided against a step."""
    facts, step = draft.candidate.facts, draft.step
    rejected = standing.rejected.get((draft.candidate.finding or "", step.action, draft.target))
    if rejected is not None:
        yield f"rejected {rejected}"
    if step.destructive and standing.unreadable is not None:
        yield f"what people decided cannot be read: {standing.unreadable}"
    if step.destructive and facts.job is not None and facts.job in standing.kept:
        yield f"kept {standing.kept[facts.job]}"


def _destructive(draft: Draft, unwarned: str | None) -> Iterator[str]:
    facts = draft.candidate.facts
    if facts.stale is not None:
        yield facts.stale
    for word in (facts.workload_class, facts.stage):
        if facts.workload and word is not None and word.lower() in SERVING:
            yield f"{word} is never ended"
            break
    if facts.part is not None:
        yield facts.part
    if facts.jobs > 1:
        yield f"its name matches {facts.jobs} jobs"
    if facts.kept is not None and draft.step.action == "prune":
        yield facts.kept
    saves = draft.candidate.saves_per_hour
    if saves is not None and saves <= 0:
        yield "no net gain: it saves nothing"
    if unwarned is not None:
        yield unwarned


def _waiting(draft: Draft, situation: Situation) -> Iterator[str]:
    facts = draft.candidate.facts
    if facts.thin is not None:
        yield facts.thin
    needs = facts.ends_work and draft.step.action not in NO_SNAPSHOT
    saved = facts.saved or situation.standing.saved.get(draft.candidate.finding or "") is not None
    if needs and draft.step.snapshot != "not-needed" and not saved:
        yield "waits for a verified snapshot"
    if situation.freeze is not None:
        yield situation.freeze
    if situation.standing.clock is not None:
        yield situation.standing.clock


def _approval(draft: Draft, situation: Situation) -> Draft:
    """A budget knows nothing of the work that it would end, so a person decides."""
    if draft.request_id in situation.standing.approved:
        return draft
    if draft.answer is not None:
        until = f"{draft.answer.until:%Y-%m-%d %H:%M %Z}"
        return draft.hold(f"an answer is awaited until {until}", asks=draft.answer.ask)
    if draft.step.approve == "required":
        return draft.hold("needs approval", asks=True)
    if draft.step.destructive and draft.candidate.facts.ends_work and _on_budget(draft.candidate):
        return draft.hold("needs approval: a budget alone ends no job", asks=True)
    return draft


def _on_budget(candidate: Candidate) -> bool:
    signals = (signal for item in candidate.policy.conditions for signal in item.signals)
    return any(signal.name.startswith("budget.") for signal in signals)


def _saving(draft: Draft) -> Draft:
    """A snapshot that costs more than it saves is said to be one."""
    save, risk = draft.candidate.facts.save_seconds, draft.candidate.facts.at_risk_seconds
    if draft.step.action != "snapshot" or save is None or risk is None or save < risk:
        return draft
    told = f"it takes {format_duration(save)} and saves {format_duration(risk)} of work"
    return replace(draft, notes=(*draft.notes, f"costs more than it saves: {told}"))
