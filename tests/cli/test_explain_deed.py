"""`stoploss explain ID`: why something was done, from what was written down then."""

from __future__ import annotations

import shlex
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.scenes import Scene
from support.toys import CHAIN, Fleet

from stoploss.cli.explain import ID
from stoploss.engine import clock
from stoploss.engine.execution.history_of import history_of
from stoploss.engine.execution.undoing import undo, undoable
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.people import People
from stoploss.engine.people_schema import DecisionError
from stoploss.reports.words import known_words

HERE = CHAIN.replace("settings: {", 'settings: {state: "sqlite:///state.db", ')
ASKING = HERE.replace("terminate: {after: 4m}", "terminate: {after: 4m, approve: required}")
SHRINKING = HERE.replace("terminate: {after: 4m}", "downscale: {after: 4m, gpus: 1}")


@pytest.fixture
def fleet(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Two idle jobs; commands run beside them, and it is as late as with them."""
    made = Fleet(scene.folder)
    made.start("a", "b")
    monkeypatch.chdir(scene.folder)
    monkeypatch.setattr(clock, "now", made.now)
    return made


def ledger(fleet: Fleet) -> Ledger:
    """The ledger beside the fleet."""
    return Ledger(fleet.url, environ={})


def line(fleet: Fleet, action: str, kind: str = "intent", job: str = "a") -> Entry:
    """The newest line of an action on a job."""
    found = ledger(fleet).entries(kinds=(kind,), resource=f"job {job}")
    return [entry for entry in found if entry.action == action][-1]


def flat(text: str) -> str:
    """A text with single blanks."""
    return " ".join(text.split())


def test_why_was_my_run_ended(scene: Scene, fleet: Fleet) -> None:
    """What was found with its values, who was told, what was saved, what was done, and what to do now."""
    fleet.run(fleet.cycle(HERE), 12)

    out = scene.run("explain", "job a")

    told = flat(out)
    assert scene.status == 0
    assert out.splitlines()[:2] == [
        "job a · terminate done 2026-12-01 14:11:00 UTC · promised $4.00/h",
        "  A job that does nothing.",
    ]
    digest = line(fleet, "terminate").policy_hash
    assert f"policy idle, hash {digest}: policies.yaml says the same now" in told
    assert "true since 2026-12-01 14:05:00 max(gpu.utilization, 5m) < 5%: 0%" in told
    assert "told 14:07:00 owner: arrived" in told
    assert "saved/a: verified (line " in told
    assert "14:11:00 terminate: would terminate job a (line " in told
    assert "14:11:00 done: it ended (line " in told
    assert "now start the run again from " in told
    episode = line(fleet, "alert").episode
    assert f"every line of it: stoploss ledger list --episode {episode}" in told
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", ["number", "result", "finding", "order", "resource", "slash", "bare"])
def test_every_name_of_a_step_explains_it(scene: Scene, fleet: Fleet, name: str) -> None:
    """A line before or after, the finding, the order and the resource all lead to it."""
    fleet.run(fleet.cycle(HERE), 12)
    intent = line(fleet, "terminate")
    names = {
        "number": [str(intent.seq)],
        "result": [str(line(fleet, "terminate", "result").seq)],
        "finding": [intent.episode or ""],
        "order": [intent.evidence["order"]["id"]],
        "resource": ["--resource", "job a"],
        "slash": ["--resource", "job/a"],
        "bare": ["--resource", "a"],
    }

    out = scene.run("explain", *names[name])

    assert scene.status == 0, scene.stderr
    assert out.startswith("job a · terminate done 2026-12-01 14:11:00 UTC")


def test_json_holds_what_the_text_says(scene: Scene, fleet: Fleet) -> None:
    """Conditions with values and units, whom it was told, the checkpoint, each step with its lines."""
    fleet.run(fleet.cycle(HERE), 12)

    found = scene.json("explain", "job a")

    assert (found["version"], found["resource"]) == (1, {"kind": "job", "id": "a"})
    assert (found["policy"]["name"], found["policy"]["now"]) == ("idle", "same")
    assert found["since"] == "2026-12-01T14:05:00Z"
    assert found["conditions"][0]["value"] == 0.0
    assert [(item["to"], item["arrived"]) for item in found["told"]] == [("owner", True)]
    assert found["saved"][0]["path"] == str(fleet.folder / "saved" / "a")
    steps = [(step["action"], step["state"], step["promised_per_hour"]) for step in found["done"]]
    assert steps == [("snapshot", "done", None), ("terminate", "done", 4.0)]
    assert found["done"][1]["relied_on"] == found["saved"][0]["path"]
    assert found["about"] == found["done"][1]["line"]


def test_nothing_is_looked_at_and_nothing_is_written(scene: Scene, fleet: Fleet) -> None:
    """It tells the same when all that it tells of is gone, and no file of the folder changes."""
    fleet.run(fleet.cycle(HERE), 12)
    # What others have open is written by them; a copy is not.
    with sqlite3.connect("state.db") as source, sqlite3.connect("copy.db") as copy:
        source.backup(copy)
    copy.close()
    source.close()
    command = ["explain", "job a", "--state", "sqlite:///copy.db"]
    before = scene.run(*command)
    for folder in ("saved", "ended"):
        for path in (fleet.folder / folder).iterdir():
            path.unlink()
    bytes_of = Path("copy.db").read_bytes()

    assert scene.run(*command) == before
    assert "it was not looked at now" in flat(before)
    assert Path("copy.db").read_bytes() == bytes_of
    assert list(fleet.folder.glob("copy.db?*")) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HERE, "policies.yaml says the same now"),
        (HERE.replace("4m}", "5m}"), "policies.yaml says something else now (hash "),
        (HERE.replace("name: idle", "name: other"), "policies.yaml holds no policy of that name now"),
        (HERE.replace("each: job", "each: jobb"), "policies.yaml holds errors"),
        (None, "there is no policy file here to compare it with"),
    ],
)
def test_the_policy_of_then_is_compared_with_that_of_now(
    scene: Scene, fleet: Fleet, text: str | None, said: str
) -> None:
    """The same, changed, gone, unreadable, or nothing to compare with: never guessed."""
    fleet.run(fleet.cycle(HERE), 12)
    file = fleet.folder / "policies.yaml"
    if text is None:
        file.unlink()
    else:
        file.write_text(text, "utf-8")

    told = flat(scene.run("explain", "job a", "--state", "sqlite:///state.db"))

    assert scene.status == 0, scene.stderr
    assert said in told


def test_a_budget_of_a_policy_changes_no_hash(scene: Scene, fleet: Fleet) -> None:
    """What is carried out with a budget pinned is the policy of the file."""
    budgeted = HERE.replace("waste: 100%", "waste: 100%\n    budget: all").replace(
        "policies:", "budgets: [{name: all, each: job, limit: 100 GPU-hours}]\npolicies:"
    )
    budgeted = budgeted.replace(
        "when: ['max(gpu.utilization, 5m) < 5%']",
        "when: ['max(gpu.utilization, 5m) < 5%', 'budget.used < 100%']",
    )
    fleet.run(fleet.cycle(budgeted), 12)

    assert scene.json("explain", "job a")["policy"]["now"] == "same"


def test_a_message_that_did_not_arrive_is_told_so(scene: Scene, fleet: Fleet) -> None:
    """With how often, and why nothing followed."""
    fleet.undeliverable.add("owner")
    fleet.run(fleet.cycle(HERE), 30)

    told = flat(scene.run("explain", "job a"))

    assert told.startswith("job a · nothing was done · policy idle A job that does nothing.")
    assert "owner: did not arrive: no connection; " in told
    assert "nothing was saved" in told
    assert "max(gpu.utilization, 5m) < 5%: 0%" in told


def test_what_people_said_is_told_with_who_and_why(scene: Scene, fleet: Fleet) -> None:
    """The question, the keep and the approval; while it waits, the commands are offered."""
    cycle = fleet.cycle(ASKING)
    fleet.run(cycle, 12)
    people = People(ledger(fleet))
    request = next(item for item in people.requests() if item.wanted.resource.id == "a")

    told = flat(scene.run("explain", request.id))
    assert f"stoploss approve {request.id} reject terminate" in told
    assert "keep job a running: stoploss keep a --for 4h" in told

    people.keep("a", timedelta(minutes=5), who="bob", now=fleet.now(), reason="demo")
    people.approve(request.id, who="ann", now=fleet.now(), reason="owner agrees")
    fleet.run(cycle, 10)

    told = flat(scene.run("explain", "job a"))
    assert "bob kept job a until 14:17:00: demo" in told
    assert "ann approved terminate: owner agrees" in told
    assert "stoploss approve a-" not in told.rpartition(" now ")[2].partition("every line")[0]


def test_what_was_taken_back_is_told(scene: Scene, fleet: Fleet) -> None:
    """The undo command is offered while it can be taken back; afterwards who did it and why."""
    fleet.run(fleet.cycle(SHRINKING), 12)
    intent = line(fleet, "downscale")
    out = scene.run("explain", "job a")
    assert out.startswith("job a · downscale done")
    assert "got not known yet" in out
    command = next(text.strip() for text in out.splitlines() if "stoploss undo" in text)
    assert shlex.split(command) == ["stoploss", "undo", str(intent.seq)]

    opened = ledger(fleet)
    action = fleet.tools().actions["downscale"]
    undo(opened, intent, lambda name: action(), who="ann", reason="too slow", now=fleet.now)

    told = flat(scene.run("explain", "job a"))
    assert told.startswith("job a · downscale taken back")
    assert "undo by ann: too slow" in told
    assert "stoploss undo" not in told


def test_what_is_offered_is_what_undo_takes(scene: Scene, fleet: Fleet) -> None:
    """The explanation and the command agree about every step, in every state of it."""
    fleet.faults["downscale", "b"] = "raise"
    fleet.run(fleet.cycle(SHRINKING), 12)
    opened = ledger(fleet)

    def agree() -> dict[str, bool]:
        found = {}
        for entry in opened.entries(kinds=("intent",)):
            for act in history_of(opened, entry).acts:
                try:
                    undoable(opened, str(act.intent.seq))
                    taken = True
                except DecisionError:
                    taken = False
                assert act.undoable == taken, act
                found[f"{act.intent.action} {act.intent.resource}"] = taken
        return found

    before = agree()
    intent, action = line(fleet, "downscale"), fleet.tools().actions["downscale"]
    undo(opened, intent, lambda name: action(), who="ann", reason=None, now=fleet.now)

    assert before["downscale job a"]
    assert before["downscale job b"]
    assert not before["snapshot job a"]
    assert not agree()["downscale job a"]


def test_what_a_step_brought_is_told(scene: Scene, fleet: Fleet) -> None:
    """Promised and got, with the words of whoever judged it."""
    fleet.run(fleet.cycle(SHRINKING), 12)
    intent = line(fleet, "downscale")
    ledger(fleet).append(
        Entry(
            at=fleet.now(),
            kind="note",
            episode=intent.episode,
            action="downscale",
            why="promised $2.00/h, got $1.50/h: 0.1 a step before, 0.08 a step now",
            evidence={"line": intent.seq, "state": "better"},
            got=1.5,
            currency="USD",
        )
    )

    out = scene.run("explain", str(intent.seq))

    assert "got $1.50/h" in out.splitlines()[0]
    assert "0.08 a step now" in flat(out)
    assert scene.json("explain", str(intent.seq))["done"][-1]["got_per_hour"] == 1.5


def test_the_newest_thing_that_was_done_comes_first(scene: Scene, fleet: Fleet) -> None:
    """A later finding under which nothing was done does not hide the one that ended the run."""
    fleet.run(fleet.cycle(HERE), 12)
    intent = line(fleet, "terminate")
    opened = ledger(fleet)
    opened.append(
        Entry(
            at=fleet.now(),
            kind="decision",
            episode="f-ffffffffffff",
            resource=intent.resource,
            policy="other",
            action="terminate",
            verdict="held",
        )
    )

    assert scene.json("explain", "job a")["finding"] == intent.episode
    assert "nothing was done" in scene.run("explain", "f-ffffffffffff")


def test_a_line_without_a_finding_is_told_as_it_is(scene: Scene, fleet: Fleet) -> None:
    """A keep, a pause: the line with who and why."""
    People(ledger(fleet)).pause(who="ann", now=fleet.now(), reason="storm\x1b[2J")

    out = scene.run("explain", "1", "--state", "sqlite:///state.db")

    assert scene.status == 0
    assert "pause" in out
    assert "by ann" in out
    assert "storm�[2J" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["999"], "there is no line 999; the ledger holds lines 1 to "),
        (["f-000000000000"], "nothing in the ledger goes by f-000000000000; "),
        (["o-000000000000"], "nothing in the ledger goes by o-000000000000; "),
        (["job zz"], "nothing in the ledger is about 'job zz'; "),
        (["--resource", "gpu a"], "nothing in the ledger is about 'gpu a'; one of: job a, job b"),
        (["d-000000000000"], "no word 'd-000000000000'"),
        (["two words"], "no word 'two words'"),
        (["1", "--resource", "job a"], "either a WORD"),
    ],
)
def test_what_is_not_there_is_told_with_a_hint(
    scene: Scene, fleet: Fleet, arguments: list[str], said: str
) -> None:
    """One line, exit 2."""
    fleet.run(fleet.cycle(HERE), 12)

    scene.run("explain", *arguments)

    assert scene.status == 2
    assert said in scene.stderr
    assert len(scene.stderr.splitlines()) == 1


def test_a_damaged_line_is_told(scene: Scene, fleet: Fleet) -> None:
    """It is not passed over."""
    fleet.run(fleet.cycle(HERE), 12)
    with sqlite3.connect("state.db") as connection:
        connection.execute("UPDATE ledger_lines SET body = '{' WHERE seq = 3")
    connection.close()

    scene.run("explain", "3")

    assert (scene.status, "line 3 of the ledger is damaged" in scene.stderr) == (2, True)


def test_without_a_ledger_it_says_so(scene: Scene, fleet: Fleet) -> None:
    """An id is looked for, and no file is made."""
    scene.run("explain", "f-000000000000")

    assert (scene.status, "there is nothing yet" in scene.stderr) == (2, True)
    assert not (fleet.folder / "stoploss.db").exists()


def test_no_word_looks_like_an_id() -> None:
    """Signals, functions, keys, codes and policies stay what they are."""
    assert [word for word in known_words() if ID.fullmatch(word) or " " in word] == []


def test_long_stories_stay_readable(scene: Scene, fleet: Fleet) -> None:
    """Forty decisions: the newest ten, and how many there are before them."""
    fleet.run(fleet.cycle(HERE), 12)
    intent = line(fleet, "terminate")
    opened = ledger(fleet)
    held: dict[str, Any] = {"kind": "decision", "episode": intent.episode, "action": "terminate"}
    for number in range(40):
        opened.append(Entry(at=fleet.now(), verdict="held", why=f"reason {number} " * 20, **held))

    out = scene.run("explain", "job a")

    assert "older: stoploss ledger list --kind decision" in out
    assert "reason 39" in out
    assert "reason 9 " not in out
    assert len(scene.json("explain", "job a")["decided"]) > 40
