"""The alert: what it says, whom it reaches, and the command that tries the receivers."""

from __future__ import annotations

import json
import logging
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from support.audits import AT, NASTY, finding, policy, unknown, waste
from support.receivers import hook
from support.scenes import Scene
from support.scenes import policy as policy_text

from stoploss.actions import alert as module
from stoploss.actions.alert import Receivers, address, alert, recipient
from stoploss.actions.contract import AddressError, Delivery, Result
from stoploss.engine import alerts, clock
from stoploss.engine.alert_memory import Wanted
from stoploss.engine.evaluation.kleene import FALSE
from stoploss.engine.findings import Evidence
from stoploss.engine.incidents import Incident
from stoploss.engine.model import ResourceId
from stoploss.engine.planning.model import Decision, Request

ZONE = ZoneInfo("Europe/Berlin")
JOB = ResourceId("job", "4412")


def decision(action: str, minutes: int, *whys: str, request: Request | None = None) -> Decision:
    due = AT + timedelta(minutes=minutes)
    verdict = "held" if whys else "would"
    return Decision(
        f"d-{action}", "f-1", "idle-gpu", ("idle-gpu",), JOB, 2, action, "job 4412", {}, due, verdict, whys,
        request=request,
    )  # fmt: skip


FULL = replace(
    finding(),
    id="f-1",
    policy=policy(severity="high", summary="A job whose GPUs do nothing.", cause="waste"),
    resource=JOB,
    labels={"user": "alice", "team": "vision"},
    since=AT - timedelta(hours=3, minutes=20),
    waste=waste(28.8),
    evidence=(
        *finding().evidence,
        Evidence("increase(train.step, 30m) == 0", None, None, None, None, FALSE),
    ),
)
ASKED = Request("r-1", "f-1", "terminate", "job 4412", {}, AT)
PLAN = (
    decision("alert", 0),
    decision("snapshot", 20),
    decision("terminate", 30, "needs approval", request=ASKED),
)


def test_an_alert_says_everything_in_twelve_lines() -> None:
    """What, owner, $/h, since, cause, evidence for and against, what happens next, three commands."""
    about = ("i-1", "stall", "infrastructure", (), "job", "4412")
    incident = Incident(*about, ("idle-gpu",), ("f-1",), ("ckpt",), AT, "The net.")
    notice = alerts.firing(FULL, PLAN, incident, at=AT, zone=ZONE)

    assert notice.lines == (
        "idle-gpu: job 4412 · $28.80/h, $288.00 so far",
        "A job whose GPUs do nothing.",
        "owner: alice, vision",
        "cost: 2 GPUs x 100% (our price list)",
        "since: 11:40 CET (3h 20m)",
        "cause: infrastructure: The net.",
        "for: max(gpu.utilization, 30m) < 5%: 1%",
        "against: increase(train.step, 30m) == 0: unknown · ckpt is not known",
        "next: snapshot 15:20, terminate 15:30 (held: needs approval) CET",
        "stoploss explain --policy idle-gpu --resource 'job 4412'",
        "stoploss keep 4412 --for 4h --reason 'still needed'",
        "stoploss approve r-1 --reason checked",
    )


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    """No price, no owner and no cause are told as such, never as 0 or as nothing."""
    notice = alerts.firing(
        finding(labels={"user": "?"}, waste=waste(None, missing="no price for X")), at=AT, zone=ZONE
    )

    assert "owner: unknown" in notice.lines
    assert "cost: unknown: no price for X" in notice.lines
    assert "cause: undecided" in notice.lines
    assert "next: nothing is done by itself" in notice.lines


def test_labels_break_neither_lines_nor_commands() -> None:
    """Control characters stay out of the text, and each command is one that a shell reads as meant."""
    name = f"a\nb'; rm -rf ~ \" {NASTY}"
    notice = alerts.firing(
        replace(FULL, resource=ResourceId("job", name), labels={"team": NASTY}), at=AT, zone=ZONE
    )

    assert len(notice.lines) <= 12
    assert all(line.isprintable() for line in notice.lines)
    commands = [shlex.split(line) for line in notice.lines if line.startswith("stoploss ")]
    assert [len(words) for words in commands] == [6, 7, 11]
    assert commands[0][-1].startswith("job a b'; rm -rf")


