"""The process collector looking at real processes that hold plain files in the place of GPUs."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from stoploss.actions.registry import action_options
from stoploss.collectors.contract import CollectorError, Context, NotHere
from stoploss.collectors.job_labels import PROC
from stoploss.collectors.process import ProcessCollector
from stoploss.collectors.process_gpus import DeviceFiles, Driver
from stoploss.collectors.process_jobs import Jobs
from stoploss.collectors.registry import load as load_collectors
from stoploss.collectors.registry import option_models
from stoploss.engine.audit import Audit, audit
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.model import UNREADABLE, Bad, Look, Reading, ResourceId, Sample
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load

TRAINING = """
import os, subprocess, sys, time
folder = sys.argv[1]
gpu = open(f"{folder}/gpu0", "r+b")
worker = subprocess.Popen(
    [sys.executable, "-IS", "-c", "import time; time.sleep(60)"],
    stdin=subprocess.DEVNULL, pass_fds=[gpu.fileno()],
)
for step in range(3):
    with open(f"{folder}/train.log", "a") as log:
        log.write(f"step {step} loss {1 / (step + 1)}\\n")
with open(f"{folder}/checkpoint-3.pt", "wb") as file:
    file.write(b"x" * 4096)
print(worker.pid, flush=True)
sys.stdin.readline()
os._exit(0)
"""

BUSY = """
import sys, time
print("ready", flush=True)
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
print("idle", flush=True)
sys.stdin.readline()
"""

JOB = f"job-{uuid4().hex[:8]}"
"""Other tests run beside these on the same machine."""

Start = Callable[..., subprocess.Popen[str]]
BEGUN = (time.time() // 60 + 2) * 60
"""An instant after every start in these tests, at the end of a slot."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs as parts of jobs, and ends them and what they started afterwards."""
    running: list[subprocess.Popen[str]] = []

    def begin(code: str, **environment: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-IS", "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "FIXTURE": str(tmp_path)},
            start_new_session=True,
            text=True,
        )
        running.append(child)
        return child

    (tmp_path / "gpu0").write_bytes(b"")
    (tmp_path / "gpu1").write_bytes(b"")
    yield begin
    for child in running:
        # The group outlives its leader as long as the leader was not waited for.
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def collector(folder: Path, *, forget: float = 86400.0, proc: Path = PROC) -> ProcessCollector:
    """A collector to which the files gpu0 and gpu1 of a folder are GPUs."""
    files = DeviceFiles((f"{folder}/gpu[0-9]*",), proc)
    return ProcessCollector("n1", files, Jobs(forget), time.sleep, Driver(dict), proc)


def line(child: subprocess.Popen[str]) -> str:
    """The next line that a program prints."""
    assert child.stdout
    return child.stdout.readline().strip()


def end(child: subprocess.Popen[str]) -> None:
    """Let a program end by itself; its parent has not waited for it yet."""
    assert child.stdin
    child.stdin.write("\n")
    child.stdin.flush()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.002)


def own(look: Look, *children: subprocess.Popen[str]) -> Look:
    """What a look tells of these tests' job, and of some processes whatever their job."""
    pids = {f"n1/{child.pid}" for child in children}
    kept = [
        item
        for item in look.samples
        if item.resource == ResourceId("job", JOB)
        or item.resource.id.partition("@")[0] in pids
        or (item.labels or {}).get("job") == JOB
    ]
    return replace(look, samples=tuple(kept))


def of(look: Look, kind: str, name: str | None = None) -> dict[str, Reading]:
    """Signal -> reading of one resource."""
    found = [item for item in look.samples if item.resource.kind == kind]
    return {item.signal: item.reading for item in found if name is None or item.resource.id == name}


