"""The action `snapshot` as it is carried out: a real run is asked, copied or kept, also across a crash."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
from support.slurm_node import slurm_node
from support.snapshots import ROOT, TRAINER, checkpoint, contents

from stoploss.actions.contract import Action, Means, Refused
from stoploss.actions.snapshot import TARGETS, build
from stoploss.engine.masking import Masker
from stoploss.engine.model import Found, Order, Outcome, ResourceId
from stoploss.means import Known


class Crash(BaseException):
    """The end of the process that acts."""


@dataclass
class World:
    """A run, where it saves, and what the action is given."""

    folder: Path
    job: str
    domain: str = "host"

    @property
    def run(self) -> Path:
        """The folder of the run."""
        return self.folder / "run"

    @property
    def kept(self) -> Path:
        """Where the run saves."""
        return self.folder / "kept" / self.job

    @property
    def notes(self) -> list[str]:
        """The notes of signals that are not over."""
        place = self.folder / "own" / "asked"
        return sorted(os.listdir(place)) if place.exists() else []

    def means(self, **more: object) -> Means:
        """Real clocks, and checkpoints by the rules of the collector."""
        options = {
            "paths": [{"path": str(self.folder / "kept"), "failure-domain": self.domain}],
            "job": "{job}",
        }
        given = Means("n1", time.time, time.monotonic, time.sleep, {}, checkpoints=Known(options))
        given = replace(given, folder=str(self.folder / "own"), masker=Masker)
        return replace(given, **more)  # type: ignore[arg-type]

    def action(self, **more: object) -> Action:
        """The action, made anew as after a crash."""
        return build(self.means(**more))

    def order(self, way: str = "request", **parameters: object) -> Order:
        """An order on the job of the world; another one each time, with no request open before it."""
        (self.run / ".stoploss" / "request.json").unlink(missing_ok=True)
        labels = {"scheduler": "process"} | ({"run_dir": str(self.run)} if way == "request" else {})
        given = {"timeout": 20.0, **parameters}
        name, since = f"o-{uuid4().hex[:12]}", time.time() - 1
        return Order(name, "snapshot", ResourceId("job", self.job), given, labels, "policy idle", since)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """The example trainer as this job, once it has begun to train."""
        self.run.mkdir(parents=True)
        log = self.run / "run.jsonl"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STOPLOSS_")}
        told = {"PYTHONPATH": str(ROOT / "src"), "STOPLOSS_JOB": self.job, "API_TOKEN": "hunter22"}
        command = [sys.executable, str(TRAINER), "--out", str(log), "--steps", "1000000", *options]
        child = subprocess.Popen(command, env=clean | told, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 30
        while not log.exists() or log.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < limit
            time.sleep(0.005)
        return child


def made(folder: Path) -> World:
    """A world without a run."""
    world = World(folder, f"job-{uuid4().hex[:8]}")
    world.kept.mkdir(parents=True)
    return world


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A run that trains and can save; it serves all tests of this module."""
    world = made(tmp_path_factory.mktemp("living"))
    child = world.start("--checkpoint-dir", str(world.kept))
    yield world
    child.kill()
    child.wait()


def waiting_ends(at: int) -> Callable[[float], None]:
    """A sleep at whose so many-th call the process that waits is killed."""
    count = 0

    def sleep(seconds: float) -> None:
        nonlocal count
        count += 1
        if count == at:
            raise Crash
        time.sleep(seconds)

    return sleep


def after_a_crash(world: World, order: Order, at: int) -> tuple[bool, Outcome]:
    """Act, be killed at a sleep, look, and go on as after a start; whether it was killed, and the outcome."""
    action = world.action(sleep=waiting_ends(at))
    found = action.find(order)
    try:
        return False, action.act(order, found)
    except Crash:
        looked = world.action().look(order, found)
    # As whoever reconciles does: only what is half done is gone on with.
    assert looked.state in ("done", "failed"), looked
    return True, looked if looked.state == "done" else world.action().act(order, found)


