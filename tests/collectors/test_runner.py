"""The runner: time limit, failures, its own samples, and what it never shows."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stoploss.collectors.contract import Collector, CollectorError, NotHere
from stoploss.collectors.runner import CollectorRun, run_collectors
from stoploss.engine.model import Bad, Look, ResourceId, Sample

SOURCES = str(Path(__file__).parents[2] / "src")

AT = 1_700_000_040.0
GPU = ResourceId("gpu", "GPU-1")


@dataclass
class Looker:
    """A collector whose look is a plain function."""

    see: Callable[[float], Look]

    def look(self, at: float) -> Look:
        """What the function gives."""
        return self.see(at)


def run_one(see: Callable[[float], Look], *, name: str = "one", limit: float = 5.0) -> CollectorRun:
    """The run of one collector whose look is `see`."""
    (run,) = run_collectors({name: Looker(see)}, at=AT, monotonic=time.monotonic, time_limit=limit)
    return run


def own(run: CollectorRun, signal: str) -> float:
    """What the runner itself measured."""
    (sample,) = [item for item in run.samples if item.signal == signal]
    assert sample.time == AT
    assert sample.resource == ResourceId("collector", run.name)
    assert isinstance(sample.reading, float)
    return sample.reading


def raiser(error: BaseException) -> Callable[[float], Look]:
    """A look that fails."""

    def see(at: float) -> Look:
        raise error

    return see


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What held looks wait for; opened at the end, so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


def held(gate: threading.Event) -> Callable[[float], Look]:
    """A look that hangs until the gate opens."""

    def see(at: float) -> Look:
        gate.wait(30)
        return Look(())

    return see


def test_a_look_is_handed_on_with_success_and_duration() -> None:
    """A successful look keeps its samples and gains success 1 and the measured duration."""
    ticks = iter([0.0, 10.0, 12.5])
    look = Look((Sample(AT, GPU, "gpu.utilization", 0.5),), frozenset({"gpu"}), ("a note",))

    (run,) = run_collectors({"gpu": Looker(lambda at: look)}, at=AT, monotonic=lambda: next(ticks))

    assert (run.ok, run.reason, run.not_here, run.duration_s) == (True, None, False, 2.5)
    assert run.look is not None
    assert run.look.inventories == {"gpu"}
    assert run.look.notes == ("a note",)
    assert run.samples == run.look.samples
    assert run.samples[0] == look.samples[0]
    assert own(run, "collector.success") == 1.0
    assert own(run, "collector.duration") == 2.5


def test_samples_carry_the_scheduled_instant() -> None:
    """A sample that carries the time its reading came back is set to the scheduled instant."""
    run = run_one(lambda at: Look((Sample(at + 3.7, GPU, "gpu.power", 300.0, {"job": "a"}),)))

    assert run.samples[0] == Sample(AT, GPU, "gpu.power", 300.0, {"job": "a"})


def test_runs_come_in_the_order_given_and_side_by_side(gate: threading.Event) -> None:
    """Collectors look at the same time: one that waits for another's look gets it."""

    def opens(at: float) -> Look:
        gate.set()
        return Look(())

    collectors: dict[str, Collector] = {"waits": Looker(held(gate)), "opens": Looker(opens)}
    runs = run_collectors(collectors, at=AT, monotonic=time.monotonic, time_limit=5.0)

    assert [(run.name, run.ok) for run in runs] == [("waits", True), ("opens", True)]


def test_a_failure_says_its_reason() -> None:
    """CollectorError fails the whole look with exactly its reason."""
    run = run_one(raiser(CollectorError("permission denied: /ckpt/b")))

    assert (run.ok, run.look, run.reason) == (False, None, "permission denied: /ckpt/b")
    assert own(run, "collector.success") == 0.0


def test_nothing_to_collect_is_not_a_failure() -> None:
    """NotHere is an answer: no look, no failure, and the reason is kept."""
    run = run_one(raiser(NotHere("no NVIDIA driver")))

    assert (run.ok, run.not_here, run.look, run.reason) == (True, True, None, "no NVIDIA driver")
    assert own(run, "collector.success") == 1.0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (RuntimeError(), "RuntimeError"),
        (SystemExit(7), "SystemExit: 7"),
        (ValueError("two\nlines\tand  blanks"), "ValueError: two lines and blanks"),
    ],
)
def test_a_crash_is_told_by_type_and_text(error: BaseException, reason: str) -> None:
    """Any other exception fails the look with its type and text in one line."""
    assert run_one(raiser(error)).reason == reason


def test_a_long_text_is_cut() -> None:
    """A failure of unbounded text is kept to a readable length."""
    reason = run_one(raiser(ValueError("x" * 100_000))).reason

    assert reason is not None
    assert len(reason) == 300
    assert reason.endswith("…")


