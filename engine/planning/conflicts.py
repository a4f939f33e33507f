"""One chain per resource: what holds the later steps, and which of several policies acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stoploss.engine.planning.model import Draft, strength

Chain = list[Draft]
"""The steps of one finding, in order."""


def in_order(chain: Chain) -> Chain:
    """Each step needs the one before to be done; an alert waits for nobody."""
    out: Chain = []
    missing: Draft | None = None
    for draft in chain:
        if missing is not None and not draft.alert and draft.verdict in ("would", "held"):
            why = f"waits for step {missing.number}: {missing.step.action}"
            draft = draft if why in draft.held else draft.hold(why)
        out.append(draft)
        if draft.verdict not in ("would", "done") and draft.step.on_failure != "continue":
            missing = missing or draft
    return out


def settled(chains: Sequence[Chain]) -> list[Chain]:
    """The chains of one resource: the strongest one that is allowed acts, the alerts of all stay."""
    ranks = [_rank(chain) for chain in chains]
    if sum(rank is not None for rank in ranks) < 2:
        return list(chains)
    best = min((rank, at) for at, rank in enumerate(ranks) if rank is not None)[1]
    name = chains[best][0].candidate.policy.name
    action = max((d for d in chains[best] if not d.alert), key=lambda d: _power(d)).step.action
    why = f"one plan per resource: {action} of {name}"
    return [
        chain if at == best else [d if d.alert or d.done else replace(d, skipped=why) for d in chain]
        for at, chain in enumerate(chains)
    ]


def _rank(chain: Chain) -> tuple[int, float, str] | None:
    """The smaller the stronger, then the sooner; None for a chain that only alerts."""
    acting = [draft for draft in chain if not draft.alert]
    if not acting:
        return None
    top = max(acting, key=_power)
    due = top.due.timestamp() if top.due is not None else float("inf")
    return -_power(top), due, top.candidate.policy.name


def _power(draft: Draft) -> int:
    """The strength of a step; one that is blocked, or that a mode forbids, is weaker than any allowed."""
    if draft.done:
        return strength(draft.step) + 200
    forbidden = draft.blocked or draft.candidate.policy.mode == "warn"
    return strength(draft.step) + (0 if forbidden else 100)
