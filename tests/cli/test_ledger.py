"""`stoploss ledger`, approve, reject and pause: read back, answered, and told in plain words."""

from __future__ import annotations

import json
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from support.scenes import Scene, policy, recording

from stoploss.engine import clock
from stoploss.engine.ledger import Ledger
from stoploss.engine.model import ResourceId
from stoploss.engine.people import People
from stoploss.engine.people_schema import Request, Wanted

STEP = Wanted(
    episode="f-1",
    policy="idle-gpu",
    policy_hash="abc",
    resource=ResourceId("job", "4412"),
    action="terminate",
    target="slurm",
)


@pytest.fixture
def state(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> str:
    """Commands run in an empty folder; the default state's URL."""
    monkeypatch.chdir(scene.folder)
    return "sqlite:///stoploss.db"


@pytest.fixture
def asked(state: str) -> Request:
    """A step waits for an approval."""
    ledger = Ledger(state)
    request = People(ledger).ask(STEP, now=clock.now())
    ledger.close()
    return request


def test_an_approval_is_listed_with_who_gave_it(scene: Scene, asked: Request) -> None:
    """Approving answers with what may be done until when, and the ledger lists it."""
    out = scene.run("approve", asked.id, "--reason", "owner agrees")
    assert scene.status == 0
    assert "approved: terminate job 4412 (slurm) of idle-gpu, until " in out

    listed = scene.json("ledger", "list", "--kind", "approval")["lines"]
    assert [(line["action"], line["why"], line["policy_hash"]) for line in listed] == [
        ("terminate", "owner agrees", "abc")
    ]
    assert listed[0]["who"]
    table = scene.run("ledger", "list")
    assert f"needs approval: stoploss approve {asked.id}" in table
    assert max(map(len, table.splitlines())) <= 80


def test_a_rejection_needs_a_reason(scene: Scene, asked: Request) -> None:
    """Without a reason nothing is rejected; with one the step is not asked again."""
    scene.run("reject", asked.id)
    assert (scene.status, "--reason" in scene.stderr) == (2, True)

    out = scene.run("reject", asked.id, "--reason", "still needed")
    assert (scene.status, "not asked again" in out) == (0, True)
    scene.run("approve", asked.id)
    assert (scene.status, "rejected already" in scene.stderr) == (2, True)


def test_verify_prints_the_head_and_takes_it_back(scene: Scene, asked: Request) -> None:
    """A whole ledger exits 0 and fits the head that it printed before."""
    head = scene.json("ledger", "verify")["head"]["text"]
    scene.run("approve", asked.id)

    out = scene.run("ledger", "verify", "--head", head)

    assert scene.status == 0
    assert "whole: 2 lines" in out


def test_verify_names_the_line_that_was_changed(scene: Scene, asked: Request) -> None:
    """A changed line is named, and the command exits 1."""
    with sqlite3.connect("stoploss.db") as connection:
        connection.execute("UPDATE ledger_lines SET body = replace(body, 'slurm', 'other')")
    connection.close()

    out = scene.run("ledger", "verify")
    assert scene.status == 1
    assert "line 1: its text was changed after it was written [tampered]" in out
    told = json.loads(scene.run("ledger", "verify", "--format", "json"))
    assert (told["whole"], told["faults"][0]["kind"], told["faults"][0]["line"]) == (False, "tampered", 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ledger", "list"], "there is nothing yet"),
        (["ledger", "verify"], "there is nothing yet"),
        (["ledger", "list", "--kind", "decisions"], "decision"),
        (["ledger", "verify", "--head", "12"], "no head"),
        (["ledger", "list", "--state", "nonsense"], "no database URL"),
        (["approve", "a-1"], "there is nothing yet"),
        (["reject", "a-1", "--reason", "no"], "there is nothing yet"),
        (["pause", "--resume"], "there is nothing yet"),
    ],
)
def test_where_nothing_was_decided_nothing_is_made(
    scene: Scene, state: str, arguments: list[str], said: str
) -> None:
    """Commands that read or answer say that there is nothing, exit 2 and make no file."""
    scene.run(*arguments)

    assert scene.status == 2
    assert said in scene.stderr
    assert list(scene.folder.iterdir()) == []


def test_dry_commands_make_no_file(scene: Scene, asked: Request) -> None:
    """Audit, explain and the ledger's commands leave every byte of the folder as it was."""
    files = scene.write("policies.yaml", policy("gpu.utilization < 5%"))
    signals = scene.write("signals.csv", recording({("gpu", "g", "gpu.utilization"): [0] * 5}))
    before = {path.name: path.read_bytes() for path in scene.folder.iterdir()}

    for command in (
        ["audit", files, "--signals", signals],
        ["explain", "--policy", "p", "--resource", "gpu g", "--signals", signals],
        ["ledger", "list"],
        ["ledger", "verify"],
    ):
        assert scene.run(*command)
        assert scene.status in (0, 1), scene.stderr

    assert {path.name: path.read_bytes() for path in scene.folder.iterdir()} == before


def test_the_state_is_where_the_policies_say(scene: Scene, state: str) -> None:
    """Without --state the policy file's settings.state is used."""
    scene.write("policies.yaml", "settings: {state: 'sqlite:///here.db'}\n" + policy("gpu.utilization < 5%"))

    scene.run("pause", "--reason", "storm")

    assert scene.status == 0
    assert (scene.folder / "here.db").exists()
    assert scene.json("ledger", "list", "--state", "sqlite:///here.db")["lines"][0]["why"] == "storm"


def test_a_pause_is_taken_back_unless_its_file_is_there(scene: Scene, state: str) -> None:
    """Resuming ends the pause in the state; a pause file goes on pausing, and is named."""
    scene.run("pause")
    (scene.folder / "pause").touch()

    assert "still paused: the file pause is there" in scene.run("pause", "--resume")
    assert scene.status == 4
    (scene.folder / "pause").unlink()
    assert scene.run("pause", "--resume") == "it was not paused\n"
    assert scene.status == 0


def test_the_kill_switch_works_without_a_state(scene: Scene, state: str) -> None:
    """Where the state is damaged, pausing makes the file that pauses, and says so."""
    Path("stoploss.db").write_text("no database at all, " * 100)

    out = scene.run("pause")

    assert scene.status == 4
    assert "paused by the file pause alone" in out
    assert "damaged" in scene.stderr
    assert (scene.folder / "pause").exists()


def test_what_others_wrote_cannot_steer_the_terminal(scene: Scene, state: str) -> None:
    """Control characters of a reason are shown as a replacement."""
    scene.run("keep", "4412", "--for", "1h", "--reason", "a\x1b[2Jb")

    assert "a�[2Jb" in scene.run("ledger", "list")


def test_an_old_request_cannot_be_approved(scene: Scene, state: str) -> None:
    """A request of yesterday is refused with when it comes again."""
    ledger = Ledger(state)
    request = People(ledger).ask(STEP, now=clock.now() - timedelta(hours=25))
    ledger.close()

    scene.run("approve", request.id)

    assert (scene.status, "asked again when its step is due" in scene.stderr) == (2, True)
