"""Receivers that are told over HTTP: webhooks, Slack, PagerDuty, and what Apprise knows."""

from __future__ import annotations

import hashlib
import hmac
import logging
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec

import pytest
from support.receivers import Hook, hook

from stoploss.actions.alert import Receivers, alert
from stoploss.actions.contract import Delivery, Result
from stoploss.actions.targets import posting, slack
from stoploss.engine.model import Notice

NOW = datetime(2026, 12, 1, 14, tzinfo=UTC)
SECRET = "s3cr&t/+%"  # noqa: S105 - characters that mean something in a URL


def notice(event: str = "firing", **labels: str) -> Notice:
    lines = ("idle-gpu: job 4412 · $28.80/h", "cause: <!channel> & infrastructure")
    return Notice(event, "f-1", "idle-gpu", "job 4412", "high", NOW, lines, labels)


def tell(address: str, said: Notice | None = None, **environ: str) -> Result:
    return alert(Receivers({"x": address}, environ), "x", said or notice(), now=NOW)


@pytest.fixture
def server() -> Iterator[Hook]:
    with hook() as running:
        yield running


def test_a_webhook_gets_the_notice_as_json(server: Hook) -> None:
    """A webhook is posted the whole notice, and the answer 200 is a delivery."""
    result = tell(server.url("/a?b=c"), notice(team="vision"))

    assert result == Result(True)
    (request,) = server.requests
    assert request.path == "/a?b=c"
    assert request.json["text"] == "\n".join(notice().lines)
    assert (request.json["event"], request.json["key"]) == ("firing", "f-1")
    assert request.json["labels"] == {"team": "vision"}


def test_a_secret_signs_timestamp_and_body_and_is_not_sent(server: Hook) -> None:
    """With `secret=` the receiver can check body and timestamp, and the secret itself stays here."""
    assert tell(server.url("/a?secret=${HOOK_SECRET}&b=1"), HOOK_SECRET=SECRET).delivered

    (request,) = server.requests
    assert request.path == "/a?b=1"
    stamp = request.headers["x-stoploss-timestamp"]
    assert stamp == str(int(NOW.timestamp()))
    right = hmac.new(SECRET.encode(), f"{stamp}.".encode() + request.body, hashlib.sha256).hexdigest()
    assert request.headers["x-stoploss-signature"] == f"sha256={right}"


def test_an_empty_secret_sends_nothing(server: Hook) -> None:
    """A secret that is empty does not become a missing signature."""
    result = tell(server.url("?secret=${HOOK_SECRET}"), HOOK_SECRET="")

    assert (result.delivered, result.retry, server.requests) == (False, False, [])
    assert "empty" in result.words


@pytest.mark.parametrize(
    ("status", "retry"), [(400, False), (401, False), (404, False), (408, True), (429, True), (503, True)]
)
def test_only_what_may_pass_is_worth_another_try(server: Hook, status: int, retry: bool) -> None:
    """Another try is of use after 408, 429 and 5xx, and of none after other refusals."""
    server.status = status

    assert tell(server.url()) == Result(False, retry, f"127.0.0.1 answered {status}")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(server: Hook, status: int) -> None:
    """A receiver that redirects is told of, and nothing is sent to where it points."""
    with hook() as other:
        server.status, server.location = status, other.url("/stolen")
        result = tell(server.url())

        assert (result.delivered, result.retry, other.requests) == (False, False, [])
    assert "redirects" in result.words
    assert "stolen" not in result.words