@pytest.mark.parametrize("way", ["request", "signal"])
def test_a_run_saves_and_what_it_saved_is_told(living: World, way: str) -> None:
    """Path, step, bytes and beginning of a complete new checkpoint are told; `find` had touched nothing."""
    action, order = living.action(), living.order(way)
    before = contents(living.kept), contents(living.folder / "own"), contents(living.run / ".stoploss")

    found = action.find(order)
    untouched = contents(living.kept), contents(living.folder / "own"), contents(living.run / ".stoploss")
    nothing = action.look(order, found)
    outcome = action.act(order, found)

    assert before == untouched
    assert (found.place, found.before["way"], found.undoable) == ("job/process", way, False)
    assert nothing.state == ("failed" if way == "request" else "undone")
    assert outcome.state == "done", outcome.words
    assert sorted(outcome.after) == ["began", "bytes", "path", "step"]
    assert outcome.after["path"].startswith(f"{living.kept}/step-")
    assert outcome.after["began"] >= order.since
    assert action.look(order, found).state == "done"
    assert action.undo(order, found).state == "failed"
    assert order.id not in living.notes


@pytest.mark.parametrize("way", ["request", "signal"])
def test_killed_at_any_wait_the_run_is_asked_once(living: World, way: str) -> None:
    """Whichever wait is the last, what follows is a verified checkpoint, and the run saved just once."""
    killed, at = True, 0
    while killed:
        at += 1
        before, order = set(os.listdir(living.kept)), living.order(way)
        killed, outcome = after_a_crash(living, order, at)
        # What a second request would have brought comes within a few steps.
        time.sleep(0.05)

        assert outcome.state == "done", outcome.words
        assert set(os.listdir(living.kept)) - before == {os.path.basename(outcome.after["path"])}
    assert at > 1


def test_a_note_without_a_signal_is_waited_for_and_then_over(living: World) -> None:
    """Killed between the two nothing comes: that is a failure, and another try asks again."""
    order = living.order("signal", timeout=0.2)
    found = living.action().find(order)
    place = living.folder / "own" / "asked"
    place.mkdir(parents=True, exist_ok=True)
    (place / order.id).write_text(f"{time.time()}\n", "utf-8")
    before = set(os.listdir(living.kept))

    looked = living.action().look(order, found)
    outcome = living.action().act(order, found)

    assert (looked.state, outcome.state, outcome.retry) == ("failed", "failed", True)
    assert set(os.listdir(living.kept)) == before
    assert order.id not in living.notes
    assert living.action().act(living.order("signal"), found).state == "done"


def test_a_note_that_cannot_be_written_asks_nobody(living: World) -> None:
    """Without it a crash could not be told from a signal that was sent."""
    order = living.order("signal")
    (living.folder / "full").write_text("in the way", "utf-8")
    action = living.action(folder=str(living.folder / "full"))
    before = set(os.listdir(living.kept))

    outcome = action.act(order, action.find(order))

    assert (outcome.state, outcome.retry) == ("failed", True)
    assert "was not asked" in outcome.words
    assert set(os.listdir(living.kept)) == before


def test_G_75_a_checkpoint_that_goes_with_the_process_blocks(living: World) -> None:
    """A run that saves where the step ends it has saved, and nothing may rely on that."""
    doomed = replace(living, domain="process")
    action, order = doomed.action(), doomed.order()

    outcome = action.act(order, action.find(order))

    assert outcome.state == "failed"
    assert "would be lost with the process" in outcome.words
    assert outcome.after == {}


def test_G_71_a_run_that_cannot_save_fails(tmp_path: Path) -> None:
    """A run without a folder to save to answers so; its reason is told, and another try is of use."""
    world = made(tmp_path)
    child = world.start()
    try:
        action, order = world.action(), world.order()
        outcome = action.act(order, action.find(order))
    finally:
        child.kill()
        child.wait()

    assert (outcome.state, outcome.retry, outcome.after) == ("failed", True, {})
    assert "the run could not save: ValueError" in outcome.words


def test_G_71_a_run_that_says_nothing_fails_at_the_limit(tmp_path: Path) -> None:
    """Nobody answers: it has failed after the limit of the step."""
    world = made(tmp_path)
    world.run.mkdir()
    action, order = world.action(), world.order(timeout=0.2)

    outcome = action.act(order, action.find(order))

    assert (outcome.state, outcome.retry) == ("failed", True)
    assert "the run has not looked at the request" in outcome.words


HANDLES = (
    "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: None); print(flush=True); time.sleep(60)"
)


