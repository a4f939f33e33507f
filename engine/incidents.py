"""Findings of one audit joined into incidents: what fires together, and what caused it.

What every policy says of every resource is gathered while the policies are evaluated; at the end
`inference.incidents` joins it, and each result is put into words and priced. An incident is
undecided where a policy that would speak against it is unknown, or where the same finding is
explained by two causes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from stoploss.engine import inference
from stoploss.engine.costs.model import Totals
from stoploss.engine.evaluation.columns import Column
from stoploss.engine.evaluation.evaluator import Episode, RowStatus
from stoploss.engine.evaluation.explain_numbers import NumberExplainer
from stoploss.engine.evaluation.kleene import UNKNOWN
from stoploss.rules.catalogue import KINDS, path
from stoploss.rules.policy import Correlation, Step
from stoploss.rules.units import format_duration

if TYPE_CHECKING:
    from stoploss.engine.costs.accounts import Accounts
    from stoploss.engine.findings import Finding

UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Incident:
    """Findings that are one fact.

    Attributes:
        id: the same for as long as its oldest finding lasts.
        name: the correlation's.
        cause: data, model, strategy, infrastructure or waste; `undecided` where it cannot be told.
        between: what it is undecided between; empty where it is decided.
        label, value: what the findings share, such as job and 4412.
        policies: the policies that fire together, in the correlation's order.
        findings: ids of their findings, without those that are over.
        unknown: policies that would speak against it and cannot be decided.
        since: when the oldest of the findings began.
        why: one sentence for people.
        totals: what the findings lose together, each billable thing and instant counted once.
        steps: what the correlation does: whom it tells.
    """

    id: str
    name: str
    cause: str
    between: tuple[str, ...]
    label: str
    value: str
    policies: tuple[str, ...]
    findings: tuple[str, ...]
    unknown: tuple[str, ...]
    since: datetime
    why: str
    totals: Totals = field(default_factory=Totals)
    steps: tuple[Step, ...] = ()

    @property
    def undecided(self) -> bool:
        """Whether the cause cannot be told."""
        return self.cause == UNDECIDED


def label_values(explainer: NumberExplainer, column: Column, label: str, slot: int) -> tuple[str, ...]:
    """The values of a label that a row has by itself, else those of its owners of that kind.

    A host has no job of its own and several through its GPUs.
    """
    own = explainer.world.label_at(column.resource, label, slot)
    if own is not None:
        return (own,) if isinstance(own, str) else ()
    if label not in KINDS or path(column.resource.kind, label) is None:
        return ()
    owners = explainer.owners(label, column, slot)
    return tuple(dict.fromkeys(owner.resource.id for owner in owners))


class Incidents:
    """Gathers what policies say, resolution after resolution, and joins it at the end."""

    def __init__(self, correlations: Sequence[Correlation]) -> None:
        self._correlations = tuple(correlations)
        self._joins: dict[str, dict[str, None]] = {}
        for item in self._correlations:
            for policy in (*item.all, *item.none):
                self._joins.setdefault(policy, {})[item.join] = None
        self._barring = {policy for item in self._correlations for policy in item.none}
        self._signals: list[inference.Signal] = []

    def take(
        self,
        explainer: NumberExplainer,
        episodes: Iterable[Episode],
        rows: Iterable[RowStatus],
        found: Iterable[tuple[RowStatus, Finding]],
    ) -> None:
        """Take what the policies of one resolution say at the newest slot, and what has just ended."""
        last, resolution = explainer.frame.last, explainer.frame.resolution
        for episode in episodes:
            if episode.policy.name in self._joins and episode.event in ("resolved", "left"):
                # It fired for the last time in the slot before; its owners are those of that slot.
                ago = (last - episode.slot + 1) * resolution
                self._add(explainer, (episode.policy.name, episode.column), episode.slot - 1, None, ago)
        for row, finding in found:
            name, exempt = row.policy.name, finding.exemption is not None
            if (
                name not in self._joins
                or finding.state == "pending"
                or (exempt and name not in self._barring)
            ):
                continue
            self._add(explainer, (name, row.column), last, finding.id, 0.0)
        for row in rows:
            idle = row.state in ("inactive", "pending")
            if row.truth == UNKNOWN and idle and row.policy.name in self._barring:
                self._add(explainer, (row.policy.name, row.column), last, None, None)

    def _add(
        self,
        explainer: NumberExplainer,
        of: tuple[str, Column],
        slot: int,
        finding: str | None,
        ago: float | None,
    ) -> None:
        policy, column = of
        for label in self._joins[policy]:
            for value in label_values(explainer, column, label, slot):
                self._signals.append(inference.Signal(policy, {label: value}, finding, ago))

    def joined(self, findings: Sequence[Finding]) -> tuple[Incident, ...]:
        """The incidents; one whose every finding is over is over too."""
        if not any(signal.finding for signal in self._signals):
            return ()
        by_id = {finding.id: finding for finding in findings}
        found = inference.incidents(self._correlations, self._signals, inference.matcher(self._correlations))
        unsure = {(s.policy, *pair) for s in self._signals if s.unknown for pair in s.labels.items()}
        drafts = [self._draft(item, by_id, unsure) for item in found if item.findings]
        decided: dict[str, list[Incident]] = {}
        for draft in drafts:
            for name in () if draft.undecided else draft.findings:
                decided.setdefault(name, []).append(draft)
        return tuple(_contested(draft, decided) for draft in drafts)

    def _draft(
        self, item: inference.Incident, findings: dict[str, Finding], unsure: set[tuple[str, str, str]]
    ) -> Incident:
        rule = item.correlation
        since = min(findings[name].since for name in item.findings)
        unknown = tuple(policy for policy in rule.none if (policy, rule.join, item.value) in unsure)
        between = (rule.cause, *unknown) if item.undecided else ()
        firing = {findings[name].policy.name for name in item.findings}
        together = (
            f"fire together on {rule.join} {item.value}"
            if firing.issuperset(rule.all)
            else f"fired within {format_duration(rule.within)} on {rule.join} {item.value}"
        )
        told = f"{_and(rule.all)} {together}" if len(rule.all) > 1 else f"{rule.all[0]} fires"
        why = f"cause: {rule.cause}, because {told}; against: none"
        if item.undecided:
            verb = "is" if len(unknown) == 1 else "are"
            why = f"undecided between {_and(between)}: {told}, and {_and(unknown)} {verb} unknown"
        return Incident(
            _id(rule.name, rule.join, item.value, since),
            rule.name,
            UNDECIDED if item.undecided else rule.cause,
            between,
            rule.join,
            item.value,
            rule.all,
            item.findings,
            unknown if item.undecided else (),
            since,
            why,
            steps=rule.steps,
        )


def _contested(item: Incident, decided: Mapping[str, Sequence[Incident]]) -> Incident:
    """Undecided where another cause explains one of its findings on the same value as well."""
    sharing = [
        other
        for name in item.findings
        for other in decided.get(name, ())
        if (other.label, other.value) == (item.label, item.value)
    ]
    rivals = list({other.id: other for other in sharing if other.cause != item.cause}.values())
    if item.undecided or not rivals:
        return item
    between = tuple(dict.fromkeys((item.cause, *(other.cause for other in rivals))))
    others = _and([f"{other.name} ({_and(other.policies)}) says {other.cause}" for other in rivals])
    told = f"{_and(item.policies)} fire together on {item.label} {item.value}, and {others}"
    return replace(
        item, cause=UNDECIDED, between=between, why=f"undecided between {_and(sorted(between))}: {told}"
    )


def explained(findings: Iterable[Finding], incidents: Iterable[Incident]) -> tuple[Finding, ...]:
    """The findings, each with the cause that the decided incidents it is part of agree on."""
    causes: dict[str, set[str]] = {}
    for item in incidents:
        for name in () if item.undecided else item.findings:
            causes.setdefault(name, set()).add(item.cause)
    agreed = {name: next(iter(found)) for name, found in causes.items() if len(found) == 1}
    return tuple(
        replace(finding, inferred=agreed[finding.id]) if finding.id in agreed else finding
        for finding in findings
    )


def priced(
    incidents: Iterable[Incident], findings: Sequence[Finding], accounts: Accounts
) -> tuple[Incident, ...]:
    """The incidents, each with what its findings lose together."""
    by_id = {finding.id: finding for finding in findings}
    return tuple(
        replace(item, totals=accounts.totals(by_id[name] for name in item.findings)) for item in incidents
    )


def _id(name: str, label: str, value: str, since: datetime) -> str:
    text = "\0".join((name, label, value, str(round(since.timestamp()))))
    return "i-" + hashlib.sha256(text.encode()).hexdigest()[:12]


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
