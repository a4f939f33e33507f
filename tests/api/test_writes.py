"""What people decide through the API, and samples of nodes."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from typing import Any

import pytest
from api.stubs import ADMIN, LOCAL, NODES, Stub, bearer, client, request_of, tokens

from stoploss.api.limits import Limits
from stoploss.engine.people import People


def post(service: Stub, path: str, body: Any = None, **keys: Any) -> Any:
    """A decision of somebody on this machine."""
    return client(service).post(path, json={} if body is None else body, headers=LOCAL, **keys)


def test_an_approval_is_one_line_of_the_ledger(service: Stub) -> None:
    """Approving answers the request, and the ledger names the token that did it."""
    name = request_of(service, "f-a")
    asker = client(service, tokens())

    answer = asker.post(
        f"/v1/approvals/{name}/approve", json={"reason": "owner agrees"}, headers=bearer(ADMIN)
    )

    assert (answer.status_code, answer.json()["approval"]["state"]) == (200, "approved")
    line = service.ledger.entries(last=1)[0]
    assert (line.kind, line.who, line.why) == ("approval", "admin", "owner agrees")


def test_what_was_answered_is_not_answered_again(service: Stub) -> None:
    """A second approval is refused in words, and writes nothing."""
    name = request_of(service, "f-a")
    assert post(service, f"/v1/approvals/{name}/approve").status_code == 200
    lines = len(service.ledger.entries())

    answer = post(service, f"/v1/approvals/{name}/approve")

    assert answer.status_code == 409
    assert "approved already" in answer.json()["error"]["message"]
    assert len(service.ledger.entries()) == lines


def test_an_approval_needs_no_body(service: Stub) -> None:
    """Approving without any word is possible, as on the command line."""
    name = request_of(service, "f-a")

    assert client(service).post(f"/v1/approvals/{name}/approve", headers=LOCAL).status_code == 200


def test_a_rejection_needs_a_reason(service: Stub) -> None:
    """Rejecting without a reason is refused; with one it is written down."""
    name = request_of(service, "f-a")

    assert post(service, f"/v1/approvals/{name}/reject").status_code == 400
    assert post(service, f"/v1/approvals/{name}/reject", {"reason": " "}).status_code == 400
    assert post(service, f"/v1/approvals/{name}/reject", {"reason": "still needed"}).status_code == 200


def test_a_request_that_is_not_there_is_not_found(service: Stub) -> None:
    """An id that was never asked is told so."""
    assert post(service, "/v1/approvals/a-000000000000/approve").status_code == 404


def test_keep_says_what_it_costs(service: Stub) -> None:
    """A job is kept for a time, at the price of the newest decision on it."""
    answer = post(service, "/v1/keep", {"job": "4412", "for": "4h", "reason": "demo at noon"})

    assert answer.status_code == 200
    assert answer.json()["cost"] == 115.2
    assert People(service.ledger).kept("4412", now=service.moment) is not None
    assert [item["job"] for item in client(service).get("/v1/keeps").json()["keeps"]] == ["4412"]


@pytest.mark.parametrize(
    ("span", "status"), [("25h", 409), ("0s", 409), ("4", 400), ("soon", 400), ("9999999999w", 400)]
)
def test_keep_takes_a_day_at_most(service: Stub, span: str, status: int) -> None:
    """Too long, no time at all, or no duration: nothing is kept."""
    answer = post(service, "/v1/keep", {"job": "4412", "for": span, "reason": "x"})

    assert answer.status_code == status
    assert People(service.ledger).keeps(now=service.moment) == ()


def exemption(**changes: str) -> dict[str, str]:
    """A good exemption, with changes."""
    said = {"policy": "idle-gpu", "where": 'job == "4412"', "until": "2027-01-31", "reason": "bursty"}
    return {**said, "owner": "ml-infra", **changes}


def test_an_exemption_is_listed_beside_those_of_the_files(service: Stub) -> None:
    """What is exempted is listed with who did it."""
    assert post(service, "/v1/exempt", exemption()).status_code == 200

    items = client(service).get("/v1/exemptions").json()["exemptions"]

    assert [(item["source"], item["who"]) for item in items] == [("file", None), ("state", "this machine")]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"policy": "idle-gpus"}, "did you mean idle-gpu?"),
        ({"where": "job = 4412"}, "write a condition"),
        ({"where": "max(gpu.utilization, 30m) < 5%"}, "write a condition"),
        ({"until": "2026-11-30"}, "give a later one"),
        ({"until": "2027-02-30"}, "2027-01-31"),
        ({"until": "20270131"}, "2027-01-31"),
        ({"owner": " "}, "write owner in plain words"),
    ],
)
def test_a_wrong_exemption_is_told(service: Stub, changes: dict[str, str], word: str) -> None:
    """Each mistake is told with its fix, and nothing is exempt."""
    answer = post(service, "/v1/exempt", exemption(**changes))

    assert answer.status_code == 400
    assert word in answer.json()["error"]["fix"]
    assert People(service.ledger).exemptions() == ()


def test_pause_and_resume(service: Stub) -> None:
    """A pause holds until it is taken back."""
    assert post(service, "/v1/pause", {"reason": "storage outage"}).json()["paused"] is True
    assert client(service).get("/v1/pause").json()["reason"] == "storage outage"
    assert client(service).get("/v1/overview").json()["paused"] == "storage outage"

    assert post(service, "/v1/resume").json()["paused"] is False


def test_samples_are_handed_on(service: Stub) -> None:
    """A batch goes to the service as it came, under the node's name."""
    batch = {"node": "n1", "samples": [{"a": 1}, {"a": 2}]}

    answer = client(service, tokens()).post("/v1/samples", json=batch, headers=bearer(NODES))

    assert (answer.status_code, answer.json()["taken"]) == (202, 2)
    assert service.taken == [("n1", batch)]


