"""What a policy says of a resource, with its evidence: a finding, or why nothing can be said."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from stoploss.engine.advice import Advice
from stoploss.engine.costs.accounts import Accounts
from stoploss.engine.costs.model import Waste
from stoploss.engine.evaluation.columns import Column
from stoploss.engine.evaluation.evaluator import Evaluator, RowStatus
from stoploss.engine.evaluation.explain import Explainer
from stoploss.engine.evaluation.explain_numbers import Explained
from stoploss.engine.evaluation.kleene import FALSE, TRUE, UNKNOWN
from stoploss.engine.evaluation.readings import Unknown, Why
from stoploss.engine.history.frame import Frame
from stoploss.engine.history.nodes import provided
from stoploss.engine.model import UNREADABLE, ResourceId
from stoploss.rules.catalogue import Signal
from stoploss.rules.policy import Exemption, Policy


@dataclass(frozen=True, slots=True)
class Evidence:
    """A condition with what it came to: `value` in `unit` (a word for texts), and its coverage.

    `note` says what else there is to know of the value, such as the budget that it is about.
    """

    condition: str
    value: float | str | None
    unit: str | None
    samples: int | None
    of: int | None
    truth: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A policy that is true on a resource, or was and holds.

    Attributes:
        id: the same over the whole episode: a hash of policy, resource, owner and first true slot.
        state: pending, firing or holding.
        since: the end of the first true slot.
        stale_since: since when nothing is known of it any more, else None.
        exemption: the exemption in force, else None; `expired` one that has run out.
        waste: what it loses; None where the policy names no waste.
        inferred: the cause that a decided incident gives it.
        advice: changes of the training that would make its job cheaper, the dearest first.
    """

    id: str
    policy: Policy
    resource: ResourceId
    owner: str | None
    labels: Mapping[str, str]
    state: str
    since: datetime
    stale_since: datetime | None
    evidence: tuple[Evidence, ...]
    exemption: Exemption | None = None
    expired: Exemption | None = None
    waste: Waste | None = None
    inferred: str | None = None
    advice: tuple[Advice, ...] = ()

    @property
    def cause(self) -> str | None:
        """What an incident says, else what its policy says; None is undecided."""
        return self.inferred or self.policy.cause


@dataclass(frozen=True, slots=True)
class UnknownFinding:
    """A policy that could not be decided on a resource; `resource` is None where none was seen.

    `alert` is true where that is to be told: `on-unknown: alert`, and unknown for longer than `for`.
    """

    policy: Policy
    resource: ResourceId | None
    condition: str | None
    reason: str
    why: Why
    samples: int | None = None
    of: int | None = None
    alert: bool = False


def finding_id(policy: str, column: Column, since: int, resolution: float) -> str:
    """The id of an episode, the same in every run that sees its first true slot."""
    resource = column.resource
    text = "\0".join((policy, resource.kind, resource.id, column.owner or "", str(round(since * resolution))))
    return "f-" + hashlib.sha256(text.encode()).hexdigest()[:12]


