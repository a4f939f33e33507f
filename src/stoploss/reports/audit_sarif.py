"""An audit as SARIF 2.1.0: policies are rules, firing findings are results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stoploss import __version__
from stoploss.engine.audit import Audit
from stoploss.engine.findings import Finding, UnknownFinding
from stoploss.engine.model import ResourceId
from stoploss.reports.audit_json import instant
from stoploss.reports.audit_table import evidence
from stoploss.reports.diagnostics_sarif import SCHEMA, uri
from stoploss.rules.policy import Policy

_LEVELS = {"critical": "error", "high": "error", "medium": "warning", "low": "note"}


def render(audit: Audit) -> str:
    """One run; an exempt finding is a suppressed result, an unknown is a notification."""
    order = {policy.name: index for index, policy in enumerate(audit.policies)}
    run = {
        "tool": {
            "driver": {
                "name": "stoploss",
                "version": __version__,
                "rules": [_rule(policy) for policy in audit.policies],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not audit.degraded,
                "endTimeUtc": instant(audit.at),
                "toolExecutionNotifications": list(_notifications(audit, order)),
            }
        ],
        "results": [_result(finding, order) for finding in audit.findings if finding.state != "pending"],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _rule(policy: Policy) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": policy.name,
        "shortDescription": {"text": policy.summary or policy.name},
        "defaultConfiguration": {"level": _LEVELS[policy.severity]},
        "properties": {"severity": policy.severity, "cause": policy.cause},
    }
    if policy.conditions:
        rule["fullDescription"] = {"text": "\n".join(condition.text for condition in policy.conditions)}
    if policy.runbook:
        rule["help"] = {"text": f"runbook: {policy.runbook}"}
    return rule


def _result(finding: Finding, order: dict[str, int]) -> dict[str, Any]:
    policy, waste = finding.policy, finding.waste
    facts = " · ".join(evidence(item) for item in finding.evidence)
    since = instant(finding.since)
    result: dict[str, Any] = {
        "ruleId": policy.name,
        "ruleIndex": order[policy.name],
        "level": _LEVELS[policy.severity],
        "message": {"text": f"{finding.resource} since {since}" + (f": {facts}" if facts else "")},
        "locations": [_location(policy, finding.resource)],
        "partialFingerprints": {"findingId/v1": finding.id},
        "properties": {
            "state": finding.state,
            "since": since,
            "owner": finding.owner,
            "team": finding.labels.get("team"),
            "perHour": waste.per_hour if waste else None,
            "soFar": waste.so_far if waste else None,
            "currency": waste.currency if waste else None,
            "priceKind": waste.kind if waste else None,
        },
    }
    if finding.exemption is not None:
        result["suppressions"] = [{"kind": "external", "justification": finding.exemption.reason}]
    return result


def _location(policy: Policy, resource: ResourceId | None) -> dict[str, Any]:
    """The resource, and the line of the policy: code scanning shows only results with a file."""
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": uri(policy.position.file)},
            "region": {"startLine": policy.position.line, "startColumn": policy.position.column},
        }
    }
    if resource is not None:
        location["logicalLocations"] = [
            {
                "name": resource.id,
                "fullyQualifiedName": f"{resource.kind}/{resource.id}",
                "kind": "resource",
            }
        ]
    return location


def _notifications(audit: Audit, order: dict[str, int]) -> Iterator[dict[str, Any]]:
    for item in audit.unknown:
        yield {
            "level": "warning",
            "message": {"text": f"unknown: {_unknown(item)}"},
            "associatedRule": {"id": item.policy.name, "index": order[item.policy.name]},
            "locations": [_location(item.policy, item.resource)],
        }
    for status in audit.collectors:
        if not status.ok:
            reason = status.reason or "no reason given"
            yield {"level": "error", "message": {"text": f"collector {status.name} failed: {reason}"}}


def _unknown(item: UnknownFinding) -> str:
    who = f"{item.resource}: " if item.resource else ""
    return f"{who}{item.reason}" + (f" ({item.condition})" if item.condition else "")
