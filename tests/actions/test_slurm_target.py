"""Jobs of a real Slurm of one node are cancelled, held, released, started anew and asked."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.slurm_node import Slurm, slurm_node

from stoploss.actions.contract import Action, Means, Refused
from stoploss.actions.targets import slurm, slurm_calls
from stoploss.actions.targets.slurm import Cancel, Release, Resume, Shrink, ask
from stoploss.actions.targets.slurm_calls import Job, Unanswered
from stoploss.engine.model import Found, Order, Outcome, ResourceId

DEAF = "trap '' TERM; while true; do sleep 0.2; done"


@pytest.fixture(scope="module")
def node() -> Iterator[Slurm]:
    """A real Slurm."""
    with slurm_node() as running:
        yield running


@pytest.fixture
def means(node: Slurm) -> Means:
    """What reaches that Slurm."""
    return reaching(str(node.configuration))


def reaching(configuration: str = "", **more: str) -> Means:
    """Real clocks and the commands on PATH."""
    environ = {"PATH": os.environ["PATH"], "SLURM_CONF": configuration, **more}
    return Means("n1", time.time, time.monotonic, lambda seconds: time.sleep(min(seconds, 0.1)), environ)


def order(name: str, action: str = "terminate", *, slurm_job: str = "", **parameters: object) -> Order:
    """An order on a job."""
    labels = {"scheduler": "slurm"} | ({"slurm_job": slurm_job} if slurm_job else {})
    return Order("o1", action, ResourceId("job", name), {"grace": 2.0, **parameters}, labels)


def now(means: Means, name: str) -> Job:
    """A job that is known, as it is."""
    job = slurm_calls.job(means, name)
    assert job is not None
    return job


def until(holds: Callable[[], bool]) -> None:
    """Wait, at most fifteen seconds."""
    deadline = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def running(node: Slurm, means: Means, script: str, *options: str) -> str:
    """Submit a job, and wait until its script has begun; returns its id."""
    name = node.submit(f"touch {node.folder}/begun-$SLURM_JOB_ID; {script}", "--gres=gpu:1", *options)
    until(lambda: now(means, name).state == "RUNNING" and (node.folder / f"begun-{name}").exists())
    return name


class Stopped(Exception):
    """Stands for a crash."""


def crashing(means: Means, after: int) -> Means:
    """Means with which an action is interrupted before its first wait ends, or at a later one."""
    count = 0

    def sleep(seconds: float) -> None:
        nonlocal count
        count += 1
        if count > after:
            raise Stopped
        means.sleep(seconds)

    return Means("n1", means.now, means.monotonic, sleep, means.environ)


@pytest.mark.slow
@pytest.mark.real
def test_a_job_is_cancelled_after_it_was_asked(node: Slurm, means: Means) -> None:
    """The script gets SIGTERM and may end by itself; the job is seen to have left the queue."""
    mark = node.folder / "saved"
    name = running(node, means, f"trap 'touch {mark}; exit 0' TERM; while true; do sleep 0.1; done")
    cancel = Cancel(means)
    found = cancel.find(order(name))
    before = now(means, name)
    looked = cancel.look(order(name), found)
    outcome = cancel.act(order(name, grace=10.0), found)

    assert found.words == f"would cancel Slurm job {name} of root (RUNNING)"
    assert (json.loads(json.dumps(found.before)), found.undoable) == (found.before, False)
    assert (looked.state, before.state) == ("undone", "RUNNING")
    assert (outcome.state, mark.exists()) == ("done", True)
    assert now(means, name).over
    assert cancel.act(order(name), found).state == "skipped"
    assert cancel.look(order(name), found).state == "done"
    with pytest.raises(Refused, match="has ended") as refused:
        cancel.find(order(name))
    assert refused.value.gone


@pytest.mark.slow
@pytest.mark.real
def test_a_deaf_job_is_cancelled_when_its_grace_is_over(node: Slurm, means: Means) -> None:
    """A job that does not listen is cancelled; it is found by its label where STOPLOSS_JOB names it."""
    number = running(node, means, DEAF)
    asked = order("resnet-7", slurm_job=number, grace=0.5)
    cancel = Cancel(means)
    found = cancel.find(asked)
    outcome = cancel.act(asked, found)

    assert found.words.endswith(", in which resnet-7 runs")
    assert (outcome.state, outcome.after["state"]) == ("done", "CANCELLED")


@pytest.mark.slow
@pytest.mark.real
def test_one_task_of_an_array_is_cancelled_alone(node: Slurm, means: Means) -> None:
    """Of an array only the task that is named ends, waiting or not; the array's name alone is refused."""
    array = node.submit("sleep 60", "--array=1-3", "--hold")
    cancel = Cancel(means)
    asked = order(f"{array}_2")
    found = cancel.find(asked)
    outcome = cancel.act(asked, found)
    told = {task: slurm_calls.job(means, f"{array}_{task}") for task in (1, 2, 3)}
    with pytest.raises(Refused, match="2 tasks"):
        cancel.find(order(array))
    node.run("scancel", array)

    assert outcome.state == "done"
    assert {task: job is not None and job.waits for task, job in told.items()} == {1: True, 2: False, 3: True}


