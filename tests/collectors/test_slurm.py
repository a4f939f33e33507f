"""The slurm collector looking at a real Slurm, and at commands that fail in their ways."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from support.scenes import Scene, policy
from support.slurm_node import Slurm, slurm_node

from stoploss.collectors import slurm
from stoploss.collectors.contract import Collector, CollectorError, Context, NotHere
from stoploss.collectors.registry import load
from stoploss.engine.model import Bad, LabelValue, Look, Reading
from stoploss.rules.catalogue import catalogue

AT = 1_000.0
SIGNALS = {
    "job.state",
    "job.exit_reason",
    "job.time_limit",
    "job.gpus",
    "job.nodes",
    "job.queue_time",
    "job.attempts",
    "job.runtime",
    "job.since_end",
}


def collector(**options: object) -> Collector:
    """The collector as a policy file makes it."""
    return load().build("slurm", options, Context("n1"))


def jobs(look: Look) -> dict[str, dict[str, Reading]]:
    """Job -> signal -> reading."""
    found: dict[str, dict[str, Reading]] = {}
    for item in look.samples:
        found.setdefault(item.resource.id, {})[item.signal] = item.reading
    return found


def labels(look: Look, job: str) -> Mapping[str, LabelValue]:
    """The labels of a job."""
    return next(item.labels for item in look.samples if item.resource.id == job and item.labels)


class Commands:
    """A folder of commands that PATH leads to alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, script: str) -> None:
        """Add or replace one; its script runs in /bin/sh."""
        program = self.folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def queue(self, *entries: Mapping[str, object]) -> None:
        """Let `squeue --json` print these jobs."""
        (self.folder / "queue.json").write_text(json.dumps({"jobs": entries}))
        self.add(
            "squeue", f'while read -r line; do echo "$line"; done < {self.folder}/queue.json; echo "$line"'
        )


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """No command at first."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return Commands(tmp_path)


def job(number: int = 1, state: str = "RUNNING", **keys: object) -> dict[str, object]:
    """A job as `squeue --json` tells it."""
    running = {"nodes": "n1", "node_count": 1, "gres_detail": ["gpu:1(IDX:0)"], "user_name": "ann"}
    times = {"submit_time": 900, "start_time": 940, "end_time": 980, "time_limit": 10, "partition": "train"}
    return {"job_id": number, "job_state": state, "name": "bert"} | running | times | keys


def test_no_slurm_is_not_a_failure(commands: Commands) -> None:
    """Where squeue is not installed there is nothing to look at."""
    with pytest.raises(NotHere, match="squeue is not installed"):
        collector().look(AT)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1", "Unable to contact slurm"),
        ('echo \'{"jobs": [{"job_id"\'', "squeue: no JSON"),
        ("echo '{}'", "squeue: no list of jobs"),
        ("exec /bin/sleep 5", "squeue does not answer"),
        ("[ $1 = --json ] && exit 1; printf '1|1|RUN'", "its last line is cut short"),
    ],
)
def test_a_squeue_that_fails_fails_the_look(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    """A controller that is down, garbage, a cut answer and a hanging command are failures with a reason."""
    monkeypatch.setattr(slurm, "QUEUE_LIMIT", 0.5)
    commands.add("squeue", script)

    with pytest.raises(CollectorError, match=reason):
        collector().look(AT)


def test_a_state_that_is_not_known_fails_the_look(commands: Commands) -> None:
    """A state that this version does not know is never guessed."""
    commands.queue(job(state="DANCING"))

    with pytest.raises(CollectorError, match="'DANCING' is not a state"):
        collector().look(AT)


def test_without_json_the_fixed_fields_are_read(commands: Commands) -> None:
    """A Slurm without JSON is read by squeue and scontrol; without scontrol restarts are a bad reading."""
    line = "1|1|RUNNING|ann|vision|train|10:00|1|n1|gres:gpu:1|940|900|1540|bert"
    commands.add("squeue", f'[ "$1" = --json ] && exit 1; echo "{line}"')
    looking = collector(accounting=False)
    first = looking.look(AT)
    commands.add("scontrol", 'printf "JobId=1 JobName=x\\n   Requeue=1 Restarts=4 B=1\\n"')
    second = looking.look(AT + 60)

    assert jobs(first)["1"]["job.attempts"] == Bad("Slurm does not tell its restarts")
    assert first.notes == ("restarts and GPU numbers are not told: scontrol is not installed",)
    assert jobs(second)["1"]["job.attempts"] == 5.0
    assert (jobs(second)["1"]["job.gpus"], jobs(second)["1"]["job.time_limit"]) == (1.0, 600.0)


def test_no_accounting_is_a_note(commands: Commands) -> None:
    """Where sacct refuses, the jobs of the queue are told all the same."""
    commands.queue(job())
    commands.add("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    look = collector().look(AT)

    assert jobs(look)["1"]["job.state"] == "running"
    assert look.notes == ("jobs that ended unseen are not told: sacct: Slurm accounting storage is disabled",)


def test_accounting_tells_what_ended_unseen(commands: Commands) -> None:
    """A job that only sacct knows is told, and why a waiting job's last attempt ended."""
    commands.queue(job(state="PENDING", nodes="", gres_detail=[], restart_cnt=1))
    rows = (
        "1|PREEMPTED|ann|v|train|10|1|n1||700|650|800|0:0|bert",
        "2|OUT_OF_MEMORY|bob|v|train|10|1|n1||700|650|800|0:125|gpt",
    )
    commands.add("sacct", "\n".join(f'echo "{row}"' for row in rows))
    found = jobs(collector().look(AT))

    assert (found["1"]["job.state"], found["1"]["job.exit_reason"]) == ("queued", "preempted")
    assert (found["1"]["job.attempts"], found["1"]["job.gpus"]) == (1.0, 0.0)
    assert (found["2"]["job.state"], found["2"]["job.exit_reason"]) == ("failed", "out-of-memory")
    assert (found["2"]["job.attempts"], found["2"]["job.since_end"]) == (1.0, 200.0)


