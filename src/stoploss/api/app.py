"""The application: routes made from the table, answers without secrets, and the page."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from stoploss.api import metrics, openapi, probes
from stoploss.api.access import Gate
from stoploss.api.bodies import checked, parsed, query, unpacked
from stoploss.api.calls import Call, Newest
from stoploss.api.contract import Service
from stoploss.api.endpoints import ENDPOINTS, ID, Endpoint
from stoploss.api.errors import Problem, bad, encoded, json_response, missing
from stoploss.api.headers import Headers
from stoploss.api.limits import Limits
from stoploss.api.tokens import Tokens
from stoploss.engine.history.store_errors import StoreError
from stoploss.reports.pages import template

STATIC = Path(__file__).parent / "static"
MEDIA = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}

Answerer = Callable[[Request], Awaitable[Response]]
_log = logging.getLogger(__name__)


def build(
    service: Service,
    tokens: Tokens,
    *,
    now: Callable[[], datetime],
    limits: Limits | None = None,
) -> Starlette:
    """The application over a running stoploss.

    Args:
        service: what runs.
        tokens: who may do what; none: whoever is on this machine may do everything (see `refuse_to_bind`).
        now: the present instant, with a time zone.
        limits: what one caller may ask.
    """
    return _Application(service, tokens, now, limits or Limits()).starlette()


class _Application:
    def __init__(self, service: Service, tokens: Tokens, now: Callable[[], datetime], limits: Limits) -> None:
        self._service, self._tokens, self._now, self._limits = service, tokens, now, limits
        self._gate = Gate(tokens, limits)
        self._newest = Newest(service)
        self._description = openapi.description(tokens=bool(tokens))

    def starlette(self) -> Starlette:
        """All routes, with answers to what goes wrong."""
        by_path: dict[str, dict[str, Endpoint]] = {}
        for item in ENDPOINTS:
            by_path.setdefault(item.path, {})[item.method] = item
        routes = [
            Route(path, self._told(partial(self._endpoint, items)), methods=list(items))
            for path, items in by_path.items()
        ]
        routes += [
            Route("/healthz", self._told(self._open(lambda: probes.healthy(self._service.health())))),
            Route("/readyz", self._told(self._open(lambda: probes.ready(self._service.health())))),
            Route("/openapi.json", self._told(self._open(lambda: (self._description, 200)))),
            Route("/metrics", self._told(self._metrics)),
        ]
        routes += [Route(path, self._told(self._file(*file))) for path, file in _files().items()]
        application = Starlette(routes=routes, exception_handlers={HTTPException: self._http})
        application.router.redirect_slashes = False
        application.add_middleware(Headers)
        return application

    def _told(self, answer: Answerer) -> Answerer:
        """What goes wrong becomes an answer in words, without what only a programmer should see."""

        async def told(request: Request) -> Response:
            try:
                return await answer(request)
            except Problem as problem:
                return self._refusal(problem)
            except StoreError as error:
                wait = {"Retry-After": "10"}
                fix = "see the log of stoploss; stoploss doctor says more"
                return self._refusal(Problem(503, "state", str(error), fix, headers=wait))
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception:
                _log.exception("%s %s could not be answered", request.method, request.url.path)
                fix = "see the log of stoploss"
                return self._refusal(Problem(500, "internal", "that is a mistake of stoploss itself", fix))

        return told

    def _refusal(self, problem: Problem) -> Response:
        return json_response(self._masked(problem.said()), problem.status, problem.headers)

    async def _http(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
        if status == 405:
            allowed = headers.get("Allow", "")
            problem = Problem(
                405, "method", f"{request.method} is not known here", f"use {allowed}", headers=headers
            )
        else:
            problem = missing("such page")
        return self._refusal(problem)

    def _masked(self, value: Any) -> Any:
        """Plain JSON values without any secret: of the environment, or a token."""
        plain = self._service.ledger.masker.plain(value)
        return self._tokens.masker.plain(plain) if self._tokens else plain

    # ---- routes ----------------------------------------------------------------------------

    async def _endpoint(self, items: Mapping[str, Endpoint], request: Request) -> Response:
        item = items["GET" if request.method == "HEAD" else request.method]
        caller = self._gate.caller(request, item.scope, self._now())
        asked = query(request.query_params.multi_items(), item.query)
        for name, value in request.path_params.items():
            checked(value, ID, name)
        body = {} if item.body is None else await self._body(request, item)

        def answer() -> Response:
            seen = self._newest.seen(caller.team)
            call = Call(self._service, caller, seen, self._now(), request.path_params, asked, body)
            if item.steady:
                # The largest answers, and those that many ask for at once.
                said = seen.once(f"answer {item.path}", lambda: encoded(self._masked(item.answers(call))))
                return Response(said, item.status, media_type="application/json")
            return json_response(self._masked(item.answers(call)), item.status)

        return await run_in_threadpool(answer)

    async def _body(self, request: Request, item: Endpoint) -> dict[str, Any]:
        raw = await self._raw(request, self._limits.samples if item.samples else self._limits.body)
        assert item.body is not None, "only routes with a body are asked for it"
        if not raw and not item.body.get("required"):
            return {}
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        packed = request.headers.get("content-encoding", "identity").strip().lower()
        taken = ("identity", "gzip") if item.samples else ("identity",)
        if media != "application/json" or packed not in taken:
            raise Problem(
                415, "media", "the body is no plain JSON", "send Content-Type: application/json, not packed"
            )
        if packed == "gzip":
            raw = await run_in_threadpool(unpacked, raw, self._limits.samples)
        value = await run_in_threadpool(parsed, raw)
        checked(value, item.body, "the body")
        found: dict[str, Any] = value
        return found

    async def _raw(self, request: Request, most: int) -> bytes:
        length = request.headers.get("content-length", "")
        parts, size = [], int(length) if length.isdecimal() and len(length) < 19 else 0
        if size <= most:
            size = 0
            with anyio.move_on_after(self._limits.body_seconds) as waiting:
                async for chunk in request.stream():
                    parts.append(chunk)
                    size += len(chunk)
                    if size > most:
                        break
            if waiting.cancelled_caught:
                raise Problem(408, "slow", "the body did not come in time", "send it at once")
        if size > most:
            # What is left of it is not read, so that the connection cannot be used on.
            raise Problem(
                413,
                "too-large",
                f"the body has more than {most:,} bytes",
                "send less at once",
                headers={"Connection": "close"},
            )
        return b"".join(parts)

    def _open(self, answer: Callable[[], tuple[dict[str, Any], int]]) -> Answerer:
        async def opened(request: Request) -> Response:
            self._gate.anybody(request, self._now())
            if request.query_params:
                raise bad("there are no parameters here", "leave them out")
            value, status = await run_in_threadpool(answer)
            return json_response(self._masked(value), status)

        return opened

    async def _metrics(self, request: Request) -> Response:
        caller = self._gate.caller(request, "read", self._now())
        if caller.team is not None:
            raise Problem(403, "team", "metrics are about every team", "use a token that is not of one team")
        return Response(await run_in_threadpool(metrics.text, self._service), media_type=metrics.MEDIA)

    def _file(self, content: bytes, media: str) -> Answerer:
        async def given(request: Request) -> Response:
            self._gate.anybody(request, self._now())
            return Response(content, media_type=media)

        return given


def _files() -> dict[str, tuple[bytes, str]]:
    """Path -> content of the page and of what it needs."""
    files = {"/": ((STATIC / "page.html").read_bytes(), "text/html; charset=utf-8")}
    for file in sorted(STATIC.iterdir()):
        if file.suffix in MEDIA:
            files[f"/static/{file.name}"] = file.read_bytes(), MEDIA[file.suffix]
    # The page and the reports share their colours and sizes.
    files["/static/base.css"] = template("base.css.j2").render().encode(), MEDIA[".css"]
    return files
