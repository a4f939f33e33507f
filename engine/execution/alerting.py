"""Tells people, once, with the lines in the ledger that say so.

What was told is kept in the transaction of its result, so that a restart tells nothing twice. Only where
a crash comes between a delivery and that transaction is it told once more, under the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from zoneinfo import ZoneInfo

from stoploss.engine import alert_memory, alerts
from stoploss.engine.alert_memory import Group, Wanted
from stoploss.engine.execution.alert_store import load, save
from stoploss.engine.execution.deeds import conditions_of
from stoploss.engine.execution.tidings import TELLS, Tiding, tidings
from stoploss.engine.execution.watch import Backfired
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry, policy_hash
from stoploss.engine.model import Notice
from stoploss.engine.planning.model import ALERT

if TYPE_CHECKING:
    from stoploss.engine.audit import Audit
    from stoploss.engine.findings import Finding

WHO = "stoploss"


class Delivered(Protocol):
    """How a delivery went."""

    @property
    def delivered(self) -> bool:
        """It arrived."""
        ...

    @property
    def retry(self) -> bool:
        """Another try later is of use."""
        ...

    @property
    def words(self) -> str:
        """For people; without secrets."""
        ...


@dataclass(frozen=True, slots=True)
class Post:
    """How people are reached; the face hands it over.

    Attributes:
        deliver: sends a notice to a receiver of `notify:`; whatever fails is told by what comes back.
        recipient: who is told in the end, given a receiver and the labels of a resource, in words.
        now: the present instant.
    """

    deliver: Callable[[str, Notice], Delivered]
    recipient: Callable[[str, Mapping[str, str]], str]
    now: Callable[[], datetime]


class Alerting:
    """Tells what an audit came to, and remembers who was told."""

    def __init__(self, ledger: Ledger, post: Post, zone: ZoneInfo) -> None:
        """Take up what was told before.

        Raises:
            StoreError: that cannot be read.
        """
        self._ledger, self._post, self._zone = ledger, post, zone
        self._memory = load(ledger)

    def round(self, result: Audit, backfired: Sequence[Backfired] = ()) -> tuple[int, tuple[str, ...]]:
        """Tell what is due; returns how many messages were delivered, and why others were not.

        `backfired` are steps that made things dearer and stay.

        Not to be called while stoploss is paused: what is over then is told afterwards.

        Raises:
            StoreError: what was told could not be written down; no more is told then.
        """
        things = tidings(result, self._post.recipient, self._zone, backfired)
        before, now = self._memory, self._post.now().timestamp()
        modes = {item.name: item.mode for item in result.policies}
        names = {entry.wanted.policy for entry in before.entries.values()}
        silent = {name for name in names if modes.get(name, result.mode) not in TELLS}
        memory, groups = alert_memory.step(before, [item.wanted for item in things.values()], now, silent)
        with self._ledger.writing() as connection:
            save(connection, self._ledger.masker, before, memory)
        self._memory = memory
        problems = [why for group in groups if (why := self._tell(group, things)) is not None]
        return len(groups) - len(problems), tuple(problems)

    def _tell(self, group: Group, things: Mapping[tuple[str, str], Tiding]) -> str | None:
        """Tell one group; returns why it was not delivered."""
        about = [things[name, group.recipient] for name in group.firing]
        over = [self._memory.wanted(name, group.recipient) for name in group.resolved]
        at = self._post.now()
        notices = [item.notice() for item in about] + [alerts.ended(item, at=at) for item in over]
        # A finding that two steps told of is over once.
        notices = list({(item.event, item.title): item for item in notices}.values())
        more = f"it came back {group.returns} times meanwhile" if group.returns else ""
        notice = alerts.joined(group.key, notices, more=more)
        receiver = (about[0].wanted if about else over[0]).receiver
        with self._ledger.writing() as connection:
            lines = [
                self._ledger.append_within(connection, _intent(item, at))
                for item in about
                if item.decision is not None
            ]
        how = self._post.deliver(receiver, notice)
        self._write(group, (lines, over), how)
        return None if how.delivered else f"{group.recipient}: {how.words}"

    def _write(self, group: Group, told: tuple[list[Entry], list[Wanted]], how: Delivered) -> None:
        at, before = self._post.now(), self._memory
        second, (lines, over) = at.timestamp(), told
        if how.delivered:
            after = alert_memory.told(before, group, second)
        else:
            after = alert_memory.failed(before, group, second, retry=how.retry)
        with self._ledger.writing() as connection:
            for line in lines:
                self._ledger.append_within(connection, _result(line, how, at))
            for item in over if how.delivered else ():
                self._ledger.append_within(connection, _ended(item, at))
            save(connection, self._ledger.masker, before, after)
        self._memory = after


def _intent(item: Tiding, at: datetime) -> Entry:
    decision, policy = item.decision, item.policy
    assert decision is not None, "only what a step is about has a line"
    assert policy is not None, "a step has its policy"
    return Entry(
        at=at,
        kind="intent",
        episode=decision.finding or item.wanted.finding,
        policy=policy.name,
        policy_hash=policy_hash(policy),
        resource=decision.resource,
        action=ALERT,
        target=item.wanted.recipient,
        why=policy.summary or None,
        evidence={
            "step": decision.step,
            "recipients": item.recipients,
            "receivers": list(item.receivers),
            **({} if item.finding is None else _about(item.finding)),
        },
        who=WHO,
    )


def _about(finding: Finding) -> dict[str, Any]:
    """What a line keeps of a finding, to explain it later."""
    order = {"since": finding.since.timestamp(), "labels": dict(finding.labels)}
    return {"conditions": conditions_of(finding), "order": order}


def _result(intent: Entry, how: Delivered, at: datetime) -> Entry:
    return Entry(
        at=at,
        kind="result",
        intent=intent.seq,
        episode=intent.episode,
        policy=intent.policy,
        policy_hash=intent.policy_hash,
        resource=intent.resource,
        action=ALERT,
        target=intent.target,
        verdict="done" if how.delivered else "failed",
        why=how.words,
        evidence={"retry": how.retry},
        who=WHO,
    )


def _ended(item: Wanted, at: datetime) -> Entry:
    return Entry(
        at=at,
        kind="note",
        episode=item.finding.partition("#")[0],
        policy=item.policy,
        action=ALERT,
        target=item.recipient,
        why="told that it is over",
        who=WHO,
    )