@contextmanager
def no_more_files() -> Iterator[None]:
    """Nothing can be opened meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def audited(buffer: SampleBuffer, policies: str | Path, at: float) -> Audit:
    """A policy file or pack over what a buffer holds."""
    result = load(
        [policies],
        catalogue=catalogue(),
        collector_options=option_models(),
        action_options=action_options(),
    )
    assert result.policies, result.diagnostics
    now = datetime.fromtimestamp(at, UTC)
    return audit(result.policies, lambda resolution: buffer.frame(resolution, at), catalogue(), now=now)


def test_a_finished_job_that_keeps_its_gpu_is_found(start: Start, tmp_path: Path) -> None:
    """A job whose main process has ended while a child holds a GPU makes finished-not-released fire."""
    training = start(TRAINING, STOPLOSS_JOB=JOB, STOPLOSS_CLASS="train", STOPLOSS_TEAM="vision")
    child = int(line(training))
    looking = collector(tmp_path)
    buffer = SampleBuffer(catalogue(), {"process": 60.0})
    first = own(looking.look(BEGUN))
    end(training)
    looks = [first, *(own(looking.look(BEGUN + 60 * number)) for number in range(1, 45))]
    for number, look in enumerate(looks):
        buffer.add("process", look, slot_time=BEGUN + 60 * number)
    result = audited(buffer, "pack:lifecycle", BEGUN + 60 * 44)

    assert (tmp_path / "checkpoint-3.pt").stat().st_size == 4096
    before, after = of(looks[0], "job"), of(looks[1], "job")
    assert (before["job.state"], before["job.gpus_held"], before["job.since_end"]) == ("running", 1.0, 0.0)
    assert (after["job.state"], after["job.gpus_held"]) == ("ended", 1.0)
    assert psutil.Process(child).ppid() != training.pid
    [finding] = result.firing
    assert (finding.policy.name, finding.resource) == ("finished-not-released", ResourceId("job", JOB))
    assert finding.labels["team"] == "vision"


def test_a_process_is_told_with_its_job_user_and_start(start: Start, tmp_path: Path) -> None:
    """A process of a job carries host, job, user and pid, is named by its start, and is measured."""
    training = start(TRAINING, STOPLOSS_JOB=JOB)
    line(training)
    look = collector(tmp_path).look(BEGUN)

    started = (PROC / str(training.pid) / "stat").read_text().rpartition(")")[2].split()[19]
    name = f"n1/{training.pid}@{started}"
    readings = of(look, "process", name)
    assert readings.keys() == {
        item.name for item in catalogue().of_collector("process") if "process" in item.resources
    }
    assert readings["process.memory.used"] == pytest.approx(
        psutil.Process(training.pid).memory_info().rss, rel=0.5
    )
    assert readings["process.threads"] == 1.0
    assert readings["process.gpu.memory.used"] == Bad("device files do not tell how much")
    uptime = readings["process.uptime"]
    assert isinstance(uptime, float)
    assert uptime == pytest.approx(BEGUN - psutil.Process(training.pid).create_time(), abs=1)
    labels = next(item.labels for item in look.samples if item.resource.id == name)
    assert labels is not None
    user = psutil.Process().username()
    assert (labels["job"], labels["host"], labels["user"]) == (JOB, "n1", user)
    assert (labels["pid"], labels["team"]) == (str(training.pid), None)
    assert (labels["scheduler"], labels["slurm_job"]) == ("process", None)
    assert next(item.labels for item in look.samples if item.resource == ResourceId("job", JOB)) == {
        name: value for name, value in labels.items() if name not in ("job", "host", "pid", "container")
    }


def test_a_gpu_without_a_job_is_a_process_alone(start: Start, tmp_path: Path) -> None:
    """A process that holds a GPU and names no job is told without one; no job is made up."""
    training = start(TRAINING)
    line(training)
    look = own(collector(tmp_path).look(BEGUN), training)

    jobs = {item.labels["job"] for item in look.samples if item.resource.kind == "process" and item.labels}
    assert (jobs, of(look, "job")) == ({None}, {})


def test_what_a_slurm_job_does_not_say_others_may(start: Start, tmp_path: Path) -> None:
    """Of a job that Slurm names nothing is said to be absent, which the collector `slurm` may know."""
    line(start(TRAINING, SLURM_JOB_ID=JOB, STOPLOSS_STAGE="dev"))
    look = own(collector(tmp_path).look(BEGUN))
    [told] = {tuple((item.labels or {}).items()) for item in look.samples if item.resource.kind == "job"}

    assert {"stage": "dev", "scheduler": "slurm", "slurm_job": JOB}.items() <= dict(told).items()
    assert {"class", "team"}.isdisjoint(dict(told))


def test_a_process_that_ends_is_gone(start: Start, tmp_path: Path) -> None:
    """What was seen before and lives no more is told as gone, although no whole list is claimed."""
    busy = start(BUSY, STOPLOSS_JOB=JOB)
    line(busy)
    looking = collector(tmp_path)
    looking.look(BEGUN)
    line(busy)
    end(busy)
    second, third = (own(looking.look(BEGUN + 60 * number), busy) for number in (1, 2))

    assert of(second, "process") == {"resource.present": 0.0}
    assert of(third, "process") == {}
    assert second.inventories == frozenset()
    assert of(third, "job")["job.state"] == "ended"


def test_a_stopped_job_is_suspended(start: Start, tmp_path: Path) -> None:
    """A job all of whose real processes are stopped is suspended."""
    busy = start(BUSY, STOPLOSS_JOB=JOB)
    line(busy)
    busy.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, busy.pid, os.WSTOPPED | os.WNOWAIT)

    assert of(own(collector(tmp_path).look(BEGUN)), "job")["job.state"] == "suspended"


def test_P_D19_worked_once_and_idle_since(start: Start, tmp_path: Path) -> None:
    """A process that worked hard at first and nothing since is idle by its window, not by its life."""
    policies = tmp_path / "p.yaml"
    policies.write_text(
        "version: 1\npolicies:\n  - name: idle\n    each: process\n"
        "    when: ['max(process.cpu.utilization, 10m) < 1%']\n"
    )
    looking, buffer = collector(tmp_path), SampleBuffer(catalogue(), {"process": 60.0})
    busy = start(BUSY, STOPLOSS_JOB=JOB)
    line(busy)
    findings = []
    for number in range(13):
        at = BEGUN + 60 * number
        look = own(looking.look(at))
        buffer.add("process", look, slot_time=at)
        findings.append(len(audited(buffer, policies, at).firing))
        if number == 0:
            worked = of(look, "process")["process.cpu.utilization"]
            line(busy)
        # A CPU time advances by hundredths of a second.
        time.sleep(0.03)

    assert isinstance(worked, float)
    assert worked > 0.05
    assert findings == [0] * 11 + [1, 1]


def test_G_13_a_source_that_cannot_be_reached_is_not_idleness(tmp_path: Path) -> None:
    """An idle GPU is not an idle job while the second source, the processes, cannot be read."""
    policies = tmp_path / "p.yaml"
    policies.write_text(
        "version: 1\npolicies:\n  - name: idle\n    each: job\n    when:\n"
        '      - max(gpu.utilization, 10m) < 5%\n      - job.state != "running"\n'
    )
    looking = collector(tmp_path)
    buffer = SampleBuffer(catalogue(), {"process": 60.0, "gpu": 60.0})
    gpu, job = ResourceId("gpu", "g"), ResourceId("job", "a")
    for number in range(12):
        at = BEGUN + 60 * number
        idle = Sample(at, gpu, "gpu.utilization", 0.0, {"job": "a"})
        owner = Sample(at, job, "train.step", 5.0)
        buffer.add("gpu", Look((idle, owner)), slot_time=at)
        with no_more_files(), pytest.raises(CollectorError) as failure:
            looking.look(at)
        buffer.add_failure("process", at, failure.value.reason)
    result = audited(buffer, policies, at)

    assert result.findings == ()
    [unknown] = result.unknown
    assert "/proc cannot be listed: too many open files" in unknown.reason
    assert result.degraded


def test_G_14_a_day_of_silence_is_unknown(start: Start, tmp_path: Path) -> None:
    """A job that was seen idle once, and not at all for the 25 hours since, never counts as idle."""
    policies = tmp_path / "p.yaml"
    policies.write_text(
        "version: 1\nsettings: {resolution: 10m}\npolicies:\n  - name: idle\n    each: job\n"
        "    for: 1h\n    when: ['job.gpus_held == 0']\n"
    )
    line(start(BUSY, STOPLOSS_JOB=JOB))
    looking, buffer = collector(tmp_path), SampleBuffer(catalogue(), {"process": 600.0})
    begun = BEGUN // 600 * 600
    buffer.add("process", own(looking.look(begun)), slot_time=begun)
    states = [finding.state for finding in audited(buffer, policies, begun).findings]
    for number in range(1, 151):
        buffer.add_failure("process", begun + 600 * number, "no answer within 10s")
    [unknown] = audited(buffer, policies, begun + 600 * 100).unknown
    later = audited(buffer, policies, begun + 600 * 150)

    assert states == ["pending"]
    assert "no answer within 10s" in unknown.reason
    assert (later.firing, later.degraded) == ((), True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_what_other_users_run_is_hidden_and_counted(start: Start, tmp_path: Path) -> None:
    """Without rights another user's job is not seen at all, and a note tells how much was not looked into."""
    line(start(TRAINING, STOPLOSS_JOB=JOB))
    code = (
        "import os, sys\n"
        "from stoploss.collectors import registry\n"
        "from stoploss.collectors.contract import Context\n"
        "looking = registry.load().build('process', {'devices': [sys.argv[1]]}, Context('n1'))\n"
        "import psutil, pynvml\n"
        "os.setuid(65534)\n"
        "look = looking.look(60.0)\n"
        "print([item for item in look.samples if item.resource.id == sys.argv[2]], look.notes)"
    )
    told = subprocess.check_output([sys.executable, "-c", code, f"{tmp_path}/gpu*", JOB], text=True)

    assert told.startswith("[] (")
    assert "processes of other users were not looked into (permission denied)" in told


