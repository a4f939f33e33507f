"""Which job a process belongs to, and the labels it was started with, read from /proc.

Of an environment only the variables named here are kept, never any other. A child that lost
its environment takes what its parents were given.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stoploss.engine.model import UNREADABLE, LabelValue

PROC = Path("/proc")

LABELS: Mapping[str, str] = {
    "team": "STOPLOSS_TEAM",
    "class": "STOPLOSS_CLASS",
    "stage": "STOPLOSS_STAGE",
    "env": "STOPLOSS_ENV",
    "experiment": "STOPLOSS_EXPERIMENT",
    "trial": "STOPLOSS_TRIAL",
    "keep": "STOPLOSS_KEEP",
    "asg": "STOPLOSS_ASG",
}
"""Label -> the environment variable that gives it."""

ACCOUNT = "SLURM_JOB_ACCOUNT"
"""The team of a Slurm job that names none."""

USER = "STOPLOSS_USER"
"""Names the user where the owner of the process does not, as in containers that run as root."""

ARRAY = ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
"""Together the name of a task of a Slurm job array, as the scheduler writes it: 4412_7."""

MARKS = ("STOPLOSS_JOB", "SLURM_JOB_ID", "WANDB_RUN_ID")
"""Variables that make a process one of a job, whether it holds a GPU or not."""

_KEPT = frozenset({*LABELS.values(), ACCOUNT, USER, *ARRAY, *MARKS, "KUBERNETES_SERVICE_HOST", "HOSTNAME"})

_SLURM_GROUP = re.compile(r"(?P<path>.*/slurm[^/]*/(?:.*/)?job_(?P<job>\d+))(?:/|$)")
_POD_GROUP = re.compile(
    r"(?P<path>.*kubepods.*pod(?P<job>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?)(?:/|$)"
)
_CONTAINER = re.compile(r"(?:/|-)([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)

_KERNEL = 0x00200000
"""The flag PF_KTHREAD."""

_LONGEST_WALK = 64
"""Parents; more are a loop of ids that were used again while they were read."""


def _slurm_job(variables: Mapping[str, str]) -> str | None:
    """The Slurm job's id; a task of an array has a number of its own beside the array's."""
    array, task = (variables.get(name) for name in ARRAY)
    return f"{array}_{task}" if array and task else variables.get("SLURM_JOB_ID")


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat tells.

    Attributes:
        state: one letter; Z and X have ended, T and t are stopped.
        parent: its parent's id, 0 where that lies outside.
        session: the id of its session's leader.
        kernel: whether it is a thread of the kernel.
        started: clock ticks from the boot to its start.
    """

    state: str
    parent: int
    session: int
    kernel: bool
    started: int

    @property
    def ended(self) -> bool:
        """Whether it only waits to be forgotten by its parent."""
        return self.state in "ZX"


@dataclass(frozen=True, slots=True)
class Group:
    """The control group that was made for a job.

    Attributes:
        job: the id of a Slurm job, or the UID of a pod.
        kills: the file below /sys/fs/cgroup that counts what ran out of memory in it, if one does.
    """

    job: str
    kills: str | None


@dataclass(frozen=True, slots=True)
class Identity:
    """What a process says about itself.

    Attributes:
        labels: job, user, team, class and others; None is absent, UNREADABLE cannot be seen.
        marked: whether the process itself, not a parent, was told the job.
    """

    labels: Mapping[str, LabelValue]
    marked: bool

    @property
    def job(self) -> LabelValue:
        """The job's name."""
        return self.labels["job"]


