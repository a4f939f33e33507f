"""Training processes of this machine, and the jobs that they belong to.

A process is a training process when it holds a GPU or was told its job: when it has a device
file of `devices` open, or was started with `STOPLOSS_JOB`, `SLURM_JOB_ID` or `WANDB_RUN_ID`.
All others are left out, and so is stoploss itself.

- The job is named by the first of: `STOPLOSS_JOB`, `SLURM_JOB_ID`, the Kubernetes pod (its
  name inside, its UID by control group), `WANDB_RUN_ID`. A process that lost its environment
  has the job of its parents or of its control group. `STOPLOSS_TEAM`, `STOPLOSS_CLASS`,
  `STOPLOSS_STAGE`, `STOPLOSS_ENV`, `STOPLOSS_EXPERIMENT`, `STOPLOSS_TRIAL`, `STOPLOSS_KEEP` and
  `STOPLOSS_ASG` (the Auto Scaling group it runs in) become labels; the team of a Slurm job is
  else its account. `STOPLOSS_USER` names the user where the owner of the process does not. No
  other variable is kept.
- The label `scheduler` says who runs it: `slurm` or `kubernetes` by `SLURM_JOB_ID`, the pod's
  variables or the control group, also where `STOPLOSS_JOB` names the job; else `process`. Of a
  Slurm job the label `slurm_job` is its id, which Slurm's commands take.
- A process is named `HOST/PID@START`, its start in clock ticks since the boot: an id that is
  used again is another process.
- A job is `running` while a process lives that leads it, which is one that no other process of
  the job started. When only what it started is left, the job has `ended`, and `job.gpus_held`
  tells how many GPUs that still holds. Of several ranks that a launcher outside the job started,
  each keeps it running. A process that comes later begins the job anew. A job is `suspended` while all of
  its processes are stopped. Nothing seen from outside tells failed from completed: both are
  `ended`, from the first look that saw it.
- Jobs are remembered in memory alone, and shown for `forget` after their last process is gone;
  what ended before the first look was never seen. A job that runs on several hosts is seen by
  each host by itself.
- The GPUs of a job are those on which the NVIDIA driver lists a process of it. Where it lists
  none, they are those whose device files its processes have open: a child that inherited them
  holds them too, but libraries also open those of GPUs that they do not use.
- `process.gpu.memory.used` is told by the driver alone.
- `process.cpu.utilization` is a share of all CPUs, over the time since the look before. The
  first look takes two readings 100 ms apart; a process that comes later needs one look more.
- `data.bytes_read` adds up what the job's processes had read from storage when they were last
  seen, those that have ended included.
- `job.oom_kills` counts processes killed for want of memory in the control group that Slurm or
  Kubernetes made for the job. A job without one makes it a bad reading.

The environment and the open files of other users' processes can be read by root alone (the
capabilities `CAP_SYS_PTRACE` and `CAP_DAC_READ_SEARCH` do too). Where they cannot be read the
labels are unreadable, never absent, and how many processes that hides is said in a note. From
inside a container, or with `/proc` mounted with `hidepid`, other processes cannot be seen at
all, which a note says as well.

Right:

```yaml
collectors:
  process: {every: 30s, devices: ["/dev/nvidia[0-9]*", "/dev/accel*"], forget: 12h}
```

Wrong, because `devices` is a list:

```yaml
collectors:
  process: {devices: /dev/nvidia0}
```
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from stoploss.collectors.contract import Collector, CollectorError, Context, NotHere
from stoploss.collectors.job_labels import PROC, Identities, Identity, Stat
from stoploss.collectors.process_gpus import DeviceFiles, Driver, Listed, memory, target
from stoploss.collectors.process_jobs import NO_GROUP, Jobs, Member, ProcessKey
from stoploss.collectors.process_options import Options
from stoploss.collectors.process_scheduler import labels as scheduler_labels
from stoploss.engine.model import Bad, LabelValue, Look, Reading, ResourceId, Sample

NAME = "process"

FIRST_GAP = 0.1
"""Seconds between the two readings of the first look."""

CGROUPS = Path("/sys/fs/cgroup")

FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""What the kernel names the namespace that sees every process."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Process:
    """A training process, alive at this look."""

    pid: int
    stat: Stat
    identity: Identity
    devices: frozenset[str] | Bad

    @property
    def key(self) -> ProcessKey:
        """What tells it from another process of the same id."""
        return self.pid, self.stat.started


@dataclass(slots=True)
class ProcessCollector:
    """Looks at the processes of one machine, and remembers its jobs."""

    hostname: str
    devices: DeviceFiles
    jobs: Jobs
    sleep: Callable[[float], None]
    driver: Driver = field(default_factory=Driver)
    proc: Path = PROC
    _tracked: dict[ProcessKey, _Process] = field(default_factory=dict)
    _cpu: dict[ProcessKey, float] = field(default_factory=dict)
    _cpu_total: float = 0.0

    def look(self, at: float) -> Look:
        """Look once; every sample carries `at`.

        Raises:
            NotHere: there is no /proc/stat, so this is no Linux machine.
            CollectorError: the list of processes cannot be read.
        """
        if not (self.proc / "stat").exists():
            raise NotHere("no /proc/stat: the process collector reads Linux machines only")
        identities = Identities(self.proc)
        listed = self.driver.listed()
        found, hidden = self._training(identities, {} if isinstance(listed, Bad) else listed)
        if not self._cpu_total:
            self._cpu_total, self._cpu = _all_cpu_time(), _cpu_times(found)
            self.sleep(FIRST_GAP)
        samples = list(self._process_samples(at, found, identities, listed))
        members: dict[str, list[Member]] = {}
        for process in found:
            if isinstance(process.identity.job, str):
                member = _member(process, identities, listed)
                members.setdefault(process.identity.job, []).append(member)
        samples += self.jobs.look(at, members)
        gone = self._tracked.keys() - {process.key for process in found}
        # Certain for what this look saw before, unlike for all processes of a fleet.
        samples += [Sample(at, self._resource(key), "resource.present", 0.0) for key in sorted(gone)]
        self._tracked = {process.key: process for process in found}
        return Look(tuple(samples), notes=tuple(self._notes(hidden, listed)))

    def _training(self, identities: Identities, listed: Listed) -> tuple[list[_Process], int]:
        """The training processes, and how many processes may be some but cannot be looked into."""
        try:
            pids = sorted(int(name) for name in os.listdir(self.proc) if name.isdigit())
        except OSError as error:
            raise CollectorError(
                f"/proc cannot be listed: {(error.strerror or str(error)).lower()}"
            ) from error
        found: list[_Process] = []
        hidden = 0
        for pid in pids:
            stat = identities.stat(pid)
            if stat is None or stat.ended or stat.kernel or pid == os.getpid():
                continue
            devices = self.devices.held(pid)
            before = self._tracked.get((pid, stat.started))
            if identities.environment(pid) is None and before is not None:
                # It hides itself since the look before, which does not make it another's.
                found.append(_Process(pid, stat, before.identity, devices))
            elif identities.marked(pid) or pid in listed or (devices and not isinstance(devices, Bad)):
                found.append(_Process(pid, stat, _identity(identities, pid), devices))
            else:
                hidden += isinstance(devices, Bad)
        return found, hidden

    def _process_samples(
        self, at: float, found: Sequence[_Process], identities: Identities, listed: Listed | Bad
    ) -> Iterator[Sample]:
        # In a container the driver may list ids that mean nothing there.
        complete = not isinstance(listed, Bad) and all(identities.stat(pid) for pid in listed)
        total, before = _all_cpu_time(), self._cpu
        span, self._cpu = total - self._cpu_total, _cpu_times(found)
        self._cpu_total = total
        for process in found:
            labels: dict[str, LabelValue] = {
                **process.identity.labels,
                "host": self.hostname,
                "pid": str(process.pid),
                "container": identities.container(process.pid),
            }
            cpu = _cpu_share(before.get(process.key), self._cpu.get(process.key), span)
            try:
                readings = dict(_readings(process.pid))
            except psutil.NoSuchProcess:
                continue
            readings["process.cpu.utilization"] = cpu
            readings["process.uptime"] = max(at - _began(process.stat), 0.0)
            gpu_memory = memory(process.pid, process.devices, listed, complete=complete)
            readings["process.gpu.memory.used"] = gpu_memory
            for signal, reading in readings.items():
                yield Sample(at, self._resource(process.key), signal, reading, labels)

    def _resource(self, key: ProcessKey) -> ResourceId:
        return ResourceId("process", f"{self.hostname}/{key[0]}@{key[1]}")

    def _notes(self, hidden: int, listed: Listed | Bad) -> Iterator[str]:
        if isinstance(listed, Bad):
            yield f"GPUs held are told by open device files alone: {listed.reason}"
        if hidden:
            yield f"{hidden} processes of other users were not looked into (permission denied)"
        if not (self.proc / "1").exists():
            yield "processes of other users cannot be seen (/proc is mounted with hidepid)"
        if target(str(self.proc / "self/ns/pid")) not in ("", FIRST_PID_NAMESPACE):
            yield "processes outside of this container cannot be seen"


def _identity(identities: Identities, pid: int) -> Identity:
    own = identities.of(pid)
    return Identity({**own.labels, **scheduler_labels(identities, pid)}, own.marked)


def _member(process: _Process, identities: Identities, listed: Listed | Bad) -> Member:
    labels = {name: value for name, value in process.identity.labels.items() if name != "job"}
    if labels.get("slurm_job") == process.identity.job:
        # What its processes do not say the collector `slurm` may, which looks at other times.
        labels = {name: value for name, value in labels.items() if value is not None}
    return Member(
        key=process.key,
        parents=tuple(identities.parents(process.pid)),
        began=_began(process.stat),
        stopped=process.stat.state in "Tt",
        open_devices=process.devices,
        listed=frozenset() if isinstance(listed, Bad) else frozenset(listed.get(process.pid, ())),
        labels=labels,
        read=_read(process.pid),
        oom_kills=_oom_kills(identities, process.pid),
    )


def _began(stat: Stat) -> float:
    """When a process was started, in seconds since the epoch."""
    return psutil.boot_time() + stat.started / os.sysconf("SC_CLK_TCK")


def _read(pid: int) -> float | Bad:
    try:
        return _ask(lambda: float(psutil.Process(pid).io_counters().read_bytes))
    except psutil.NoSuchProcess:
        return Bad("ended while it was looked at")


def _readings(pid: int) -> Iterator[tuple[str, Reading]]:
    """What psutil tells of a process.

    Raises:
        psutil.NoSuchProcess: it has ended.
    """
    asked = psutil.Process(pid)
    with asked.oneshot():
        yield "process.memory.used", _ask(lambda: float(asked.memory_info().rss))
        yield "process.threads", _ask(lambda: float(asked.num_threads()))
        traffic = _ask(asked.io_counters)
        yield "process.disk.read", traffic if isinstance(traffic, Bad) else float(traffic.read_bytes)
        yield "process.disk.written", traffic if isinstance(traffic, Bad) else float(traffic.write_bytes)


def _cpu_times(found: Sequence[_Process]) -> dict[ProcessKey, float]:
    """CPU seconds that each process has used so far."""
    times = {process.key: _cpu_time(process.pid) for process in found}
    return {key: seconds for key, seconds in times.items() if seconds is not None}


def _cpu_time(pid: int) -> float | None:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return times.user + times.system


def _all_cpu_time() -> float:
    # Guest times are parts of user and nice.
    return sum(psutil.cpu_times()[:8])


def _cpu_share(before: float | None, now: float | None, span: float) -> Reading:
    if before is None or now is None:
        return Bad("needs two readings")
    if span <= 0:
        return Bad("the CPU times did not advance")
    return min(max(now - before, 0.0) / span, 1.0)


def _oom_kills(identities: Identities, pid: int) -> float | Bad:
    group = identities.group(pid)
    if group is None or group.kills is None:
        return NO_GROUP
    try:
        return parse_kills((CGROUPS / group.kills.lstrip("/")).read_text("utf-8", "replace"))
    except OSError as error:
        return Bad(f"memory of the job's control group: {(error.strerror or str(error)).lower()}")


def parse_kills(text: str) -> float | Bad:
    """Processes killed for want of memory, from a text of memory.events or memory.oom_control."""
    match = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return float(match[1]) if match else Bad("the control group counts no OOM kills")


def _ask(question: Callable[[], T]) -> T | Bad:
    """What psutil answers, or why it does not.

    Raises:
        psutil.NoSuchProcess: the process has ended.
    """
    try:
        return question()
    except psutil.NoSuchProcess:
        raise
    except (psutil.AccessDenied, PermissionError):
        return Bad("permission denied")
    except Exception as error:
        # What psutil raises on a text that it cannot read depends on where it stumbles.
        return Bad(f"psutil cannot tell: {type(error).__name__}: {error}")


def build(options: Options, context: Context) -> Collector:
    """The running collector."""
    return ProcessCollector(
        options.name or context.hostname,
        DeviceFiles(options.devices, PROC),
        Jobs(options.forget),
        context.sleep,
    )
