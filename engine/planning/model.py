"""The words of a plan: what it is made from, and the decisions that it consists of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from stoploss.engine.canonical import canonical, request_id
from stoploss.engine.model import ResourceId
from stoploss.rules.policy import Policy, Step

ALERT = "alert"
STRENGTHS = (
    ALERT,
    "snapshot",
    "resume",
    "retain",
    "tier",
    "prune",
    "release",
    "downscale",
    "exec",
    "terminate",
)
"""Actions from the weakest to the strongest."""
WATCHED = frozenset({"downscale", "tier", "retain"})
"""Actions after which it is looked whether they save anything."""
APPROVAL_VALID = timedelta(hours=24)


def strength(step: Step) -> int:
    """How strong a step is; an action of another package counts as a program that is run, or as a resume."""
    if step.action in STRENGTHS:
        return STRENGTHS.index(step.action)
    return STRENGTHS.index("exec" if step.destructive else "resume")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the guards need to know of a finding and its resource.

    Attributes:
        protected, exempt, unreadable: why `protect:` or an exemption covers it, or why the
            exemptions cannot be read; None where that is not so.
        stale: why the condition is not known to be true now; None where it is.
        thin: what is missing where it is not true at 90 % coverage; None where it is true.
        part: why it does not hold for the job as a whole; None where it does.
        workload: it does work that has a class; storage and logs do not.
        workload_class, stage: the labels `class` and `stage`; None is unknown.
        jobs: jobs that its name matches.
        ends_work: acting on it ends or shrinks a job, so that a snapshot is needed.
        saved: a verified snapshot of it is there.
        kept: why this checkpoint, or any of its job, must stay; None where it may go.
        checkpoints: those of the job that a prune would delete, the oldest first.
        gpus: GPUs that acting on it takes; a job is one unit.
        job, team: whose it is; None is unknown, or nobody's.
        price_per_hour: what it costs; None is unknown.
        save_seconds, at_risk_seconds: the time that saving takes, and that is lost without it.
    """

    protected: str | None = None
    exempt: str | None = None
    unreadable: str | None = None
    stale: str | None = None
    thin: str | None = None
    part: str | None = None
    workload: bool = True
    workload_class: str | None = None
    stage: str | None = None
    jobs: int = 1
    ends_work: bool = False
    saved: bool = False
    kept: str | None = None
    checkpoints: tuple[str, ...] = ()
    gpus: int = 0
    job: str | None = None
    team: str | None = None
    price_per_hour: float | None = None
    save_seconds: float | None = None
    at_risk_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finding that fires or is held, as the plan reads it.

    Attributes:
        finding: its id; None for a policy that is unknown and says `on-unknown: alert`.
        true_seconds: true time since it fired.
        running: whether that time goes on now; it stands while unknown and while held.
        saves_per_hour: what its steps would save, in `currency`; None is unknown.
    """

    finding: str | None
    policy: Policy
    resource: ResourceId
    facts: Facts = field(default_factory=Facts)
    true_seconds: float = 0.0
    running: bool = True
    saves_per_hour: float | None = None
    currency: str | None = None


StepKey = tuple[str, int]
"""A finding, and the number of one of its steps."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A step that was done, and may cost more than it saves.

    Attributes:
        resource, policy: what was acted on, and by whom.
        job: whose money per step is watched; None where none is known.
        since, until: when it was done, and until when it is watched.
    """

    resource: ResourceId
    policy: str
    job: str | None
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """What people decided, and what was done, as of the instant of a plan.

    Attributes:
        approved: ids of requests that a person approved.
        rejected: (finding, action, target) -> who said no and why.
        kept: job -> until when, by whom and why nothing may end or shrink it.
        paused: why nothing at all is carried out; None where it is.
        unreadable: why what people decided cannot be read; then nothing is destroyed.
        done: when a step was done, an alert: delivered.
        failed: why a step has failed and is not tried again now.
        undelivered: why an alert did not reach all whom it tells.
        told: of an alert, when each receiver was reached; where it is not known by receiver, `done` counts.
        actions: of which action it was that something is known under the number of a step.
        running: steps that are being carried out.
        clock: why the newest look is not of this moment; None where it is.
        saved: finding -> path of the checkpoint that one of its steps has had verified.
        watched: what was acted on -> the newest step whose saving is watched.
        backfired: what was acted on, and the action -> how it made things dearer.
    """

    approved: frozenset[str] = frozenset()
    rejected: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    paused: str | None = None
    unreadable: str | None = None
    done: Mapping[StepKey, datetime] = field(default_factory=dict)
    failed: Mapping[StepKey, str] = field(default_factory=dict)
    undelivered: Mapping[StepKey, str] = field(default_factory=dict)
    told: Mapping[StepKey, Mapping[str, datetime]] = field(default_factory=dict)
    actions: Mapping[StepKey, str] = field(default_factory=dict)
    clock: str | None = None
    running: frozenset[StepKey] = frozenset()
    saved: Mapping[str, str | None] = field(default_factory=dict)
    watched: Mapping[ResourceId, Watched] = field(default_factory=dict)
    backfired: Mapping[tuple[ResourceId, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a plan depends on beside its findings.

    Attributes:
        at: the instant of the plan.
        timezone: of times without one.
        limits: the caps of `settings:`, beside the defaults.
        maintenance: times in which nothing is acted on.
        population: policy -> resources that it is about, before its `where`.
        recent: policy -> the largest number of resources in the last 24 h; None is not known.
        freeze: why destructive steps are frozen, else None.
        standing: what people and the ledger say.
    """

    at: datetime
    timezone: str = "UTC"
    limits: Mapping[str, Any] = field(default_factory=dict)
    maintenance: tuple[Mapping[str, Any], ...] = ()
    population: Mapping[str, int] = field(default_factory=dict)
    recent: Mapping[str, int] | None = None
    freeze: str | None = None
    standing: Standing = field(default_factory=lambda: Standing())


