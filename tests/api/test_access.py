"""Who may do what: scopes, teams, this machine, other pages, and how often."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from api.stubs import (
    ADMIN,
    APPROVER,
    LOCAL,
    NODES,
    READER,
    SPEECH,
    VISION,
    Stub,
    bearer,
    client,
    request_of,
    tokens,
)

from stoploss.api.endpoints import ENDPOINTS, Endpoint
from stoploss.api.limits import Buckets, Limits
from stoploss.api.tokens import Tokens, TokensError, from_environment, made, read, refuse_to_bind
from stoploss.engine.people import People

SCOPES = {
    ADMIN: {"read", "approve", "ingest", "admin"},
    READER: {"read"},
    APPROVER: {"read", "approve"},
    NODES: {"ingest"},
    VISION: {"read", "approve"},
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/approvals/{id}/approve": {},
    "/v1/approvals/{id}/reject": {"reason": "x"},
    "/v1/keep": {"job": "4412", "for": "1h", "reason": "x"},
    "/v1/exempt": {
        "policy": "idle-gpu",
        "where": 'user == "ann"',
        "until": "2027-01-31",
        "reason": "x",
        "owner": "ann",
    },
    "/v1/pause": {"reason": "x"},
    "/v1/resume": {},
    "/v1/samples": {"node": "n1"},
}
WRITES = [item for item in ENDPOINTS if item.method == "POST"]


def asked(service: Stub, item: Endpoint, headers: dict[str, str], finding: str = "f-a", **keys: Any) -> Any:
    """The answer to a good request to a route."""
    path = item.path.replace("{id}", request_of(service, finding))
    asker = client(service, keys.pop("guard", tokens()))
    if item.method == "GET":
        return asker.get(path, params={"job": "4412"} if item.path == "/v1/curves" else {}, headers=headers)
    return asker.post(path, json=BODIES[item.path] | keys, headers=headers)


@pytest.mark.parametrize("token", SCOPES)
def test_a_route_needs_its_scope(service: Stub, token: str) -> None:
    """With the scope a request is carried out, without it refused; a refused one writes nothing."""
    for item in ENDPOINTS:
        lines, taken = len(service.ledger.entries()), len(service.taken)
        # Each question is answered once.
        finding = "f-b" if item.path.endswith("reject") and token != VISION else "f-a"

        answer = asked(service, item, bearer(token), finding)

        if item.scope in SCOPES[token]:
            assert answer.status_code == item.status, (item.path, answer.text)
        else:
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "scope"), item.path
            assert (len(service.ledger.entries()), len(service.taken)) == (lines, taken), item.path


@pytest.mark.parametrize(
    "headers",
    [
        {},
        LOCAL,
        bearer("wrong-0123456789"),
        bearer(""),
        {"Authorization": ADMIN},
        {"Cookie": f"token={ADMIN}"},
    ],
)
def test_with_tokens_nothing_goes_without_one(service: Stub, headers: dict[str, str]) -> None:
    """Neither no token, nor a wrong one, nor one in a cookie lets anything through."""
    for item in ENDPOINTS:
        answer = asked(service, item, headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), item.path
    assert client(service, tokens()).get("/metrics", headers=headers).status_code == 401


@pytest.mark.parametrize("path", ["/v1/approvals/{id}/approve", "/v1/approvals/{id}/reject", "/v1/keep"])
def test_a_team_decides_about_its_own_alone(service: Stub, path: str) -> None:
    """What another team's token may decide, and what is nobody's, is as if it were not there."""
    item = next(item for item in WRITES if item.path == path)
    lines = len(service.ledger.entries())
    for finding, job in (("f-b", "4398"), ("f-c", "unheard-of")):
        changes = {"job": job} if path == "/v1/keep" else {}
        assert asked(service, item, bearer(VISION), finding, **changes).status_code == 404
    assert len(service.ledger.entries()) == lines


def test_a_team_sees_its_own_alone(service: Stub) -> None:
    """No answer to a team's token holds another team's names, jobs, resources or ids."""
    People(service.ledger).keep(
        "4398", timedelta(hours=1), who="bob", now=service.moment, reason="speech demo"
    )
    People(service.ledger).exempt(
        "idle-gpu",
        'team == "speech" and (job == "4398")',
        expires="2027-01-31",
        reason="theirs",
        owner="bob",
        who="bob",
        now=service.moment,
    )
    asker = client(service, tokens())
    foreign = ("speech", "4398", "n2", "n3", "n9", "f-b", "f-c", "bob", "permission denied", "by design")
    for item in ENDPOINTS:
        if item.method == "GET" and item.path != "/v1/curves":
            text = asker.get(item.path, headers=bearer(VISION)).text
            assert not [word for word in foreign if word in text], item.path
    assert asker.get("/v1/curves?job=4398", headers=bearer(VISION)).status_code == 404
    assert asker.get("/metrics", headers=bearer(VISION)).status_code == 403


def test_a_team_sees_what_is_its_own(service: Stub) -> None:
    """A team's token is given its findings, plan, requests, unknowns, costs and sums."""
    asker = client(service, tokens())

    def get(path: str) -> Any:
        return asker.get(path, headers=bearer(SPEECH)).json()

    assert [item["id"] for item in get("/v1/findings")["findings"]] == ["f-b"]
    assert [item["finding"] for item in get("/v1/plan")["decisions"]] == ["f-b"]
    assert [item["finding"] for item in get("/v1/approvals")["approvals"]] == ["f-b"]
    assert [item["resource"]["id"] for item in get("/v1/unknown")["unknown"]] == ["n2/0"]
    assert get("/v1/audit")["totals"]["per_hour"] == {"on-demand": 19.2}
    assert [line["job"] for line in get("/v1/costs")["lines"]] == ["4398"]
    assert get("/v1/overview")["figures"][0]["value"] == "$19.20/h"
    assert [row["gpu"] for row in get("/v1/heat")["rows"]] == ["n2/0"]


