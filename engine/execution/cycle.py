"""One instant of a running stoploss: evaluate, tell, act. Whoever runs it gives the instants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from stoploss.engine.audit import Audit, audit
from stoploss.engine.carry import Carry
from stoploss.engine.execution.alerting import Alerting, Delivered, Post
from stoploss.engine.execution.executor import Executor, Hands, Round, decision_line
from stoploss.engine.execution.reconcile import reconcile
from stoploss.engine.execution.standing import standing_of
from stoploss.engine.execution.watch import Watch
from stoploss.engine.history.frame import Frame
from stoploss.engine.history.store_errors import StoreError
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import Action, Notice
from stoploss.engine.people import People
from stoploss.engine.people_exemptions import with_exemptions
from stoploss.engine.people_schema import DecisionError
from stoploss.engine.planning.model import ALERT, Standing
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.policy import PolicySet


@dataclass(frozen=True, slots=True)
class Tools:
    """What a cycle works with; the face hands it over.

    Attributes:
        frames: the frame of a resolution in seconds, through the newest sample.
        look: looks anew, so that the frames hold it; used before anything is destroyed.
        actions: name -> makes the action.
        lacks: why one may not rely on the checkpoint at a path; None where one may.
        deliver, recipient: how people are reached (see `Post`).
        now: the present instant.
        submit: runs a piece of work, at once or beside others.
        carry: the end of an audit of slots before those of the frames, if there is one.
    """

    frames: Callable[[float], Frame]
    look: Callable[[], None]
    actions: Mapping[str, Callable[[], Action]]
    lacks: Callable[[str], str | None]
    deliver: Callable[[str, Notice], Delivered]
    recipient: Callable[[str, Mapping[str, str]], str]
    now: Callable[[], datetime]
    submit: Callable[[Callable[[], None]], object] = lambda work: work()
    carry: Callable[[], Carry | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Cycled:
    """What one instant came to.

    Attributes:
        result: the audit with its plan.
        round: what was carried out.
        sent: messages that were delivered.
        problems: why others were not.
    """

    result: Audit
    round: Round
    sent: int = 0
    problems: tuple[str, ...] = ()


class Cycle:
    """Runs instants over one policy set and one ledger."""

    def __init__(self, policies: PolicySet, catalogue: Catalogue, ledger: Ledger, tools: Tools) -> None:
        """Take up the work where it was left.

        Raises:
            StoreError: the state cannot be read.
        """
        self.policies, self._catalogue, self._ledger, self._tools = policies, catalogue, ledger, tools
        hands = Hands(tools.actions, self._again, tools.lacks, tools.now, tools.submit)
        self.executor = Executor(ledger, hands)
        post = Post(tools.deliver, tools.recipient, tools.now)
        self._alerting = Alerting(ledger, post, ZoneInfo(policies.settings.timezone))
        self._watch = Watch(ledger, self.executor.take_back, tools.now)
        # Finding -> step -> the verdict that was written down last.
        self._said: dict[str, dict[int, str]] = {}

    def deliver(self, receiver: str, notice: Notice) -> Delivered:
        """Send what is not about a finding to a receiver of `notify:`; nothing is remembered of it."""
        return self._tools.deliver(receiver, notice)

    def reconcile(self) -> tuple[Entry, ...]:
        """Look what came of everything that a crash left open; once, before the first step.

        Raises:
            StoreError: the state cannot be read or written.
        """
        return reconcile(self._ledger, self.executor.action, now=self._tools.now)

    def plan(self) -> Audit:
        """Evaluate, and plan by what people decided and what was done; touches nothing."""
        policies, unread = self._exempted()

        def stands(findings: Sequence[str]) -> Standing:
            now, running = self._tools.now(), self.executor.running
            found = standing_of(self._ledger, findings, now=now, running=running)
            # Exemptions that cannot be read stop what destroys, as any of them may protect.
            found = found if unread is None else replace(found, unreadable=unread)
            return replace(found, clock=ahead[0]) if ahead else found

        def frames(resolution: float) -> Frame:
            frame = self._tools.frames(resolution)
            begun = frame.time_of(frame.last) - frame.resolution
            if frame.slots and begun > self._tools.now().timestamp():
                # What is seen now is filed under times that were seen before, and decides nothing.
                ahead.append("the clock was put back: the newest look lies in the future")
            return frame

        ahead: list[str] = []

        now, carry = self._tools.now(), self._tools.carry()
        return audit(policies, frames, self._catalogue, now=now, standing=stands, carry=carry)

    def step(self) -> Cycled:
        """Evaluate, tell, and carry out what is due.

        Raises:
            StoreError: the state cannot be written; nothing more was done then.
        """
        result = self.plan()
        if People(self._ledger).paused() is not None:
            self._record(result, Round())
            return Cycled(result, Round())
        backfired, taken_back = self._watch.look(result)
        if taken_back:
            # What was planned for its resource is not so any more.
            result = self.plan()
        sent, problems = self._alerting.round(result, backfired)
        did = self.executor.round(result)
        self._record(result, did)
        return Cycled(result, did, sent, problems)

    def _again(self) -> Audit:
        self._tools.look()
        return self.plan()

    def _exempted(self) -> tuple[PolicySet, str | None]:
        try:
            exemptions = People(self._ledger).exemptions()
            return with_exemptions(self.policies, exemptions, self._catalogue), None
        except (StoreError, DecisionError) as error:
            return self.policies, str(error)

    def _record(self, result: Audit, did: Round) -> None:
        """Write down what was decided of each step, where that is not what was written last."""
        policies = {item.name: item for item in result.policies}
        labels = {item.id: item.labels for item in result.findings}
        for finding, _ in did.noted:
            self._said.pop(finding, None)
        written, lines = self._written(labels), []
        for item in result.decisions:
            if item.finding is None or item.action == ALERT or item.verdict in ("done", "failed"):
                continue
            if (item.finding, item.step) in did.noted:
                # That is what the plan said before.
                continue
            if written[item.finding].get(item.step) != item.verdict:
                said, policy = (item.verdict, item.why), policies[item.policy]
                lines.append(decision_line(item, policy, labels[item.finding], at=result.at, said=said))
                written[item.finding][item.step] = item.verdict
        if lines:
            with self._ledger.writing() as connection:
                for line in lines:
                    self._ledger.append_within(connection, line)
        self._said = written

    def _written(self, findings: Iterable[str]) -> dict[str, dict[int, str]]:
        """What was written of each step last; read from the ledger where this run has not read it."""
        found = {name: dict(self._said.get(name, ())) for name in findings}
        missing = [name for name in found if name not in self._said]
        for entry in self._ledger.entries(kinds=("decision",), episodes=missing) if missing else ():
            found[entry.episode or ""][int((entry.evidence or {}).get("step", 0))] = entry.verdict or ""
        return found
