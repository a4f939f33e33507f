"""Which job a process belongs to: of real processes, and of texts as the kernel writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from stoploss.collectors import job_labels, process_scheduler
from stoploss.collectors.job_labels import Group, job_of, labels_of
from stoploss.engine.model import UNREADABLE, LabelValue

POD_UID = "0f6a4b1c-9d2e-4f3a-8b7c-1234567890ab"
CONTAINER = "c0ffee" + "0" * 58

Start = Callable[[Mapping[str, str], str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python programs with an environment of their own; ends them afterwards."""
    running: list[subprocess.Popen[str]] = []

    def begin(environment: Mapping[str, str], code: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-IS", "-c", f"{code}\nprint('ready', flush=True)\ninput()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
            text=True,
        )
        running.append(child)
        return child

    yield begin
    for child in running:
        child.kill()
        child.communicate()


class Proc:
    """A /proc of files in a folder, with one session led by process 10."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(
        self, pid: int, parent: int, environment: str | None = "", *, session: int = 10, group: str = "0::/"
    ) -> None:
        """One process; no environment is one that cannot be read."""
        folder = self.root / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (py (x) 3) S {parent} {session} {session} 0 0 0 {'0 ' * 12}77 0")
        (folder / "status").write_text("Name:\tpy\nUid:\t4294967294\t0\t0\t0\n")
        (folder / "cgroup").write_text(group + "\n")
        if environment is not None:
            (folder / "environ").write_bytes(environment.replace(" ", "\0").encode())


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """A /proc in a folder."""
    return Proc(tmp_path)


def test_labels_come_from_the_environment_that_a_process_was_started_with(start: Start) -> None:
    """Job, team, class and others are read from a real process, and nothing else of its environment."""
    environment = {
        "STOPLOSS_JOB": "resnet-7",
        "STOPLOSS_TEAM": "vision",
        "STOPLOSS_CLASS": "train",
        "STOPLOSS_STAGE": "",
        "STOPLOSS_USER": "ada",
        "WANDB_API_KEY": "never-to-be-kept",
    }
    child = start(environment, "")
    assert child.stdout
    child.stdout.readline()

    assert labels_of(child.pid) == {
        "job": "resnet-7",
        "user": "ada",
        "team": "vision",
        "class": "train",
        "stage": None,
        "env": None,
        "experiment": None,
        "trial": None,
        "keep": None,
        "asg": None,
    }
    identities = job_labels.Identities()
    identities.of(child.pid)
    assert "never-to-be-kept" not in repr(identities)


def test_a_child_that_lost_its_environment_has_the_job_of_its_parent(start: Start) -> None:
    """A real child started with an empty environment belongs to its parent's job, and is not marked."""
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-IS', '-c', 'input()'], env={})\n"
        "print(child.pid, flush=True)"
    )
    parent = start({"STOPLOSS_JOB": "resnet-7", "STOPLOSS_TEAM": "vision"}, code)
    assert parent.stdout
    pid = int(parent.stdout.readline())

    identity = job_labels.Identities().of(pid)

    assert (identity.job, identity.labels["team"], identity.marked) == ("resnet-7", "vision", False)


def test_a_process_without_a_job_has_none(proc: Proc) -> None:
    """Where process and parents were read and none names a job, the job is absent."""
    proc.add(1, 0)
    proc.add(10, 1)
    proc.add(11, 10, "PATH=/bin LANG=C")

    assert job_of(11, proc.root) is None
    assert labels_of(11, proc.root)["user"] == "4294967294"


def test_what_cannot_be_read_is_never_absent(proc: Proc) -> None:
    """A process that is hidden, or whose environment or that of a parent is denied, is unreadable."""
    proc.add(10, 1, None)
    proc.add(11, 10, "PATH=/bin")
    proc.add(12, 999, "PATH=/bin")

    assert [job_of(pid, proc.root) for pid in (10, 11, 12, 404)] == [UNREADABLE] * 4
    assert set(labels_of(404, proc.root).values()) == {UNREADABLE}


