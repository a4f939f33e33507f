"""`stoploss undo`: what was changed is as it was, or it is said why not."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from support.scenes import Scene
from support.toys import Act, Fleet

from stoploss import means
from stoploss.actions.targets import cold_path
from stoploss.engine import clock
from stoploss.engine.execution.deeds import intent_evidence, result_of
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import Action, Found, Order, Outcome, Refused, ResourceId
from stoploss.engine.people import People
from stoploss.rules.policy import PolicySet

POLICIES = """
version: 1
settings: {state: "sqlite:///state.db"}
policies:
  - {name: idle, each: job, when: ["max(gpu.utilization, 5m) < 5%"]}
"""
SHM = Path("/dev/shm")  # noqa: S108 - the other file system that nearly every machine has


@pytest.fixture
def folder(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands run in a folder with policies."""
    scene.write("policies.yaml", POLICIES)
    monkeypatch.chdir(scene.folder)
    return scene.folder


@pytest.fixture
def fleet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """One job, and the actions on it instead of those of this installation."""
    made = Fleet(folder)
    made.start("a")
    monkeypatch.setattr(means, "actions_of", lambda given: {"downscale": lambda: Act(made, "downscale")})
    return made


def order_for(resource: ResourceId, action: str, **parameters: object) -> Order:
    """An order of the policy idle."""
    return Order("o-0123456789ab", action, resource, parameters, {}, "policy idle", 1.0)


def carry_out(action: Action, order: Order, url: str = "sqlite:///state.db") -> Entry:
    """Do it with a line before and a line after; returns the first."""
    ledger = Ledger(url, environ={})
    found = action.find(order)
    intent = ledger.append(begun(order, found))
    ledger.append(result_of(intent, action.act(order, found), at=clock.now()))
    ledger.close()
    return intent


def begun(order: Order, found: Found) -> Entry:
    """The line before."""
    return Entry(
        at=clock.now(),
        kind="intent",
        episode="f-0123456789ab",
        policy="idle",
        resource=order.resource,
        action=order.action,
        target=str(order.resource),
        parameters=order.parameters,
        evidence=intent_evidence(2, order, found, ()),
        who="stoploss",
    )


def downscaled(fleet: Fleet) -> Entry:
    """The job was given less."""
    return carry_out(Act(fleet, "downscale"), order_for(ResourceId("job", "a"), "downscale"))


@pytest.fixture
def moved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that was really moved to another file system."""
    monkeypatch.setattr(cold_path, "PAUSE", 0.001)
    if not os.access(SHM, os.W_OK) or SHM.stat().st_dev == folder.stat().st_dev:
        pytest.skip("this machine has one file system only")
    cold = Path(tempfile.mkdtemp(dir=SHM, prefix="stoploss-"))
    data = folder / "data"
    data.mkdir()
    (data / "part").write_text("rows")
    given = means.means_of(PolicySet(()), folder=str(folder / means.FOLDER), environ=os.environ)
    volume = ResourceId("volume", f"{given.hostname}:{data}")
    carry_out(means.actions_of(given)["tier"](), order_for(volume, "tier", path=str(cold)))
    yield data
    shutil.rmtree(cold)


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_was_moved_is_back(scene: Scene, moved: Path) -> None:
    """The data lie where they were, the ledger says who put them back and why, and is whole."""
    assert not moved.exists()

    out = scene.run("undo", "1", "--reason", "it is read again")

    assert scene.status == 0, scene.stderr
    assert (moved / "part").read_text() == "rows"
    assert "put back: " in out
    assert max(map(len, out.splitlines())) <= 80
    lines = scene.json("ledger", "list", "--last", "2")["lines"]
    assert [(line["kind"], line["action"]) for line in lines] == [("intent", "undo"), ("result", "undo")]
    assert (lines[0]["why"], lines[1]["verdict"]) == ("it is read again", "done")
    assert lines[0]["who"]
    scene.run("ledger", "verify")
    assert scene.status == 0

    scene.run("undo", "1")
    assert (scene.status, "taken back already" in scene.stderr) == (2, True)


def test_a_dry_run_touches_nothing(scene: Scene, moved: Path, folder: Path) -> None:
    """It says what is there now and what would be done; every file stays as it is."""
    before = everything(folder)

    out = scene.run("undo", "1", "--dry-run")

    assert scene.status == 0, scene.stderr
    assert "would put it back; now: " in " ".join(out.split())
    assert "nothing was touched" in out
    assert everything(folder) == before


@pytest.mark.parametrize("name", ["1", "2", "f-0123456789ab", "o-0123456789ab"])
def test_every_name_of_a_step_is_known(scene: Scene, fleet: Fleet, name: str) -> None:
    """The line before, the line after, the finding and the order mean the same step."""
    downscaled(fleet)

    out = scene.run("undo", name)

    assert scene.status == 0, scene.stderr
    assert "undo downscale of job a (line 1, policy idle)" in out
    assert "before it: file a" in out
    assert "put back: as it was" in out
    assert not (fleet.folder / "smaller" / "a").exists()


def answers(outcome: Outcome | Exception) -> Callable[[Act, Order, Found], Outcome]:
    """An undo that comes to something."""

    def undo(self: Act, order: Order, found: Found) -> Outcome:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return undo


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome("skipped", "it has 3 replicas by now"), "left alone: it has 3 replicas by now"),
        (Outcome("failed", "no connection", retry=True), "not put back: no connection"),
        (Refused("it has another name"), "not put back: it has another name"),
        (RuntimeError("password=hunter2"), "not known whether it was put back: it broke off (RuntimeError)"),
    ],
)
def test_what_cannot_be_put_back_is_told(
    scene: Scene, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, outcome: Outcome | Exception, said: str
) -> None:
    """Exit 4, with why and no secret; it can be tried again."""
    downscaled(fleet)
    with monkeypatch.context() as patched:
        patched.setattr(Act, "undo", answers(outcome))
        out = scene.run("undo", "1")

        assert (scene.status, said in " ".join(out.split())) == (4, True), out
        assert "hunter2" not in out + scene.stderr

    scene.run("undo", "1")
    assert scene.status == 0


def test_an_action_that_is_not_here_is_told(
    scene: Scene, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another installation did with a plug-in is not put back by this one."""
    downscaled(fleet)
    monkeypatch.setattr(means, "actions_of", lambda given: {})

    out = scene.run("undo", "1")

    assert (scene.status, "cannot be carried out by this installation" in " ".join(out.split())) == (4, True)


