"""Whose a resource is, and what of an audit one team may see.

A team sees what the newest result, or the statement of costs, says to be its own. What is nobody's, or
somebody's that cannot be told, is shown to no team.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stoploss.engine.audit import Audit
from stoploss.engine.costs.model import Amount, Totals
from stoploss.engine.findings import Finding
from stoploss.engine.model import ResourceId


class Whose:
    """Which team a resource, a job and a finding belong to."""

    def __init__(self, audit: Audit | None, costs: Mapping[str, Any]) -> None:
        self.findings: dict[str, str | None] = {}
        self._resources: dict[ResourceId, str | None] = {}
        for resource, team in _lines(costs):
            self._note(resource, team)
        for finding in () if audit is None else audit.findings:
            team = finding.labels.get("team")
            self.findings[finding.id] = team
            self._note(finding.resource, team)
            if finding.owner is not None:
                self._note(ResourceId("job", finding.owner), team)

    def _note(self, resource: ResourceId, team: str | None) -> None:
        # What two teams have is neither's to see alone.
        known = self._resources.setdefault(resource, team)
        if known != team:
            self._resources[resource] = None

    def of(self, resource: ResourceId | None, finding: str | None = None) -> str | None:
        """The team of a finding, else of a resource; None is unknown, or nobody's."""
        if finding is not None and finding in self.findings:
            return self.findings[finding]
        if resource is None:
            return None
        return resource.id if resource.kind == "team" else self._resources.get(resource)

    def job(self, name: str) -> str | None:
        """The team of a job."""
        return self._resources.get(ResourceId("job", name))


def _lines(costs: Mapping[str, Any]) -> Iterator[tuple[ResourceId, str | None]]:
    for line in costs.get("lines", ()):
        if line.get("job") is not None:
            yield ResourceId("job", line["job"]), line.get("team")


def only(audit: Audit, team: str, whose: Whose) -> Audit:
    """What one team may see of an audit."""
    findings = tuple(item for item in audit.findings if item.labels.get("team") == team)
    own = {item.id for item in findings}
    mine = replace(
        audit,
        resources={},
        findings=findings,
        unknown=tuple(item for item in audit.unknown if whose.of(item.resource) == team),
        collectors=tuple(
            item if item.ok else replace(item, reason="it could not look") for item in audit.collectors
        ),
        without_resources=(),
        notes=(f"only what is known to be of team {team} is shown",),
        samples=0,
        incidents=tuple(item for item in audit.incidents if item.findings and own.issuperset(item.findings)),
        decisions=tuple(item for item in audit.decisions if whose.of(item.resource, item.finding) == team),
        promises=tuple(
            item for item in audit.promises if whose.job(item.before) == whose.job(item.after) == team
        ),
        freeze=None,
    )
    heat = audit.heat
    if heat is not None:
        rows = tuple(row for row in heat.rows if row.job is not None and whose.job(row.job) == team)
        mine = replace(mine, heat=replace(heat, rows=rows, left_out=0) if rows else None)
    return replace(mine, totals=_totals(mine.firing, audit.totals, team))


def _totals(firing: tuple[Finding, ...], totals: Totals, team: str) -> Totals:
    """Sums for one team: of findings on one job the dearest counts, as they claim the same GPUs."""
    dearest: dict[tuple[str, str], Amount] = {}
    for item in firing:
        waste = item.waste
        if waste is None or waste.per_hour is None:
            continue
        key = waste.kind or "unknown", item.owner or str(item.resource)
        if item.resource.kind == "job":
            key = key[0], item.resource.id
        had = dearest.get(key, Amount())
        dearest[key] = Amount(
            max(had.per_hour, waste.per_hour),
            max(had.so_far, waste.so_far or 0.0),
            max(had.saves_per_hour, waste.saves_per_hour or 0.0),
        )
    kinds: dict[str, Amount] = {}
    for (kind, _), one in dearest.items():
        had = kinds.get(kind, Amount())
        kinds[kind] = Amount(
            had.per_hour + one.per_hour,
            had.so_far + one.so_far,
            had.saves_per_hour + one.saves_per_hour,
        )
    return Totals(
        totals.currency,
        kinds,
        by_team={team: totals.by_team[team]} if team in totals.by_team else {},
        without_price=sum(item.waste is not None and item.waste.per_hour is None for item in firing),
    )


def costs_of(costs: Mapping[str, Any], team: str, whose: Whose) -> dict[str, Any]:
    """What one team may see of a statement of costs."""
    if not costs:
        return {}
    lines = [line for line in costs.get("lines", ()) if line.get("team") == team]
    jobs = {line["job"] for line in lines if line.get("job") is not None}
    sums = costs.get("by_team", {}).get(team)

    def own(resource: Mapping[str, str]) -> bool:
        return whose.of(ResourceId(resource["kind"], resource["id"])) == team

    return {
        "version": costs.get("version", 1),
        "from": costs.get("from"),
        "to": costs.get("to"),
        "currency": costs.get("currency"),
        "total": sums,
        "by_team": {} if sums is None else {team: sums},
        "by_job": {
            name: item
            for name, item in costs.get("by_job", {}).items()
            if name in jobs and whose.job(name) == team
        },
        "budgets": [item for item in costs.get("budgets", ()) if own(item["resource"])],
        "lines": lines,
    }
