"""A real training process: warned, asked to save, verified, ended, and resumed without losing a step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from support.snapshots import ROOT, TRAINER

from stoploss.actions.registry import action_options
from stoploss.collectors.registry import option_models
from stoploss.daemon.cycle import cycle_of
from stoploss.daemon.live import live_of
from stoploss.engine import clock
from stoploss.engine.execution.cycle import Cycle
from stoploss.engine.ledger import Ledger
from stoploss.engine.people import People
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load

IDLE = """
version: 1
settings: {{mode: enforce, resolution: 1s, limits: {{share-of-population: 100%}}}}
collectors:
  process: {{every: 1s, devices: ["{folder}/gpu*"]}}
  training: {{every: 1s, paths: ["{folder}/runs"]}}
  checkpoints: {{every: 1s, paths: [{{path: "{folder}/kept", failure-domain: host}}], job: "{{job}}"}}
policies:
  - name: idle
    summary: A run that makes no step.
    each: job
    for: 1s
    when: ['increase(train.step, 3s) == 0', 'job.state == "running"']
    then:
      - alert: {{}}
      - snapshot: {{after: 1s, timeout: 10s}}
      - terminate: {{after: 2s, grace: 5s}}
  - name: left
    summary: A run that is over and holds its GPUs.
    each: job
    for: 1s
    when: ['job.state == "ended"', job.gpus_held > 0]
    then:
      - alert: {{}}
      - snapshot: {{what: scene}}
      - release: {{after: 1s, what: allocation}}
"""


class World:
    """Runs of the example trainer in a folder, and a cycle that looks at them every second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gpu = folder / "gpu0"
        self.gpu.touch()
        self.children: list[subprocess.Popen[bytes]] = []
        file = folder / "policies.yaml"
        file.write_text(IDLE.format(folder=folder), "utf-8")
        read = load(
            [file], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
        )
        assert read.policies is not None, read.diagnostics
        self.policies = read.policies
        self.ledger = Ledger(f"sqlite:///{folder}/state.db", environ={})
        self.live = live_of(read.policies)
        wanted = ("process", "training", "checkpoints")
        self.live.collectors = {name: self.live.collectors[name] for name in wanted}
        self.cycle: Cycle = cycle_of(
            read.policies, self.ledger, self.live, folder=str(folder / "own"), environ={}
        )

    def start(self, job: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a run that holds the GPU open."""
        place = self.folder / "runs" / job
        place.mkdir(parents=True, exist_ok=True)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STOPLOSS_")}
        environment = {
            **clean,
            "PYTHONPATH": str(ROOT / "src"),
            "STOPLOSS_JOB": job,
            "STOPLOSS_CLASS": "train",
            "STOPLOSS_USER": "ann",
        }
        command = [sys.executable, str(TRAINER), "--out", str(place / "run.jsonl"), "--steps", "1000000"]
        with self.gpu.open() as gpu, (place / "run.err").open("w") as errors:
            child = subprocess.Popen(
                [*command, *options],
                env=environment,
                stderr=errors,
                pass_fds=[gpu.fileno()],
                start_new_session=True,
            )
        self.children.append(child)
        return child

    def kept(self, job: str) -> Path:
        """Where a run saves."""
        return self.folder / "kept" / job

    def until(self, met: Callable[[], object], seconds: float = 25.0) -> None:
        """Look and step once a second until something is so."""
        limit = time.monotonic() + seconds
        while not met():
            assert time.monotonic() < limit, self.told()
            at = float(int(time.time()) + 1)
            time.sleep(max(0.0, at - time.time()))
            self.live.look(at, clock.monotonic)
            self.cycle.step()

    def told(self) -> list[str]:
        """The lines of the ledger, short."""
        return [
            f"{e.kind} {e.action} {e.resource} {e.verdict}: {e.why}"
            for e in self.ledger.entries()
            if e.kind in ("result", "decision")
        ]

    def done(self, action: str, verdict: str = "done") -> bool:
        """Whether the ledger says so of some step."""
        return any(
            e.action == action and e.verdict == verdict for e in self.ledger.entries(kinds=("result",))
        )

    def end(self) -> None:
        """End all that is left."""
        for child in self.children:
            for process in _family(child.pid):
                process.kill()
            child.kill()
            child.wait()
        self.ledger.close()


def _family(pid: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["pid"]):
        try:
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (OSError, psutil.Error):
            continue
    return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A folder of runs."""
    made = World(tmp_path)
    (tmp_path / "kept").mkdir()
    yield made
    made.end()


def steps(world: World, job: str) -> list[tuple[int, float]]:
    """Step and loss of every line of a run's log."""
    lines = (world.folder / "runs" / job / "run.jsonl").read_text().splitlines()
    return [(item["step"], item["loss"]) for item in map(json.loads, lines)]


@pytest.mark.slow
def test_an_idle_run_is_saved_ended_and_loses_no_step(world: World) -> None:
    """Warned, saved and verified, ended; started again from there it goes on as if it had never ended."""
    kept = str(world.kept("j1"))
    child = world.start("j1", "--checkpoint-dir", kept, "--idle-after", "40")
    world.until(lambda: world.done("terminate"))
    child.wait(5)
    before = steps(world, "j1")
    again = world.start("j1", "--checkpoint-dir", kept, "--resume", "--steps", "60")
    assert again.wait(30) == 0
    whole = world.start("j2", "--steps", "60")
    assert whole.wait(30) == 0

    assert before[-1][0] == 40
    assert [step for step, _ in steps(world, "j1")] == list(range(1, 61))
    assert steps(world, "j1") == steps(world, "j2")
    order = [e.action for e in world.ledger.entries(kinds=("result",)) if e.verdict == "done"]
    assert order == ["alert", "snapshot", "terminate"]
    assert world.ledger.verify() == ()


@pytest.mark.slow
def test_its_twin_that_cannot_save_is_never_ended(world: World) -> None:
    """A run without a place to save answers that it failed: it lives on, and an alert says why."""
    child = world.start("j1", "--idle-after", "40")
    world.until(lambda: world.done("snapshot", "failed"))
    begun = time.monotonic()
    world.until(lambda: time.monotonic() - begun > 5)

    assert child.poll() is None
    assert not world.done("terminate")
    assert any("could not save" in line for line in world.told())
    failed = [e for e in world.cycle.plan().decisions if e.action == "terminate"]
    assert [e.verdict for e in failed] == ["held"]


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
def test_a_run_that_raised_and_left_a_worker(world: World, keep: bool) -> None:
    """Its scene is kept and verified, then the GPU that its worker holds is free; with `keep` it stays."""
    if keep:
        People(world.ledger).keep("j1", timedelta(hours=1), who="ann", now=clock.now(), reason="debugging")
    child = world.start("j1", "--raise-after", "12000")
    world.until(lambda: child.poll() is not None)
    if keep:
        world.until(lambda: world.done("snapshot"))
        begun = time.monotonic()
        world.until(lambda: time.monotonic() - begun > 5)
    else:
        world.until(lambda: world.done("release"))
    [scene] = (world.folder / "own" / "scenes").iterdir()
    log = next(path for path in scene.iterdir() if path.name.startswith("log-") and "run.err" in path.name)

    assert "step 12000 cannot be done" in log.read_text()
    assert bool(_family(child.pid)) is keep
    assert not keep or any("kept until" in line for line in world.told())
