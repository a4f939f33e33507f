"""A real training job of a real Slurm: warned, asked to save, verified, cancelled, and resumed."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from support.slurm_node import Slurm, slurm_node
from support.snapshots import ROOT
from support.trainers import COMMAND, World, living

from stoploss.collectors.slurm_options import Options
from stoploss.engine import clock
from stoploss.engine.people import People

pytestmark = [pytest.mark.slow, pytest.mark.real]

HEAD = """
version: 1
settings: {mode: enforce, resolution: 1s, limits: {share-of-population: 100%}}
collectors:
  slurm: {every: 1s, accounting: false, classes: {train: train}}
  training: {every: 1s, paths: ["{folder}/runs"]}
  checkpoints: {every: 1s, paths: [{path: "{folder}/kept", failure-domain: host}], job: "{job}"}
policies:
"""

IDLE = """
  - name: idle
    summary: A run that makes no step.
    each: job
    for: 1s
    when: ['increase(train.step, 3s) == 0', 'job.state == "running"']
    then:
      - alert: {}
      - snapshot: {after: 1s, timeout: 10s}
      - terminate: {after: 2s, grace: 3s}
"""

LEFT = """
  - name: left
    summary: A run whose log stands still, and that keeps its nodes.
    each: job
    for: 1s
    when: ['increase(train.step, 3s) == 0', 'job.state == "running"', job.gpus > 0]
    then:
      - alert: {}
      - snapshot: {what: scene}
      - release: {after: 1s, what: allocation}
"""

LONG = """
  - name: long
    summary: A run that has had its time.
    each: job
    for: 1s
    when: ['job.runtime > 5s', 'job.state == "running"', checkpoint.count > 0]
    then:
      - alert: {}
      - snapshot: {after: 1s, timeout: 10s}
      - terminate: {after: 2s, grace: 3s}
"""

ENDED = ("CANCELLED", "FAILED")
"""What Slurm says of a job that was cancelled: one that obeyed SIGTERM has failed, by its exit code."""

BOTH = ("slurm", "training", "checkpoints")


@pytest.fixture(scope="module")
def node() -> Iterator[Slurm]:
    """A real Slurm."""
    with slurm_node() as running:
        yield running


class Cluster(World):
    """Runs that are jobs of a Slurm; each is named by its id, in its folders too."""

    def __init__(self, folder: Path, node: Slurm, policies: str, collectors: tuple[str, ...] = BOTH) -> None:
        environ = {"PATH": os.environ["PATH"], "SLURM_CONF": str(node.configuration)}
        super().__init__(folder, HEAD + policies, collectors, environ)
        self.node = node

    def submit(self, *options: str, first: str = "", then: str = "", saves: bool = True) -> str:
        """Submit a run, which begins at once.

        Args:
            options: of the trainer.
            first: what stands before the trainer in the batch script.
            then: what follows it.
            saves: whether it is given a folder to save to.
        """
        runs, kept = self.folder / "runs" / "$SLURM_JOB_ID", self.folder / "kept" / "$SLURM_JOB_ID"
        saving = f'--checkpoint-dir "{kept}"' if saves else ""
        script = (
            f'mkdir -p "{runs}"; export PYTHONPATH={ROOT}/src\n'
            f'{first} {shlex.join(COMMAND)} --out "{runs}/run.jsonl" --steps 1000000 {saving} '
            f'{shlex.join(options)} 2>"{runs}/run.err"\n{then}'
        )
        return self.node.submit(script, "--gres=gpu:1", f"--output={self.folder}/%j.out")

    def state(self, job: str) -> str:
        """What Slurm says of a job."""
        return self.node.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def wait_for(self, job: str, state: str) -> None:
        """Wait until Slurm says so of a job."""
        limit = time.monotonic() + 30
        while (now := self.state(job)) != state:
            assert time.monotonic() < limit, now
            time.sleep(0.2)

    def processes(self, job: str) -> list[psutil.Process]:
        """What lives of a job on this machine."""
        return living(lambda process: process.environ().get("SLURM_JOB_ID") == job)

    def end(self) -> None:
        """End all that is left."""
        if jobs := self.node.run("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%i").split():
            self.node.run("scancel", *jobs)
            for job in jobs:
                self.wait_for(job, "CANCELLED")
        super().end()


Make = Callable[..., Cluster]


@pytest.fixture
def make(node: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a world on that Slurm, given its policies."""
    monkeypatch.setenv("SLURM_CONF", str(node.configuration))
    made: list[Cluster] = []

    def build(*policies: object) -> Cluster:
        made.append(Cluster(tmp_path, node, *policies))  # type: ignore[arg-type]
        return made[0]

    yield build
    for world in made:
        world.end()


