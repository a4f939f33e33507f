"""Carries out what the plan lets: intent, act, verify, result; one step of one resource at a time.

A round takes the plan of one instant. What is destructive is planned once more with a fresh look before
it is touched; what is not any more as it was is skipped. An action that fails holds the later steps of
its resource, and of no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stoploss.engine.canonical import canonical, named
from stoploss.engine.execution.deeds import Deed, conditions_of, deeds, intent_evidence, result_of
from stoploss.engine.execution.undoing import undo
from stoploss.engine.execution.watch_pace import said
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry, policy_hash
from stoploss.engine.model import Action, Order, Outcome, Refused, ResourceId
from stoploss.engine.people import People
from stoploss.engine.people_schema import Request, Wanted
from stoploss.engine.planning.model import ALERT, Decision, StepKey
from stoploss.rules.policy import Policy, Step

if TYPE_CHECKING:
    from stoploss.engine.audit import Audit
    from stoploss.engine.findings import Finding
    from stoploss.engine.planning.pace import Pace

WHO = "stoploss"


@dataclass(frozen=True, slots=True)
class Hands:
    """What an executor acts with; the face hands it over.

    Attributes:
        actions: name -> the action, made when it is first needed.
        again: the plan made anew with a fresh look at an instant.
        lacks: why one may not rely on the checkpoint at a path any more; None where one may.
        now: the present instant.
        submit: runs a piece of work, at once or beside others.
    """

    actions: Mapping[str, Callable[[], Action]]
    again: Callable[[], Audit]
    lacks: Callable[[str], str | None]
    now: Callable[[], datetime]
    submit: Callable[[Callable[[], None]], object] = lambda work: work()


@dataclass(slots=True)
class Round:
    """What a round has come to; filled while its steps are carried out.

    Attributes:
        done: steps with their words.
        failed: steps that were begun and failed, or could not begin.
        skipped: steps whose matter was gone or changed.
        asked: questions to people that are new.
        noted: steps of which a fresh look decided otherwise than the plan, which is written already.
    """

    done: list[tuple[Decision, str]] = field(default_factory=list)
    failed: list[tuple[Decision, str]] = field(default_factory=list)
    skipped: list[tuple[Decision, str]] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)
    noted: set[StepKey] = field(default_factory=set)

    @property
    def partial(self) -> bool:
        """Whether something was to be done and could not be."""
        return bool(self.failed)

    def words(self) -> str:
        """How many of how many were done, and why not the others."""
        others = [*self.failed, *self.skipped]
        total = len(self.done) + len(others)
        whys = "; ".join(f"{item.resource}: {why}" for item, why in others)
        return f"{len(self.done)} of {total} steps done" + (f"; {whys}" if whys else "")


class Executor:
    """Carries out rounds, and knows what is being carried out."""

    def __init__(self, ledger: Ledger, hands: Hands) -> None:
        self._ledger, self._hands = ledger, hands
        self._made: dict[str, Action] = {}
        self._busy: dict[ResourceId, StepKey] = {}
        self._lock = threading.Lock()

    @property
    def running(self) -> frozenset[StepKey]:
        """Steps that are being carried out now."""
        with self._lock:
            return frozenset(self._busy.values())

    def action(self, name: str) -> Action:
        """The action of a name.

        Raises:
            Refused: there is none, or it cannot be made.
        """
        with self._lock:
            if name not in self._made:
                make = self._hands.actions.get(name)
                if make is None:
                    raise Refused(f"{name} cannot be carried out by this installation")
                self._made[name] = make()
            return self._made[name]

    def round(self, result: Audit) -> Round:
        """Carry out what is due in the plan of an audit, and ask what is to be asked.

        Raises:
            StoreError: the ledger cannot be written; nothing more is done then.
        """
        out = Round()
        findings = {item.id: item for item in result.findings}
        for decision in result.decisions:
            policy = _policy(result, decision)
            if decision.ask_now and policy.mode == "enforce":
                self._ask(decision, policy, out)
        due = self._due(result)
        if any(_step(result, item).destructive for item in due):
            due = self._still(due, result, out)
        done = deeds(self._ledger, [item.finding or "" for item in due])
        for decision in due:
            with self._lock:
                if decision.resource in self._busy:
                    continue
                self._busy[decision.resource] = (decision.finding or "", decision.step)
            policy, pace = _policy(result, decision), result.paces.get(decision.resource)
            task = _Task(decision, policy, findings[decision.finding or ""], done, pace)
            self._hands.submit(lambda task=task: self._run(task, out))  # type: ignore[misc]
        return out

    def take_back(self, intent: Entry, reason: str) -> bool:
        """Take a step back that was done; False where its resource is acted on at this moment.

        Raises:
            StoreError: the ledger cannot be written.
        """
        assert intent.resource is not None, "only what was done to something is taken back"
        with self._lock:
            if intent.resource in self._busy:
                return False
            self._busy[intent.resource] = (intent.episode or "", int(intent.evidence["step"]))
        self._hands.submit(lambda: self._undo(intent, reason))
        return True

    def _undo(self, intent: Entry, reason: str) -> None:
        try:
            undo(self._ledger, intent, self.action, who=WHO, reason=reason, now=self._hands.now)
        finally:
            with self._lock:
                self._busy.pop(intent.resource or ResourceId("", ""), None)

    def _due(self, result: Audit) -> list[Decision]:
        """At most one step of each resource: the first that is due, with all before it done."""
        found: dict[ResourceId, Decision] = {}
        waits: set[str] = set()
        for item in result.decisions:
            if item.finding is None:
                continue
            ready = item.verdict == "would" and item.due is not None and item.due <= result.at
            free = item.finding not in waits and _policy(result, item).mode == "enforce"
            if ready and free and item.action != ALERT:
                found.setdefault(item.resource, item)
            if item.verdict != "done" and _step(result, item).on_failure != "continue":
                waits.add(item.finding)
        return list(found.values())

    def _still(self, due: Sequence[Decision], before: Audit, out: Round) -> list[Decision]:
        """Those that the plan still lets after a fresh look; the others with why not."""
        fresh = {item.id: item for item in self._hands.again().decisions}
        still = []
        for item in due:
            if not _step(before, item).destructive:
                still.append(item)
                continue
            now = fresh.get(item.id)
            if now is None:
                verdict, why = "skipped", "a fresh look does not find it any more"
            elif now.verdict != "would":
                verdict, why = now.verdict, f"after a fresh look: {now.why}"
            elif (now.target, now.parameters) != (item.target, item.parameters):
                verdict, why = "skipped", "after a fresh look it is another step"
            else:
                still.append(now)
                continue
            self._note(item, before, verdict, why)
            out.skipped.append((item, why))
            out.noted.add((item.finding or "", item.step))
        return still

    def _run(self, task: _Task, out: Round) -> None:
        """Carry one step out; whatever happens, its resource is free again afterwards."""
        try:
            outcome = self._carry_out(task)
            places = {"done": out.done, "skipped": out.skipped}
            places.get(outcome.state, out.failed).append((task.decision, outcome.words))
        finally:
            with self._lock:
                self._busy.pop(task.decision.resource, None)

    def _carry_out(self, task: _Task) -> Outcome:
        decision, order = task.decision, task.order()
        try:
            self._rely_on(order.saved)
            action = self.action(decision.action)
            found = action.find(order)
        except Refused as error:
            outcome = Outcome("skipped" if error.gone else "failed", error.words, retry=True)
            intent = self._intent(task, {"step": decision.step, "conditions": conditions_of(task.finding)})
            self._ledger.append(result_of(intent, outcome, at=self._hands.now()))
            return outcome
        evidence = (
            intent_evidence(decision.step, order, found, conditions_of(task.finding))
            | task.paced()
            | task.priced()
        )
        intent = self._intent(task, evidence)
        try:
            outcome = action.act(order, found)
        except Exception as error:
            # Nobody knows how far it came: that is for a look to say, not for another try.
            outcome = Outcome("unknown", f"it broke off ({type(error).__name__}); look before trying again")
        self._ledger.append(result_of(intent, outcome, at=self._hands.now()))
        return outcome

    def _rely_on(self, saved: str | None) -> None:
        """Raises Refused where the checkpoint that was verified is not any more what it was."""
        why = None if saved is None else self._hands.lacks(saved)
        if why is not None:
            raise Refused(f"the verified checkpoint {saved} cannot be relied on any more: {why}")

    def _intent(self, task: _Task, evidence: Any) -> Entry:
        decision = task.decision
        return self._ledger.append(
            Entry(
                at=self._hands.now(),
                kind="intent",
                episode=decision.finding,
                policy=decision.policy,
                policy_hash=policy_hash(task.policy),
                resource=decision.resource,
                action=decision.action,
                target=decision.target,
                parameters=decision.parameters,
                why=task.why(),
                evidence=evidence,
                promised=decision.saves_per_hour,
                currency=task.currency(),
                who=WHO,
            )
        )

    def _ask(self, decision: Decision, policy: Policy, out: Round) -> None:
        people, wanted = People(self._ledger), wanted_of(decision, policy)
        before = {item.id for item in people.requests(episodes=[wanted.episode])}
        asked = people.ask(wanted, now=self._hands.now())
        if asked.id not in before:
            out.asked.append(asked)

    def _note(self, decision: Decision, before: Audit, verdict: str, why: str) -> None:
        labels = next((item.labels for item in before.findings if item.id == decision.finding), {})
        policy = _policy(before, decision)
        line = decision_line(decision, policy, labels, at=self._hands.now(), said=(verdict, why))
        self._ledger.append(line)


@dataclass(frozen=True, slots=True)
class _Task:
    """A step that is about to be carried out."""

    decision: Decision
    policy: Policy
    finding: Finding
    deeds: Mapping[StepKey, Deed]
    pace: Pace | None = None

    def paced(self) -> dict[str, Any]:
        """The pace of its job before it, where what it saves is watched."""
        return {} if self.pace is None else {"pace": said(self.pace)}

    def order(self) -> Order:
        """What the action is told."""
        decision = self.decision
        name = decision.finding or ""
        before = self.deeds.get((name, decision.step))
        # A try after a failure is another order: what the failed one left behind is not its own.
        parts = (name, str(decision.step), decision.action, str(decision.resource), decision.target)
        tries = str(before.tries if before else 0)
        saved = next((d.saved for key, d in self.deeds.items() if key[0] == name and d.saved), None)
        return Order(
            named("o", *parts, canonical(dict(decision.parameters)), tries),
            decision.action,
            decision.resource,
            decision.parameters,
            self.finding.labels,
            f"policy {self.policy.name}",
            self.finding.since.timestamp(),
            saved,
        )

    def priced(self) -> dict[str, Any]:
        """Of which kind the price is that it saves: cash, capacity and spend avoided are never added up."""
        waste = self.finding.waste
        return {} if waste is None or waste.kind is None else {"price_kind": waste.kind}

    def why(self) -> str:
        """Why it is done, for people."""
        others = [name for name in self.decision.policies if name != self.policy.name]
        told = self.policy.summary or self.policy.name
        return told + (f" (also: {', '.join(others)})" if others else "")

    def currency(self) -> str | None:
        """Of what it promises to save."""
        return self.finding.waste.currency if self.finding.waste else None


def wanted_of(decision: Decision, policy: Policy) -> Wanted:
    """What a person is asked about a step."""
    return Wanted(
        episode=decision.finding or "",
        policy=decision.policy,
        policy_hash=policy_hash(policy),
        resource=decision.resource,
        action=decision.action,
        target=decision.target,
        parameters=decision.parameters,
    )


def decision_line(
    decision: Decision, policy: Policy, labels: Mapping[str, str], *, at: datetime, said: tuple[str, str]
) -> Entry:
    """The line that says what was decided of a step that is not carried out.

    Args:
        decision: the step.
        policy: that wants it.
        labels: of the resource, for whoever asks later whose it was.
        at: when.
        said: the verdict, and why.
    """
    verdict, why = said
    return Entry(
        at=at,
        kind="decision",
        episode=decision.finding,
        policy=decision.policy,
        policy_hash=policy_hash(policy),
        resource=decision.resource,
        action=decision.action,
        target=decision.target,
        parameters=decision.parameters,
        verdict=verdict,
        why=why,
        evidence={"step": decision.step, "order": {"labels": dict(labels)}},
        promised=decision.saves_per_hour,
        currency=decision.currency,
    )


def _policy(result: Audit, decision: Decision) -> Policy:
    return next(item for item in result.policies if item.name == decision.policy)


def _step(result: Audit, decision: Decision) -> Step:
    found = _policy(result, decision).step(decision.step)
    assert found is not None, "a decision is about a step of its policy"
    return found