def packed(service: Stub, body: bytes) -> int:
    headers = LOCAL | {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    return client(service).post("/v1/samples", content=body, headers=headers).status_code


def test_samples_may_be_packed(service: Stub) -> None:
    """A batch packed by gzip is what it was before."""
    batch = {"node": "n1", "samples": [{"a": 1}]}

    assert packed(service, gzip.compress(json.dumps(batch).encode())) == 202
    assert service.taken == [("n1", batch)]


def test_what_is_packed_is_unpacked_no_further_than_the_limit(service: Stub) -> None:
    """One packed body cannot fill the memory; one that is cut off, damaged or two in one is refused."""
    whole = gzip.compress(b'{"node": "n1"}')

    assert packed(service, gzip.compress(b'{"node": "' + b"n" * (8 << 20) + b'"}')) == 413
    for body in (b"", whole[:-1], b"{}", whole + whole, whole[:12] + b"\xff" + whole[13:]):
        assert packed(service, body) == 400, body
    assert service.taken == []


def test_a_wrong_or_untimely_batch_is_told(service: Stub) -> None:
    """A wrong batch is refused in the service's words; when too many wait, it may be sent again."""
    assert post(service, "/v1/samples", {"node": "n1", "samples": 3}).json()["error"]["message"] == (
        "samples is no list; send [...]"
    )
    service.busy = True

    answer = post(service, "/v1/samples", {"node": "n1"})

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"reason": "a", "reason": "b"}', 400),
        (b'{"reason": NaN}', 400),
        (b'{"reason": "x", "more": 1e999}', 400),
        (b'{"reason": "\\ud800"}', 400),
        (b'{"reason": "\xff"}', 400),
        (b'{"reason": 5}', 400),
        (b'{"reason": true}', 400),
        (b'{"reason": "x", "reson": "y"}', 400),
        (b"[]", 400),
        (b"", 415),
        (b"{" * 100, 400),
        (b'{"reason": ' + b"[" * 100_000, 413),
        (b'{"reason": ' + b"[" * 8_000, 400),
        (b'{"reason": ' + b"9" * 5_000 + b"}", 400),
    ],
)
def test_a_body_is_strict_json(service: Stub, body: bytes, status: int) -> None:
    """What is no strict JSON, or not what the route takes, is refused; nothing is paused."""
    headers = LOCAL | ({"Content-Type": "application/json"} if body else {})

    answer = client(service).post("/v1/pause", content=body, headers=headers)

    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"code", "message", "fix"}
    assert People(service.ledger).paused() is None


def test_other_media_are_refused(service: Stub) -> None:
    """A form, or a packed body, is refused: a page elsewhere can send forms."""
    asker = client(service)
    for headers in (
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ):
        answer = asker.post("/v1/pause", content=b'{"reason": "x"}', headers=LOCAL | headers)
        assert answer.status_code == 415


def test_a_large_body_is_refused_while_it_comes(service: Stub) -> None:
    """A body without its length is read no further than the limit."""
    sent = 0

    def endless() -> Any:
        nonlocal sent
        while sent < 100:
            sent += 1
            yield b"x" * 1024

    asker = client(service, limits=Limits(body=4096))

    answer = asker.post("/v1/pause", content=endless(), headers=LOCAL | {"Content-Type": "application/json"})

    assert answer.status_code == 413


def test_an_expired_request_cannot_be_approved(service: Stub) -> None:
    """After 24 hours a request is asked anew, and the old one is refused."""
    name = request_of(service, "f-a")
    service.moment += timedelta(hours=25)

    assert post(service, f"/v1/approvals/{name}/approve").status_code == 409
