"""The processes of this machine at one instant: who started whom, and which job each belongs to.

Only the variables that name a job are kept of an environment.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

Key = tuple[int, int]
"""A process's id and its start in clock ticks since the boot; ids alone are used again."""

JOB, RUN = "STOPLOSS_JOB", "WANDB_RUN_ID"
SLURM, POD = "SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST"
ARRAY = ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
"""Together the name of a task of a Slurm job array: 4412_7."""
_KEPT = frozenset({JOB, RUN, SLURM, POD, *ARRAY})

_SLURM_GROUP = re.compile(r"/slurm[^/]*/(?:.*/)?job_(\d+)(?:/|$)", re.MULTILINE)
_POD_GROUP = re.compile(r"kubepods")
_CONTAINER = re.compile(r"(?:/|-)([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)

_KERNEL = 0x00200000
"""The flag PF_KTHREAD."""

_LONGEST_WALK = 1024
"""Parents; more are a loop of ids that were used again while they were read."""

_LOOKS, _PAUSE = 250, 0.002
"""Looks at a program that is just being started until its environment is in its place, and the seconds
between two."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A living process.

    Attributes:
        pid: its id.
        start: its start in clock ticks since the boot.
        comm: its name, as the kernel tells it.
        state: one letter; T and t are stopped, D cannot be interrupted.
        parent: its parent's id.
        session: the id of its session's leader.
        uid: whose it is; None where that cannot be seen.
        variables: those of its environment that name a job; None where it cannot be read.
    """

    pid: int
    start: int
    comm: str
    state: str
    parent: int
    session: int
    uid: int | None
    variables: Mapping[str, str] | None

    @property
    def key(self) -> Key:
        """What tells it from another process of the same id."""
        return self.pid, self.start


@dataclass(frozen=True, slots=True)
class Tree:
    """All living processes, by id."""

    processes: Mapping[int, Seen] = field(default_factory=dict)

    @property
    def hidden(self) -> int:
        """How many processes have an environment that cannot be read."""
        return sum(process.variables is None for process in self.processes.values())

    def parents(self, pid: int) -> Iterator[Seen]:
        """The parent of a process, its parent, and so on."""
        for _ in range(_LONGEST_WALK):
            process = self.processes.get(pid)
            parent = self.processes.get(process.parent) if process else None
            # A parent that is younger than its child has the id of another that is gone.
            if process is None or parent is None or parent.start > process.start:
                return
            yield parent
            pid = parent.pid

    def job(self, pid: int) -> str | None:
        """The job that a process was told, or the nearest parent that was; STOPLOSS_JOB goes first."""
        run = None
        for process in (self.processes[pid], *self.parents(pid)):
            told = process.variables or {}
            if name := told.get(JOB):
                return name
            run = run or told.get(RUN)
        return run

    def members(self, job: str) -> tuple[Seen, ...]:
        """The processes of a job, those that lead it first: they have no parent in it."""
        found = {pid: seen for pid, seen in self.processes.items() if self.job(pid) == job}
        return self._leaders_first(found)

    def of_slurm(self, name: str) -> tuple[Seen, ...]:
        """The processes that Slurm told this name of their job, those first that no other of them started."""
        found = {
            pid: seen for pid, seen in self.processes.items() if _slurm_job(seen.variables or {}) == name
        }
        return self._leaders_first(found)

    def below(self, pid: int) -> tuple[Seen, ...]:
        """A process and what it started, as far as that is of the same job."""
        job = self.job(pid)
        found = {
            other: seen
            for other, seen in self.processes.items()
            if other == pid
            or (any(parent.pid == pid for parent in self.parents(other)) and self.job(other) == job)
        }
        return self._leaders_first(found)

    def leads(self, pid: int, others: Collection[int]) -> bool:
        """Whether none of the others started a process."""
        return not any(parent.pid in others for parent in self.parents(pid))

    def _leaders_first(self, found: Mapping[int, Seen]) -> tuple[Seen, ...]:
        depth = {pid: sum(parent.pid in found for parent in self.parents(pid)) for pid in found}
        return tuple(sorted(found.values(), key=lambda seen: (depth[seen.pid], seen.start, seen.pid)))

    def controller(self, pid: int) -> str | None:
        """Who runs a process and would notice its end: a Slurm job or a pod; None for neither."""
        group = group_of(pid)
        if match := _SLURM_GROUP.search(group):
            return f"Slurm job {match[1]}"
        if _POD_GROUP.search(group):
            return "a Kubernetes pod"
        for process in (self.processes[pid], *self.parents(pid)):
            told = process.variables or {}
            if number := told.get(SLURM):
                return f"Slurm job {number}" if number.isdigit() else "a Slurm job"
            if POD in told:
                return "a Kubernetes pod"
        return None


def look() -> Tree:
    """The processes that live now; those of the kernel are left out.

    Raises:
        OSError: the list cannot be read.
    """
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return Tree({seen.pid: seen for pid in pids if (seen := see(pid))})


def see(pid: int) -> Seen | None:
    """One process, or None where there is none that lives."""
    try:
        head, words = _stat(pid)
        parent, session, flags, threads, start = (int(words[index]) for index in (1, 3, 6, 17, 19))
    except (OSError, ValueError, IndexError):
        return None
    state = words[0].decode("ascii", "replace")
    # The first thread may have ended while others go on.
    if flags & _KERNEL or (state in "ZX" and threads <= 1):
        return None
    comm = head.partition(b"(")[2].decode("utf-8", "replace")
    return Seen(pid, start, comm, state, parent, session, _owner(pid), _variables(pid))


def _slurm_job(variables: Mapping[str, str]) -> str | None:
    array, task = (variables.get(name) for name in ARRAY)
    return f"{array}_{task}" if array and task else variables.get(SLURM)


def group_of(pid: int) -> str:
    """The text of /proc/PID/cgroup; empty where it cannot be read."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def container_in(group: str) -> str | None:
    """The whole id of the container that a text of /proc/PID/cgroup names, or None."""
    match = _CONTAINER.search(group)
    return match[1] if match else None


def is_pod(group: str) -> bool:
    """Whether a text of /proc/PID/cgroup is that of a pod's container."""
    return _POD_GROUP.search(group) is not None


def boot() -> str:
    """What tells this boot of the machine from every other.

    Raises:
        OSError: it cannot be read.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        return stream.read().strip()


def _owner(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as stream:
            return next((int(line.split()[1]) for line in stream if line.startswith("Uid:")), None)
    except (OSError, ValueError):
        return None


def _stat(pid: int) -> tuple[bytes, list[bytes]]:
    """What stands before and after the name's end in /proc/PID/stat."""
    with open(f"/proc/{pid}/stat", "rb") as stream:
        head, _, rest = stream.read().rpartition(b")")
    return head, rest.split()


def _environment(pid: int) -> bytes:
    """The environment of a process, waited for where its program is just being started.

    In the middle of execve(2) it reads as empty, and whose the process is cannot be told; where it ends
    in memory (`env_end`, the 51st field of /proc/PID/stat) is 0 until it is in its place.

    Raises:
        OSError: it cannot be read, or was not in its place in time.
    """
    for _ in range(_LOOKS):
        settled = int(_stat(pid)[1][48]) != 0
        with open(f"/proc/{pid}/environ", "rb") as stream:
            data = stream.read()
        if data or settled:
            return data
        time.sleep(_PAUSE)
    raise TimeoutError(f"the environment of process {pid} is not in its place")


def _variables(pid: int) -> dict[str, str] | None:
    try:
        data = _environment(pid)
    except (OSError, ValueError, IndexError):
        return None
    found: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        text = value.decode("utf-8", "replace").strip()
        if equals and text and (key := name.decode("utf-8", "replace")) in _KEPT:
            # Of two entries of one name programs see the first.
            found.setdefault(key, text)
    return found
