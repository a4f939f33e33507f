"""A run is asked, and answers."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoploss
from stoploss.training.request import Mailbox, parsed

from .conftest import Run, environment


def mailbox(run: Run) -> Mailbox:
    """A new process's view of the request file."""
    return Mailbox(str(run.request))


def test_a_request_is_given_once_and_seen(run: Run) -> None:
    """A new request is given at the next call, answered as seen, and not given again."""
    box = mailbox(run)
    assert box.poll() is None
    run.ask("r1", by="policy idle-gpu", requested_at="2026-11-30T10:00:00Z", deadline=4e9)

    request = box.poll()

    assert request is not None
    assert (request.id, request.action, request.by) == ("r1", "checkpoint", "policy idle-gpu")
    assert request.requested_at == datetime(2026, 11, 30, 10, tzinfo=UTC)
    assert request.deadline == datetime.fromtimestamp(4e9, UTC)
    assert (run.answer()["id"], run.answer()["state"]) == ("r1", "seen")
    assert box.poll() is None


def test_the_answer_names_path_step_and_time(run: Run) -> None:
    """A saved checkpoint is answered with its absolute path, its step and an instant; no draft is left."""
    run.ask("r1")
    request = mailbox(run).poll()
    assert request is not None

    request.saved(run.folder / "step-7", 7)

    answer = run.answer()
    assert {name: answer[name] for name in ("version", "id", "state", "step", "path")} == {
        "version": 1,
        "id": "r1",
        "state": "saved",
        "step": 7,
        "path": str(run.folder / "step-7"),
    }
    assert abs(datetime.fromisoformat(answer["at"]) - datetime.now(UTC)) < timedelta(seconds=10)
    assert sorted(os.listdir(run.box)) == ["answer.json", "request.json"]


def test_two_requests(run: Run) -> None:
    """The second request is given after the first, also where the first is still being answered."""
    box = mailbox(run)
    run.ask("r1")
    first = box.poll()
    run.ask("r2", "stop")
    second = box.poll()
    assert first is not None
    assert second is not None

    first.saved("a", 1)
    second.stopped("b", 2)

    assert (first.id, second.id, second.action) == ("r1", "r2", "stop")
    assert (run.answer()["id"], run.answer()["state"]) == ("r2", "stopped")


@pytest.mark.parametrize(
    ("action", "state", "again"),
    [
        ("checkpoint", "seen", True),
        ("checkpoint", "saved", False),
        ("checkpoint", "failed", False),
        ("stop", "seen", True),
        ("stop", "saved", True),
        ("stop", "stopped", False),
        ("stop", "failed", False),
    ],
)
def test_after_a_restart_only_what_is_not_over_is_given_again(
    run: Run, action: str, state: str, again: bool
) -> None:
    """A run that starts again does not repeat what it has answered, and takes up what it had only seen."""
    run.ask("r1", action)
    request = mailbox(run).poll()
    assert request is not None
    {
        "seen": request.seen,
        "saved": lambda: request.saved("a", 1),
        "stopped": lambda: request.stopped("a", 1),
        "failed": lambda: request.failed("full"),
    }[state]()

    assert (mailbox(run).poll() is not None) == again


def test_a_request_past_its_deadline_is_refused(run: Run) -> None:
    """A stop that was meant for an earlier hour does not stop the run, and is answered as failed."""
    run.ask("r1", "stop", deadline="2020-01-01T00:00:00Z")

    assert mailbox(run).poll() is None
    assert (run.answer()["state"], run.answer()["reason"]) == (
        "failed",
        "its deadline had passed when it was seen",
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not complete JSON"),
        (b'{"version": 1, "id": "r', "not complete JSON"),
        (b"[" * 60_000, "not complete JSON"),
        (b"\xff\xfe", "not complete JSON"),
        (b"[]", "version is None"),
        (b'{"version": 2, "id": "r1", "action": "stop"}', "version is 2, not 1"),
        (b'{"version": 1, "id": "", "action": "stop"}', "its id is no text"),
        (b'{"version": 1, "id": 5, "action": "stop"}', "its id is no text"),
        (b'{"version": 1, "id": "r1", "action": "kill"}', "not one of checkpoint, stop"),
        (b'{"version": 1, "id": "r1", "action": []}', "not one of checkpoint, stop"),
        (b'{"version": 1, "id": "r1", "action": "stop", "deadline": "soon"}', "'soon' is no time"),
        (b'{"version": 1, "id": "r1", "action": "stop", "deadline": Infinity}', "inf is no time"),
        (b" " * 70_000, "more than 65,536 bytes"),
    ],
)
def test_what_is_no_request_is_ignored_with_one_note(
    run: Run, caplog: pytest.LogCaptureFixture, content: bytes, said: str
) -> None:
    """A malformed or partial file asks for nothing and is told once; the whole one after it counts."""
    box = mailbox(run)
    run.put(content)

    assert [box.poll() for _ in range(3)] == [None, None, None]
    assert len(caplog.messages) == 1
    assert said in caplog.messages[0]
    assert not (run.box / "answer.json").exists()

    run.ask("r2")
    assert box.poll() is not None