@pytest.mark.parametrize(
    "where",
    ['job == "4398"', 'team == "speech"', 'job == "a" or job == "b"', 'not team == "vision"'],
)
def test_an_exemption_of_a_team_is_narrowed_to_it(service: Stub, where: str) -> None:
    """Whatever a team exempts holds for its own resources alone, and only the team sees it."""
    item = next(item for item in WRITES if item.path == "/v1/exempt")

    answer = asked(service, item, bearer(VISION), where=where)

    assert answer.json()["exemption"]["where"] == f'team == "vision" and ({where})'
    listed = {
        token: client(service, tokens()).get("/v1/exemptions", headers=bearer(token)).json()["exemptions"]
        for token in (VISION, SPEECH)
    }
    assert (len(listed[VISION]), len(listed[SPEECH])) == (1, 0)


@pytest.mark.parametrize(
    "where", ['job == "a") or (job == "b"', 'job == "a") or has(job) or (job == "b"', ")"]
)
def test_a_condition_cannot_reach_out_of_its_team(service: Stub, where: str) -> None:
    """A condition that fits only into the narrowing one is refused."""
    item = next(item for item in WRITES if item.path == "/v1/exempt")

    assert asked(service, item, bearer(VISION), where=where).status_code == 400
    assert People(service.ledger).exemptions() == ()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Stoploss": "0"},
        LOCAL | {"Origin": "https://elsewhere.example"},
        LOCAL | {"Origin": "null"},
        LOCAL | {"Origin": "http://127.0.0.1:9999"},
        LOCAL | {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_another_page_cannot_write(service: Stub, headers: dict[str, str]) -> None:
    """Without tokens a write needs its header and no other origin."""
    lines = len(service.ledger.entries())
    for item in WRITES:
        answer = asked(service, item, headers, guard=Tokens())
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin"), item.path
    assert len(service.ledger.entries()) == lines


def test_this_page_can_write(service: Stub) -> None:
    """Without tokens the page's own requests are carried out."""
    headers = LOCAL | {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}

    assert client(service).post("/v1/pause", json={"reason": "x"}, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "10.0.0.5", "127.0.0.1.evil.example", ""]
)
def test_without_tokens_a_foreign_name_is_not_answered(service: Stub, host: str) -> None:
    """A name that was made to lead here lets no page read what this machine may."""
    asker = client(service)
    for path in ("/", "/v1/findings", "/healthz", "/openapi.json", "/metrics"):
        assert asker.get(path, headers={"Host": host}).status_code == 421, path


@pytest.mark.parametrize("host", ["localhost", "localhost:80", "127.0.0.1:1", "[::1]:8000", "[::1]"])
def test_without_tokens_this_machine_is_answered(service: Stub, host: str) -> None:
    """By any name of its own."""
    assert client(service).get("/v1/findings", headers={"Host": host}).status_code == 200


def test_without_tokens_another_machine_is_not_answered(service: Stub) -> None:
    """Whoever connects from elsewhere is told that tokens are needed."""
    assert client(service, client=("10.0.0.9", 1)).get("/v1/findings").status_code == 421


def test_whoever_asks_too_often_waits(service: Stub) -> None:
    """A caller has a bucket of its own, which time fills again."""
    asker = client(service, tokens(), Limits(per_second=1, burst=3))
    codes = [asker.get("/v1/pause", headers=bearer(READER)).status_code for _ in range(4)]

    assert codes == [200, 200, 200, 429]
    assert asker.get("/v1/pause", headers=bearer(READER)).headers["retry-after"] == "1"
    assert asker.get("/v1/pause", headers=bearer(ADMIN)).status_code == 200
    service.moment += timedelta(seconds=1)
    assert asker.get("/v1/pause", headers=bearer(READER)).status_code == 200


def test_guessing_is_slow_and_locks_nobody_out(service: Stub) -> None:
    """Wrong tokens are refused ever longer; a right one from the same address is still taken."""
    asker = client(service, tokens(), Limits(wrong_per_second=0.1, wrong_burst=2))
    codes = [asker.get("/v1/pause", headers=bearer("guess-0123456789")).status_code for _ in range(3)]

    assert codes == [401, 401, 429]
    assert asker.get("/v1/pause", headers=bearer(READER)).status_code == 200