@pytest.mark.parametrize(("count", "why"), [(0, "no process"), (2, "2 processes")])
def test_a_signal_needs_exactly_one_that_handles_it(tmp_path: Path, count: int, why: str) -> None:
    """Of none and of two it is not known who saves."""
    world = made(tmp_path)
    checkpoint(world.kept, 1)
    environment = {"STOPLOSS_JOB": world.job}
    children = [
        subprocess.Popen([sys.executable, "-IS", "-c", HANDLES], env=environment, stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        with pytest.raises(Refused, match=why) as refused:
            world.action().find(world.order("signal"))
    finally:
        for child in children:
            child.kill()
            child.communicate()

    assert refused.value.gone is (count == 0)


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    """No way to the run, no judge of checkpoints, nobody who runs it: each is told."""
    world = made(tmp_path)
    order = world.order("none")

    with pytest.raises(Refused, match="no checkpoint of it tells where it saves"):
        world.action().find(order)
    with pytest.raises(Refused, match="no collector of checkpoints is named"):
        world.action(checkpoints=None).find(world.order())
    with pytest.raises(Refused, match="cannot act on job/sagemaker"):
        world.action().find(replace(order, labels={"scheduler": "sagemaker"}))
    with pytest.raises(Refused, match="nothing says who runs"):
        world.action().find(replace(order, labels={"scheduler": "?"}))
    checkpoint(world.kept, 1)
    with pytest.raises(Refused, match="its folder is not on this machine"):
        world.action().find(replace(order, labels={"scheduler": "kubernetes", "run_dir": "/nowhere/at/all"}))


def test_G_72_a_copy_is_of_the_newest_complete(tmp_path: Path) -> None:
    """The partial newest is passed over; killed at any wait, the copy is there once and whole."""
    world = made(tmp_path)
    checkpoint(world.kept, 800)
    checkpoint(world.kept, 900, marked=False)
    killed, at = True, 0
    while killed:
        at += 1
        action, order = world.action(sleep=waiting_ends(at)), world.order(what="checkpoint")
        shutil.rmtree(tmp_path / "own", ignore_errors=True)
        found = action.find(order)
        nothing = action.look(order, found)
        try:
            outcome, killed = action.act(order, found), False
        except Crash:
            looked = world.action().look(order, found)
            outcome = looked if looked.state == "done" else world.action().act(order, found)

        place = tmp_path / "own" / "checkpoints" / world.job
        assert (found.place, nothing.state) == ("job/process?what=checkpoint", "undone")
        assert (outcome.state, outcome.after["path"]) == ("done", str(place / "step-800")), outcome.words
        assert os.listdir(place) == ["step-800"]
    assert at > 1


def test_the_folder_of_a_copy_may_be_said(tmp_path: Path) -> None:
    """`path` names it, from the root; a job without a checkpoint has nothing to copy."""
    world = made(tmp_path)
    action, empty = world.action(), world.order(what="checkpoint")
    with pytest.raises(Refused, match="has no checkpoint"):
        action.find(empty)
    checkpoint(world.kept, 8)
    order = world.order(what="checkpoint", path=str(tmp_path / "safe"))

    outcome = action.act(order, action.find(order))

    assert (outcome.state, outcome.after["path"]) == ("done", str(tmp_path / "safe" / world.job / "step-8"))
    with pytest.raises(Refused, match="does not begin at the root"):
        action.find(world.order(what="checkpoint", path="safe"))


SAVER = """#!{python} -IS
import os, sys
kept, step, mark, seen = sys.argv[1:]
with open(seen, "a") as stream:
    print(os.environ["STOPLOSS_RESOURCE_ID"], os.environ["STOPLOSS_ACTION"], file=stream)
path = os.path.join(kept, "step-" + step)
os.makedirs(path, exist_ok=True)
for name in ("weights.npz", "state.json") + ((mark,) if mark else ()):
    with open(os.path.join(path, name), "w") as stream:
        stream.write("{{}}")
sys.exit(3 if mark == "fail" else 0)
"""


def saver(world: World, step: int, mark: str = "COMPLETE") -> list[str]:
    """A program that has the job save, and what it is given."""
    program = world.folder / "save-now"
    program.write_text(SAVER.format(python=sys.executable))
    program.chmod(0o755)
    return [str(program), str(world.kept), str(step), mark, str(world.folder / "seen")]


def test_a_program_has_the_job_save(tmp_path: Path) -> None:
    """Killed at any wait, the program has run once, and what it saved is verified and told."""
    killed, at = True, 0
    while killed:
        at += 1
        world = made(tmp_path / str(at))
        action, order = world.action(sleep=waiting_ends(at)), world.order(command=saver(world, 7))
        found = action.find(order)
        nothing = action.look(order, found)
        try:
            outcome, killed = action.act(order, found), False
        except Crash:
            looked = world.action().look(order, found)
            outcome = looked if looked.state == "done" else world.action().act(order, found)

        assert (found.place, nothing.state) == ("job/process?command", "undone")
        assert outcome.state in ("done", "failed"), outcome
        if outcome.state == "done":
            assert (outcome.after["path"], outcome.after["step"]) == (str(world.kept / "step-7"), 7)
        assert (world.folder / "seen").read_text() == f"{world.job} snapshot\n"
    assert outcome.state == "done"
    assert at > 1


@pytest.mark.parametrize(("mark", "why"), [("", "not done within"), ("fail", "ended with status 3")])
def test_a_program_that_only_says_so_is_not_believed(tmp_path: Path, mark: str, why: str) -> None:
    """What it left is not complete, or it failed: the snapshot has failed, whatever lies there."""
    world = made(tmp_path)
    checkpoint(world.kept, 5)
    action, order = world.action(), world.order(command=saver(world, 7, mark), timeout=0.5)
    outcome = action.act(order, action.find(order))

    assert outcome.state == "failed"
    assert why in outcome.words
    assert "path" not in outcome.after


def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Before anything is done it is said that there is no such program."""
    world = made(tmp_path)

    with pytest.raises(Refused, match="there is no program"):
        world.action().find(world.order(command=["/opt/hooks/no-such-program"]))


def test_a_scene_lets_nothing_be_ended(living: World) -> None:
    """Logs and processes of the job are kept without secrets, and no path of a checkpoint is told."""
    action, order = living.action(), living.order(what="scene")
    found = action.find(order)
    nothing = action.look(order, found)

    outcome = action.act(order, found)

    place = Path(outcome.after["scene"])
    manifest = json.loads((place / "manifest.json").read_text("utf-8"))
    assert (found.place, nothing.state, outcome.state) == ("job/process?what=scene", "undone", "done")
    assert place == living.folder / "own" / "scenes" / order.id
    assert "path" not in outcome.after
    assert any("run.jsonl" in name for name in manifest["files"])
    assert not [name for name, (content, _) in contents(place).items() if b"hunter22" in content]
    before = contents(place)
    assert (action.look(order, found).state, action.act(order, found).state) == ("done", "done")
    assert contents(place) == before


def test_a_scene_of_nothing_is_refused(tmp_path: Path) -> None:
    """Neither a log nor a process: there is nothing to keep."""
    world = made(tmp_path)

    with pytest.raises(Refused, match="neither a log nor a process"):
        world.action().find(world.order("none", what="scene"))


def test_every_target_can_be_made(tmp_path: Path) -> None:
    """What the table names is there."""
    action = made(tmp_path).action()

    for place in TARGETS:
        assert action._target(place) is not None  # type: ignore[attr-defined]


SAVES = """
save() {{ mkdir -p {kept}/.new; echo w > {kept}/.new/weights.npz; echo {{}} > {kept}/.new/state.json
  echo 1 > {kept}/.new/COMPLETE; mv {kept}/.new {kept}/step-$n; n=$((n + 1)); }}
n=1; trap save USR1; save
while true; do sleep 0.1; done
"""


@pytest.mark.slow
def test_a_job_of_slurm_is_asked_once(tmp_path: Path) -> None:
    """Its script saves on the signal; killed while it is waited for, the signal is not sent again."""
    world = made(tmp_path)
    with slurm_node() as node:
        number = node.submit(SAVES.format(kept=world.kept), "--gres=gpu:1")
        limit = time.monotonic() + 20
        while not (world.kept / "step-1").exists():
            assert time.monotonic() < limit
            time.sleep(0.05)
        environ = {"PATH": os.environ["PATH"], "SLURM_CONF": str(node.configuration)}
        order = world.order("none", timeout=15.0)
        order = replace(order, labels={"scheduler": "slurm", "slurm_job": number}, since=time.time())

        action = world.action(environ=environ, sleep=waiting_ends(1))
        found: Found = action.find(order)
        with pytest.raises(Crash):
            action.act(order, found)
        outcome = world.action(environ=environ).act(order, found)
        time.sleep(0.3)

    assert f"USR1 through Slurm to job {number}" in found.words
    assert (outcome.state, outcome.after["path"]) == ("done", str(world.kept / "step-2")), outcome.words
    assert sorted(os.listdir(world.kept)) == ["step-1", "step-2"]