def test_nobody_listening_is_worth_another_try() -> None:
    """A receiver that cannot be reached is tried again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        result = tell(f"http://127.0.0.1:{free.getsockname()[1]}/token-abc")

    assert result == Result(False, True, "127.0.0.1 cannot be reached")


def test_a_receiver_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that takes the message and never answers costs a bounded time and is tried again."""
    monkeypatch.setattr(posting, "READ_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = tell(f"http://127.0.0.1:{silent.getsockname()[1]}/x")

    assert result == Result(False, True, "127.0.0.1 did not answer in time")


@pytest.mark.parametrize("status", [200, 302, 404, 500])
def test_no_secret_is_told_or_logged(server: Hook, status: int, caplog: pytest.LogCaptureFixture) -> None:
    """Neither words nor logs nor reprs hold a password, a path, or the secret of an address."""
    caplog.set_level(logging.DEBUG)
    server.status = status
    address = f"http://bob:hunter22@127.0.0.1:{server.port}/services/T0KEN?secret=shhh-1234"
    result = tell("${WHOLE}", WHOLE=address)

    seen = result.words + repr(result) + caplog.text
    seen += repr(Delivery(address, notice(), NOW, {"A": "shhh-1234"}))
    seen += repr(Receivers({}, {"A": "shhh-1234"}))
    assert [word for word in ("hunter22", "T0KEN", "shhh-1234") if word in seen] == []
    assert server.requests[0].headers["authorization"].startswith("Basic ")


def test_slack_gets_text_that_calls_nobody(server: Hook) -> None:
    """Slack gets title and text as a block in which names cannot become links or calls."""
    assert tell("slack:" + server.url("/services/T/B/X")).delivered

    (request,) = server.requests
    assert request.path == "/services/T/B/X"
    assert request.json["text"] == "idle-gpu: job 4412 · $28.80/h"
    block = request.json["blocks"][0]["text"]["text"]
    assert block.startswith("*idle-gpu: job 4412 · $28.80/h*\n")
    assert "&lt;!channel&gt; &amp; infrastructure" in block


@pytest.mark.parametrize("address", ["https://hooks.slack.com/services/T/B/X", "slack://T/B/X"])
def test_addresses_of_slack_are_known(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to write an incoming webhook of Slack lead to the same address."""
    posted: list[str] = []

    def keep(url: str, body: bytes) -> Result:
        posted.append(url)
        return Result(True)

    monkeypatch.setattr(slack, "post", keep)

    assert tell(address).delivered
    assert posted == ["https://hooks.slack.com/services/T/B/X"]


def test_pagerduty_opens_and_closes_one_incident(server: Hook) -> None:
    """What fires triggers and what is over resolves, under one key; a test does both."""
    address = f"pagerduty://${{PD_KEY}}?endpoint={server.url()}"
    for event in ("firing", "resolved", "test"):
        assert tell(address, notice(event), PD_KEY="R0utingKey").delivered

    sent = [request.json for request in server.requests]
    assert [item["event_action"] for item in sent] == ["trigger", "resolve", "trigger", "resolve"]
    assert {(item["dedup_key"], item["routing_key"]) for item in sent} == {("f-1", "R0utingKey")}
    assert sent[0]["payload"]["severity"] == "error"
    assert sent[2]["payload"]["severity"] == "info"


def test_other_services_need_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Apprise the words say what to install, and hold nothing of the address."""
    monkeypatch.setitem(sys.modules, "apprise", None)

    result = tell("discord://1234/token-abc")

    assert result == Result(False, False, "discord: addresses need: pip install 'stoploss[notify]'")


@pytest.mark.real
@pytest.mark.skipif(find_spec("apprise") is None, reason="apprise is not installed")
@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_apprise_delivers(server: Hook, caplog: pytest.LogCaptureFixture) -> None:
    """Another service is told through Apprise; a refusal is none; its address is not logged."""
    caplog.set_level(logging.DEBUG)
    assert tell(server.url("/x", scheme="json")).delivered
    assert server.requests[0].json["title"] == notice().title

    server.status = 500
    assert tell(server.url("/T0KEN", scheme="json")) == Result(
        False, True, "the json: service did not take it"
    )
    assert "knows" in tell("discord://T0KEN").words
    assert "T0KEN" not in caplog.text


@pytest.mark.parametrize("address", ["", "nonsense", "http://[broken/x", "https:///x", "http://h:port/x"])
def test_what_is_no_address_is_told(address: str) -> None:
    """An address that is none is a result with words, never an exception."""
    result = tell(address)

    assert (result.delivered, result.words == "") == (False, False)
    assert "broken" not in result.words
