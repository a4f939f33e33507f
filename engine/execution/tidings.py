"""What there is to tell of an audit, and to whom: findings, incidents, failures, questions, storms.

And of steps that were done: those that made things dearer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from stoploss.engine import alerts
from stoploss.engine.alert_memory import Wanted
from stoploss.engine.execution.watch import Backfired
from stoploss.engine.incidents import UNDECIDED
from stoploss.engine.model import Notice
from stoploss.engine.planning.model import ALERT, Decision
from stoploss.rules.policy import Policy, Step

if TYPE_CHECKING:
    from stoploss.engine.audit import Audit
    from stoploss.engine.findings import Finding

TELLS = ("warn", "enforce")
"""Modes in which people are told."""
LOG = "log"


@dataclass(frozen=True, slots=True)
class Tiding:
    """Something to tell one recipient.

    Attributes:
        wanted: what the memory of alerts asks for.
        notice: makes the text, which is needed only where it is told now.
        decision, policy: the alert step that it is, of a finding; None for what no step is about.
        recipients: how many the step tells in all.
        finding: what it tells of.
        receivers: all that mean this recipient.
    """

    wanted: Wanted
    notice: Callable[[], Notice]
    decision: Decision | None = None
    policy: Policy | None = None
    recipients: int = 1
    finding: Finding | None = None
    receivers: tuple[str, ...] = ()


class Tidings:
    """Finds what there is to tell of one audit."""

    def __init__(
        self, result: Audit, recipient: Callable[[str, Mapping[str, str]], str], zone: ZoneInfo
    ) -> None:
        self._result, self._recipient, self._zone = result, recipient, zone
        self._policies = {item.name: item for item in result.policies}
        self._findings = {item.id: item for item in result.findings}
        self._incidents = {name: item for item in result.incidents for name in item.findings}
        self._unknown = {(item.policy.name, item.resource): item for item in result.unknown}
        self._first: dict[str | None, int] = {}

    def all(self) -> Iterator[Tiding]:
        """Everything; what a mode forbids to tell is left out."""
        for decision in self._result.decisions:
            policy = self._policies[decision.policy]
            step = policy.step(decision.step)
            if policy.mode not in TELLS or step is None:
                continue
            if decision.action == ALERT:
                yield from self._alert(decision, policy, step)
            elif decision.verdict == "failed":
                yield from self._failure(decision, policy, step)
            elif decision.ask_now and policy.mode == "enforce":
                yield from self._question(decision, policy, step)
        if self._result.mode in TELLS:
            yield from self._joined()
        yield from self._storm()

    def _is_due(self, decision: Decision) -> bool:
        return decision.due is not None and decision.due <= self._result.at

    def _alert(self, decision: Decision, policy: Policy, step: Step) -> Iterator[Tiding]:
        """An alert that is due, or was told and goes on."""
        if decision.verdict != "done" and not (decision.verdict == "would" and self._is_due(decision)):
            return
        notice: Callable[[], Notice]
        if decision.finding is None:
            item = self._unknown.get((policy.name, decision.resource))
            if item is None:
                return
            name, labels = f"unknown:{policy.name}:{decision.resource}", dict[str, str]()
            notice = partial(alerts.undecided, item, at=self._result.at)
        else:
            finding = self._findings[decision.finding]
            if finding.exemption is not None:
                return
            # A later alert of the same finding is told for itself, also to those who know of it.
            first = self._first.setdefault(finding.id, decision.step)
            name = finding.id if first == decision.step else f"{finding.id}#{decision.step}"
            labels, incident = dict(finding.labels), self._incidents.get(finding.id)
            decisions, at, zone = self._result.decisions, self._result.at, self._zone
            notice = partial(alerts.firing, finding, decisions, incident, at=at, zone=zone)
        receivers = step.to or (policy.contact or LOG,)
        found = self._findings.get(decision.finding or "")
        # Two receivers may mean the same in the end, who is told once.
        meant: dict[str, list[str]] = {}
        for receiver in receivers:
            meant.setdefault(self._recipient(receiver, labels), []).append(receiver)
        for names in meant.values():
            wanted = self._wanted(name, names[0], labels, decision)
            yield Tiding(wanted, notice, decision, policy, len(meant), found, tuple(names))

    def _failure(self, decision: Decision, policy: Policy, step: Step) -> Iterator[Tiding]:
        """That a step has failed, and what waits for it."""
        notice = partial(alerts.failure, decision, policy, self._waiting(decision), at=self._result.at)
        yield from self._for_step(
            f"failed:{decision.finding}:{decision.step}", decision, policy, step, notice
        )

    def _question(self, decision: Decision, policy: Policy, step: Step) -> Iterator[Tiding]:
        """That somebody is asked."""
        assert decision.request is not None, "only what is asked has a question"
        notice = partial(alerts.question, decision, policy, at=self._result.at, zone=self._zone)
        yield from self._for_step(f"ask:{decision.request.id}", decision, policy, step, notice)

    def _for_step(
        self, name: str, decision: Decision, policy: Policy, step: Step, notice: Callable[[], Notice]
    ) -> Iterator[Tiding]:
        finding = self._findings.get(decision.finding or "")
        labels = dict(finding.labels) if finding else {}
        for receiver in step.to or (policy.contact or LOG,):
            yield Tiding(self._wanted(name, receiver, labels, decision), notice)

    def _waiting(self, decision: Decision) -> tuple[Decision, ...]:
        return tuple(
            item
            for item in self._result.decisions
            if item.finding == decision.finding and item.step > decision.step and item.verdict == "held"
        )

    def _joined(self) -> Iterator[Tiding]:
        """Incidents that are decided, to whom their correlation names."""
        for incident in self._result.incidents:
            for step in () if incident.cause == UNDECIDED else incident.steps:
                for receiver in step.to or (LOG,):
                    about = f"{incident.label} {incident.value}"
                    wanted = Wanted(
                        incident.id,
                        self._recipient(receiver, {}),
                        incident.name,
                        about,
                        step.repeat,
                        receiver,
                        severity="high",
                    )
                    yield Tiding(wanted, partial(alerts.incident, incident, at=self._result.at))

    def _storm(self) -> Iterator[Tiding]:
        """That destructive steps are frozen, once to each whom their policies tell."""
        if self._result.freeze is None:
            return
        for policy in self._result.policies:
            if policy.mode in TELLS and any(step.destructive for _, step in policy.numbered):
                receiver = policy.contact or LOG
                wanted = Wanted(
                    "storm",
                    self._recipient(receiver, {}),
                    "storm",
                    "the fleet",
                    None,
                    receiver,
                    {},
                    "critical",
                )
                yield Tiding(wanted, partial(alerts.storm, self._result.freeze, at=self._result.at))

    def backfired(self, items: Iterable[Backfired]) -> Iterator[Tiding]:
        """Steps that made things dearer and stay, to those whom their policy tells."""
        for item in items:
            intent = item.intent
            policy = self._policies.get(intent.policy or "")
            if (policy.mode if policy is not None else self._result.mode) not in TELLS:
                continue
            severity = policy.severity if policy is not None else "medium"
            labels = {str(k): str(v) for k, v in intent.evidence["order"]["labels"].items()}
            for receiver in _told_by(policy):
                wanted = Wanted(
                    f"backfired:{intent.seq}",
                    self._recipient(receiver, labels),
                    intent.policy or "",
                    # Not the finding's own: that may be over, and is another thing to be told of.
                    f"{intent.action} of {intent.resource}",
                    None,
                    receiver,
                    labels,
                    severity,
                )
                notice = partial(
                    alerts.backfired, intent, (item.words, item.why), severity, at=self._result.at
                )
                yield Tiding(wanted, notice)

    def _wanted(self, name: str, receiver: str, labels: Mapping[str, str], decision: Decision) -> Wanted:
        policy = self._policies[decision.policy]
        step = policy.step(decision.step)
        repeat = step.repeat if step is not None and decision.action == ALERT else None
        return Wanted(
            name,
            self._recipient(receiver, labels),
            policy.name,
            str(decision.resource),
            repeat,
            receiver,
            labels,
            policy.severity,
        )


def _told_by(policy: Policy | None) -> tuple[str, ...]:
    """Whom a policy tells: its contact, else all whom its alerts tell."""
    if policy is None:
        return (LOG,)
    if policy.contact is not None:
        return (policy.contact,)
    told = [name for step in policy.steps if step.action == ALERT for name in step.to]
    return tuple(dict.fromkeys(told)) or (LOG,)


def tidings(
    result: Audit,
    recipient: Callable[[str, Mapping[str, str]], str],
    zone: ZoneInfo,
    backfired: Sequence[Backfired] = (),
) -> dict[tuple[str, str], Tiding]:
    """What there is to tell, by what it is about and who is told."""
    found = Tidings(result, recipient, zone)
    items: Iterable[Tiding] = (*found.all(), *found.backfired(backfired))
    return {(item.wanted.finding, item.wanted.recipient): item for item in items}