def test_what_is_no_look_is_a_failure() -> None:
    """A collector that returns something else has failed, and the run goes on."""
    run = run_one(lambda at: None)

    assert run.reason == "TypeError: look() returned NoneType, not a Look"


def test_one_failure_leaves_the_others_alone_P_D27() -> None:
    """Where one collector fails the others' samples are complete."""
    good = Looker(lambda at: Look((Sample(at, GPU, "gpu.power", 1.0),)))
    collectors: dict[str, Collector] = {"bad": Looker(raiser(OSError("gone"))), "good": good}

    runs = run_collectors(collectors, at=AT, monotonic=time.monotonic)

    assert [run.ok for run in runs] == [False, True]
    assert runs[1].samples[0].reading == 1.0


def test_a_hanging_collector_is_named_and_left_behind(gate: threading.Event) -> None:
    """A look over the time limit fails by itself; the others are complete and nobody waits longer."""
    quick = Looker(lambda at: Look(()))
    begun = time.monotonic()

    runs = run_collectors(
        {"stuck": Looker(held(gate)), "quick": quick}, at=AT, monotonic=time.monotonic, time_limit=0.2
    )

    assert time.monotonic() - begun < 5
    assert (runs[0].ok, runs[0].reason) == (False, "no answer within 0.2s")
    assert runs[0].duration_s >= 0.19
    assert runs[1].ok


def test_a_hanging_collector_is_not_started_again_until_it_returns(gate: threading.Event) -> None:
    """While the old thread hangs no second one is started; after it returned the collector looks again."""
    starts: list[float] = []

    def see(at: float) -> Look:
        starts.append(at)
        return held(gate)(at)

    first = run_one(see, name="again", limit=0.05)
    second = run_one(see, name="again", limit=5.0)
    hanging = next(thread for thread in threading.enumerate() if thread.name == "collector again")
    gate.set()
    hanging.join(5)
    third = run_one(see, name="again")

    assert [run.ok for run in (first, second, third)] == [False, False, True]
    assert second.reason == "still hanging since an earlier look; not started again"
    assert own(second, "collector.success") == 0.0
    assert len(starts) == 2


def test_a_hanging_collector_does_not_keep_the_process_alive() -> None:
    """A process with a collector that never returns reports it and exits by itself."""
    program = (
        "import threading, time\n"
        "from stoploss.collectors.runner import run_collectors\n"
        "class Stuck:\n"
        "    def look(self, at):\n"
        "        threading.Event().wait()\n"
        "(run,) = run_collectors({'stuck': Stuck()}, at=0.0, monotonic=time.monotonic, time_limit=0.1)\n"
        "print(run.reason)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
        env=os.environ | {"PYTHONPATH": SOURCES},
    )

    assert (done.stdout, done.stderr) == ("no answer within 0.1s\n", "")


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "wandb_api_key", "HF_TOKEN", "DB_PASSWORD", "SECRETS"]
)
def test_secrets_of_the_environment_are_masked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of a secret environment variable never shows in a failure, a note or a bad reading."""
    monkeypatch.setenv(name, "hunter2-hunter2")
    look = Look(
        (Sample(AT, GPU, "gpu.power", Bad("refused hunter2-hunter2")),), notes=("as hunter2-hunter2",)
    )

    failed = run_one(raiser(OSError("https://u:hunter2-hunter2@host refused")))
    denied = run_one(raiser(CollectorError("login hunter2-hunter2 refused")))
    seen = run_one(lambda at: look)

    assert failed.reason == "OSError: https://u:***@host refused"
    assert denied.reason == "login *** refused"
    assert seen.samples[0].reading == Bad("refused ***")
    assert seen.look is not None
    assert seen.look.notes == ("as ***",)


def test_a_secret_that_holds_another_is_masked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer of two overlapping secrets is masked first, so that none of it stays."""
    monkeypatch.setenv("A_TOKEN", "abcd")
    monkeypatch.setenv("B_TOKEN", "abcd-efgh")

    assert run_one(raiser(CollectorError("with abcd-efgh"))).reason == "with ***"


def test_a_secret_at_the_cut_does_not_show_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masking comes before cutting, so that no half of a secret stays at the end."""
    monkeypatch.setenv("A_TOKEN", "s3cr3t" * 20)

    reason = run_one(raiser(CollectorError("x" * 250 + "s3cr3t" * 20))).reason

    assert reason == "x" * 250 + "***"


@pytest.mark.parametrize(("name", "value"), [("PATH_TO_DATA", "/runs"), ("A_KEY", ""), ("KEYMAP", "us")])
def test_other_values_are_left_readable(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordinary, empty and very short values are not masked."""
    monkeypatch.setenv(name, value)

    assert run_one(raiser(CollectorError("no status of /runs"))).reason == "no status of /runs"
