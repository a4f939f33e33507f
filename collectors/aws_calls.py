"""How AWS is asked: which accounts and regions, with which credentials, and what failures are called."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
)

from stoploss.collectors.contract import CollectorError
from stoploss.engine.model import Bad, LabelValue, Reading

FAILURES = (ClientError, BotoCoreError)
"""All that a call to AWS raises."""

ATTEMPTS = 3
"""Tries of one call, the first included."""

RENEW_BEFORE = 300.0
"""Seconds before its end at which the credentials of a role are renewed."""

_THROTTLED = re.compile(r"throttl|requestlimit|slowdown|toomanyrequests", re.IGNORECASE)
_DENIED = re.compile(r"accessdenied|unauthorized|authfailure|forbidden", re.IGNORECASE)
_INVALID = re.compile(
    r"expiredtoken|invalidclienttoken|unrecognizedclient|signaturedoesnotmatch", re.IGNORECASE
)


def reason(error: BaseException) -> str:
    """Why a call failed, in words of ours: what a service answers may hold names, keys and addresses."""
    if isinstance(error, ClientError):
        code = re.sub(r"[^\w.]", "", str(error.response.get("Error", {}).get("Code", "")))[:60]
        operation = error.operation_name
        if _THROTTLED.search(code):
            return f"throttled ({operation})"
        if _DENIED.search(code):
            return f"no rights for {operation}"
        if _INVALID.search(code):
            return f"credentials are not accepted ({operation})"
        return f"{operation} failed: {code or 'no error code'}"
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return "no credentials"
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError):
        return "no connection"
    if isinstance(error, ReadTimeoutError):
        return "no answer in time"
    return type(error).__name__


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


@cache
def _models() -> Any:
    """What botocore knows of the services: read from disk once, because it is megabytes."""
    import botocore.session

    return botocore.session.Session().get_component("data_loader")


def session(key: str | None = None, secret: str | None = None, token: str | None = None) -> Any:
    """A session with these credentials, or with those that this machine has."""
    import boto3
    import botocore.session

    core = botocore.session.Session()
    core.register_component("data_loader", _models())
    return boto3.Session(key, secret, token, botocore_session=core)


class Account:
    """The credentials of one account: those of this machine, or of a role that they may assume."""

    def __init__(self, role: str | None, endpoint: str | None) -> None:
        self.role, self._endpoint = role, endpoint
        self._lock = threading.Lock()
        self._session: Any = None
        self._until = float("inf")
        self._clients: dict[tuple[str, str], Any] = {}
        self._refused: tuple[float, BaseException] | None = None

    @property
    def name(self) -> str:
        """The number of the role's account; `own` without a role."""
        return self.role.split(":")[4] if self.role else "own"

    def default_region(self) -> str | None:
        """The region that this machine's profile or environment names."""
        region: str | None = session().region_name
        return region

    def client(self, service: str, region: str, at: float) -> Any:
        """A client whose credentials last beyond `at` (seconds since the epoch).

        Raises:
            ClientError: the role cannot be assumed.
            BotoCoreError: there are no credentials, or no connection.
        """
        # Neither making clients nor renewing credentials is safe in two threads at once.
        with self._lock:
            if self._session is None or at > self._until - RENEW_BEFORE:
                self._open(region, at)
            key = (service, region)
            if key not in self._clients:
                self._clients[key] = self._make(self._session, service, region)
            return self._clients[key]

    def _make(self, owner: Any, service: str, region: str) -> Any:
        from botocore.config import Config

        config = Config(
            retries={"mode": "adaptive", "total_max_attempts": ATTEMPTS},
            connect_timeout=2,
            read_timeout=5,
            max_pool_connections=16,
        )
        return owner.client(service, region_name=region, endpoint_url=self._endpoint, config=config)

    def _open(self, region: str, at: float) -> None:
        if self._refused is not None and self._refused[0] == at:
            # The other services of this look need not wait for the same refusal.
            raise self._refused[1]
        try:
            own = session()
            # Clients that were made without credentials would stay so.
            if own.get_credentials() is None:
                raise NoCredentialsError
            if self.role is not None:
                own = self._assume(own, region)
        except FAILURES as error:
            self._refused = (at, error)
            raise
        self._session, self._clients = own, {}

    def _assume(self, own: Any, region: str) -> Any:
        client = self._make(own, "sts", region)
        answer = client.assume_role(RoleArn=self.role, RoleSessionName="stoploss")["Credentials"]
        self._until = answer["Expiration"].timestamp()
        return session(answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"])


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
        for page in self.client(service).get_paginator(operation).paginate(**arguments):
            yield from page.get(key) or ()


def tags_of(pairs: Any) -> dict[str, str]:
    """Tags as AWS lists them: Key and Value."""
    return {pair["Key"]: pair.get("Value", "") for pair in pairs or ()}


def scopes(regions: tuple[str, ...], roles: tuple[str, ...], endpoint: str | None) -> tuple[Scope, ...]:
    """Every region of every account.

    Raises:
        CollectorError: no region is named anywhere.
    """
    accounts = [Account(role, endpoint) for role in dict.fromkeys(roles)] or [Account(None, endpoint)]
    places = tuple(dict.fromkeys(regions)) or tuple(filter(None, (accounts[0].default_region(),)))
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