@given(
    st.binary(max_size=300)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.dictionaries(
            st.sampled_from(["version", "id", "action", "deadline", "requested_at", "by", "x"]), inner
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_content_is_a_fault(content: bytes) -> None:
    """Whatever a file holds, it is a request or is refused in words."""
    try:
        request = parsed(content, "answer.json")
    except ValueError:
        return

    assert request.action in ("checkpoint", "stop")
    assert request.id


def test_what_is_no_file_is_ignored(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """A pipe in the place of the request is not opened, which would hang, and is told once."""
    run.box.mkdir()
    os.mkfifo(run.request)
    box = mailbox(run)

    assert [box.poll(), box.poll()] == [None, None]
    assert caplog.messages == [f"stoploss: {run.request} is no plain file"]


def test_an_answer_that_cannot_be_written_does_not_end_the_run(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the answer cannot be written the request is still given, and a note says why."""
    run.ask("r1")
    (run.box / "answer.json").mkdir()

    request = mailbox(run).poll()

    assert request is not None
    assert "the answer 'seen' to request r1 cannot be written" in caplog.messages[0]
    assert stat.S_ISDIR((run.box / "answer.json").stat().st_mode)
    assert sorted(os.listdir(run.box)) == ["answer.json", "request.json"]


def test_the_answer_is_whole_at_every_moment(run: Run) -> None:
    """Whoever reads while the run answers again and again never sees a part of an answer."""
    run.ask("r1")
    request = mailbox(run).poll()
    assert request is not None
    done = threading.Event()

    def answer() -> None:
        for step in range(100):
            request.saved("x" * (step % 7 * 500), step)
        done.set()

    writer = threading.Thread(target=answer)
    writer.start()
    read = 0
    while not done.is_set():
        assert run.answer()["id"] == "r1"
        read += 1
    writer.join()
    assert read > 0


def test_a_signal_asks_for_a_checkpoint_and_the_old_handler_still_runs(run: Run) -> None:
    """After listen() a signal is one request for a checkpoint, and beside a request file adds none."""
    called: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: called.append(number))
    try:
        box = mailbox(run)
        stoploss.listen(signal.SIGUSR2)
        signal.raise_signal(signal.SIGUSR2)
        request = box.poll()
        assert request is not None
        assert (request.action, request.by, box.poll()) == ("checkpoint", "SIGUSR2", None)
        assert run.answer()["id"] == request.id

        run.ask("r1", "stop")
        signal.raise_signal(signal.SIGUSR2)
        asked = box.poll()
        assert asked is not None
        assert (asked.id, box.poll()) == ("r1", None)
        assert called == [signal.SIGUSR2] * 2
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("named", ["argument", "STOPLOSS_REQUEST", "STOPLOSS_RUN_DIR", "working directory"])
def test_where_the_request_lies(run: Run, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """The request is found by the argument, the environment or the working directory."""
    for variable in ("STOPLOSS_REQUEST", "STOPLOSS_RUN_DIR"):
        monkeypatch.delenv(variable, raising=False)
    run.ask("r1")
    if named == "STOPLOSS_REQUEST":
        monkeypatch.setenv(named, str(run.request))
    elif named == "STOPLOSS_RUN_DIR":
        monkeypatch.setenv(named, str(run.folder))
    else:
        monkeypatch.chdir(run.folder if named == "working directory" else "/")
    command = "import stoploss, sys; print(stoploss.requested(*sys.argv[1:]).id)"
    arguments = [str(run.folder)] if named == "argument" else []

    done = subprocess.run(
        [sys.executable, "-c", command, *arguments],
        env={**os.environ, "PYTHONPATH": environment()["PYTHONPATH"]},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "r1\n"


@pytest.mark.parametrize("there", [False, True])
def test_asking_every_step_costs_microseconds(run: Run, there: bool) -> None:
    """A call of requested() takes less than 20 µs, with and without a request file that was answered."""
    if there:
        run.ask("r1")
    stoploss.requested(run.folder)
    best = float("inf")
    for _ in range(20):
        begun = time.perf_counter()
        for _ in range(500):
            stoploss.requested(run.folder)
        best = min(best, (time.perf_counter() - begun) / 500)

    assert best < 20e-6


IMPORTS = """
import sys, time
begun = time.perf_counter()
import stoploss
took = time.perf_counter() - begun
plain = {name for name in sys.modules if name.startswith("stoploss")}
stoploss.requested(sys.argv[1])
stoploss.track(loss=1.0)
others = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(took, plain == {"stoploss"}, sorted(others))
"""


def test_importing_costs_a_training_process_nothing(tmp_path: Path) -> None:
    """Importing stoploss takes less than 5 ms, and using it loads the standard library only."""
    runs = []
    for _ in range(3):
        # Without site packages only the standard library is there.
        command = [sys.executable, "-S", "-c", IMPORTS, str(tmp_path)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
        )
        took, alone, others = done.stdout.split(" ", 2)
        assert (alone, others) == ("True", "['__main__', 'stoploss']\n")
        runs.append(float(took))

    assert min(runs) < 0.005


def test_an_unknown_name_is_no_attribute() -> None:
    """A misspelt name of the package is an AttributeError, as anywhere else."""
    with pytest.raises(AttributeError, match="'stoploss' has no attribute 'trak'"):
        _ = stoploss.trak  # type: ignore[attr-defined]
