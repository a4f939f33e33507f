"""A real training process is asked to save, and what it saved is verified."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.snapshots import Played, Trainer, checkpoint, contents, demand, lacks, real

from stoploss.actions.snapshot import Candidate, Order, reconcile, take, would
from stoploss.actions.targets import process_signal, request_file
from stoploss.actions.targets.process_signal import Process

Start = Callable[..., Trainer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the trainer; it is ended in the end."""
    made: list[Trainer] = []

    def begin(*options: str) -> Trainer:
        made.append(Trainer(tmp_path, *options))
        return made[-1]

    yield begin
    for trainer in made:
        trainer.end()


def answer(folder: Path, **keys: object) -> None:
    """An answer of a run, written as a whole."""
    box = folder / ".stoploss"
    box.mkdir(exist_ok=True)
    (box / "draft").write_text(json.dumps({"version": 1, **keys}), "utf-8")
    (box / "draft").rename(box / "answer.json")


def order(folder: Path, name: str = "i1") -> Order:
    """An order by request file."""
    return Order(name, "policy idle-gpu", request=str(folder / ".stoploss" / "request.json"))


def test_asked_by_file_and_by_signal(tmp_path: Path, start: Start) -> None:
    """By file and then by SIGUSR1 a run saves twice, each verified, and goes on training."""
    trainer = start("--checkpoint-dir", str(tmp_path / "kept"))
    trainer.wait_for_steps(3)
    begin = time.time() - 1

    asked = take(order(tmp_path), demand(since=begin), real())
    process = Process(trainer.child.pid, process_signal.started(trainer.child.pid))
    by_signal = Order("i2", "policy idle-gpu", process=process, folder=str(trainer.kept))
    signalled = take(by_signal, demand(since=begin), real())

    assert asked.verified, asked.why
    assert asked.path == str(trainer.kept / f"step-{asked.step}")
    assert (asked.began or 0) >= begin
    assert signalled.verified, signalled.why
    assert signalled.path != asked.path
    assert lacks(str(signalled.path)) is None
    assert trainer.child.poll() is None


def test_G_71_a_save_that_fails_blocks(tmp_path: Path, start: Start) -> None:
    """A run that answers `failed` gives its reason, and nothing is verified."""
    start()

    found = take(order(tmp_path), demand(), real())

    assert found.state == "failed"
    assert "the run could not save: ValueError" in found.why


def test_G_71_a_run_that_does_not_answer_in_time_blocks(tmp_path: Path) -> None:
    """After an hour of silence it has failed, not earlier, and nothing is verified."""
    played = Played()
    start = played.time

    found = take(order(tmp_path), demand(), played.waiting(limit=3600, every=60))

    assert found.state == "failed"
    assert "not done within 3600 s: the run has not looked at the request" in found.why
    assert played.time - start == 3600


def test_what_was_saved_too_late_is_not_verified(tmp_path: Path) -> None:
    """An answer of after the deadline is refused, however whole its checkpoint is."""
    played, path = Played(), checkpoint(tmp_path, 5)
    late = played.time + 601
    played.at[1] = lambda: answer(tmp_path, id="i1", state="saved", step=5, path=str(path), at=late)

    found = take(order(tmp_path), demand(), played.waiting())

    assert (found.state, found.why) == ("failed", "the run saved after the deadline")


@pytest.mark.parametrize("path", [None, "", "kept/step-5", "/nowhere/step-5", "a\0b", 7])
def test_P_D10_an_answer_is_not_believed(tmp_path: Path, path: object) -> None:
    """`saved` with a path that is none, relative or not there is a failure."""
    played = Played()
    played.at[1] = lambda: answer(tmp_path, id="i1", state="saved", step=5, path=path)

    assert take(order(tmp_path), demand(), played.waiting()).state == "failed"


def test_the_answer_to_another_request_is_none(tmp_path: Path) -> None:
    """An old answer of another id, or half an answer, does not count."""
    path = checkpoint(tmp_path, 5)
    answer(tmp_path, id="i0", state="saved", step=5, path=str(path))
    played = Played()
    played.at[2] = lambda: (tmp_path / ".stoploss" / "answer.json").write_text('{"id": "i1", "st', "utf-8")

    found = take(order(tmp_path), demand(), played.waiting(limit=50))

    assert "the run has not looked at the request" in found.why


def test_the_request_is_one_that_a_run_understands(tmp_path: Path) -> None:
    """Its deadline is the limit from now, and another user may read it."""
    played = Played()
    take(order(tmp_path), demand(), played.waiting(limit=20))

    path = tmp_path / ".stoploss" / "request.json"
    record = json.loads(path.read_text("utf-8"))
    assert (record["version"], record["id"], record["action"]) == (1, "i1", "checkpoint")
    assert (record["requested_at"], record["deadline"]) == (
        "2033-05-18T03:33:20.000+00:00",
        "2033-05-18T03:33:40.000+00:00",
    )
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["request.json"]


def test_a_request_is_not_sent_again_after_a_crash(tmp_path: Path) -> None:
    """With the same id the file stays as it is, and an answer that came meanwhile is found."""
    played, path = Played(), checkpoint(tmp_path, 5)
    take(order(tmp_path), demand(), played.waiting(limit=20))
    sent = contents(tmp_path / ".stoploss")
    answer(tmp_path, id="i1", state="saved", step=5, path=str(path), at=played.time)

    found = reconcile(order(tmp_path), played.time - 20, demand(), played.waiting())

    assert found.verified, found.why
    assert contents(tmp_path / ".stoploss")["request.json"] == sent["request.json"]


