"""How AWS is asked: which accounts and regions, at which instant, and what came back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stoploss.aws import Account, Manner, default_region, pages
from stoploss.collectors.contract import CollectorError
from stoploss.engine.model import Bad, LabelValue, Reading

MANNER = Manner("adaptive", connect=2, read=5, renew_before=300.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """One resource as a service told it.

    `tags` is bad where they could not be read; `labels` are what the collector knows besides.
    """

    kind: str
    id: str
    readings: Mapping[str, Reading]
    labels: Mapping[str, LabelValue] = field(default_factory=dict)
    tags: Mapping[str, str] | Bad = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """A list that was read to its end, and what could not be read beside it."""

    seen: tuple[Seen, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """One region of one account.

    Attributes:
        place: how notes name it.
        suffix: what tells names apart that are unique in one region only; empty where a
            single region of a single account is looked at.
        types: instance type -> what comes with it; filled as types are met.
    """

    account: Account
    region: str
    place: str
    suffix: str
    types: dict[str, dict[str, Reading]] = field(default_factory=dict)

    def named(self, name: str) -> str:
        """The id of a resource whose name is unique in one region only."""
        return name + self.suffix

    @property
    def labels(self) -> dict[str, LabelValue]:
        """What is known of each resource here."""
        account = {"account": self.account.name} if self.account.role else {}
        return {"region": self.region, **account}


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks one scope at one instant, `at` in seconds since the epoch."""

    scope: Scope
    at: float

    def client(self, service: str, region: str | None = None) -> Any:
        """A client for this scope, or another region of its account."""
        return self.scope.account.client(service, region or self.scope.region, self.at)

    def pages(self, service: str, operation: str, key: str, **arguments: Any) -> Iterator[Any]:
        """Every item under `key` of every page of a listing."""
        return pages(self.client(service), operation, key, **arguments)


def scopes(regions: tuple[str, ...], roles: tuple[str, ...], endpoint: str | None) -> tuple[Scope, ...]:
    """Every region of every account.

    Raises:
        CollectorError: no region is named anywhere.
    """
    accounts = [Account(role, endpoint, MANNER) for role in dict.fromkeys(roles) or (None,)]
    places = tuple(dict.fromkeys(regions)) or tuple(filter(None, (default_region(),)))
    if not places:
        raise CollectorError("no region: name one under regions, or in the profile")
    found = []
    for account in accounts:
        for region in places:
            place = f"{account.name}/{region}" if account.role else region
            inside = f"{account.name}." if len(accounts) > 1 else ""
            several = len(accounts) * len(places) > 1
            found.append(Scope(account, region, place, f"@{inside}{region}" if several else ""))
    return tuple(found)