def test_a_requeued_job_stays_one_job(commands: Commands) -> None:
    """Restarts raise the attempts of the same job, and its runtime begins anew."""
    looking = collector(accounting=False)
    commands.queue(job())
    before = jobs(looking.look(AT))
    commands.queue(job(restart_cnt=1, submit_time=1010, start_time=1040))
    after = jobs(looking.look(AT + 60))

    assert list(before) == list(after) == ["1"]
    assert (before["1"]["job.attempts"], after["1"]["job.attempts"]) == (1.0, 2.0)
    assert (after["1"]["job.runtime"], after["1"]["job.queue_time"]) == (20.0, 30.0)


def test_an_ended_job_is_remembered_and_then_gone(commands: Commands) -> None:
    """A job that Slurm forgets is told until `forget` has passed; one that vanishes alive is gone at once."""
    looking = collector(accounting=False, forget="10m")
    commands.queue(job(1, "COMPLETED"), job(2))
    looking.look(AT)
    commands.queue()
    found = jobs(looking.look(AT + 60))
    late = jobs(looking.look(AT + 600))

    assert (found["1"]["job.exit_reason"], found["1"]["job.since_end"]) == ("completed", 80.0)
    assert found["2"] == {"resource.present": 0.0}
    assert late == {"1": {"resource.present": 0.0}}


def test_only_named_partitions_are_told(commands: Commands) -> None:
    """With `partitions` jobs elsewhere are left out, and a waiting job counts in each that it names."""
    commands.queue(job(1), job(2, partition="debug"), job(3, "PENDING", partition="debug,train"))

    assert sorted(jobs(collector(accounting=False, partitions=["train"]).look(AT))) == ["1", "3"]


def test_partitions_say_the_class_of_their_jobs(commands: Commands) -> None:
    """With `classes` a job has the class of its partition, where that is named and its partitions agree."""
    places = ("train", "debug", "other", "train,debug", "train,long", "train,other", "")
    commands.queue(*(job(number, "PENDING", partition=name) for number, name in enumerate(places, 1)))
    look = collector(
        accounting=False, classes={"train": "train", "long": "train", "debug": "interactive"}
    ).look(AT)

    told = {number: labels(look, str(number)).get("class", "not told") for number in range(1, 8)}
    assert told == {
        1: "train",
        2: "interactive",
        3: "not told",
        4: "not told",
        5: "train",
        6: "not told",
        7: "not told",
    }
    assert "class" not in labels(collector(accounting=False).look(AT), "1")


def test_every_signal_is_told_of_every_job(commands: Commands) -> None:
    """Each job has each signal of the collector, whatever its state."""
    commands.queue(*(job(number, state) for number, state in enumerate(slurm.texts.STATES, 1)))
    found = jobs(collector(accounting=False).look(AT))

    assert {item.name for item in catalogue().of_collector("slurm")} <= SIGNALS
    assert {frozenset(signals) for signals in found.values()} == {frozenset(SIGNALS)}
    assert len(found) == len(slurm.texts.STATES)


