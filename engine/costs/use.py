"""The words of accrual: what tells one stream of cost from another, and all use in the slots of a frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stoploss.engine.costs.book import ON_DEMAND
from stoploss.engine.costs.past import Past
from stoploss.engine.evaluation.columns import World
from stoploss.engine.evaluation.kleene import Bools, Floats
from stoploss.engine.history.frame import Frame

ROUNDING = 1e-9
"""GPU-hours or money that only rounding leaves."""


@dataclass(frozen=True, slots=True)
class Key:
    """What tells one stream of cost from another.

    Attributes:
        job, team, experiment: who used it; None where nobody is known.
        category: compute, storage, network, logs or database (hidden is a part of compute).
        elasticity: elastic goes away with the use, fixed is paid anyway.
        basis: allocated, measured or declared.
        kind: price kind: on-demand, spot, committed or owned.
        missing: why it has no price; None where it has one.
        idle: the part of GPUs that did no work.
        name: of a fixed cost, else empty.
    """

    job: str | None
    team: str | None
    experiment: str | None
    category: str
    elasticity: str
    basis: str
    kind: str = ON_DEMAND
    missing: str | None = None
    idle: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """Use per slot of a frame under one key: GPU-hours, and money (0 where the price is unknown).

    `before_hours` and `before_money` are what is to be added to a sum over the frame's slots for all use
    ever; a slot that the past holds already counts once.
    """

    key: Key
    gpu_hours: Floats
    money: Floats
    before_hours: float = 0.0
    before_money: float = 0.0

    @property
    def holds_gpus(self) -> bool:
        """Whether any GPU was allocated; what rounding leaves is none."""
        return bool(self.gpu_hours.any()) or self.before_hours > ROUNDING

    @property
    def began_before(self) -> bool:
        """Whether some of it lies in slots that the frame does not hold."""
        return self.before_hours > ROUNDING or self.before_money > ROUNDING


@dataclass(frozen=True, slots=True)
class Accrual:
    """All use in the slots of a frame.

    Attributes:
        known: job -> per slot, whether all that it holds had been seen.
        begun: job -> the first slot (from the frame's first on) in which it held anything.
        past: use in slots before, and in the first `held` of the frame.
    """

    frame: Frame
    world: World
    streams: tuple[Stream, ...]
    known: Mapping[str, Bools] = field(default_factory=dict)
    begun: Mapping[str, int] = field(default_factory=dict)
    past: Past = field(default_factory=Past)

    @property
    def held(self) -> int:
        """How many slots of the frame the past holds already."""
        return int(np.searchsorted(self._ends(), self.past.until, side="right"))

    def _ends(self) -> Floats:
        return np.asarray((np.arange(self.frame.slots) + self.frame.first) * self.frame.resolution)

    @property
    def slot_hours(self) -> float:
        """Hours of a slot."""
        return self.frame.resolution / 3600.0

    @property
    def jobs(self) -> tuple[str, ...]:
        """Every job with any use in the frame, sorted."""
        used = (s for s in self.streams if s.gpu_hours.any() or s.money.any())
        return tuple(sorted({s.key.job for s in used if s.key.job is not None}))

    @property
    def there(self) -> frozenset[str]:
        """Every job that was there in any slot of the frame."""
        columns = self.world.tables["job"].columns
        return frozenset({*self.jobs, *(c.resource.id for c in columns if c.end > self.frame.first)})