def test_services_above_the_session_hide_nothing(proc: Proc) -> None:
    """A denied environment above the leader of the session, such as sshd's, leaves the job absent."""
    proc.add(1, 0, None, session=1)
    proc.add(9, 1, None, session=9)
    proc.add(10, 9, "SHELL=/bin/sh")
    proc.add(11, 10, "SHELL=/bin/sh")

    assert job_of(11, proc.root) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_process_of_another_user_is_unreadable(start: Start) -> None:
    """Without rights the labels of another user's real process are unreadable; its owner is known."""
    child = start({"STOPLOSS_JOB": "secret"}, "")
    assert child.stdout
    child.stdout.readline()
    code = (
        "import os, sys\n"
        "from stoploss.collectors.job_labels import labels_of\n"
        "os.setuid(65534)\n"
        "labels = labels_of(int(sys.argv[1]))\n"
        "print(labels['job'], labels['class'], labels['user'])"
    )
    told = subprocess.check_output([sys.executable, "-c", code, str(child.pid)], text=True)

    assert told == "UNREADABLE UNREADABLE root\n"


@pytest.mark.parametrize(
    ("environment", "group", "job"),
    [
        ("SLURM_JOB_ID=4412 WANDB_RUN_ID=w1", "0::/", "4412"),
        ("STOPLOSS_JOB=a SLURM_JOB_ID=4412", "0::/", "a"),
        ("SLURM_JOB_ID=4419 SLURM_ARRAY_JOB_ID=4412 SLURM_ARRAY_TASK_ID=7", "0::/", "4412_7"),
        ("WANDB_RUN_ID=w1", "0::/", "w1"),
        ("WANDB_RUN_ID=w1 KUBERNETES_SERVICE_HOST=10.0.0.1 HOSTNAME=train-0", "0::/", "train-0"),
        ("HOSTNAME=node7", "0::/", None),
        (None, "0::/system.slice/slurmstepd.scope/job_4412/step_0/user/task_0", "4412"),
        ("KUBERNETES_SERVICE_HOST=10.0.0.1 HOSTNAME=node7", f"0::/kubepods/pod{POD_UID}/x", POD_UID),
    ],
)
def test_the_first_name_of_a_job_counts(
    proc: Proc, environment: str | None, group: str, job: str | None
) -> None:
    """STOPLOSS_JOB goes before Slurm, the pod and W&B; a pod on the host's network is told by its UID."""
    (proc.root / "sys/kernel").mkdir(parents=True)
    (proc.root / "sys/kernel/hostname").write_text("node7\n")
    proc.add(10, 0, environment, group=group)

    assert job_of(10, proc.root) == job


@pytest.mark.parametrize(
    ("environment", "group", "scheduler", "number"),
    [
        ("STOPLOSS_JOB=a", "0::/", "process", None),
        ("WANDB_RUN_ID=w1", "0::/user.slice", "process", None),
        ("SLURM_JOB_ID=4412", "0::/", "slurm", "4412"),
        ("STOPLOSS_JOB=a SLURM_JOB_ID=4412", "0::/", "slurm", "4412"),
        ("SLURM_JOB_ID=4419 SLURM_ARRAY_JOB_ID=4412 SLURM_ARRAY_TASK_ID=7", "0::/", "slurm", "4412_7"),
        ("STOPLOSS_JOB=a", "0::/system.slice/slurmstepd.scope/job_4412/step_0/user/task_0", "slurm", "4412"),
        ("STOPLOSS_JOB=a", f"0::/kubepods/pod{POD_UID}/x", "kubernetes", None),
        ("KUBERNETES_SERVICE_HOST=10.0.0.1 HOSTNAME=train-0", "0::/", "kubernetes", None),
        (None, "0::/system.slice/slurmstepd.scope/job_4412/step_0/user/task_0", "slurm", "4412"),
        (None, "0::/", UNREADABLE, UNREADABLE),
    ],
)
def test_the_scheduler_is_told_whatever_names_the_job(
    proc: Proc, environment: str | None, group: str, scheduler: LabelValue, number: LabelValue
) -> None:
    """Slurm and pods are told by environment and control group, also of a job that STOPLOSS_JOB names."""
    proc.add(10, 0, environment, group=group)
    # A child that lost its environment.
    proc.add(11, 10, "PATH=/bin", group=group)
    identities = job_labels.Identities(proc.root)

    told = {"scheduler": scheduler, "slurm_job": number}
    assert process_scheduler.labels(identities, 10) == told
    assert process_scheduler.labels(identities, 11) == told