@pytest.mark.slow
@pytest.mark.real
def test_a_job_that_was_queued_again_is_left_alone(node: Slurm, means: Means) -> None:
    """Another attempt of the same id is another job: it is not cancelled."""
    name = running(node, means, "sleep 60")
    cancel = Cancel(means)
    found = cancel.find(order(name))
    node.run("scontrol", "requeue", name)
    until(lambda: now(means, name).state == "PENDING")
    outcome = cancel.act(order(name), found)
    after = now(means, name).state
    node.run("scancel", name)

    assert (outcome.state, after) == ("skipped", "PENDING")


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("waits", [0, 1])
def test_a_cancel_that_was_interrupted_is_looked_at_and_ends(node: Slurm, means: Means, waits: int) -> None:
    """Interrupted during its grace or while it waits for the end, the same order ends the job."""
    name = running(node, means, DEAF)
    asked = order(name, grace=0.05)
    found = Cancel(means).find(asked)
    with suppress(Stopped):
        Cancel(crashing(means, waits)).act(asked, found)
    told = Cancel(means).look(asked, found)
    again = Cancel(means).act(asked, found)

    assert told.state in ("undone", "failed", "done")
    assert again.state == ("skipped" if told.state == "done" else "done")
    assert now(means, name).state == "CANCELLED"


@pytest.mark.slow
@pytest.mark.real
def test_what_a_job_keeps_is_released_by_cancelling(node: Slurm, means: Means) -> None:
    """A job with nodes is released; one that waits has nothing to give back."""
    name = running(node, means, "sleep 60")
    waiting = node.submit("sleep 60", "--hold")
    release = Release(means)
    found = release.find(order(name, "release", what="allocation"))
    outcome = release.act(order(name, "release"), found)
    with pytest.raises(Refused, match="holds no nodes"):
        release.find(order(waiting, "release"))
    node.run("scancel", waiting)

    assert found.words == f"would release the allocation of Slurm job {name} of root by cancelling it"
    assert outcome.state == "done"


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("waits", [0, 99])
def test_a_running_job_is_queued_again_and_held_and_released(node: Slurm, means: Means, waits: int) -> None:
    """Its GPUs are free, it waits until it is undone, and an interrupted order requeues it no second time."""
    name = running(node, means, DEAF)
    shrink, asked = Shrink(means), order(name, "downscale", gpus=0)
    found = shrink.find(asked)
    looked = shrink.look(asked, found)
    with suppress(Stopped):
        Shrink(crashing(means, waits)).act(asked, found)
    between = shrink.look(asked, found)
    outcome = shrink.act(asked, found)
    held = now(means, name)
    undone = shrink.undo(asked, found)
    freed = now(means, name)
    twice = shrink.undo(asked, found)
    node.run("scancel", name)

    assert found.undoable
    assert (looked.state, outcome.state) == ("undone", "done")
    assert between.state in ("failed", "done")
    assert (held.waits, held.held, held.restarts) == (True, True, 1)
    assert (undone.state, freed.held, twice.state) == ("done", False, "skipped")


