"""What people decide, as values and as tables; times are instants with a time zone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Column, Float, Integer, String, Table, Text

from stoploss.engine.canonical import named, request_id
from stoploss.engine.ledger_schema import METADATA
from stoploss.engine.model import ResourceId

VALID = timedelta(hours=24)
"""How long a request waits for an answer, and how long an approval holds."""

REQUESTS = Table(
    "people_requests",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("episode", Text, nullable=False, index=True),
    Column("policy", Text, nullable=False),
    Column("policy_hash", Text, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("resource", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    Column("asked", Float(53), nullable=False),
    Column("answer", String(16)),
    Column("answered", Float(53)),
    Column("who", Text),
    Column("reason", Text),
)
KEEPS = Table(
    "people_keeps",
    METADATA,
    Column("job", Text, primary_key=True),
    Column("since", Float(53), nullable=False),
    Column("until", Float(53), nullable=False),
    Column("reason", Text, nullable=False),
    Column("who", Text, nullable=False),
)
EXEMPTIONS = Table(
    "people_exemptions",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("policy", Text, nullable=False),
    Column("condition", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("expires", String(10), nullable=False),
    Column("who", Text, nullable=False),
    Column("since", Float(53), nullable=False),
)
PAUSE = Table(
    "people_pause",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("since", Float(53), nullable=False),
    Column("reason", Text, nullable=False),
    Column("who", Text, nullable=False),
)


class DecisionError(Exception):
    """A decision that cannot be taken; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A step for which somebody is asked.

    An answer is for exactly this `episode`, `action`, `target` and these `parameters`; secrets in the
    parameters are masked before they are compared.
    """

    episode: str
    policy: str
    policy_hash: str
    resource: ResourceId
    action: str
    target: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def id_of(self, parameters: str) -> str:
        """The request's id, with the parameters as canonical JSON without secrets."""
        return request_id(self.episode, self.action, self.target, parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question that was asked, and the answer if there is one: approved, rejected or None."""

    id: str
    wanted: Wanted
    asked: datetime
    answer: str | None = None
    answered: datetime | None = None
    who: str | None = None
    reason: str | None = None

    def state(self, now: datetime) -> str:
        """waiting, approved, rejected or expired; a rejection holds for the whole episode."""
        if self.answer == "rejected":
            return "rejected"
        since = self.asked if self.answered is None else self.answered
        return "expired" if now >= since + VALID else self.answer or "waiting"


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing that ends or shrinks this job is done until then."""

    job: str
    since: datetime
    until: datetime
    reason: str
    who: str

    def cost(self, per_hour: float) -> float:
        """What keeping costs, at a price per hour in some currency."""
        return per_hour * ((self.until - self.since) / timedelta(hours=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeExemption:
    """A policy does not apply where `where` (as text) is true or unknown, through the day `expires`."""

    id: str
    policy: str
    where: str
    reason: str
    owner: str
    expires: str
    who: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is carried out; `since` and `who` are None where only the file says so."""

    reason: str
    since: datetime | None = None
    who: str | None = None


def instant(seconds: float) -> datetime:
    """The instant of seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


def exemption_id(policy: str, where: str, expires: str) -> str:
    """The id of an exemption; the same one again has the same."""
    return named("e", policy, where, expires)


def request_row(wanted: Wanted, parameters: str, now: datetime) -> dict[str, Any]:
    """A question that is asked now, as a row."""
    return {
        "id": wanted.id_of(parameters),
        "episode": wanted.episode,
        "policy": wanted.policy,
        "policy_hash": wanted.policy_hash,
        "kind": wanted.resource.kind,
        "resource": wanted.resource.id,
        "action": wanted.action,
        "target": wanted.target,
        "parameters": parameters,
        "asked": now.timestamp(),
        "answer": None,
        "answered": None,
        "who": None,
        "reason": None,
    }


def request_of(row: Mapping[str, Any]) -> Request:
    """The request of a row."""
    answered = row["answered"]
    wanted = Wanted(
        episode=row["episode"],
        policy=row["policy"],
        policy_hash=row["policy_hash"],
        resource=ResourceId(row["kind"], row["resource"]),
        action=row["action"],
        target=row["target"],
        parameters=json.loads(row["parameters"]),
    )
    return Request(
        id=row["id"],
        wanted=wanted,
        asked=instant(row["asked"]),
        answer=row["answer"],
        answered=None if answered is None else instant(answered),
        who=row["who"],
        reason=row["reason"],
    )
