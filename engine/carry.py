"""What an audit hands to the next one that begins later: lifecycles, true time, and what was lost so far.

An audit over all slots, and one over the newest slots with the carry of those before, come to the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stoploss.engine.costs.claims import Claim
from stoploss.engine.costs.past import Past
from stoploss.engine.evaluation import carried
from stoploss.engine.model import ResourceId


@dataclass(frozen=True, slots=True)
class Carry:
    """The end of an audit.

    Attributes:
        slots: resolution in seconds -> the last slot that is in it.
        lifecycles: resolution -> what `Evaluator.carry` gives.
        true_seconds: finding -> true time since it fired.
        claims: finding -> what it has claimed so far.
        past: what was used, and paid for it.
    """

    slots: Mapping[float, int] = field(default_factory=dict)
    lifecycles: Mapping[float, Mapping[str, Any]] = field(default_factory=dict)
    true_seconds: Mapping[str, float] = field(default_factory=dict)
    claims: Mapping[str, tuple[Claim, ...]] = field(default_factory=dict)
    past: Past = field(default_factory=Past)

    def as_json(self) -> dict[str, Any]:
        """The carry as JSON values."""
        return {
            "version": 1,
            "slots": [[resolution, slot] for resolution, slot in self.slots.items()],
            "lifecycles": [[resolution, dict(state)] for resolution, state in self.lifecycles.items()],
            "true_seconds": dict(self.true_seconds),
            "past": self.past.as_json(),
            "claims": {
                name: [
                    [c.leaf.kind, c.leaf.id, c.per_hour, [list(span) for span in c.spans], c.kind]
                    for c in claims
                ]
                for name, claims in self.claims.items()
            },
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Carry:
        """A carry that `as_json` gave.

        Raises:
            ValueError: it is none.
        """
        try:
            if said["version"] != 1:
                raise ValueError(f"a carry of version {said['version']!r}; this program reads 1")
            for resolution, state in said["lifecycles"]:
                carried.from_json(state, float(resolution))
            return cls(
                {float(resolution): int(slot) for resolution, slot in said["slots"]},
                {float(resolution): state for resolution, state in said["lifecycles"]},
                {str(name): float(seconds) for name, seconds in said["true_seconds"].items()},
                {str(name): tuple(map(_claim, claims)) for name, claims in said["claims"].items()},
                Past.from_json(said["past"]),
            )
        except (AttributeError, TypeError, LookupError) as error:
            raise ValueError(f"not a carry: {error}") from None


def _claim(row: Any) -> Claim:
    kind, name, per_hour, spans, price = row
    return Claim(
        ResourceId(kind, name), float(per_hour), tuple((float(a), float(b)) for a, b in spans), 0.0, price
    )