def test_a_clock_that_goes_back_refills_nothing() -> None:
    """Nor does it take away."""
    buckets = Buckets(1.0, 2.0)
    assert [buckets.take("a", at) for at in (100.0, 50.0, 10.0)] == [None, None, 1.0]


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/v1/findings", "/nothing", "/metrics", "/healthz"])
def test_every_answer_carries_the_safe_headers(service: Stub, path: str) -> None:
    """Pages are framed and kept nowhere, and run no script but ours."""
    headers = client(service).get(path).headers

    assert "unsafe" not in headers["content-security-policy"]
    assert "script-src 'self'" in headers["content-security-policy"]
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert "set-cookie" not in headers


@pytest.mark.parametrize(
    ("host", "refused"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("", True), ("n1", True)],  # noqa: S104
)
def test_without_tokens_only_loopback_is_bound(host: str, refused: bool) -> None:
    """Elsewhere than on loopback tokens are needed."""
    assert (refuse_to_bind(host, Tokens()) is not None) == refused
    assert refuse_to_bind(host, tokens()) is None


def test_tokens_are_read_from_a_file(tmp_path: Path) -> None:
    """A token stands in the file, in a variable or in a file of its own; JSON is taken as well."""
    (tmp_path / "secret").write_text("from-a-file-0123\n", "utf-8")
    said = {
        "version": 1,
        "tokens": [
            {"name": "a", "token": "in-the-file-0123", "scopes": ["read"]},
            {"name": "b", "token-env": "B", "scopes": ["read", "approve"], "team": "vision"},
            {"name": "c", "token-file": str(tmp_path / "secret"), "scopes": ["ingest"]},
        ],
    }
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps(said), "utf-8")

    found = read(str(file), {"B": "of-a-variable-01"})

    assert len(found) == 3
    team = found.find("of-a-variable-01")
    assert team is not None
    assert (team.name, team.team, team.scopes) == ("b", "vision", {"read", "approve"})
    assert found.find("from-a-file-0123") is not None
    assert found.find("another") is None
    assert "in-the-file-0123" not in repr(found.find("in-the-file-0123"))


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("{name: a, token: short, scopes: [read]}", "16"),
        ("{name: a, token: in-the-file-0123, scopes: [raed]}", "read"),
        ("{name: a, token: in-the-file-0123, scops: [read]}", "scopes"),
        ("{name: a, token: in-the-file-0123, scopes: [admin], team: vision}", "admin concern"),
        ("{name: a, token: in-the-file-0123, scopes: [read], team: 'a\"b'}", "names no team"),
        ("{name: a, token: in-the-file-0123, scopes: [read], team: no team}", "names no team"),
        ("{name: a, scopes: [read]}", "give one of"),
        ("{name: a, token-env: NOT_SET, scopes: [read]}", "NOT_SET"),
        ("{name: a, token-file: /nowhere, scopes: [read]}", "cannot be read"),
        ("{name: a, token: [in-the-file-0123], scopes: [read]}", "token"),
    ],
)
def test_a_wrong_file_of_tokens_is_told_without_the_token(tmp_path: Path, line: str, word: str) -> None:
    """Each mistake is told, and no message holds a token."""
    file = tmp_path / "tokens.yaml"
    file.write_text(f"version: 1\ntokens:\n  - {line}\n", "utf-8")

    with pytest.raises(TokensError) as error:
        read(str(file), {})

    assert word in str(error.value)
    assert "in-the-file-0123" not in str(error.value)


def test_tokens_come_from_variables() -> None:
    """A variable alone gives a token with every scope, named like it."""
    found = from_environment(["STOPLOSS_TOKEN"], {"STOPLOSS_TOKEN": "of-a-variable-01"}).find(
        "of-a-variable-01"
    )

    assert found is not None
    assert (found.name, len(found.scopes)) == ("STOPLOSS_TOKEN", 4)
    with pytest.raises(TokensError, match="STOPLOSS_TOKEN is not set"):
        from_environment(["STOPLOSS_TOKEN"], {})


def test_two_tokens_are_told_apart() -> None:
    """Neither a name nor a token is there twice."""
    for second in (("a", "b-0123456789abcdef"), ("b", "a-0123456789abcdef")):
        with pytest.raises(TokensError):
            made([("a", "a-0123456789abcdef", ("read",), None), (*second, ("read",), None)])


def test_no_token_is_answered(service: Stub) -> None:
    """A token that somebody wrote into a reason is taken out of every answer."""
    guard = tokens()
    asker = client(service, guard)
    asker.post(
        "/v1/keep", json={"job": "4412", "for": "1h", "reason": f"use {READER}"}, headers=bearer(ADMIN)
    )

    for path in ("/v1/keeps", "/v1/ledger", "/v1/overview"):
        assert READER not in asker.get(path, headers=bearer(ADMIN)).text
