"""`stoploss requests`: what waits for an answer, and how it is given."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from support.scenes import Scene
from support.toys import CHAIN, Fleet

from stoploss.engine import clock
from stoploss.engine.ledger import Ledger
from stoploss.engine.model import ResourceId
from stoploss.engine.people import People
from stoploss.engine.people_schema import Request, Wanted

ASKING = CHAIN.replace("settings: {", 'settings: {state: "sqlite:///state.db", ').replace(
    "terminate: {after: 4m}", "terminate: {after: 4m, approve: required}"
)

Asking = Callable[..., Request]


@pytest.fixture
def fleet(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A job that has been idle until its end waits for an answer; commands run beside it at that time."""
    made = Fleet(scene.folder)
    made.start("a")
    made.run(made.cycle(ASKING), 12)
    monkeypatch.chdir(scene.folder)
    monkeypatch.setattr(clock, "now", made.now)
    return made


@pytest.fixture
def ask(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Asking:
    """Asks something in an empty folder."""
    monkeypatch.chdir(scene.folder)

    def asked(job: str, *, ago: float = 0.0, **parameters: object) -> Request:
        wanted = Wanted(
            episode=f"f-{job}",
            policy="idle-gpu",
            policy_hash="abc",
            resource=ResourceId("job", job),
            action="terminate",
            target=f"job {job}",
            parameters=parameters,
        )
        ledger = Ledger("sqlite:///stoploss.db", environ={})
        request = People(ledger).ask(wanted, now=clock.now() - timedelta(hours=ago))
        ledger.close()
        return request

    return asked


def test_what_waits_is_told_with_its_money_and_its_team(scene: Scene, fleet: Fleet) -> None:
    """The step, the policy, money per hour, since when, for how long, and whose it is, at 80 columns."""
    out = scene.run("requests")

    assert scene.status == 0
    assert out.splitlines()[0].endswith("1 waits for an answer · would save $4.00/h · times in UTC")
    told = " ".join(out.split())
    assert "$4.00 1m 23h 59m terminate job a · idle · grace 60 · how terminate · team vision" in told
    assert max(map(len, out.splitlines())) <= 80


def test_the_commands_can_be_pasted(scene: Scene, fleet: Fleet) -> None:
    """Both commands do what they say."""
    lines = [line.strip() for line in scene.run("requests").splitlines()]
    approve = next(line for line in lines if line.startswith("stoploss approve"))
    reject = next(line for line in lines if line.startswith("stoploss reject"))

    scene.run(*shlex.split(approve)[1:])
    assert scene.status == 0, scene.stderr
    assert "nothing waits for an answer" in scene.run("requests")
    scene.run(*shlex.split(reject)[1:])
    assert scene.status == 0, scene.stderr


def test_a_state_that_was_named_is_named_in_the_commands(scene: Scene, fleet: Fleet, tmp_path: Path) -> None:
    """With --state the commands carry it, on lines that join when pasted."""
    url = f"sqlite:///{tmp_path}/state.db"
    out = scene.run("requests", "--state", url)
    command = out[out.index("stoploss approve") : out.index("stoploss reject")].replace("\\\n", " ")

    assert shlex.split(command)[3:] == ["--state", url]


def test_json_says_all_of_it(scene: Scene, fleet: Fleet) -> None:
    """Every field, with instants and numbers as they are."""
    found = scene.json("requests")

    request = found["requests"][0]
    assert (found["version"], len(found["requests"])) == (1, 1)
    assert {name: request[name] for name in ("state", "policy", "team", "action", "until", "answer")} == {
        "state": "waiting",
        "policy": "idle",
        "team": "vision",
        "action": "terminate",
        "until": "2026-12-02T14:11:00Z",
        "answer": None,
    }
    assert (request["resource"], request["saves_per_hour"]) == ({"kind": "job", "id": "a"}, 4.0)


@pytest.mark.parametrize("command", ["approve", "reject"])
def test_an_answer_without_an_id_shows_what_waits(scene: Scene, fleet: Fleet, command: str) -> None:
    """The list is on stderr, nothing is answered, exit 2."""
    out = scene.run(command)

    assert (out, scene.status) == ("", 2)
    assert "1 waits for an answer" in scene.stderr
    assert scene.stderr.splitlines()[-1] == f"stoploss: {command} needs the ID of a request"
    assert scene.json("requests")["requests"][0]["state"] == "waiting"


def test_all_tells_who_answered_what(scene: Scene, ask: Asking) -> None:
    """Approved, rejected with why, and those that nobody answered; those that wait come first."""
    names = {job: ask(job, ago=25 if job == "old" else 0).id for job in ("a", "b", "old", "new")}
    scene.run("approve", names["a"], "--reason", "checked")
    scene.run("reject", names["b"], "--reason", "still needed")

    found = scene.json("requests", "--all")["requests"]
    states = {item["resource"]["id"]: item["state"] for item in found}
    told = " ".join(scene.run("requests", "--all").split())

    assert states == {"a": "approved", "b": "rejected", "old": "expired", "new": "waiting"}
    assert found[0]["resource"]["id"] == "new"
    assert next(item for item in found if item["state"] == "rejected")["until"] is None
    assert "still needed" in told
    assert "nobody answered; it is asked again when its step is due" in told
    assert [item["resource"]["id"] for item in scene.json("requests")["requests"]] == ["new"]


def test_what_is_not_known_is_said_to_be_unknown(scene: Scene, ask: Asking) -> None:
    """No price is not a price of nothing, and no team is null."""
    ask("a")

    assert "unknown" in scene.run("requests").splitlines()[3]
    request = scene.json("requests")["requests"][0]
    assert (request["saves_per_hour"], request["team"]) == (None, None)


def test_names_cannot_steer_the_terminal(scene: Scene, ask: Asking) -> None:
    """Control characters of a name are shown as a replacement, and long names are folded."""
    ask("a\x1b[2J" + "long-" * 30, command=["/bin/true"] * 9)

    out = scene.run("requests")

    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_where_nothing_was_asked_no_file_is_made(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a ledger all three say so, exit 2 and make none."""
    monkeypatch.chdir(scene.folder)
    for command in ("requests", "approve", "reject"):
        scene.run(command)
        assert (scene.status, "there is nothing yet" in scene.stderr) == (2, True)
    assert list(scene.folder.iterdir()) == []
