"""One dry pass: frames in, findings and unknowns out. Reads, evaluates, touches nothing.

The same evaluator that a daemon would carry from tick to tick replays the lifecycle from the
first stored slot, so that an audit of a recording and a daemon that lived through it agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from stoploss.engine.carry import Carry
from stoploss.engine.conclusions import Conclusions
from stoploss.engine.costs.accounts import Accounts
from stoploss.engine.costs.budgets import asked_labels
from stoploss.engine.costs.model import Totals
from stoploss.engine.costs.past import Past, kept
from stoploss.engine.derived import derived
from stoploss.engine.evaluation.evaluator import Episode, Evaluator
from stoploss.engine.evaluation.readings import UNREAD
from stoploss.engine.findings import Finding, Judge, UnknownFinding
from stoploss.engine.heatmap import HeatMap, heat_map
from stoploss.engine.history.frame import Frame
from stoploss.engine.incidents import Incident
from stoploss.engine.model import ResourceId
from stoploss.engine.ordering import in_order
from stoploss.engine.planning.gather import Planner
from stoploss.engine.planning.model import Decision, Standing
from stoploss.engine.planning.pace import Pace
from stoploss.engine.planning.watched import Sighted
from stoploss.engine.promises import Promise
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.policy import Policy, PolicySet

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """How the newest look of a collector went."""

    name: str
    ok: bool
    reason: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Audit:
    """All that one dry pass has to say.

    `paces` are those of jobs before a step of the plan, `watched` how it is with them after one.
    `degraded` is true when a collector failed or a resource could not be read; young, thin and
    unprovided signals do not degrade.
    """

    at: datetime
    mode: str
    timezone: str
    policies: tuple[Policy, ...]
    resources: Mapping[str, int]
    findings: tuple[Finding, ...]
    unknown: tuple[UnknownFinding, ...]
    collectors: tuple[CollectorStatus, ...] = ()
    without_resources: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    samples: int = 0
    totals: Totals = field(default_factory=Totals)
    heat: HeatMap | None = None
    incidents: tuple[Incident, ...] = ()
    decisions: tuple[Decision, ...] = ()
    promises: tuple[Promise, ...] = ()
    freeze: str | None = None
    paces: Mapping[ResourceId, Pace] = field(default_factory=dict)
    watched: Mapping[ResourceId, Sighted] = field(default_factory=dict)
    carried: Callable[[], Carry] = Carry

    @property
    def firing(self) -> tuple[Finding, ...]:
        """Findings that count: firing or holding, and not exempt."""
        return tuple(f for f in self.findings if f.state in ("firing", "holding") and f.exemption is None)

    @property
    def degraded(self) -> bool:
        """Whether anything that should have been read could not be."""
        return any(not collector.ok for collector in self.collectors) or any(
            item.why in UNREAD for item in self.unknown
        )


def audit(
    policies: PolicySet,
    frames: Callable[[float], Frame],
    catalogue: Catalogue,
    *,
    now: datetime,
    progress: Callable[[float], None] | None = None,
    standing: Callable[[Sequence[str]], Standing] | None = None,
    carry: Carry | None = None,
) -> Audit:
    """Evaluate a policy set over frames and gather what is true and what is unknown.

    `frames` yields the frame of a resolution (seconds), ending at the audit's instant; `now`
    decides which exemptions have run out; `standing` says what people decided and what was done
    about findings of these ids; `carry` is the end of an audit over slots before.
    """
    carry = carry or Carry()
    past = partial(_past, policies, frames, catalogue, carry.past)
    policies, frames = derived(policies, frames, catalogue, carry.past)
    findings, unknown, empty = list[Finding](), list[UnknownFinding](), list[str]()
    today = now.astimezone(ZoneInfo(policies.settings.timezone)).date()
    seen = _Seen()
    accounts = Accounts(policies, frames, catalogue, carry.claims)
    conclusions = Conclusions(policies, catalogue, accounts)
    planner = Planner(policies, catalogue, accounts, carry.true_seconds)
    for resolution, group in _each(_by_resolution(policies.policies), progress):
        frame = accounts.frame(resolution)
        observer = accounts.observer(resolution, group)
        evaluator = Evaluator(group, catalogue, resolution=resolution, observer=observer)
        episodes = _advanced(evaluator, frame, carry)
        seen.take(frame, evaluator)
        judge = Judge(frame, evaluator, policies.exemptions, today, accounts)
        rows = list(evaluator.status())
        found = list(judge.findings(rows))
        planner.take(evaluator, judge.explainer, observer, rows=rows, episodes=episodes, found=found)
        findings.extend(conclusions.take(judge.explainer, episodes, rows, found))
        unknown.extend(judge.unknowns(rows))
        empty.extend(judge.nothing(rows, unknown))
    told, incidents = conclusions.drawn(findings)
    result = Audit(
        seen.at,
        policies.settings.mode,
        policies.settings.timezone,
        policies.policies,
        _counted(seen.resources),
        *in_order(policies.policies, told, unknown),
        tuple(seen.failed.values()),
        tuple(policy.name for policy in policies.policies if policy.name in empty),
        (*accounts.notes(today), *planner.notes(seen.at)),
        heat=seen.heat,
        incidents=incidents,
        decisions=planner.decisions(seen.at, unknown, standing and standing([item.id for item in findings])),
        promises=conclusions.promises,
        freeze=planner.freeze(seen.at),
        carried=partial(_carried, seen, planner, accounts, past),
        paces=planner.paces,
        watched=planner.watched,
    )
    return replace(result, totals=accounts.totals(result.firing))


def _past(policies: PolicySet, frames: Callable[[float], Frame], catalogue: Catalogue, before: Past) -> Past:
    frame = frames(policies.settings.resolution)
    return kept(policies, frame, catalogue, before, asked_labels(policies.budgets))


def _carried(seen: _Seen, planner: Planner, accounts: Accounts, past: Callable[[], Past]) -> Carry:
    return Carry(seen.slots, seen.lifecycles(), planner.true_seconds, accounts.claims(), past())


@dataclass(slots=True)
class _Seen:
    """What the frames of an audit hold beside what policies say of it."""

    at: datetime = EPOCH
    resources: dict[ResourceId, None] = field(default_factory=dict)
    failed: dict[str, CollectorStatus] = field(default_factory=dict)
    heat: HeatMap | None = None
    evaluators: dict[float, Evaluator] = field(default_factory=dict)
    slots: dict[float, int] = field(default_factory=dict)

    def lifecycles(self) -> dict[float, Mapping[str, Any]]:
        """The lifecycles of each resolution."""
        return {resolution: evaluator.carry() for resolution, evaluator in self.evaluators.items()}

    def take(self, frame: Frame, evaluator: Evaluator) -> None:
        """Take the frame of one resolution, when it was evaluated."""
        if frame.slots:
            self.evaluators[frame.resolution] = evaluator
            self.slots[frame.resolution] = frame.last
        self.resources.update(dict.fromkeys(frame.resources))
        self.at = max(self.at, datetime.fromtimestamp(frame.time_of(frame.last), UTC))
        self.heat = self.heat or heat_map(frame, evaluator.world)
        self.failed.update({status.name: status for status in collector_failures(frame)})


def _advanced(evaluator: Evaluator, frame: Frame, carry: Carry) -> list[Episode]:
    """Evaluate a frame; of what is in the carry already only the windows are filled."""
    slot, state = carry.slots.get(frame.resolution), carry.lifecycles.get(frame.resolution)
    if slot is None or state is None:
        return evaluator.advance(frame)
    evaluator.restore(state)
    known = min(slot, frame.last)
    if known >= frame.first:
        # Older slots lie in no window.
        evaluator.warm(frame.cut(max(frame.first, known - evaluator.longest), known))
    return evaluator.advance(frame.cut(max(known + 1, frame.first), frame.last)) if frame.last > known else []


def _each(
    groups: Mapping[float, list[Policy]], progress: Callable[[float], None] | None
) -> Iterator[tuple[float, list[Policy]]]:
    for number, item in enumerate(groups.items(), 1):
        yield item
        if progress is not None:
            progress(number / len(groups))


def _counted(resources: Iterable[ResourceId]) -> dict[str, int]:
    """How many there are of each kind; collectors look, and are not looked at."""
    counts = Counter(resource.kind for resource in resources)
    return {kind: counts[kind] for kind in sorted(counts) if kind != "collector"}


def _by_resolution(policies: Iterable[Policy]) -> dict[float, list[Policy]]:
    groups: dict[float, list[Policy]] = {}
    for policy in policies:
        groups.setdefault(policy.resolution, []).append(policy)
    return groups


def collector_failures(frame: Frame) -> list[CollectorStatus]:
    """The collectors whose newest look in a frame failed."""
    failures = []
    for name, looks in sorted(frame.looks.items()):
        looked = looks[looks > 0]
        if len(looked) and looked[-1] == 2:
            reason = frame.look_reasons.get(name, "no reason given")
            failures.append(CollectorStatus(name, ok=False, reason=reason))
    return failures
