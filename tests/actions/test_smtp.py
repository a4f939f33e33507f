"""Receivers that are told by mail."""

from __future__ import annotations

import email
import email.policy
import socket
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from support.receivers import Post, post

from stoploss.actions.alert import Receivers, alert
from stoploss.actions.contract import Result
from stoploss.actions.targets import smtp
from stoploss.actions.targets.smtp import SETTING, addresses, read_server
from stoploss.engine.model import Notice

NOW = datetime(2026, 12, 1, 14, tzinfo=UTC)


def tell(address: str, server: str | None, **labels: str) -> Result:
    lines = ("idle-gpu: job 4412 · $28.80/h", "cause: Überlast")
    notice = Notice("firing", "f-1", "idle-gpu", "job 4412", "high", NOW, lines, labels)
    environ = {} if server is None else {SETTING: server}
    return alert(Receivers({"owner": address}, environ), "owner", notice, now=NOW)


@pytest.fixture
def server() -> Iterator[Post]:
    with post() as running:
        yield running


def test_the_owner_gets_a_mail(server: Post) -> None:
    """The mail goes to the user of the resource, with the title as subject and all lines as text."""
    assert tell("mailto:{user}@example.org", server.url(), user="alice") == Result(True)

    mail = email.message_from_string(server.mails[0], policy=email.policy.default)
    assert mail["To"] == "alice@example.org"
    assert mail["Subject"] == "idle-gpu: job 4412 · $28.80/h"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert "cause: Überlast" in mail.get_content()
    assert [line for line in server.commands if "RCPT" in line] == ["RCPT TO:<alice@example.org>"]
    assert server.mails[0].isascii()


@pytest.mark.parametrize("user", ["a@evil.org,b", "a\r\nBcc: b", "a b", "a@b", "<a>", "a,b"])
def test_a_label_cannot_add_a_recipient(server: Post, user: str) -> None:
    """A label that is no plain user name sends nothing at all."""
    result = tell("mailto:{user}@example.org", server.url(), user=user)

    assert result == Result(False, False, "its address is not of the form mailto:user@host")
    assert server.commands == []


def test_several_recipients_get_one_mail(server: Post) -> None:
    """An address with commas is one mail to all of them."""
    assert tell("mailto:a@example.org,b@example.org", server.url()).delivered

    assert len(server.mails) == 1
    assert sum(line.startswith("RCPT") for line in server.commands) == 2


def test_without_a_mail_server_nothing_is_sent() -> None:
    """A mail without STOPLOSS_SMTP_URL is undeliverable and says so."""
    assert tell("mailto:a@example.org", None) == Result(False, False, "STOPLOSS_SMTP_URL is not set")


@pytest.mark.parametrize(("reply", "retry"), [("450 busy", True), ("550 nobody", False)])
def test_a_refused_recipient(server: Post, reply: str, retry: bool) -> None:
    """A recipient that is refused for now is tried again, one that is refused for good is not."""
    server.replies["RCPT"] = reply

    result = tell("mailto:a@example.org", server.url())

    assert (result.delivered, result.retry, server.mails) == (False, retry, [])
    assert reply[:3] in result.words


def test_the_password_is_sent_and_never_told(server: Post) -> None:
    """The server gets the password; when it refuses it, the words hold neither it nor the answer."""
    assert tell("mailto:a@example.org", server.url("bob:hunter22@")).delivered
    assert any(line.startswith("AUTH PLAIN") for line in server.commands)

    server.replies["AUTH"] = "535 hunter22 is wrong"
    result = tell("mailto:a@example.org", server.url("bob:hunter22@"))

    assert result == Result(False, False, "the server does not accept the password (535)")
    assert "hunter22" not in repr(read_server(server.url("bob:hunter22@")))


def test_a_password_does_not_cross_a_network_in_the_clear(
    server: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the server offers no TLS and is not on this machine, the password stays here."""
    monkeypatch.setattr(smtp, "_LOOPBACK", ())

    result = tell("mailto:a@example.org", server.url("bob:hunter22@"))

    assert (result.delivered, result.retry, "TLS" in result.words) == (False, False, True)
    assert not any(line.startswith("AUTH") for line in server.commands)


def test_no_server_and_a_silent_server_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mail server that is not there, or says nothing, costs a bounded time and is tried again."""
    monkeypatch.setattr(smtp, "SECONDS", 0.1)
    with socket.socket() as free, socket.create_server(("127.0.0.1", 0)) as silent:
        free.bind(("127.0.0.1", 0))
        results = [
            tell("mailto:a@example.org", f"smtp://127.0.0.1:{place.getsockname()[1]}?from=a@b.org")
            for place in (free, silent)
        ]

    assert [(item.delivered, item.retry) for item in results] == [(False, True)] * 2


@pytest.mark.parametrize(
    "text", ["mail.example.org", "http://h", "smtp://", "smtp://h:x", "smtp://u:pw99@h?from=x"]
)
def test_a_setting_that_names_no_server(text: str) -> None:
    """A setting that cannot be used is told without its content."""
    with pytest.raises(ValueError, match=SETTING) as error:
        read_server(text)
    assert "pw99" not in str(error.value)


def test_ports_and_sender_follow_from_the_setting() -> None:
    """The port is the usual one of the kind of server, the sender its user where that is an address."""
    with_user = read_server("smtps://bob%40example.org:x@mail.example.org")
    plain = read_server("smtp://mail.example.org")

    assert (with_user.port, with_user.tls, with_user.sender) == (465, True, "bob@example.org")
    assert (plain.port, plain.tls, plain.sender) == (25, False, "stoploss@mail.example.org")
    assert addresses("mailto:a%2Bb@example.org") == ("a+b@example.org",)