def test_a_request_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    """While another one is open the run is not asked; once it is answered it is."""
    played = Played()
    played.at[1] = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        take(order(tmp_path, "i0"), demand(), played.waiting())

    refused = take(order(tmp_path), demand(), played.waiting())
    answer(tmp_path, id="i0", state="failed", reason="disk full")
    then = take(order(tmp_path), demand(), played.waiting(limit=20))

    assert "open request i0" in refused.why
    assert "the run has not looked" in then.why


def test_a_stop_is_over_when_the_run_says_that_it_stopped(tmp_path: Path) -> None:
    """`saved` alone leaves a stop pending."""
    path = checkpoint(tmp_path, 5)
    ask = request_file.Ask(str(tmp_path / ".stoploss" / "request.json"), "i1", "test", "stop")
    played = Played()
    played.at[1] = lambda: answer(tmp_path, id="i1", state="saved", step=5, path=str(path))
    played.at[4] = lambda: answer(tmp_path, id="i1", state="stopped", step=5, path=str(path))

    found = request_file.take(ask, demand(), played.waiting())

    assert found.verified
    assert played.sleeps == 5


def test_a_process_that_would_die_of_the_signal_is_not_asked(tmp_path: Path) -> None:
    """Without a handler for SIGUSR1 nothing is sent, and the process lives."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        process = Process(child.pid, process_signal.started(child.pid))
        found = process_signal.take(process, str(tmp_path), demand(), Played().waiting())
        time.sleep(0.05)
        alive = child.poll() is None
    finally:
        child.kill()
        child.wait()

    assert (found.state, alive) == ("failed", True)
    assert "does not handle SIGUSR1" in found.why


LISTENS = """
import signal, time
def ring(number, frame): open({path!r}, "w").close()
signal.signal(signal.SIGUSR1, ring)
print("ready", flush=True)
while True: time.sleep(60)
"""


def test_another_process_of_the_same_id_is_not_asked(tmp_path: Path) -> None:
    """Where the start differs nothing is sent."""
    rung = tmp_path / "rung"
    child = subprocess.Popen(
        [sys.executable, "-c", LISTENS.format(path=str(rung))], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        process = Process(child.pid, process_signal.started(child.pid))
        stale = Process(child.pid, process.start - 1)
        refused = process_signal.take(stale, str(tmp_path), demand(), Played().waiting())
        time.sleep(0.05)
        untouched = not rung.exists()
        # The same with the right start, so that this test would see a signal.
        silent = process_signal.take(process, str(tmp_path), demand(), real(limit=0.2))
    finally:
        child.kill()
        child.communicate()

    assert "belongs to another process" in refused.why
    assert untouched
    assert rung.exists()
    assert (silent.state, "not done within" in silent.why) == ("failed", True)


def test_a_process_that_ends_without_a_checkpoint_has_failed(tmp_path: Path, start: Start) -> None:
    """It is not waited for until the limit."""
    trainer = start("--checkpoint-dir", str(tmp_path / "kept"))
    trainer.wait_for_steps(1)
    process = Process(trainer.child.pid, process_signal.started(trainer.child.pid))
    os.kill(process.pid, signal.SIGSTOP)
    played = Played()
    played.at[3] = trainer.end

    found = process_signal.take(process, str(trainer.kept), demand(), played.waiting())

    assert "has ended without a checkpoint" in found.why
    assert played.sleeps < 10
    assert "no such" in process_signal.take(process, str(trainer.kept), demand(), played.waiting()).why


def test_after_a_crash_a_signal_is_not_sent_again(tmp_path: Path) -> None:
    """What has been saved since the intent counts; what is older does not, and nobody is asked."""
    kept = tmp_path / "kept"
    old, new = checkpoint(kept, 1, at=1000.0), checkpoint(kept, 2, at=3000.0)
    gone = Process(2**22 + 1, 1)
    there = (Candidate(str(old), 1), Candidate(str(new), 2))
    before = Order("i1", "test", process=gone, folder=str(kept), candidates=there)

    found = reconcile(before, 2000.0, demand(since=500.0), Played().waiting())
    nothing = reconcile(before, 4000.0, demand(since=500.0), Played().waiting())

    assert (found.state, found.step) == ("verified", 2)
    assert nothing.state == "failed"


def test_a_dry_run_tells_and_touches_nothing(tmp_path: Path) -> None:
    """Each way is told with where and how long, and no file, signal or request comes of it."""
    path = checkpoint(tmp_path, 5)
    ways = [
        order(tmp_path),
        Order("i1", "x", process=Process(os.getpid(), 1), folder=str(tmp_path)),
        Order("i1", "x", copy_to=str(tmp_path / "safe"), candidates=(Candidate(str(path)),)),
        Order("i1", "x"),
    ]
    before = contents(tmp_path)

    said = [would(way, 600) for way in ways]

    assert all(text.startswith("would ") for text in said)
    assert str(tmp_path / ".stoploss" / "request.json") in said[0]
    assert f"SIGUSR1 to process {os.getpid()}" in said[1]
    assert str(tmp_path / "safe") in said[2]
    assert contents(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["step-5"]


def test_a_job_that_cannot_be_asked_fails(tmp_path: Path) -> None:
    """An order without any way is a failure, as is a request file that cannot be written."""
    (tmp_path / ".stoploss").write_text("in the way", "utf-8")

    nothing = take(Order("i1", "x"), demand(), Played().waiting())
    in_the_way = take(order(tmp_path), demand(), Played().waiting())

    assert (nothing.state, in_the_way.state) == ("failed", "failed")
    assert "nothing says how the job is asked" in nothing.why
