"""What a route is given: who asks, what, and the newest result as they may see it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from stoploss.api.contract import Service
from stoploss.api.errors import Problem
from stoploss.api.teams import Whose, costs_of, only
from stoploss.engine.audit import Audit
from stoploss.engine.people import People
from stoploss.reports import audit_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a name for the ledger, what they may do, and of which team (None is everything)."""

    name: str
    scopes: frozenset[str]
    team: str | None = None


class Seen:
    """One result as one team, or somebody who sees everything, may see it."""

    def __init__(self, audit: Audit | None, team: str | None, costs: Mapping[str, Any]) -> None:
        self.team, self.whose = team, Whose(audit, costs)
        self._audit = audit if audit is None or team is None else only(audit, team, self.whose)
        self.costs = dict(costs) if team is None else costs_of(costs, team, self.whose)
        self._told: dict[str, Any] = {}
        self._lock = threading.RLock()

    @property
    def audit(self) -> Audit:
        """The result.

        Raises:
            Problem: there is none yet.
        """
        if self._audit is None:
            raise Problem(
                503,
                "not-ready",
                "nothing has been evaluated yet",
                "ask again after the first tick",
                headers={"Retry-After": "10"},
            )
        return self._audit

    @cached_property
    def said(self) -> dict[str, Any]:
        """The result as JSON values."""
        return self.once("said", lambda: audit_json.as_dict(self.audit))

    def once(self, name: str, work: Callable[[], T]) -> T:
        """What `work` gives, done once for this result however many ask at the same time."""
        with self._lock:
            if name not in self._told:
                self._told[name] = work()
            told: T = self._told[name]
            return told

    def mine(self, team: str | None) -> bool:
        """Whether something of this team may be seen."""
        return self.team is None or team == self.team


class Newest:
    """The newest result, worked out once per team until the next tick."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._audit: Audit | None = None
        self._seen: dict[str | None, Seen] = {}

    def seen(self, team: str | None) -> Seen:
        """The newest result as a team may see it."""
        audit = self._service.latest()
        with self._lock:
            if audit is not self._audit:
                self._audit, self._seen = audit, {}
            if team not in self._seen or audit is None:
                self._seen[team] = Seen(audit, team, self._service.costs())
            return self._seen[team]


@dataclass(frozen=True, slots=True)
class Call:
    """A request that is let through.

    Attributes:
        service: what runs.
        caller: who asks.
        seen: the newest result as they may see it.
        now: the present instant.
        path, query, body: its parts, checked against the route's schemas.
    """

    service: Service
    caller: Caller
    seen: Seen
    now: datetime
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def people(self) -> People:
        """The decisions of people."""
        return People(self.service.ledger)

    @property
    def team(self) -> str | None:
        """The team whose things alone they may see; None is everything."""
        return self.caller.team