class Judge:
    """Turns row states into findings and unknowns with their evidence."""

    def __init__(
        self,
        frame: Frame,
        evaluator: Evaluator,
        exemptions: Iterable[Exemption],
        today: date,
        accounts: Accounts,
    ) -> None:
        self.frame, self.evaluator, self.accounts = frame, evaluator, accounts
        self.explainer = Explainer(frame, evaluator.world)
        self.exemptions, self.today = tuple(exemptions), today

    def findings(self, rows: Iterable[RowStatus]) -> Iterable[tuple[RowStatus, Finding]]:
        """Rows that are pending, firing or holding."""
        for row in rows:
            if row.state == "inactive" or row.since is None:
                continue
            stale = row.unknown_since if row.truth == UNKNOWN else None
            exemption, expired = self._exemption(row.policy, row.column)
            name = finding_id(row.policy.name, row.column, row.since, self.frame.resolution)
            yield (
                row,
                Finding(
                    name,
                    row.policy,
                    row.column.resource,
                    row.column.owner,
                    self._labels(row.column),
                    row.state,
                    self._time(row.since),
                    None if stale is None else self._time(stale),
                    self._evidences(row),
                    exemption,
                    expired,
                    self.accounts.waste(name, row, self.evaluator.world),
                ),
            )

    def unknowns(self, rows: Iterable[RowStatus]) -> Iterable[UnknownFinding]:
        """Rows whose newest truth is unknown, each with its first reason."""
        for row in rows:
            if row.truth != UNKNOWN:
                continue
            condition, why = self._reason(row)
            resource, alert = row.column.resource, self._alerts(row)
            yield UnknownFinding(
                row.policy, resource, condition, why.text, why.why, why.samples, why.of, alert
            )

    def _alerts(self, row: RowStatus) -> bool:
        """Whether a row has been unknown for longer than its policy's `for`, and that is to be told."""
        if row.policy.on_unknown != "alert" or row.unknown_since is None:
            return False
        slots = self.frame.last - row.unknown_since + 1
        return slots > self.explainer.slots(row.policy.for_seconds) * bool(row.policy.for_seconds)

    def nothing(self, rows: list[RowStatus], unknown: list[UnknownFinding]) -> Iterable[str]:
        """Policies that ran on no resource at all; says so as an unknown where none was seen."""
        ran = {row.policy.name for row in rows}
        for number, policy in enumerate(self.evaluator.policies):
            if policy.name in ran:
                continue
            yield policy.name
            if self.evaluator.rows(number):
                continue
            signals = [signal for item in policy.conditions for signal in item.signals]
            missing = [
                signal
                for signal in signals
                if signal.name not in self.frame.planes and not provided(signal.collector, self.frame.looks)
            ]
            reason = f"no collector provides {missing[0].name}" if missing else f"no {policy.each} was seen"
            why = Why.UNPROVIDED if missing else Why.UNRELATED
            unknown.append(UnknownFinding(policy, None, None, reason, why))

    def _leaves(self, row: RowStatus) -> list[tuple[str, Explained]]:
        slot = self.frame.last
        return [
            (item.text, self.explainer.explain(item.root, row.column, slot)) for item in row.policy.conditions
        ]

    def _reason(self, row: RowStatus) -> tuple[str | None, Unknown]:
        slot = self.frame.last
        if row.policy.where is not None:
            selected = self.explainer.explain(row.policy.where.root, row.column, slot)
            if selected.truth == UNKNOWN and selected.unknown is not None:
                return row.policy.where.text, selected.unknown
        for text, leaf in self._leaves(row):
            if leaf.truth == UNKNOWN and leaf.unknown is not None:
                return text, leaf.unknown
        return None, Unknown(Why.UNDEFINED, "unknown")

    def _evidences(self, row: RowStatus) -> tuple[Evidence, ...]:
        leaves = zip(row.policy.conditions, self._leaves(row), strict=True)
        return tuple(
            replace(self._evidence(leaf), note=self._note(condition.signals, row.column.resource))
            for condition, leaf in leaves
        )

    def _note(self, signals: Iterable[Signal], resource: ResourceId) -> str | None:
        remarks = [self.frame.remarks.get((signal.name, resource)) for signal in signals]
        return "; ".join(dict.fromkeys(remark for remark in remarks if remark)) or None

    def _evidence(self, item: tuple[str, Explained]) -> Evidence:
        text, leaf = item
        value = leaf.value
        if value is None:
            return Evidence(text, None, None, None, None, leaf.truth)
        if value.word is not None or value.number is None:
            return Evidence(text, value.word, None, value.samples, value.of, leaf.truth)
        return Evidence(text, value.number / value.factor, value.unit, value.samples, value.of, leaf.truth)

    def _exemption(self, policy: Policy, column: Column) -> tuple[Exemption | None, Exemption | None]:
        expired = None
        for exemption in self.exemptions:
            if exemption.policy != policy.name:
                continue
            # What cannot be read is protected: only a plain no lets a policy through.
            truth = self.explainer.explain(exemption.where.root, column, self.frame.last).truth
            if truth == FALSE:
                continue
            if date.fromisoformat(exemption.expires) >= self.today:
                return exemption, None
            expired = exemption if truth == TRUE else expired
        return None, expired

    def _labels(self, column: Column) -> dict[str, str]:
        labels = self.evaluator.world.labels_at(column.resource, self.frame.last)
        told = {
            name: "?" if value is UNREADABLE else value for name, value in labels.items() if value is not None
        }
        return {name: value for name, value in sorted(told.items()) if isinstance(value, str)}

    def _time(self, slot: int) -> datetime:
        return datetime.fromtimestamp(self.frame.time_of(slot), UTC)
