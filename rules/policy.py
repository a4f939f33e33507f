"""The loaded policy set: what the engine and the faces read.

Built by `rules/loader.py` from validated files; frozen, without YAML or pydantic.
Times are in seconds, money in the policy set's currency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stoploss.rules.conditions.typed import CheckedCondition, Condition
from stoploss.rules.diagnostics import Position
from stoploss.rules.units import Quantity

ANSWER = 100
"""What numbers of steps that follow a missing answer begin from, times the number of the step that asks."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of `then:`: an action with its options, `after` true seconds since firing."""

    action: str
    options: Mapping[str, Any]
    position: Position
    after: float = 0.0
    repeat: float | None = None
    approve: str | None = None
    snapshot: str | None = None
    require_ack: Mapping[str, Any] | None = None
    on_failure: str | None = None
    to: tuple[str, ...] = ()
    destructive: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy.

    `where` is None where every resource of kind `each` is meant. `conditions` are the leaves
    as written, for evidence; `when` is the whole `when:` tree over them, None for no condition.
    `canonical` is the one spelling of the whole `when`. `waste` is a share of the resource's
    price, or an amount of money per time.
    """

    name: str
    each: str
    position: Position
    summary: str = ""
    where: CheckedCondition | None = None
    when: Condition | None = None
    conditions: tuple[CheckedCondition, ...] = ()
    canonical: str = ""
    for_seconds: float = 0.0
    hold_seconds: float = 0.0
    severity: str = "medium"
    cause: str | None = None
    mode: str = "audit"
    resolution: float = 60.0
    on_unknown: str = "report"
    min_age: float = 0.0
    except_phase: tuple[str, ...] = ()
    active: Mapping[str, Any] | None = None
    waste: Quantity | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    budget: str | None = None
    runbook: str | None = None
    contact: str | None = None
    steps: tuple[Step, ...] = ()

    @property
    def numbered(self) -> tuple[tuple[int, Step], ...]:
        """Every step with its number; those that follow a missing answer to step 2 are 201, 202, …."""
        own = tuple(enumerate(self.steps, 1))
        answers = [
            (number * ANSWER + at, answer)
            for number, step in own
            if step.require_ack is not None
            for at, answer in enumerate(step.require_ack["then"], 1)
        ]
        return (*own, *answers)

    def step(self, number: int) -> Step | None:
        """The step of a number; None where the policy has none of it any more."""
        return dict(self.numbered).get(number)

    @property
    def key(self) -> str:
        """What lifecycle state is kept under: edits elsewhere in the policy keep it."""
        where = self.where.canonical if self.where else ""
        return f"{self.each}|{where}|{self.canonical}"


@dataclass(frozen=True, slots=True)
class Exemption:
    """A policy does not apply where `where` is true or unknown, through the day `expires` (ISO date)."""

    policy: str
    where: CheckedCondition
    reason: str
    owner: str
    expires: str
    position: Position


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on use, summed over spending rows where `where` is true, for each resource of a kind."""

    name: str
    each: str
    limit: Quantity
    position: Position
    where: CheckedCondition | None = None
    per: str = "life"


@dataclass(frozen=True, slots=True)
class Correlation:
    """Findings of several policies joined on a label into one incident."""

    name: str
    cause: str
    join: str
    all: tuple[str, ...]
    none: tuple[str, ...]
    within: float
    steps: tuple[Step, ...]
    position: Position


@dataclass(frozen=True, slots=True)
class CollectorSetting:
    """A collector with the seconds between its looks and its options."""

    name: str
    every: float
    options: Mapping[str, Any]
    position: Position


@dataclass(frozen=True, slots=True)
class Settings:
    """The `settings:` of a policy set, with safe defaults."""

    mode: str = "audit"
    timezone: str = "UTC"
    resolution: float = 60.0
    state: str = "sqlite:///stoploss.db"
    limits: Mapping[str, Any] = field(default_factory=dict)
    retention: float | None = None
    heartbeat: str | None = None
    maintenance: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Everything that the files of one run say together."""

    files: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    collectors: tuple[CollectorSetting, ...] = ()
    policies: tuple[Policy, ...] = ()
    budgets: tuple[Budget, ...] = ()
    exemptions: tuple[Exemption, ...] = ()
    protect: tuple[CheckedCondition, ...] = ()
    correlations: tuple[Correlation, ...] = ()
    notify: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, Any] = field(default_factory=dict)
    fixed_costs: tuple[Mapping[str, Any], ...] = ()
    currency: str | None = None
