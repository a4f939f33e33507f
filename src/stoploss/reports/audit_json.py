"""An audit as JSON: strict, versioned, complete."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import datetime
from typing import Any

from stoploss.engine.advice import Advice
from stoploss.engine.audit import Audit
from stoploss.engine.costs.model import Totals, Waste
from stoploss.engine.findings import Evidence, Finding, UnknownFinding
from stoploss.engine.incidents import Incident
from stoploss.engine.promises import Promise
from stoploss.reports import plan


def render(audit: Audit) -> str:
    """The audit as one JSON object and a newline."""
    return json.dumps(as_dict(audit), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def render_plan(audit: Audit) -> str:
    """The plan alone, as one JSON object and a newline."""
    said = as_dict(audit)
    kept = ("version", "mode", "at", "degraded", "decisions", "totals")
    return json.dumps({key: said[key] for key in kept}, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def as_dict(audit: Audit) -> dict[str, Any]:
    """The audit as JSON values."""
    return {
        "version": 1,
        "mode": audit.mode,
        "at": instant(audit.at),
        "degraded": audit.degraded,
        "summary": _summary(audit),
        "findings": [_finding(finding) for finding in audit.findings],
        "unknown": [_unknown(item) for item in audit.unknown],
        "incidents": [_incident(item) for item in audit.incidents],
        "promises": [_promise(item) for item in audit.promises],
        "decisions": [plan.as_json(item, audit.totals.currency) for item in audit.decisions],
        "totals": _totals(audit.totals),
        "collectors": [
            {"name": item.name, "ok": item.ok, "reason": item.reason, "seconds": item.seconds}
            for item in audit.collectors
        ],
        "notes": list(audit.notes),
    }


def instant(when: datetime) -> str:
    """An instant in ISO form with its offset."""
    return when.isoformat().replace("+00:00", "Z")


def _summary(audit: Audit) -> dict[str, Any]:
    return {
        "policies": len(audit.policies),
        "policies_without_resources": list(audit.without_resources),
        "resources": dict(audit.resources),
        "findings": {
            "by_state": dict(Counter(finding.state for finding in audit.findings)),
            "by_severity": dict(Counter(finding.policy.severity for finding in audit.firing)),
        },
        "unknown": len(audit.unknown),
        "exempt": sum(finding.exemption is not None for finding in audit.findings),
        "samples": audit.samples,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    resource = finding.resource
    exemption, expired = finding.exemption, finding.expired
    return {
        "id": finding.id,
        "policy": finding.policy.name,
        "severity": finding.policy.severity,
        "resource": {"kind": resource.kind, "id": resource.id, "labels": dict(finding.labels)},
        "owner": finding.owner,
        "state": finding.state,
        "since": instant(finding.since),
        "stale_since": instant(finding.stale_since) if finding.stale_since else None,
        "evidence": [_evidence(item) for item in finding.evidence],
        "cause": finding.cause,
        "advice": [_advice(item) for item in finding.advice],
        "waste": _waste(finding.waste),
        "exemption": None
        if exemption is None
        else {"reason": exemption.reason, "owner": exemption.owner, "expires": exemption.expires},
        "expired_exemption": expired.expires if expired else None,
    }


def _advice(item: Advice) -> dict[str, Any]:
    return {
        "id": item.id,
        "change": item.change,
        "why": item.why,
        "saves_per_hour": _money(item.saves_per_hour),
        "currency": item.currency,
        "risk": item.risk,
        "check": item.check,
    }


def _incident(item: Incident) -> dict[str, Any]:
    """What its findings lose is settled: each billable thing and instant counts once."""
    return {
        "id": item.id,
        "name": item.name,
        "cause": item.cause,
        "between": list(item.between),
        "join": {"label": item.label, "value": item.value},
        "policies": list(item.policies),
        "findings": list(item.findings),
        "unknown": list(item.unknown),
        "undecided": item.undecided,
        "since": instant(item.since),
        "why": item.why,
        "waste": _amounts(item.totals),
    }


def _waste(waste: Waste | None) -> dict[str, Any]:
    """Unknown money is null, never 0; all of it is null where the policy names no waste."""
    return {
        "per_hour": _money(waste.per_hour) if waste else None,
        "so_far": _money(waste.so_far) if waste else None,
        "saves_per_hour": _money(waste.saves_per_hour) if waste else None,
        "currency": waste.currency if waste else None,
        "price_source": waste.source if waste else None,
        "price_kind": waste.kind if waste else None,
        "how": (waste.how or None) if waste else None,
        "missing": waste.missing if waste else None,
    }


def _totals(totals: Totals) -> dict[str, Any]:
    """The sums, and what burns now by policy, team and cause."""
    return {
        **_amounts(totals),
        "by_policy": {name: _money(amount) for name, amount in totals.by_policy.items()},
        "by_team": {name: _money(amount) for name, amount in totals.by_team.items()},
        "by_cause": {name: _money(amount) for name, amount in totals.by_cause.items()},
    }


def _amounts(totals: Totals) -> dict[str, Any]:
    """Sums by price kind, which are never added up; null where nothing has a price."""
    kinds = totals.by_kind.items()
    return {
        "per_hour": {kind: _money(amount.per_hour) for kind, amount in kinds} or None,
        "so_far": {kind: _money(amount.so_far) for kind, amount in kinds} or None,
        "saves_per_hour": {kind: _money(amount.saves_per_hour) for kind, amount in kinds} or None,
        "currency": totals.currency,
        "without_price": totals.without_price,
    }


def _money(amount: float | None) -> float | None:
    """Without the digits that only binary fractions have."""
    return None if amount is None else round(amount, 6)


def _promise(item: Promise) -> dict[str, Any]:
    return {
        "policy": item.policy,
        "experiment": item.experiment,
        "before": item.before,
        "after": item.after,
        "change": item.change,
        "promised_per_hour": item.promised,
        "got_per_hour": item.got,
        "currency": item.currency,
        "why": item.why,
    }


def _evidence(item: Evidence) -> dict[str, Any]:
    value, extra = item.value, {}
    if isinstance(value, float) and not math.isfinite(value):
        extra = {"non_finite": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
        value = None
    return {
        "condition": item.condition,
        "value": value,
        "unit": item.unit,
        "samples": item.samples,
        "of": item.of,
        **extra,
        **({"note": item.note} if item.note else {}),
    }


def _unknown(item: UnknownFinding) -> dict[str, Any]:
    resource = item.resource
    return {
        "policy": item.policy.name,
        "resource": None if resource is None else {"kind": resource.kind, "id": resource.id},
        "condition": item.condition,
        "reason": item.reason,
        "code": item.why.value,
        "alert": item.alert,
        "samples": item.samples,
        "of": item.of,
    }
