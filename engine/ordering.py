"""The order in which an audit tells what it found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stoploss.engine.model import ResourceId
from stoploss.rules.policy import Policy

if TYPE_CHECKING:
    from stoploss.engine.findings import Finding, UnknownFinding

_SEVERITIES = {"critical": 0, "high": 1, "medium": 2, "low": 3}


def _dearest(finding: Finding) -> tuple[float, int]:
    """Most money per hour first; what loses nothing, or nobody knows what, after it by severity."""
    per_hour = finding.waste.per_hour if finding.waste else None
    return -(per_hour or 0.0), _SEVERITIES[finding.policy.severity]


def in_order(
    policies: Sequence[Policy], findings: Iterable[Finding], unknown: Iterable[UnknownFinding]
) -> tuple[tuple[Finding, ...], tuple[UnknownFinding, ...]]:
    """The dearest finding first; unknowns in the order of the policies."""
    at = {policy.name: number for number, policy in enumerate(policies)}
    return (
        tuple(sorted(findings, key=lambda f: (*_dearest(f), f.since, at[f.policy.name], f.resource))),
        tuple(sorted(unknown, key=lambda u: (at[u.policy.name], u.resource or ResourceId("", "")))),
    )
