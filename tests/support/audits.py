"""Audits made of dataclasses, for reports that are to say something about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from stoploss.engine.audit import Audit
from stoploss.engine.costs.model import Waste
from stoploss.engine.evaluation.kleene import TRUE
from stoploss.engine.evaluation.readings import Why
from stoploss.engine.findings import Evidence, Finding, UnknownFinding
from stoploss.engine.model import ResourceId
from stoploss.rules.conditions import typed
from stoploss.rules.conditions.typed import CheckedCondition
from stoploss.rules.diagnostics import Position
from stoploss.rules.policy import Exemption, Policy

AT = datetime(2026, 12, 1, 14, tzinfo=UTC)
CONDITION = CheckedCondition("max(gpu.utilization, 30m) < 5%", "", typed.Has("job", "gpu", ""), ())
NASTY = "<b>\"x\"&'y'</b>\x00\x1b[31m\u202e"
"""Markup, quotes, control characters and one that turns the direction of text around."""


def policy(name: str = "idle-gpu", **keys: Any) -> Policy:
    """A policy on GPUs with one condition."""
    return Policy(name, "gpu", Position("team a/policies.yaml", 7, 5), conditions=(CONDITION,), **keys)


def waste(per_hour: float | None, **keys: Any) -> Waste:
    """What a finding loses, ten hours old."""
    so_far = None if per_hour is None else 10 * per_hour
    return Waste(per_hour, so_far, source="our price list", kind="on-demand", how="2 GPUs x 100%", **keys)


def finding(resource: str = "n1/0", of: Policy | None = None, **keys: Any) -> Finding:
    """A finding that has fired for ten hours, on evidence of 30 samples."""
    said: dict[str, Any] = {
        "id": f"f-{resource}",
        "policy": of or policy(),
        "resource": ResourceId("gpu", resource),
        "owner": None,
        "labels": {"team": "vision"},
        "state": "firing",
        "since": AT - timedelta(hours=10),
        "stale_since": None,
        "evidence": (Evidence(CONDITION.text, 0.01, "share", 30, 30, TRUE),),
    }
    return Finding(**said | keys)


def unknown(resource: str | None = "n1/1", of: Policy | None = None, reason: str = "N/A") -> UnknownFinding:
    """A policy that could not be decided."""
    where = None if resource is None else ResourceId("gpu", resource)
    return UnknownFinding(of or policy(), where, CONDITION.text, reason, Why.BAD)


def exemption(reason: str = "by design") -> Exemption:
    """An exemption in force."""
    return Exemption("idle-gpu", CONDITION, reason, "ml-infra", "2027-01-31", Position("p.yaml"))


def audit(
    findings: Iterable[Finding] = (),
    unknowns: Iterable[UnknownFinding] = (),
    resources: Mapping[str, int] | None = None,
    **keys: Any,
) -> Audit:
    """An audit whose policies are those that its findings and unknowns name."""
    findings, unknowns = tuple(findings), tuple(unknowns)
    policies = {item.policy.name: item.policy for item in (*findings, *unknowns)} or {"idle-gpu": policy()}
    said = {"timezone": "UTC"} | keys
    counted = resources or {"gpu": 8}
    return Audit(
        AT,
        "audit",
        policies=tuple(policies.values()),
        resources=counted,
        findings=findings,
        unknown=unknowns,
        **said,
    )
