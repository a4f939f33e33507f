"""The words of money that engine and faces share. Amounts are in the policy set's currency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Waste:
    """What a finding loses.

    Attributes:
        per_hour: money per hour now; None is unknown, never 0.
        so_far: money since the finding began; None is unknown.
        currency: ISO code.
        source: where the price comes from, with its date, for people.
        kind: on-demand, spot, committed or owned.
        how: the arithmetic in words: `8 GPUs x $4.10/GPU-hour x 100%`.
        missing: why the amount is unknown, None where it is known.
        saves_per_hour: what the policy's steps would save per hour; None without steps or price.
    """

    per_hour: float | None
    so_far: float | None
    currency: str = "USD"
    source: str | None = None
    kind: str | None = None
    how: str = ""
    missing: str | None = None
    saves_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Amount:
    """Sums over findings of one price kind, each billable leaf and slot counted once."""

    per_hour: float = 0.0
    so_far: float = 0.0
    saves_per_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """What all findings lose together.

    Attributes:
        currency: ISO code.
        by_kind: price kind -> sums; cash, capacity and spend avoided are never added up.
        by_policy, by_team, by_cause: name -> money per hour; the largest claim on a leaf counts.
        without_price: findings whose waste is unknown.
    """

    currency: str = "USD"
    by_kind: Mapping[str, Amount] = field(default_factory=dict)
    by_policy: Mapping[str, float] = field(default_factory=dict)
    by_team: Mapping[str, float] = field(default_factory=dict)
    by_cause: Mapping[str, float] = field(default_factory=dict)
    without_price: int = 0
