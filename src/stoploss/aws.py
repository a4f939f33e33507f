"""How AWS is reached, by who looks and by who acts: credentials, clients, and what failures are called."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
)

FAILURES = (ClientError, BotoCoreError)
"""All that a call to AWS raises."""

ATTEMPTS = 3
"""Tries of one call, the first included."""

_THROTTLED = re.compile(r"throttl|requestlimit|slowdown|toomanyrequests", re.IGNORECASE)
_DENIED = re.compile(r"accessdenied|unauthorized|authfailure|forbidden", re.IGNORECASE)
_INVALID = re.compile(
    r"expiredtoken|invalidclienttoken|unrecognizedclient|signaturedoesnotmatch", re.IGNORECASE
)
_PASSING = re.compile(r"insufficient\w*capacity|internal|unavailable|timeout", re.IGNORECASE)
_UNANSWERED = (EndpointConnectionError, ConnectTimeoutError, ConnectionClosedError, ReadTimeoutError)


def code(error: BaseException) -> str:
    """The error code of a service; empty where there is none."""
    if not isinstance(error, ClientError):
        return ""
    return re.sub(r"[^\w.]", "", str(error.response.get("Error", {}).get("Code", "")))[:60]


def reason(error: BaseException) -> str:
    """Why a call failed, in words of ours: what a service answers may hold names, keys and addresses."""
    if isinstance(error, ClientError):
        told, operation = code(error), error.operation_name
        if _THROTTLED.search(told):
            return f"throttled ({operation})"
        if _DENIED.search(told):
            return f"no rights for {operation}"
        if _INVALID.search(told):
            return f"credentials are not accepted ({operation})"
        return f"{operation} failed: {told or 'no error code'}"
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return "no credentials"
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError):
        return "no connection"
    if isinstance(error, ConnectionClosedError | ReadTimeoutError):
        return "no answer in time"
    return type(error).__name__


def passing(error: BaseException) -> bool:
    """Whether a failure may be over at another try."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return bool(status >= 500 or _THROTTLED.search(code(error)) or _PASSING.search(code(error)))
    return isinstance(error, _UNANSWERED)


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


@dataclass(frozen=True, slots=True)
class Manner:
    """How calls are made.

    Attributes:
        retries: botocore's mode of trying again; `adaptive` slows down where AWS throttles.
        connect, read: seconds that a connection, and an answer, are waited for.
        renew_before: seconds before their end at which the credentials of a role are renewed.
    """

    retries: str
    connect: float
    read: float
    renew_before: float


class Account:
    """The credentials of one account: those of this machine, or of a role that they may assume."""

    def __init__(self, role: str | None, endpoint: str | None, manner: Manner) -> None:
        self.role, self._endpoint, self._manner = role, endpoint, manner
        self._lock = threading.Lock()
        self._session: Any = None
        self._until = float("inf")
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._refused: tuple[float, BaseException] | None = None

    @property
    def name(self) -> str:
        """The number of the role's account; `own` without a role."""
        return self.role.split(":")[4] if self.role else "own"

    def client(self, service: str, region: str, at: float, *, once: bool = False) -> Any:
        """A client whose credentials last beyond `at` (seconds since the epoch).

        Args:
            service: its name.
            region: where it is asked.
            at: the present instant.
            once: a call that is not answered is not repeated: for those that would make a thing twice.

        Raises:
            ClientError: the role cannot be assumed.
            BotoCoreError: there are no credentials, or no connection.
        """
        # Neither making clients nor renewing credentials is safe in two threads at once.
        with self._lock:
            if self._session is None or at > self._until - self._manner.renew_before:
                self._open(region, at)
            key = (service, region, once)
            if key not in self._clients:
                self._clients[key] = self._make(self._session, service, region, once)
            return self._clients[key]

    def _make(self, owner: Any, service: str, region: str, once: bool = False) -> Any:
        from botocore.config import Config

        config = Config(
            retries={"mode": self._manner.retries, "total_max_attempts": 1 if once else ATTEMPTS},
            connect_timeout=self._manner.connect,
            read_timeout=self._manner.read,
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


def default_region() -> str | None:
    """The region that this machine's profile or environment names."""
    region: str | None = session().region_name
    return region


def pages(client: Any, operation: str, key: str, **arguments: Any) -> Iterator[Any]:
    """Every item under `key` of every page of a listing."""
    for page in client.get_paginator(operation).paginate(**arguments):
        yield from page.get(key) or ()


def tags_of(pairs: Any) -> dict[str, str]:
    """Tags as AWS lists them: Key and Value."""
    return {pair["Key"]: pair.get("Value", "") for pair in pairs or ()}