@pytest.mark.slow
@pytest.mark.real
def test_a_waiting_job_is_held_and_released(node: Slurm, means: Means) -> None:
    """A job that waits stays where it is, and is not started until it is undone."""
    name = node.submit("sleep 60", "--begin=now+1hour")
    shrink, asked = Shrink(means), order(name, "downscale")
    found = shrink.find(asked)
    outcome = shrink.act(asked, found)
    again = shrink.act(asked, found)
    held = now(means, name)
    with pytest.raises(Refused, match="held already"):
        shrink.find(asked)
    with pytest.raises(Refused, match="before it ever ran"):
        Resume(means).find(asked)
    undone = shrink.undo(asked, found)
    freed = now(means, name)
    node.run("scancel", name)

    assert (found.words, outcome.state, again.state) == (
        f"would hold Slurm job {name} of root",
        "done",
        "done",
    )
    assert (held.held, held.restarts) == (True, 0)
    assert (undone.state, freed.held) == ("done", False)


@pytest.mark.slow
@pytest.mark.real
def test_what_slurm_cannot_take_is_refused(node: Slurm, means: Means) -> None:
    """Some of a job's GPUs, and a job that may not be queued again, are refused with words."""
    name = running(node, means, "sleep 60", "--no-requeue")
    with pytest.raises(Refused, match="cannot leave 1 GPUs"):
        Shrink(means).find(order(name, "downscale", gpus=1))
    with pytest.raises(Refused, match="may not be queued again"):
        Shrink(means).find(order(name, "downscale", gpus=0))
    with pytest.raises(Refused, match="not interrupted"):
        Resume(means).find(order(name, "resume"))
    state = now(means, name).state
    node.run("scancel", name)

    assert state == "RUNNING"


@pytest.mark.slow
@pytest.mark.real
def test_an_interrupted_job_is_started_again_once(node: Slurm, means: Means) -> None:
    """A job that ended is queued again by one restart, however often the order is carried out."""
    name = node.submit("exit 3", "--gres=gpu:1")
    until(lambda: now(means, name).over)
    resume, asked = Resume(means), order(name, "resume")
    found = resume.find(asked)
    looked = resume.look(asked, found)
    with suppress(Stopped):
        Resume(crashing(means, 0)).act(asked, found)
    outcome = resume.act(asked, found)
    again = resume.act(asked, found)
    after = now(means, name)
    node.run("scancel", name)

    assert (looked.state, outcome.state, again.state) == ("undone", "done", "done")
    assert (after.waits, after.restarts, found.undoable) == (True, 1, False)


@pytest.mark.slow
@pytest.mark.real
def test_a_job_that_was_queued_again_and_held_is_resumed(node: Slurm, means: Means) -> None:
    """What a downscale has held is released by a resume, once."""
    name = running(node, means, "sleep 60")
    shrink = Shrink(means)
    shrink.act(order(name), shrink.find(order(name, "downscale")))
    resume, asked = Resume(means), order(name, "resume")
    found = resume.find(asked)
    outcome = resume.act(asked, found)
    again = resume.act(asked, found)
    after = now(means, name)
    node.run("scancel", name)

    assert found.words == f"would release Slurm job {name} of root (PENDING)"
    assert (outcome.state, again.state, after.held, after.restarts) == ("done", "done", False, 1)


