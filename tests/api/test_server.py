"""Many who read at once, and a real server on loopback."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from api.stubs import ADMIN, VISION, WIDE, Stub, bearer, tokens, world
from support.audits import AT

from stoploss.api.app import build
from stoploss.engine.audit import Audit

READERS = 1000


def of_tick(number: int) -> Audit:
    """A result whose every part tells its tick."""
    made = world()
    findings = tuple(replace(item, id=f"{item.id}-{number}") for item in made.findings)
    decisions = tuple(replace(item, finding=f"{item.finding}-{number}") for item in made.decisions)
    return replace(made, findings=findings, decisions=decisions, notes=(f"tick {number}",))


def test_a_thousand_readers_see_whole_results(service: Stub) -> None:
    """While results change, each answer is of one tick alone, and a team's holds nothing of another."""
    httpx = pytest.importorskip("httpx2")
    application = build(service, tokens(), now=lambda: service.moment, limits=WIDE)
    stop = threading.Event()

    def ticking() -> None:
        number = 0
        while not stop.wait(0.001):
            number += 1
            service.result = of_tick(number)

    async def read(asker: Any, number: int) -> tuple[str, dict[str, Any]]:
        token = VISION if number % 3 == 0 else ADMIN
        answer = await asker.get("/v1/audit", headers=bearer(token))
        assert answer.status_code == 200
        return token, answer.json()

    async def all_of_them() -> list[tuple[str, dict[str, Any]]]:
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asker:
            return await asyncio.gather(*(read(asker, number) for number in range(READERS)))

    service.result = of_tick(0)
    worker = threading.Thread(target=ticking)
    worker.start()
    try:
        answers = asyncio.run(all_of_them())
    finally:
        stop.set()
        worker.join()

    ticks = set()
    for token, said in answers:
        numbers = {item["id"].rpartition("-")[2] for item in said["findings"]}
        numbers |= {item["finding"].rpartition("-")[2] for item in said["decisions"]}
        ticks |= numbers
        assert len(numbers) == 1
        assert len(said["findings"]) == (1 if token == VISION else 3)
    assert len(answers) == READERS
    assert len(ticks) > 1


@pytest.fixture
def address(service: Stub) -> Iterator[str]:
    """The address of a real server with tokens."""
    uvicorn = pytest.importorskip("uvicorn", reason="the extra `web` is not installed")
    application = build(service, tokens(), now=lambda: service.moment)
    server = uvicorn.Server(
        uvicorn.Config(application, host="127.0.0.1", port=0, log_level="error", server_header=False)
    )
    worker = threading.Thread(target=server.run)
    worker.start()
    try:
        for _ in range(1000):
            if server.started:
                break
            threading.Event().wait(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        worker.join()


def asked(
    url: str, token: str | None = None, body: bytes | None = None
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """The answer of a real server."""
    headers = {} if token is None else bearer(token)
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        request = urllib.request.Request(url, body, headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return answer.status, json.loads(answer.read()), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), dict(error.headers)


def test_a_real_server_answers(service: Stub, address: str) -> None:
    """Over a real connection: reading, deciding, and being refused."""
    status, said, headers = asked(f"{address}/v1/findings?limit=1", ADMIN)
    assert (status, len(said["findings"])) == (200, 1)
    assert headers["cache-control"] == "no-store"
    assert "server" not in {name.lower() for name in headers}

    assert asked(f"{address}/v1/findings")[0] == 401
    assert asked(f"{address}/healthz")[1]["status"] == "ok"
    body = json.dumps({"reason": "outage"}).encode()
    assert asked(f"{address}/v1/pause", VISION, body)[0] == 403
    assert asked(f"{address}/v1/pause", ADMIN, body)[1]["paused"] is True
    assert asked(f"{address}/v1/pause", ADMIN, b'{"reason": "' + b"x" * 20_000)[0] == 413
    assert service.ledger.entries(kinds=("pause",), since=AT)
