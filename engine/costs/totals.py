"""What all findings lose together, each billable thing and instant counted once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stoploss.engine.costs.claims import Claim, Parents, settle
from stoploss.engine.costs.model import Amount, Totals, Waste
from stoploss.engine.model import ResourceId


@dataclass(frozen=True, slots=True)
class Costed:
    """One finding that counts, with its waste and its claims."""

    policy: str
    team: str
    cause: str
    waste: Waste
    claims: tuple[Claim, ...]
    parents: Parents


def totals(costed: Sequence[Costed], currency: str) -> Totals:
    """Sums by price kind, and what burns now by policy, team and cause.

    What several findings claim goes to the largest claim, of equal ones to the first, so that
    the parts add up to the whole; a policy whose every claim is counted elsewhere has no part.
    """
    parents: dict[ResourceId, ResourceId] = {}
    for item in costed:
        parents.update(item.parents)
    pairs = [(item, claim) for item in costed for claim in item.claims]
    granted = settle([claim for _, claim in pairs], parents)
    saving = [(item, claim) for item, claim in pairs if item.waste.saves_per_hour is not None]
    saved = settle([claim for _, claim in saving], parents)
    now, so_far, saves = (
        _summed((claim.kind, amount) for claim, amount in rows)
        for rows in (
            [(claim, part.now) for (_, claim), part in zip(pairs, granted, strict=True)],
            [(claim, part.so_far) for (_, claim), part in zip(pairs, granted, strict=True)],
            [(claim, part.now) for (_, claim), part in zip(saving, saved, strict=True)],
        )
    )

    def by(name: Callable[[Costed], str]) -> dict[str, float]:
        rows = zip(pairs, granted, strict=True)
        return _summed((name(item), part.now) for (item, _), part in rows if part.now)

    return Totals(
        currency,
        {kind: Amount(now[kind], so_far[kind], saves.get(kind, 0.0)) for kind in now},
        by(lambda item: item.policy),
        by(lambda item: item.team),
        by(lambda item: item.cause),
        sum(item.waste.per_hour is None for item in costed),
    )


def _summed(rows: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, amount in rows:
        sums[name] = sums.get(name, 0.0) + amount
    return sums