@dataclass(frozen=True, slots=True)
class Request:
    """A question to a person, for exactly this episode, action, target and parameters."""

    id: str
    finding: str
    action: str
    target: str
    parameters: Mapping[str, Any]
    valid_until: datetime


@dataclass(frozen=True, slots=True)
class Decision:
    """A step of the plan.

    Attributes:
        id: the same for as long as its episode lasts and the step is not changed.
        finding: None where an alert is about something unknown.
        policies: all policies that want something of the resource, its own first.
        step: its number in the policy, from 1.
        due: None while the clock of `after` stands.
        verdict: would, done, blocked, held, failed or skipped.
        whys: what stops it, or is to be known of it; empty where nothing is.
        saves_per_hour: money per hour; None is unknown, or it saves nothing by itself.
        request: what to ask a person, where that is all it waits for or part of it.
        ask_now: the question is to be put: a person's word is all that it waits for.
        currency: of what it saves.
    """

    id: str
    finding: str | None
    policy: str
    policies: tuple[str, ...]
    resource: ResourceId
    step: int
    action: str
    target: str
    parameters: Mapping[str, Any]
    due: datetime | None
    verdict: str
    whys: tuple[str, ...] = ()
    saves_per_hour: float | None = None
    request: Request | None = None
    ask_now: bool = False
    currency: str | None = None

    @property
    def why(self) -> str:
        """What lets or stops it, in words."""
        return "; ".join(self.whys) or "ok"


@dataclass(frozen=True, slots=True)
class Answer:
    """That a step follows only where nobody answers until then.

    `ask`: it is the step about which somebody is asked; `now`: the time to answer has begun.
    """

    until: datetime
    ask: bool
    now: bool


@dataclass(frozen=True, slots=True)
class Draft:
    """A step on its way through the guards: each may add why it is blocked or held."""

    candidate: Candidate
    number: int
    step: Step
    due: datetime | None
    done: bool = False
    failed: str | None = None
    answer: Answer | None = None
    blocked: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    skipped: str | None = None
    asks: int = 0
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The strongest of what was added."""
        if self.done:
            return "done"
        if self.skipped is not None:
            return "skipped"
        if self.failed is not None:
            return "failed"
        return "blocked" if self.blocked else "held" if self.held else "would"

    @property
    def alert(self) -> bool:
        """Whether it only tells somebody."""
        return self.step.action == ALERT

    @property
    def target(self) -> str:
        """Who is told, or what is acted on."""
        if self.alert:
            return ", ".join(self.step.to) or self.candidate.policy.contact or "log"
        return str(self.candidate.resource)

    @property
    def parameters(self) -> dict[str, Any]:
        """The options of the step, and what a prune would delete."""
        own = {name: _plain(value) for name, value in self.step.options.items()}
        if self.step.action == "prune" and self.candidate.facts.checkpoints:
            own["checkpoints"] = list(self.candidate.facts.checkpoints)
        return own

    @property
    def key(self) -> StepKey:
        """The finding and the number of the step."""
        return self.candidate.finding or "", self.number

    @property
    def request_id(self) -> str:
        """The id of the question whether this may be done."""
        return request_id(
            self.candidate.finding or "",
            self.step.action,
            self.target,
            canonical(json.loads(json.dumps(self.parameters, default=str))),
        )

    def block(self, why: str) -> Draft:
        """Blocked, for one reason more."""
        return replace(self, blocked=(*self.blocked, why))

    def hold(self, why: str, *, asks: bool = False) -> Draft:
        """Held, for one reason more; `asks`: a person's approval lets it go."""
        return replace(self, held=(*self.held, why), asks=self.asks + asks)


def decided(draft: Draft, policies: tuple[str, ...], at: datetime) -> Decision:
    """The decision that a draft has come to."""
    found = draft.candidate
    verdict = draft.verdict
    words = [draft.skipped] if draft.skipped else [draft.failed] if draft.failed else []
    words = words or [*draft.blocked, *draft.held]
    request = None
    if draft.asks and verdict == "held":
        request = Request(
            draft.request_id,
            found.finding or "",
            draft.step.action,
            draft.target,
            draft.parameters,
            max(at, draft.due or at) + APPROVAL_VALID,
        )
    name = _digest((found.finding, found.policy.name, str(found.resource), draft.number, draft.step.action))
    return Decision(
        "d-" + name,
        found.finding,
        found.policy.name,
        policies,
        found.resource,
        draft.number,
        draft.step.action,
        draft.target,
        draft.parameters,
        draft.due,
        verdict,
        tuple(dict.fromkeys([*words, *draft.notes])),
        found.saves_per_hour if draft.step.destructive else None,
        request,
        request is not None and draft.asks == len(draft.held) and _time_to_ask(draft, at),
        found.currency,
    )


def _time_to_ask(draft: Draft, at: datetime) -> bool:
    """Whether a step is due, or the time to answer runs."""
    if draft.answer is not None:
        return draft.answer.now
    return draft.due is not None and draft.due <= at


def _digest(parts: tuple[object, ...]) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    """A value of an option as JSON has it."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