def test_a_denied_process_of_a_slurm_job_is_not_without_gpus(tmp_path: Path) -> None:
    """A job that only its control group tells has unreadable labels, and an unknown number of GPUs."""
    (tmp_path / "stat").write_text("cpu 0\n")
    folder = tmp_path / str(os.getppid())
    folder.mkdir()
    (folder / "stat").write_text(f"{folder.name} (python) S 1 7 7 0 0 0 {'0 ' * 12}77 0")
    (folder / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_4412/step_0/task_0\n")

    class Denied(DeviceFiles):
        def held(self, pid: int) -> Bad:
            return Bad("denied")

    looking = ProcessCollector("n1", Denied((), tmp_path), Jobs(60), time.sleep, Driver(dict), tmp_path)
    look = looking.look(BEGUN)
    [labels] = {id(item.labels): item.labels for item in look.samples if item.resource.kind == "job"}.values()

    assert of(look, "job")["job.gpus_held"] == Bad("denied")
    assert labels is not None
    assert labels["class"] == labels["keep"] == UNREADABLE


def test_no_proc_is_not_a_failure(tmp_path: Path) -> None:
    """Where there is no /proc/stat there is nothing to look at."""
    with pytest.raises(NotHere):
        collector(tmp_path, proc=tmp_path).look(BEGUN)


def test_the_collector_is_built_from_its_options(start: Start, tmp_path: Path) -> None:
    """Device patterns of the options count, `name` names the host, and stoploss itself is left out."""
    training = start(TRAINING)
    line(training)
    options = {"devices": [f"{tmp_path}/gpu0"], "name": "node-17", "forget": "12h"}
    with (tmp_path / "gpu0").open():
        look = load_collectors().build("process", options, Context()).look(BEGUN)

    names = {item.resource.id.partition("@")[0] for item in look.samples if item.resource.kind == "process"}
    assert f"node-17/{training.pid}" in names
    assert f"node-17/{os.getpid()}" not in names
