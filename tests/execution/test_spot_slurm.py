"""A real training job of a real Slurm: saved at a notice, owed, queued again once, no step lost."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.slurm_node import Slurm, slurm_node
from support.snapshots import ROOT
from support.trainers import COMMAND, World, living

from stoploss.engine import clock
from stoploss.engine.model import Look, ResourceId, Sample
from stoploss.engine.people import People

pytestmark = [pytest.mark.slow, pytest.mark.real]

TEXT = """
version: 1
settings: {mode: enforce, resolution: 1s, limits: {share-of-population: 100%}}
collectors:
  aws: {every: 1s, imds: true, which: []}
  slurm: {every: 1s, accounting: false, classes: {train: train}}
  training: {every: 1s, paths: ["{folder}/runs"]}
  checkpoints: {every: 1s, paths: [{path: "{folder}/kept", failure-domain: host}], job: "{job}"}
policies:
  - name: notice
    each: job
    where: class == "train"
    when: ['any(sum(instance.reclaim_notices, 5s) > 0)', 'job.state == "running"']
    then:
      - alert: {on-failure: continue}
      - snapshot: {timeout: 10s}
  - name: owed
    each: job
    where: class == "train"
    for: 1s
    when: [job.owed_resume > 1s]
    then:
      - alert: {}
      - resume: {after: 1s, approve: required}
"""

SCRIPT = """
mkdir -p "{runs}"; export PYTHONPATH={root}/src
[ -n "$SLURM_RESTART_COUNT" ] || wait="--idle-after 40"
exec {trainer} --out "{runs}/run.jsonl" --steps 60 --checkpoint-dir "{kept}" --resume $wait 2>"{runs}/run.err"
"""


class Instance:
    """The instance of a job, as its metadata service would tell it; a tag names the job."""

    def __init__(self, job: str) -> None:
        self.job, self.notices, self.gone = job, 0, False

    def look(self, at: float) -> Look:
        """Whether there is a new notice."""
        told, self.notices = self.notices, 0
        sample = Sample(
            at, ResourceId("instance", "i-1"), "instance.reclaim_notices", float(told), {"job": self.job}
        )
        return Look(() if self.gone else (sample,))


@pytest.fixture
def node() -> Iterator[Slurm]:
    """A real Slurm."""
    with slurm_node() as running:
        yield running


def test_a_reclaimed_job_is_queued_again_once_and_loses_no_step(
    node: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved at the notice, killed, owed; after an approval Slurm restarts it once, from what was saved."""
    monkeypatch.setenv("SLURM_CONF", str(node.configuration))
    environ = {"PATH": os.environ["PATH"], "SLURM_CONF": str(node.configuration)}
    world = World(tmp_path, TEXT, ("slurm", "training", "checkpoints"), environ)
    places = {"runs": f"{tmp_path}/runs/$SLURM_JOB_ID", "kept": f"{tmp_path}/kept/$SLURM_JOB_ID"}
    script = SCRIPT.format(root=ROOT, trainer=shlex.join(COMMAND), **places)
    job = node.submit(script, "--gres=gpu:1", f"--output={tmp_path}/%j.out", "--open-mode=append")
    instance = Instance(job)
    world.live.collectors = {**world.live.collectors, "aws": instance}

    def state() -> str:
        return node.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    wait_until(lambda: world.log(job).exists() and len(world.steps(job)) == 40)
    world.pass_seconds(6)
    assert not world.done("snapshot")
    noticed, instance.notices = time.time(), 1
    world.until(lambda: world.done("snapshot"))
    saved = next(entry for entry in world.results() if entry.action == "snapshot")
    instance.gone = True
    # What scancel kills counts as cancelled, and a reclaim is no cancel.
    for process in living(lambda process: process.environ().get("SLURM_JOB_ID") == job):
        process.kill()
    wait_until(lambda: state() == "FAILED")
    people = People(world.ledger)
    world.until(people.requests)
    assert state() == "FAILED"
    [request] = people.requests()
    people.approve(request.id, who="ann", now=clock.now())
    world.until(lambda: world.done("resume"))
    # Slurm lets what is queued again wait for two minutes.
    node.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    world.until(lambda: state() == "COMPLETED", 60)
    world.pass_seconds(5)
    restarts = node.run("squeue", "-h", "-t", "all", "-j", job, "-O", "RestartCnt").strip()
    verified = world.ledger.verify()
    world.end()
    whole = node.submit(
        f'export PYTHONPATH={ROOT}/src; mkdir -p "{places["runs"]}"; '
        f'{shlex.join(COMMAND)} --out "{places["runs"]}/run.jsonl" --steps 60'
    )
    wait_until(lambda: world.log(whole).exists() and len(world.steps(whole)) == 60)

    assert saved.at.timestamp() - noticed < 120
    assert saved.evidence is not None
    assert saved.evidence["after"]["path"] == str(world.kept(job) / "step-40")
    assert request.wanted.action == "resume"
    assert restarts == "1"
    assert world.steps(job) == world.steps(whole)
    assert verified == ()


def wait_until(met: Callable[[], object]) -> None:
    """Wait, at most half a minute."""
    limit = time.monotonic() + 30
    while not met():
        assert time.monotonic() < limit
        time.sleep(0.1)
