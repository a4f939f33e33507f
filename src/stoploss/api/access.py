"""Who asks, and whether they may: tokens, or this machine alone; and how often."""

from __future__ import annotations

import re
from datetime import datetime

from starlette.requests import Request

from stoploss.api.calls import Caller
from stoploss.api.errors import Problem
from stoploss.api.limits import Buckets, Limits
from stoploss.api.tokens import SCOPES, Tokens, loopback

LOCAL = Caller("this machine", frozenset(SCOPES))
"""Whoever asks where there are no tokens; the ledger names them so."""
HEADER = "x-stoploss"


class Gate:
    """Lets requests through, or says why not. It is told the time, and remembers how often who asked."""

    def __init__(self, tokens: Tokens, limits: Limits) -> None:
        self._tokens = tokens
        self._asked = Buckets(limits.per_second, limits.burst)
        self._wrong = Buckets(limits.wrong_per_second, limits.wrong_burst)

    def anybody(self, request: Request, now: datetime) -> None:
        """Let through what needs no token.

        Raises:
            Problem: it comes from elsewhere, or too often.
        """
        self._place(request)
        self._often(f"address {_address(request)}", now)

    def caller(self, request: Request, scope: str, now: datetime) -> Caller:
        """Who asks, where they may.

        Raises:
            Problem: they may not.
        """
        self._place(request)
        if not self._tokens:
            self._often(f"address {_address(request)}", now)
            if request.method not in ("GET", "HEAD"):
                _same_origin(request)
            return LOCAL
        caller = self._bearer(request, now)
        # Many nodes share a token to send samples with.
        where = f" {_address(request)}" if scope == "ingest" else ""
        self._often(f"token {caller.name}{where}", now)
        if scope not in caller.scopes:
            raise Problem(
                403,
                "scope",
                f"token {caller.name} may not do this",
                f"use a token whose scopes name {scope}",
            )
        return caller

    def _place(self, request: Request) -> None:
        """Without tokens, only this machine asks, by a name of its own.

        A name that a foreign page made lead here would let that page read everything.
        """
        if self._tokens:
            return
        host = request.headers.get("host", "")
        name = re.sub(r":[0-9]*\Z", "", host) if not host.endswith("]") else host
        if not loopback(name) or (request.client is not None and not loopback(request.client.host)):
            raise Problem(
                421,
                "not-here",
                "without tokens, only requests of this machine to 127.0.0.1 or localhost are answered",
                "give a file of tokens, or ask on this machine",
            )

    def _bearer(self, request: Request, now: datetime) -> Caller:
        scheme, _, presented = request.headers.get("authorization", "").partition(" ")
        token = self._tokens.find(presented.strip()) if scheme.lower() == "bearer" else None
        if token is not None:
            return Caller(token.name, token.scopes, token.team)
        wait = self._wrong.take(_address(request), now.timestamp())
        if wait is not None:
            raise _too_often(wait)
        raise Problem(
            401,
            "token",
            "there is no token, or it is none of ours",
            "send one: Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _often(self, who: str, now: datetime) -> None:
        wait = self._asked.take(who, now.timestamp())
        if wait is not None:
            raise _too_often(wait)


def _too_often(wait: float) -> Problem:
    return Problem(
        429,
        "too-often",
        "there are too many requests",
        "ask less often",
        headers={"Retry-After": str(max(1, round(wait)))},
    )


def _address(request: Request) -> str:
    return "local" if request.client is None else request.client.host


def _same_origin(request: Request) -> None:
    """Refuse what a page of another origin had a browser send."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    here = f"{request.url.scheme}://{request.headers.get('host', '')}"
    if (
        request.headers.get(HEADER) != "1"
        or (origin is not None and origin != here)
        or (site is not None and site not in ("same-origin", "none"))
    ):
        raise Problem(
            403,
            "origin",
            "without tokens, what changes something has to come from this page or a program of one's own",
            "send the header X-Stoploss: 1, and no other origin",
        )