@pytest.mark.parametrize("name", ["n1/0", 'it\'s "x" \\ y'])
def test_the_commands_can_be_pasted(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The stay and the exemption that an alert offers are taken by the commands as they stand."""
    monkeypatch.chdir(tmp_path)
    text = policy_text("max(gpu.utilization, 30m) < 5%").replace("name: p", "name: idle-gpu")
    scene.write("policies.yaml", text)
    found = finding(name, labels={"job": "44 12", "team": "vision"})
    notice = alerts.firing(found, at=clock.now(), zone=ZONE)
    commands = [shlex.split(line)[1:] for line in notice.lines if line.startswith("stoploss ")]

    assert [words[0] for words in commands] == ["explain", "keep", "exempt"]
    for words in commands[1:]:
        scene.run(*words)
        assert scene.status == 0, scene.stderr


def test_an_end_and_an_unknown_are_told_shortly() -> None:
    """What is over is told with how long it took, what is undecided with its reason."""
    over = alerts.resolved(FULL, at=AT, zone=ZONE)
    open_ = alerts.undecided(unknown(reason="log cannot be read"), at=AT)

    assert over.lines[0] == "resolved: idle-gpu: job 4412 · $288.00 so far"
    assert over.lines[1] == "from 11:40 to 15:00 CET, 3h 20m"
    assert (over.event, over.key) == ("resolved", FULL.id)
    assert "why: log cannot be read" in open_.lines


def test_an_end_can_be_told_from_the_memory_alone() -> None:
    """After a restart the end of a finding that is no more still names it and reaches its owner."""
    kept = Wanted(
        "f-1", "owner (user alice)", "idle-gpu", "job 4412", receiver="owner", labels={"user": "alice"}
    )
    notice = alerts.ended(kept, at=AT)

    assert (notice.event, notice.lines) == ("resolved", ("resolved: idle-gpu: job 4412",))
    assert recipient(receivers(owner="mailto:{user}@h.org"), kept.receiver, notice.labels) == kept.recipient


@pytest.mark.parametrize("count", [1, 2, 9, 500])
def test_a_group_has_twelve_lines_too(count: int) -> None:
    """Many findings are one message with a count, and none of it is silently left out."""
    each = [
        alerts.firing(replace(FULL, resource=ResourceId("job", str(n))), at=AT, zone=ZONE)
        for n in range(count)
    ]
    notice = alerts.joined("key", each, more="came back 3 times")

    assert len(notice.lines) <= 12
    assert (notice.key, notice.event) == ("key", "firing")
    assert notice.lines[-1] == "came back 3 times"
    if count > 1:
        assert notice.title == f"idle-gpu: {count} firing"
    if count == 500:
        assert notice.lines[-2] == "and 491 more: stoploss audit"


def test_a_group_fires_while_one_of_it_does() -> None:
    """A group is over only when all of it is."""
    on, off = alerts.firing(FULL, at=AT, zone=ZONE), alerts.resolved(FULL, at=AT, zone=ZONE)

    assert alerts.joined("k", [off, on]).title == "idle-gpu: 1 firing, 1 resolved"
    assert alerts.joined("k", [off, on]).event == "firing"
    assert alerts.joined("k", [off, off]).event == "resolved"


def receivers(**addresses: str) -> Receivers:
    return Receivers(addresses, {"HOST": "h.example.org", "KEY": "a&b/{user}${HOST}"})


def test_labels_are_filled_in_escaped() -> None:
    """A label fills its place and nothing else: no path, no query, no variable."""
    who = receivers(x="https://${HOST}/{user}/in?to={user}")

    assert address(who, "x", {"user": "a/b?c&${KEY}"}) == (
        "https://h.example.org/a%2Fb%3Fc%26%24%7BKEY%7D/in?to=a%2Fb%3Fc%26%24%7BKEY%7D"
    )


def test_a_variable_is_not_read_again() -> None:
    """What a variable holds is taken as it is; in a query it is escaped."""
    who = receivers(whole="${KEY}", query="https://h/?secret=${KEY}")

    assert address(who, "whole", {"user": "alice"}) == "a&b/{user}${HOST}"
    assert address(who, "query", {"user": "alice"}).endswith("secret=a%26b%2F%7Buser%7D%24%7BHOST%7D")


@pytest.mark.parametrize("user", [{}, {"user": ""}, {"user": "?"}, {"user": ".."}])
def test_without_its_label_the_team_is_told(user: dict[str, str]) -> None:
    """A resource without the label, or whose label cannot be read, is its team's."""
    who = receivers(owner="mailto:{user}@example.org", vision="https://h/v")

    assert address(who, "owner", user | {"team": "vision"}) == "https://h/v"
    assert recipient(who, "owner", user | {"team": "vision"}) == "vision"
    with pytest.raises(AddressError, match=r"no label 'user', and the team 'nlp' is no receiver"):
        address(who, "owner", user | {"team": "nlp"})
    with pytest.raises(AddressError, match="its team is not known"):
        address(who, "owner", user)


def test_recipients_are_apart_where_their_addresses_are() -> None:
    """Two users behind one receiver are two recipients; a receiver with one address is one."""
    who = receivers(owner="mailto:{user}@example.org", ml="https://h/x")

    assert recipient(who, "owner", {"user": "alice"}) == "owner (user alice)"
    assert recipient(who, "owner", {"user": "bob"}) != recipient(who, "owner", {"user": "alice"})
    assert recipient(who, "ml", {"user": "bob"}) == "ml"


@pytest.mark.parametrize(
    ("name", "words"), [("nobody", "there is no receiver 'nobody'"), ("gone", "not set: GONE")]
)
def test_what_cannot_be_addressed_is_a_result(name: str, words: str) -> None:
    """A receiver that is not there, or whose variable is not set, is undeliverable and said to be."""
    notice = alerts.trial("x", at=AT)
    result = alert(receivers(gone="https://h/${GONE}"), name, notice, now=AT)

    assert (result.delivered, result.retry) == (False, False)
    assert words in result.words


def test_the_log_needs_no_address(caplog: pytest.LogCaptureFixture) -> None:
    """The receiver `log` is there without being named under `notify:`."""
    with caplog.at_level(logging.WARNING, "stoploss.alert"):
        result = alert(receivers(), "log", alerts.firing(FULL, at=AT, zone=ZONE), now=AT)

    assert result == Result(True)
    assert "idle-gpu: job 4412" in caplog.text


def test_a_fault_of_a_target_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that breaks costs its own delivery, and its error's text is not shown."""

    def broken(delivery: Delivery) -> Result:
        raise RuntimeError(delivery.url)

    monkeypatch.setattr(module, "target", lambda url: broken)
    result = alert(receivers(x="https://h/T0KEN"), "x", alerts.trial("x", at=AT), now=datetime.now(UTC))

    assert result == Result(False, True, "could not be sent (RuntimeError)")


def test_notify_tries_every_receiver(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`notify --test` sends one message to each receiver and says for each how it went."""
    monkeypatch.delenv("STOPLOSS_SMTP_URL", raising=False)
    with hook() as server:
        lines = f"notify: {{ml: '{server.url('/T0KEN')}', owner: 'mailto:{{user}}@example.org'}}\n"
        file = scene.write("p.yaml", policy_text("max(gpu.utilization, 30m) < 5%") + lines)
        out = scene.run("notify", file, "--test")

        assert scene.status == 4
        assert out == "ml     delivered\nowner  not delivered: STOPLOSS_SMTP_URL is not set\n"
        assert [item.json["event"] for item in server.requests] == ["test"]

        only = scene.json("notify", file, "--test", "--to", "ml")
        assert scene.status == 0
        assert only["receivers"] == [{"name": "ml", "delivered": True, "retry": False, "words": "delivered"}]
        assert "T0KEN" not in out + json.dumps(only) + scene.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "notify --test"),
        (["--test", "--to", "mll"], "did you mean"),
        (["--test", "--label", "user"], "NAME=VALUE"),
    ],
)
def test_notify_sends_nothing_when_asked_wrongly(scene: Scene, arguments: list[str], words: str) -> None:
    """Without --test, with an unknown receiver or a broken label nothing is sent and the words say why."""
    with hook() as server:
        text = policy_text("max(gpu.utilization, 30m) < 5%") + f"notify: {{ml: '{server.url()}'}}\n"
        scene.run("notify", scene.write("p.yaml", text), *arguments)

        assert (scene.status, server.requests) == (2, [])
    assert words in scene.stderr