@pytest.mark.slow
@pytest.mark.real
def test_a_job_is_asked_by_a_signal_to_its_script(node: Slurm, means: Means) -> None:
    """SIGUSR1 reaches the script of a job that runs; of any other job it is said why not."""
    mark = node.folder / "asked"
    name = running(node, means, f"trap 'touch {mark}' USR1; while true; do sleep 0.1; done")
    failed = ask(means, name)
    until(mark.exists)
    node.run("scancel", name)
    until(lambda: now(means, name).over)

    assert failed is None
    assert ask(means, name) == f"Slurm job {name} is CANCELLED"
    assert ask(means, "999999") == "Slurm does not know job 999999, or hides it"
    assert ask(means, name, "--hurt") == "--hurt is no signal"


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("target", [Cancel, Release, Shrink, Resume])
def test_a_job_that_slurm_does_not_know_is_gone(
    node: Slurm, means: Means, target: Callable[[Means], Action]
) -> None:
    """An id that Slurm has forgotten is told as gone."""
    with pytest.raises(Refused, match="does not know job 999999") as refused:
        target(means).find(order("999999"))

    assert refused.value.gone


FOUND = Found(
    "would",
    {"name": "7", "user": "ann", "submitted": 900, "restarts": 0, "state": "RUNNING", "how": "requeuehold"},
)


@pytest.fixture
def failing(tmp_path: Path) -> Means:
    """A Slurm whose commands fail and print a secret."""
    for name in ("squeue", "scontrol", "scancel"):
        (tmp_path / name).write_text("#!/bin/sh\necho hunter2 >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    return reaching(PATH=str(tmp_path))


@pytest.mark.parametrize("target", [Cancel, Shrink, Resume])
def test_a_slurm_that_fails_is_an_outcome(failing: Means, target: Callable[[Means], Action]) -> None:
    """A controller that is down is told without its words, and another try is of use."""
    made = target(failing)
    words = "squeue failed with exit code 1"

    with pytest.raises(Refused, match=words):
        made.find(order("7"))
    assert made.act(order("7"), FOUND) in (
        Outcome("failed", words, retry=True),
        Outcome("unknown", words, retry=True),
    )
    assert made.look(order("7"), FOUND) == Outcome("unknown", words, retry=True)
    assert ask(failing, "7") == words


def test_without_slurm_nothing_is_done(tmp_path: Path) -> None:
    """Where its commands are not installed an order is refused."""
    with pytest.raises(Refused, match="squeue is not installed"):
        Cancel(reaching(PATH=str(tmp_path))).find(order("7"))


@pytest.mark.parametrize("name", ["resnet-7", "--all", "7;8", ""])
def test_what_is_no_id_of_slurm_is_refused(tmp_path: Path, name: str) -> None:
    """A name that Slurm does not give never reaches a command."""
    with pytest.raises(Refused, match="slurm_job"):
        Cancel(reaching(PATH=str(tmp_path))).find(order(name))


@pytest.mark.parametrize(
    "line",
    ["7|DANCING|ann|900|940|0|1|4294901759|", "7|RUNNING|ann|900|", "7|RUNNING|ann|Unknown|940|0|1|5|"],
)
def test_what_cannot_be_read_is_never_guessed(tmp_path: Path, line: str) -> None:
    """A state that is not known, a line that is cut and a missing time give no job."""
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho '{line}'\n")
    (tmp_path / "squeue").chmod(0o755)

    with pytest.raises(Unanswered, match="something else than jobs"):
        slurm_calls.job(reaching(PATH=str(tmp_path)), "7")


def test_a_part_of_a_job_is_never_another_part(tmp_path: Path) -> None:
    """Of a heterogeneous job the part that is named counts, and where it is not told there is none."""
    (tmp_path / "squeue").write_text("#!/bin/sh\necho '9+0|RUNNING|ann|900|940|0|1|5|'\n")
    (tmp_path / "squeue").chmod(0o755)
    told = reaching(PATH=str(tmp_path))

    assert now(told, "9+0").id == "9+0"
    assert slurm_calls.job(told, "9+1") is None


def test_undo_says_what_cannot_be_undone(tmp_path: Path) -> None:
    """Neither a cancelled job nor one that runs again is brought back."""
    nothing = reaching(PATH=str(tmp_path))

    assert {made.undo(order("7"), FOUND).state for made in (Cancel(nothing), Resume(nothing))} == {"failed"}
    assert slurm.END_LIMIT > 30