def test_the_team_of_a_slurm_job_is_its_account(proc: Proc) -> None:
    """SLURM_JOB_ACCOUNT names the team where STOPLOSS_TEAM does not."""
    proc.add(10, 0, "SLURM_JOB_ID=1 SLURM_JOB_ACCOUNT=nlp")
    proc.add(20, 0, "SLURM_JOB_ID=2 SLURM_JOB_ACCOUNT=nlp STOPLOSS_TEAM=vision")

    assert [labels_of(pid, proc.root)["team"] for pid in (10, 20)] == ["nlp", "vision"]


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("0::/user.slice/user-0.slice\n", None),
        ("", None),
        ("\0\xff nonsense", None),
        ("0::/slurm/uid_0/job_", None),
        ("0::/user.slice/job_7", None),
        ("0::/x/slurmstepd.scope/job_7/step_0", Group("7", "/x/slurmstepd.scope/job_7/memory.events")),
        (
            "9:cpu,cpuacct:/slurm/uid_1/job_7/step_0\n4:memory:/slurm/uid_1/job_7/step_0\n0::/x",
            Group("7", "/memory/slurm/uid_1/job_7/memory.oom_control"),
        ),
        ("9:cpu:/slurm_n1/uid_1/job_7", Group("7", None)),
        (
            f"0::/kubepods.slice/kubepods-pod{POD_UID.replace('-', '_')}.slice/x",
            Group(POD_UID, f"/kubepods.slice/kubepods-pod{POD_UID.replace('-', '_')}.slice/memory.events"),
        ),
    ],
)
def test_control_groups_name_slurm_jobs_and_pods(text: str, group: Group | None) -> None:
    """The group of a Slurm job or a pod is found in either version; anything else names none."""
    assert job_labels.parse_group(text.encode("latin-1")) == group


@pytest.mark.parametrize(
    ("text", "container"),
    [
        (f"0::/docker/{CONTAINER}", "c0ffee000000"),
        (f"0::/system.slice/docker-{CONTAINER}.scope/init", "c0ffee000000"),
        (f"0::/docker/{CONTAINER[:60]}", None),
        ("0::/", None),
    ],
)
def test_control_groups_name_containers(text: str, container: str | None) -> None:
    """A container is named by the first twelve digits of its id."""
    assert job_labels.parse_container(text.encode()) == container


@pytest.mark.parametrize("data", [b"", b"7 (x", b"7 (x) S 1 2", b"7 (x) S " + b"a " * 20])
def test_a_stat_that_is_cut_short_is_none(data: bytes) -> None:
    """A text that is no /proc/PID/stat tells nothing, and raises nothing."""
    assert job_labels.parse_stat(data) is None


def test_of_two_entries_the_first_counts() -> None:
    """A variable that stands twice has the value that programs see, and others are not kept."""
    data = b"STOPLOSS_JOB=a\0STOPLOSS_JOB=b\0AWS_SECRET_ACCESS_KEY=x\0broken\0STOPLOSS_TEAM=\xff"

    assert job_labels.parse_environment(data) == {"STOPLOSS_JOB": "a", "STOPLOSS_TEAM": "\ufffd"}
