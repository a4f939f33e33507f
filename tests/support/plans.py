"""Findings, steps and situations made of dataclasses, for plans that are to say something about them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from stoploss.engine.model import ResourceId
from stoploss.engine.planning.model import Candidate, Decision, Facts, Situation
from stoploss.engine.planning.plan import plan
from stoploss.rules.diagnostics import Position
from stoploss.rules.policy import Policy, Step

HERE = Position("p.yaml", 1, 1)
AT = datetime(2026, 12, 1, 14, tzinfo=UTC)
DESTRUCTIVE = frozenset({"terminate", "downscale", "release", "prune", "retain", "exec"})
READY = Facts(workload_class="train", saved=True, ends_work=True, gpus=8, job="j", team="vision")
"""A job that no guard protects: of a known class, whole, seen well, and with a verified snapshot."""


def step(action: str, **keys: Any) -> Step:
    """A step; `options` are the action's own."""
    return Step(action, keys.pop("options", {}), HERE, destructive=action in DESTRUCTIVE, **keys)


ENDS = (step("alert", to=("owner",)), step("terminate", after=1800.0))
"""Warn the owner, and end it half an hour later."""


def policy(name: str = "idle", steps: Iterable[Step] = ENDS, **keys: Any) -> Policy:
    """A policy on jobs that would be enforced."""
    return Policy(name, "job", HERE, steps=tuple(steps), **{"mode": "enforce"} | keys)


def candidate(resource: str = "j", of: Policy | None = None, **keys: Any) -> Candidate:
    """A finding that has fired for an hour of true time."""
    of = of or policy()
    said: dict[str, Any] = {"facts": READY, "true_seconds": 3600.0, "saves_per_hour": 4.0}
    return Candidate(f"f-{of.name}-{resource}", of, ResourceId("job", resource), **said | keys)


def situation(**keys: Any) -> Situation:
    """A quiet afternoon with caps that no test meets by chance."""
    limits = {"actions-per-run": 1000, "share-of-population": 1.0, "min-population": 0, "gpus-per-run": 10**6}
    said = {"at": AT, "limits": limits | keys.pop("limits", {})}
    return Situation(**said | keys)


def decide(*candidates: Candidate, **keys: Any) -> list[Decision]:
    """The plan of some findings."""
    population = {item.policy.name: 1000 for item in candidates}
    return list(plan(candidates, situation(**{"population": population} | keys)))


def ending(*candidates: Candidate, **keys: Any) -> Decision:
    """The one destructive decision of a plan."""
    [found] = [item for item in decide(*candidates, **keys) if item.action in DESTRUCTIVE]
    return found