def test_what_is_being_acted_on_is_left_alone(scene: Scene, fleet: Fleet) -> None:
    """While a step on the same job is open nothing is put back, and the line is named."""
    downscaled(fleet)
    ledger = Ledger("sqlite:///state.db", environ={})
    order = order_for(ResourceId("job", "a"), "terminate")
    ledger.append(begun(order, Act(fleet, "terminate").find(order)))

    out = scene.run("undo", "1")

    assert (scene.status, "line 3, terminate of job a" in out) == (4, True)
    assert (fleet.folder / "smaller" / "a").exists()
    assert len(ledger.entries()) == 3


def test_a_try_that_was_stopped_can_be_tried_again(
    scene: Scene, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C leaves a result that says so, and the next try puts back."""
    downscaled(fleet)

    def stopped(self: Act, order: Order, found: Found) -> Outcome:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Act, "undo", stopped)
        scene.run("undo", "1")
    assert scene.status == 130
    assert "stopped by" in scene.json("ledger", "list", "--last", "1")["lines"][0]["why"]

    scene.run("undo", "1")
    assert scene.status == 0


@pytest.mark.parametrize(("age", "status"), [(timedelta(minutes=50), 4), (timedelta(minutes=70), 0)])
def test_a_try_that_was_killed_can_be_tried_again_after_an_hour(
    scene: Scene, fleet: Fleet, age: timedelta, status: int
) -> None:
    """Until then it may still be going on."""
    intent = downscaled(fleet)
    Ledger("sqlite:///state.db", environ={}).append(
        Entry(
            at=clock.now() - age,
            kind="intent",
            episode=intent.episode,
            resource=intent.resource,
            action="undo",
            evidence={**intent.evidence, "line": intent.seq, "of": "downscale"},
        )
    )

    scene.run("undo", "1")

    assert scene.status == status


def test_a_pause_does_not_keep_a_person_from_it(scene: Scene, fleet: Fleet) -> None:
    """What stoploss does by itself is paused; what a person asks for is done."""
    downscaled(fleet)
    ledger = Ledger("sqlite:///state.db", environ={})
    People(ledger).pause(who="ann", now=clock.now(), reason="storm")

    scene.run("undo", "1")

    assert scene.status == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [("99", "nothing that was done goes by '99'"), ("3", "cannot be taken back"), ("nonsense", "'nonsense'")],
)
def test_what_names_nothing_that_can_be_taken_back(scene: Scene, fleet: Fleet, name: str, said: str) -> None:
    """One line that says why, exit 2, and no line in the ledger."""
    downscaled(fleet)
    carry_out(Act(fleet, "terminate"), order_for(ResourceId("job", "a"), "terminate"))

    scene.run("undo", name)

    assert (scene.status, said in scene.stderr) == (2, True), scene.stderr
    assert len(Ledger("sqlite:///state.db", environ={}).entries()) == 4


def test_without_policies_or_ledger_it_says_so(scene: Scene, folder: Path) -> None:
    """How systems are reached is said in the policy files; a state that is not there is not made."""
    scene.run("undo", "1")
    assert (scene.status, "there is nothing yet" in scene.stderr) == (2, True)
    assert [path.name for path in folder.iterdir()] == ["policies.yaml"]

    (folder / "policies.yaml").unlink()
    scene.run("undo", "1")
    assert (scene.status, "stoploss undo --file FILE" in scene.stderr) == (2, True)
