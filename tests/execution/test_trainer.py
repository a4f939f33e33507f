"""A real training process: warned, asked to save, verified, ended, and resumed without losing a step."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from support.clouds import Cloud
from support.snapshots import demand, real
from support.trainers import COMMAND, World, environment, living

from stoploss.actions.targets import request_file
from stoploss.engine import clock
from stoploss.engine.people import People

POLICIES = """
version: 1
settings: {mode: enforce, resolution: 1s, limits: {share-of-population: 100%}}
collectors:
  process: {every: 1s, devices: ["{folder}/gpu*"]}
  training: {every: 1s, paths: ["{folder}/runs"]}
  checkpoints: {every: 1s, paths: [{path: "{folder}/kept", failure-domain: host}], job: "{job}"}
policies:
  - name: idle
    summary: A run that makes no step.
    each: job
    for: 1s
    when: ['increase(train.step, 3s) == 0', 'job.state == "running"']
    then:
      - alert: {}
      - snapshot: {after: 1s, timeout: 10s}
      - terminate: {after: 2s, grace: 5s}
  - name: left
    summary: A run that is over and holds its GPUs.
    each: job
    for: 1s
    when: ['job.state == "ended"', job.gpus_held > 0]
    then:
      - alert: {}
      - snapshot: {what: scene}
      - release: {after: 1s, what: allocation}
"""


COPIED = """
version: 1
settings: {mode: enforce, resolution: 1s, limits: {share-of-population: 100%}}
collectors:
  aws: {regions: [us-east-1], endpoint-url: "{server}"}
  process: {every: 1s}
  training: {every: 1s, paths: ["{folder}/runs"]}
  checkpoints: {every: 1s, paths: [{path: "{folder}/kept", failure-domain: process}], job: "{job}"}
policies:
  - name: idle
    each: job
    for: 1s
    when: ['increase(train.step, 3s) == 0', 'job.state == "running"']
    then:
      - alert: {}
      - snapshot: {after: 5s, what: checkpoint, path: "s3://kept-runs/ann", timeout: 20s}
      - terminate: {after: 6s, grace: 5s}
"""


class Machine(World):
    """Runs that are processes of this machine.

    Attributes:
        job: a name that no run of another test beside this one has.
    """

    def __init__(self, folder: Path, text: str = POLICIES) -> None:
        self.job = f"run-{uuid4().hex[:8]}"
        self.gpu = folder / "gpu0"
        self.gpu.touch()
        self.children: list[subprocess.Popen[bytes]] = []
        super().__init__(folder, text, ("process", "training", "checkpoints"), {})

    def start(self, job: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a run that holds the GPU open."""
        log = self.log(job)
        log.parent.mkdir(parents=True, exist_ok=True)
        said = environment(STOPLOSS_JOB=job, STOPLOSS_CLASS="train", STOPLOSS_USER="ann")
        command = [*COMMAND, "--out", str(log), "--steps", "1000000", *options]
        with self.gpu.open() as gpu, log.with_name("run.err").open("w") as errors:
            child = subprocess.Popen(
                command, env=said, stderr=errors, pass_fds=[gpu.fileno()], start_new_session=True
            )
        self.children.append(child)
        return child

    def end(self) -> None:
        """End all that is left."""
        for child in self.children:
            for process in family(child):
                process.kill()
            child.kill()
            child.wait()
        super().end()


def family(child: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """What lives of the session of a run."""
    return living(lambda process: os.getsid(process.pid) == child.pid)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Machine]:
    """A folder of runs."""
    made = Machine(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
def test_an_idle_run_is_saved_ended_and_loses_no_step(world: Machine) -> None:
    """Warned, saved and verified, ended; started again from there it goes on as if it had never ended."""
    kept = str(world.kept(world.job))
    child = world.start(world.job, "--checkpoint-dir", kept, "--idle-after", "40")
    world.until(lambda: world.done("terminate"))
    child.wait(5)
    before = world.steps(world.job)
    again = world.start(world.job, "--checkpoint-dir", kept, "--resume", "--steps", "60")
    assert again.wait(30) == 0
    whole = world.start(f"{world.job}-whole", "--steps", "60")
    assert whole.wait(30) == 0

    assert before[-1][0] == 40
    assert [step for step, _ in world.steps(world.job)] == list(range(1, 61))
    assert world.steps(world.job) == world.steps(f"{world.job}-whole")
    assert [e.action for e in world.results()] == ["alert", "snapshot", "terminate"]
    assert world.ledger.verify() == ()


@pytest.mark.slow
def test_what_was_copied_to_a_bucket_is_relied_on(tmp_path: Path, cloud: Cloud) -> None:
    """A run saves by itself while it is idle; the copy lets it be ended, and brings all of it back."""
    client = cloud.client("s3")
    client.create_bucket(Bucket="kept-runs")
    world = Machine(tmp_path, COPIED.replace("{server}", cloud.url))
    try:
        kept = world.kept(world.job)
        child = world.start(world.job, "--checkpoint-dir", str(kept), "--idle-after", "40")
        world.until(lambda: world.done("alert"))
        asked = request_file.Ask(
            str(world.log(world.job).parent / ".stoploss/request.json"), "by-hand", "ann"
        )
        assert request_file.take(asked, demand(), real()).verified
        world.until(lambda: world.done("terminate"))
        child.wait(5)
        [saved] = [e.evidence["after"]["path"] for e in world.results() if e.action == "snapshot"]
        [ended] = [e for e in world.ledger.entries(kinds=("intent",)) if e.action == "terminate"]
        shutil.rmtree(kept)
        for item in client.list_objects_v2(Bucket="kept-runs")["Contents"]:
            path = kept / "step-40" / Path(item["Key"]).name
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file("kept-runs", item["Key"], str(path))
        again = world.start(world.job, "--checkpoint-dir", str(kept), "--resume", "--steps", "60")
        assert again.wait(30) == 0

        assert saved == f"s3://kept-runs/ann/{world.job}/step-40"
        assert ended.evidence["order"]["saved"] == saved
        assert [step for step, _ in world.steps(world.job)] == list(range(1, 61))
    finally:
        world.end()


@pytest.mark.slow
def test_its_twin_that_cannot_save_is_never_ended(world: Machine) -> None:
    """A run without a place to save answers that it failed: it lives on, and an alert says why."""
    child = world.start(world.job, "--idle-after", "40")
    world.until(lambda: world.done("snapshot", "failed"))
    world.pass_seconds(5)

    assert child.poll() is None
    assert not world.done("terminate")
    assert any("could not save" in line for line in world.told())
    failed = [e for e in world.cycle.plan().decisions if e.action == "terminate"]
    assert [e.verdict for e in failed] == ["held"]


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
def test_a_run_that_raised_and_left_a_worker(world: Machine, keep: bool) -> None:
    """Its scene is kept and verified, then the GPU that its worker holds is free; with `keep` it stays."""
    if keep:
        people = People(world.ledger)
        people.keep(world.job, timedelta(hours=1), who="ann", now=clock.now(), reason="debugging")
    child = world.start(world.job, "--raise-after", "12000")
    world.until(lambda: child.poll() is not None)
    if keep:
        world.until(lambda: world.done("snapshot"))
        world.pass_seconds(5)
    else:
        world.until(lambda: world.done("release"))
    [scene] = (world.folder / "own" / "scenes").iterdir()
    log = next(path for path in scene.iterdir() if path.name.startswith("log-") and "run.err" in path.name)

    assert "step 12000 cannot be done" in log.read_text()
    assert bool(family(child)) is keep
    assert not keep or any("kept until" in line for line in world.told())