def test_a_policy_fires_on_a_job_of_slurm(commands: Commands, scene: Scene) -> None:
    """A policy set that names the collector finds the failed job, with whom to tell and who runs it."""
    commands.queue(job(7, "FAILED", account="vision", end_time=int(time.time())), job(8))
    policies = scene.write(
        "p.yaml", policy('job.state == "failed"', each="job") + "collectors:\n  slurm: {accounting: false}\n"
    )
    [finding] = scene.json("audit", policies)["findings"]

    assert finding["resource"]["id"] == "7"
    wanted = {"user": "ann", "team": "vision", "name": "bert", "scheduler": "slurm"}
    assert wanted.items() <= finding["resource"]["labels"].items()


@pytest.fixture(scope="module")
def node() -> Iterator[Slurm]:
    """A real Slurm."""
    with slurm_node() as running:
        yield running


def until(holds: Callable[[], bool]) -> None:
    """Wait, at most ten seconds."""
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("json_works", [True, False])
def test_a_real_slurm_is_told(node: Slurm, monkeypatch: pytest.MonkeyPatch, json_works: bool) -> None:
    """Two jobs run with a GPU each, a cancelled and a failed one say so, with JSON and without."""
    monkeypatch.setenv("SLURM_CONF", str(node.configuration))
    looking = slurm.SlurmCollector(slurm.Options(), speaks_json=None if json_works else False)
    first = node.submit("sleep 60", "--gres=gpu:1", "--job-name=bert, large", "--time=10")
    array = node.submit("sleep 60", "--gres=gpu:1", "--array=4")
    task = f"{array}_4"
    until(lambda: all(jobs(looking.look(time.time()))[it]["job.state"] == "running" for it in (first, task)))
    running = looking.look(time.time())
    node.run("scancel", task)
    failing = node.submit("exit 3", "--gres=gpu:1")
    asked = node.submit("sleep 60")
    until(lambda: jobs(looking.look(time.time()))[asked]["job.state"] == "running")
    node.run("scancel", "--signal=TERM", "--batch", asked)
    until(lambda: jobs(looking.look(time.time()))[asked]["job.state"] not in ("running", "queued"))
    until(lambda: jobs(looking.look(time.time()))[failing]["job.state"] == "failed")
    until(lambda: jobs(looking.look(time.time()))[task]["job.state"] == "ended")
    after = looking.look(time.time())
    node.run("scancel", first)

    assert looking.speaks_json is json_works
    for name in (first, task):
        told = jobs(running)[name]
        assert (told["job.state"], told["job.gpus"], told["job.nodes"]) == ("running", 1.0, 1.0)
        assert (told["job.exit_reason"], told["job.attempts"]) == ("none", 1.0)
    assert jobs(running)[first]["job.time_limit"] == 600.0
    assert {labels(running, name)["gpu_indices"] for name in (first, task)} == {"0", "1"}
    assert labels(running, first)["name"] == "bert, large"
    assert (labels(running, first)["partition"], labels(running, first)["host"]) == ("train", "localhost")
    assert jobs(after)[task]["job.exit_reason"] == "cancelled"
    assert jobs(after)[failing]["job.exit_reason"] == "failed"
    assert (jobs(after)[asked]["job.state"], jobs(after)[asked]["job.exit_reason"]) == ("ended", "cancelled")
    assert (jobs(after)[task]["job.gpus"], jobs(after)[first]["job.gpus"]) == (0.0, 1.0)
    assert any("accounting" in note for note in after.notes)


@pytest.mark.slow
@pytest.mark.real
def test_a_real_job_that_is_queued_again_keeps_its_name(node: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A requeued job waits under the same name, with one attempt behind it."""
    monkeypatch.setenv("SLURM_CONF", str(node.configuration))
    looking = collector()
    name = node.submit("sleep 60", "--gres=gpu:1")
    until(lambda: jobs(looking.look(time.time()))[name]["job.state"] == "running")
    node.run("scontrol", "requeue", name)
    until(lambda: jobs(looking.look(time.time()))[name]["job.state"] == "queued")
    told = jobs(looking.look(time.time()))[name]
    node.run("scancel", name)

    assert (told["job.state"], told["job.attempts"], told["job.gpus"]) == ("queued", 1.0, 0.0)