def test_an_idle_job_is_saved_cancelled_and_loses_no_step(make: Make) -> None:
    """Warned, saved when its request file asks, cancelled by Slurm; queued anew from there it goes on."""
    world = make(IDLE)
    job = world.submit("--idle-after", "40")
    world.until(lambda: world.done("terminate"), 40)
    ended = world.state(job)
    again = world.submit("--resume", "--checkpoint-dir", str(world.kept(job)), "--steps", "60", saves=False)
    whole = world.submit("--steps", "60")
    world.wait_for(again, "COMPLETED")
    world.wait_for(whole, "COMPLETED")

    assert [e.action for e in world.results()] == ["alert", "snapshot", "terminate"]
    [saved, cancelled] = [e for e in world.results() if e.action != "alert"]
    assert saved.evidence is not None
    assert saved.evidence["after"]["path"] == str(world.kept(job) / "step-40")
    assert ended in ENDED
    assert cancelled.why == f"Slurm job {job} has ended: {ended}"
    assert world.processes(job) == []
    assert [step for step, _ in world.steps(job)] == list(range(1, 41))
    assert world.steps(job) + world.steps(again) == world.steps(whole)
    assert world.ledger.verify() == ()


def test_its_twin_that_cannot_save_is_never_cancelled(make: Make) -> None:
    """A job without a place to save answers that it failed: it stays, and an alert says why."""
    world = make(IDLE)
    job = world.submit("--idle-after", "40", saves=False)
    world.until(lambda: world.done("snapshot", "failed"), 40)
    world.pass_seconds(5)

    assert world.state(job) == "RUNNING"
    assert not world.done("terminate")
    assert any("could not save" in line for line in world.told())
    assert [e.verdict for e in world.cycle.plan().decisions if e.action == "terminate"] == ["held"]
    told = [e for e in world.results() if e.action == "alert"]
    assert told


def test_a_job_of_no_class_is_told_of_and_left_alone(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no class is said of its partition a job gets its alert and nothing else."""
    world = make(IDLE.replace("idle", "unclassed"))
    monkeypatch.setattr(world.live.collectors["slurm"], "options", Options(accounting=False))
    job = world.submit("--idle-after", "40")
    world.until(lambda: world.done("alert"), 40)
    world.pass_seconds(5)

    assert world.state(job) == "RUNNING"
    assert {e.action for e in world.ledger.entries(kinds=("intent",))} == {"alert"}
    held = [e for e in world.cycle.plan().decisions if e.action == "terminate"]
    assert [(e.verdict, e.whys[0]) for e in held] == [("blocked", "class unknown: alerts only")]


@pytest.mark.parametrize("keep", [False, True])
def test_a_job_that_failed_and_keeps_its_allocation(make: Make, keep: bool) -> None:
    """Its scene is kept and verified, then it is cancelled with what it left behind; with `keep` it stays."""
    world = make(LEFT)
    job = world.submit("--raise-after", "200", first="sleep 600 &\n", then="wait")
    if keep:
        People(world.ledger).keep(job, timedelta(hours=1), who="ann", now=clock.now(), reason="debugging")
        world.until(lambda: world.done("snapshot"), 40)
        world.pass_seconds(5)
    else:
        world.until(lambda: world.done("release"), 40)
    [scene] = (world.folder / "own" / "scenes").iterdir()
    kept = json.loads((scene / "manifest.json").read_text())["files"]
    [log] = [name for name in kept if name.startswith("log-") and "run.err" in name]

    assert "step 200 cannot be done" in (scene / log).read_text()
    # The batch script, what it waits for, and the worker that the trainer left.
    lines = sorted((scene / name).read_text() for name in kept if name.endswith("-cmdline"))
    assert len(lines) == 3, lines
    assert world.state(job) in (["RUNNING"] if keep else ENDED)
    assert bool(world.processes(job)) is keep
    assert not keep or any("kept until" in line for line in world.told())


def test_a_job_whose_log_is_not_read_is_asked_by_a_signal(make: Make) -> None:
    """Without its folder the trainer, which is the batch script, is sent USR1; what it saves is verified."""
    world = make(LONG, ("slurm", "checkpoints"))
    job = world.submit(first="exec")
    wait_until(lambda: world.log(job).exists() and world.log(job).stat().st_size > 0)
    # Where it saves is known by what it has saved once.
    world.node.run("scancel", "--signal=USR1", "--batch", job)
    wait_until(lambda: list(world.kept(job).glob("step-*/COMPLETE")))
    [first] = world.kept(job).iterdir()
    world.until(lambda: world.done("terminate"), 40)

    intent = next(e for e in world.ledger.entries(kinds=("intent",)) if e.action == "snapshot")
    result = next(e for e in world.results() if e.action == "snapshot")
    assert intent.evidence is not None
    assert intent.evidence["found"]["before"]["way"] == "slurm"
    assert result.evidence is not None
    assert Path(result.evidence["after"]["path"]).parent == world.kept(job)
    assert result.evidence["after"]["path"] != str(first)
    assert [e.action for e in world.results()] == ["alert", "snapshot", "terminate"]
    assert world.state(job) in ENDED
    assert world.processes(job) == []


def wait_until(met: Callable[[], object]) -> None:
    """Wait, at most half a minute."""
    limit = time.monotonic() + 30
    while not met():
        assert time.monotonic() < limit
        time.sleep(0.1)