@dataclass(slots=True)
class Identities:
    """Identities of processes at one instant; what one of them read is not read again."""

    proc: Path = PROC
    _environments: dict[int, Mapping[str, str] | None] = field(default_factory=dict)
    _stats: dict[int, Stat | None] = field(default_factory=dict)

    def of(self, pid: int) -> Identity:
        """The identity of one process; where it cannot be seen, all of it is UNREADABLE."""
        found: dict[str, str] = {}
        readable = True
        for variables in self._chain(pid):
            if variables is None:
                readable = False
                break
            found = {**variables, **found}
            if self._named_job(variables) is not None:
                break
        missing: LabelValue = None if readable else UNREADABLE
        # A control group can be read without rights where an environment cannot.
        group = self.group(pid)
        job = self._named_job(found) or (group and group.job) or found.get("WANDB_RUN_ID")
        labels: dict[str, LabelValue] = {"job": job or missing, "user": found.get(USER) or self._owner(pid)}
        labels |= {label: found.get(variable, missing) for label, variable in LABELS.items()}
        labels["team"] = found.get(LABELS["team"]) or found.get(ACCOUNT, missing)
        return Identity(labels, self.marked(pid))

    def marked(self, pid: int) -> bool:
        """Whether the process itself, not a parent, was told its job; one that is hidden by its group."""
        own = self.environment(pid)
        return self.group(pid) is not None if own is None else any(name in own for name in MARKS)

    def parents(self, pid: int) -> Iterator[int]:
        """The parent of a process, its parent, and so on, as far as they can be seen."""
        for _ in range(_LONGEST_WALK):
            stat = self.stat(pid)
            if stat is None or stat.parent <= 0:
                return
            pid = stat.parent
            yield pid

    def environment(self, pid: int) -> Mapping[str, str] | None:
        """The kept variables of a process, or None where its environment cannot be seen."""
        if pid not in self._environments:
            self._environments[pid] = self._read_environment(pid)
        return self._environments[pid]

    def stat(self, pid: int) -> Stat | None:
        """What is known of a process without any rights, or None where it cannot be seen."""
        if pid not in self._stats:
            data = self._read(pid, "stat")
            self._stats[pid] = None if data is None else parse_stat(data)
        return self._stats[pid]

    def _chain(self, pid: int) -> Iterator[Mapping[str, str] | None]:
        """The environments of a process and its parents; None for one that hides something.

        What is lost on the way is lost within the session of the job. Above its leader stand
        services (sshd, init) whose environment other users cannot read, and that hide nothing.
        """
        inside = True
        for member in (pid, *self.parents(pid)):
            environment, stat = self.environment(member), self.stat(member)
            if environment is not None or inside:
                yield environment
            inside = inside and stat is not None and member != stat.session

    def _read_environment(self, pid: int) -> Mapping[str, str] | None:
        stat = self.stat(pid)
        data = self._read(pid, "environ")
        # An ended process that was not waited for has an empty environment, whatever it had.
        return None if data is None or stat is None or stat.ended else parse_environment(data)

    def _named_job(self, variables: Mapping[str, str]) -> str | None:
        """The job that variables name, WANDB_RUN_ID apart: a pod's or a scheduler's name comes first."""
        if job := variables.get("STOPLOSS_JOB") or _slurm_job(variables):
            return job
        pod = variables.get("HOSTNAME") if "KUBERNETES_SERVICE_HOST" in variables else None
        # A pod on the host's network has the host's name, which all such pods share.
        return pod if pod != self._hostname() else None

    def group(self, pid: int) -> Group | None:
        """The control group of the job that the process is in, or None where there is none to see."""
        data = self._read(pid, "cgroup")
        return None if data is None else parse_group(data)

    def container(self, pid: int) -> LabelValue:
        """The id of the container that the process runs in, as its control group tells."""
        data = self._read(pid, "cgroup")
        return UNREADABLE if data is None else parse_container(data)

    def _hostname(self) -> str | None:
        try:
            return (self.proc / "sys/kernel/hostname").read_text("utf-8", "replace").strip()
        except OSError:
            return None

    def _owner(self, pid: int) -> LabelValue:
        data = self._read(pid, "status")
        match = None if data is None else re.search(rb"^Uid:\t(\d+)\t", data, re.MULTILINE)
        if match is None:
            return UNREADABLE
        try:
            return pwd.getpwuid(int(match[1])).pw_name
        except (KeyError, OverflowError):
            return match[1].decode()

    def _read(self, pid: int, name: str) -> bytes | None:
        try:
            return (self.proc / str(pid) / name).read_bytes()
        except OSError:
            return None


def job_of(pid: int, proc: Path = PROC) -> LabelValue:
    """The job of a process; None where it has none, UNREADABLE where that cannot be seen."""
    return Identities(proc).of(pid).job


def labels_of(pid: int, proc: Path = PROC) -> dict[str, LabelValue]:
    """The labels job, user, team, class, stage, env, experiment, trial and keep of a process."""
    return dict(Identities(proc).of(pid).labels)


def parse_environment(data: bytes) -> dict[str, str]:
    """The kept variables of an environment; an empty one counts as not set."""
    found: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        text = value.decode("utf-8", "replace").strip()
        if equals and text and (key := name.decode("utf-8", "replace")) in _KEPT:
            # Of two entries of one name programs see the first.
            found.setdefault(key, text)
    return found


def parse_group(data: bytes) -> Group | None:
    """The group made for a job that a text of /proc/PID/cgroup names, or None where it names none."""
    found: Group | None = None
    for line in data.decode("utf-8", "replace").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        match = _SLURM_GROUP.match(path) or _POD_GROUP.match(path)
        if match is None:
            continue
        kills = None
        if not controllers:
            kills = f"{match['path']}/memory.events"
        elif "memory" in controllers.split(","):
            kills = f"/memory{match['path']}/memory.oom_control"
        if found is None or kills is not None:
            found = Group(match["job"].replace("_", "-"), kills)
    return found


def parse_container(data: bytes) -> str | None:
    """The id of the container that a text of /proc/PID/cgroup names, as short as tools show it."""
    match = _CONTAINER.search(data.decode("utf-8", "replace"))
    return match[1][:12] if match else None


def parse_stat(data: bytes) -> Stat | None:
    """What a text of /proc/PID/stat tells, or None where it is none."""
    # The program's name may hold spaces and parentheses; what follows the last one does not.
    words = data.rpartition(b")")[2].split()
    try:
        parent, session, flags, started = (int(words[index]) for index in (1, 3, 6, 19))
        return Stat(words[0].decode("ascii", "replace"), parent, session, bool(flags & _KERNEL), started)
    except (IndexError, ValueError):
        return None
