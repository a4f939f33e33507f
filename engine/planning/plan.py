"""The plan: a pure function from findings to decisions. Nothing is done and nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable

from stoploss.engine.model import ResourceId
from stoploss.engine.planning.caps import capped
from stoploss.engine.planning.conflicts import Chain, in_order, settled
from stoploss.engine.planning.due import drafts
from stoploss.engine.planning.guards import guarded
from stoploss.engine.planning.model import Candidate, Decision, Draft, Situation, decided


def plan(candidates: Iterable[Candidate], situation: Situation) -> tuple[Decision, ...]:
    """One plan per resource, in the order of resource, policy and step.

    The same input gives the same plan, in whatever order the findings come.
    """
    resources: dict[ResourceId, list[Chain]] = {}
    for candidate in sorted(candidates, key=_order):
        chain = in_order(_guarded(candidate, situation))
        if chain:
            resources.setdefault(candidate.resource, []).append(chain)
    chains = [chain for found in resources.values() for chain in settled(found)]
    flat = capped([draft for chain in chains for draft in chain], situation)
    decisions: list[Decision] = []
    for chain in chains:
        # What a cap has stopped holds the steps after it.
        mine, flat = in_order(flat[: len(chain)]), flat[len(chain) :]
        resource = chain[0].candidate.resource
        wanted = [item[0].candidate.policy.name for item in resources[resource]]
        for draft in mine:
            name = draft.candidate.policy.name
            policies = tuple(dict.fromkeys((name, *wanted)))
            decisions.append(decided(draft, policies, situation.at))
    return tuple(decisions)


def _guarded(candidate: Candidate, situation: Situation) -> list[Draft]:
    """The steps of a finding with what their guards say; of an unknown one only its alerts."""
    found: list[Draft] = []
    for draft in drafts(candidate, situation):
        if candidate.finding is None and not draft.alert:
            continue
        found.append(guarded(draft, situation, _unwarned(found, situation)))
    return found


def _unwarned(before: list[Draft], situation: Situation) -> str | None:
    """Why the owner is not warned by the alerts before a step; None where one will be or was."""
    told = [item for item in before if item.alert and item.verdict in ("would", "done")]
    lost = [why for item in told if (why := situation.standing.undelivered.get(item.key)) is not None]
    if len(told) > len(lost):
        return None
    return f"the owner is not warned: {lost[0] if lost else 'no alert comes before it'}"


def _order(candidate: Candidate) -> tuple[ResourceId, str, str]:
    return candidate.resource, candidate.policy.name, candidate.finding or ""
