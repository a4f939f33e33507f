"""Jobs of a Slurm cluster: where each stands, how it ended, and the GPUs that it holds.

Asks `squeue` as any user may, on a machine where Slurm's commands work. It changes nothing. Where
`squeue --json` does not work, it reads `squeue -o` and `scontrol show job -d`. What a site hides
from other users (`PrivateData`) is hidden from stoploss too.

- A job is named by its id, a task of an array `ID_TASK`, a part of a heterogeneous job `ID+PART`; a
  job that is queued again keeps its name. A process that the collector `process` finds takes the
  name from `SLURM_JOB_ID`, which is another number for the tasks of an array: give these
  `STOPLOSS_JOB=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}`.
- Labels: `user`, `team` (the account), `name`, `partition`, `host` (of several nodes Slurm's list,
  such as `n[1-4]`), `gpu_indices` (the GPUs on each node, nodes parted by `;`), and `scheduler`, which
  is `slurm`: actions on the job are carried out by Slurm.
- Slurm does not know what a job is for, and a job of unknown class gets alerts only. `classes` says it
  by partition, as the label `class`. It is not told of a partition that is not named there, nor of a
  job that waits in partitions of different classes.
- `job.gpus` and `job.nodes` are those that the job holds now: 0 while it waits and after its end.
- `job.exit_reason` is `completed`, `failed`, `cancelled`, `timeout`, `out-of-memory`, `preempted` or
  `node-failure` as Slurm says it. Slurm does not know of GPU memory. A job that was preempted,
  cancelled or out of time has `ended`; one that failed, ran out of memory or lost its node has
  `failed`. A script that was ended by SIGTERM was cancelled, although Slurm says that it failed.
- `job.attempts` counts starts: one more than Slurm's restarts once it has begun. `job.queue_time` is
  the wait before the newest attempt, as long as it lasts.

Slurm forgets a job minutes after its end. stoploss goes on telling it for as long as `forget` says,
and asks `sacct` for jobs that ended unseen. Without accounting it says so in a note; nothing else is
lost.

Where there is no `squeue` there is nothing to look at. A controller that is down, a command that does
not answer, and output that is cut short or is no JSON fail the look.

Right:

```yaml
collectors:
  slurm: {every: 1m, partitions: [train, debug], classes: {train: train, debug: interactive}}
```

Wrong, because partitions are a list:

```yaml
collectors:
  slurm: {partitions: train}
```
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stoploss.collectors import slurm_texts as texts
from stoploss.collectors.contract import Collector, CollectorError, Context, NotHere
from stoploss.collectors.slurm_lists import Unparsable
from stoploss.collectors.slurm_options import Options
from stoploss.collectors.slurm_texts import Job
from stoploss.engine.model import Bad, Labels, Look, Reading, ResourceId, Sample

NAME = "slurm"

QUEUE_LIMIT = 3.0
"""Seconds that `squeue` may take."""

OTHERS_LIMIT = 2.0
"""Seconds that each further command may take."""

_PASSED_ON = ("HOME", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "TZ")
"""Variables that the commands are given; others (SQUEUE_USERS, …) would choose what they print."""


class _Unanswered(Exception):
    """A command gave no answer; the text says why."""


class _Silent(_Unanswered):
    """A command did not answer in time, and would not under another name either."""


@dataclass(slots=True)
class SlurmCollector:
    """Jobs of the cluster that this machine's configuration names.

    Attributes:
        options: what the policy file says.
        known: the jobs of the look before, by name.
        attempts: how often each job was started, as far as it was told.
        speaks_json: whether `squeue --json` works; None before it was tried.
    """

    options: Options
    known: dict[str, Job] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    speaks_json: bool | None = None

    def look(self, at: float) -> Look:
        """See the contract."""
        notes: list[str] = []
        jobs = {job.id: job for job in self._queue(notes)}
        rows = self._accounting(notes)
        reasons = {row.id: row.reason for row in rows if row.over}
        for row in rows:
            if row.over and (row.id not in jobs):
                self.attempts[row.id] = max(
                    self.attempts.get(row.id, 0), sum(other.id == row.id and other.began for other in rows)
                )
        ended = {row.id: row for row in rows if row.over}
        # The newest that is told wins: the queue, then the accounting, then what was seen before.
        remembered = {name: job for name, job in self.known.items() if job.over}
        shown = {
            name: job
            for name, job in {**remembered, **ended, **jobs}.items()
            if self._wanted(job) and not (job.over and job.ended and at - job.ended > self.options.forget)
        }
        samples = [sample for job in shown.values() for sample in self._samples(job, at, reasons)]
        gone = sorted(self.known.keys() - shown.keys())
        samples += [Sample(at, ResourceId("job", name), "resource.present", 0.0) for name in gone]
        self.known = shown
        self.attempts = {name: count for name, count in self.attempts.items() if name in shown}
        return Look(tuple(samples), notes=tuple(notes))

    def _wanted(self, job: Job) -> bool:
        own = _partitions(job)
        return not self.options.partitions or not own.isdisjoint(self.options.partitions)

    def _class(self, job: Job) -> Labels:
        """The label `class`, where its partitions agree on it; it is not mentioned otherwise."""
        classes = {self.options.classes.get(name) for name in _partitions(job)}
        return {"class": classes.pop()} if len(classes) == 1 and None not in classes else {}

    def _queue(self, notes: list[str]) -> tuple[Job, ...]:
        try:
            jobs = self._queue_json() if self.speaks_json is not False else None
            return self._queue_fields(notes) if jobs is None else jobs
        except _Unanswered as error:
            raise CollectorError(str(error)) from None
        except Unparsable as error:
            raise CollectorError(f"squeue: {error}") from None

    def _queue_json(self) -> tuple[Job, ...] | None:
        """The jobs, or None where this Slurm cannot tell them as JSON."""
        try:
            text = ask(["squeue", "--json"], QUEUE_LIMIT)
        except _Silent:
            raise
        except _Unanswered:
            # Whether that is for want of JSON or of a controller the plain form tells.
            if self.speaks_json:
                raise
            return None
        jobs = _checked(texts.parse_queue_json(text))
        self.speaks_json = True
        return jobs

    def _queue_fields(self, notes: list[str]) -> tuple[Job, ...]:
        arguments = ["squeue", "-h", "-r", "-t", "all", "-o", texts.QUEUE_FORMAT]
        jobs = _checked(texts.parse_queue(ask(arguments, QUEUE_LIMIT)))
        self.speaks_json = False
        if not jobs:
            return jobs
        try:
            return texts.with_details(jobs, ask(["scontrol", "show", "job", "-d"], OTHERS_LIMIT))
        except (_Unanswered, NotHere) as error:
            notes.append(f"restarts and GPU numbers are not told: {_words(error)}")
            return jobs

    def _accounting(self, notes: list[str]) -> tuple[Job, ...]:
        if not self.options.accounting:
            return ()
        since = f"now-{int(self.options.forget)}seconds"
        arguments = ["sacct", "-P", "-n", "-X", "-D", "-a", "-S", since, "-o", texts.ACCOUNTING_FIELDS]
        try:
            return _checked(texts.parse_accounting(ask(arguments, OTHERS_LIMIT)))
        except (_Unanswered, NotHere, Unparsable) as error:
            notes.append(f"jobs that ended unseen are not told: {_words(error)}")
            return ()

    def _samples(self, job: Job, at: float, reasons: Mapping[str, str]) -> Iterator[Sample]:
        if job.restarts is not None:
            self.attempts[job.id] = max(self.attempts.get(job.id, 0), _starts(job, job.restarts))
        resource, labels = ResourceId("job", job.id), {**_labels(job), **self._class(job)}
        if not job.over and job.phase == "queued" and self.attempts.get(job.id):
            # What ended the attempt before this wait is known to the accounting alone.
            reason = reasons.get(job.id, "none")
        else:
            reason = job.reason
        readings: dict[str, Reading] = {
            "job.state": job.phase,
            "job.exit_reason": reason,
            "job.time_limit": Bad("no time limit") if job.time_limit is None else job.time_limit,
            "job.gpus": _held(job, job.gpus),
            "job.nodes": _held(job, job.nodes),
            "job.queue_time": _queue_time(job, at),
            "job.attempts": _or_bad(self.attempts.get(job.id), "Slurm does not tell its restarts"),
            "job.runtime": _runtime(job, at),
            "job.since_end": _since_end(job, at),
        }
        for signal, reading in readings.items():
            yield Sample(at, resource, signal, reading, labels)


def _checked(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """The jobs, once it is sure that every state can be read."""
    for job in jobs:
        _ = job.phase
    return jobs


def _starts(job: Job, restarts: int) -> int:
    if job.state == "COMPLETING":
        # A job that is being queued again counts the restart that is still to come.
        return max(restarts, 1)
    return restarts + job.began


def _partitions(job: Job) -> set[str]:
    """The partition of a job; a waiting one may name several."""
    return set((job.partition or "").split(","))


def _labels(job: Job) -> Labels:
    return {
        "user": job.user,
        "team": job.account,
        "name": job.name,
        "partition": job.partition,
        "host": job.hosts or None,
        "gpu_indices": job.indices,
        "scheduler": NAME,
    }


def _held(job: Job, count: int | None) -> Reading:
    return _or_bad(count, "Slurm does not tell it") if job.holds else 0.0


def _or_bad(count: int | None, reason: str) -> Reading:
    return Bad(reason) if count is None else float(count)


def _queue_time(job: Job, at: float) -> Reading:
    until = at if job.phase == "queued" else job.started
    return _span(job.submitted, until)


def _runtime(job: Job, at: float) -> Reading:
    if not job.began:
        return 0.0
    return _span(job.started, job.ended if job.over else at)


def _since_end(job: Job, at: float) -> Reading:
    return _span(job.ended, at) if job.over else 0.0


def _span(since: float | None, until: float | None) -> Reading:
    if since is None or until is None:
        return Bad("Slurm does not tell the time")
    # Clocks of two machines differ.
    return max(until - since, 0.0)


def _words(error: Exception) -> str:
    return error.reason if isinstance(error, NotHere) else str(error)


def ask(arguments: Sequence[str], limit: float) -> str:
    """What a command of Slurm's prints within `limit` seconds.

    Raises:
        NotHere: it is not installed.
        _Unanswered: it cannot be run, fails, or does not answer.
    """
    name = arguments[0]
    program = shutil.which(name)
    if program is None:
        raise NotHere(f"{name} is not installed")
    environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    environment |= {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(  # noqa: S603
            [program, *arguments[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise _Silent(f"{name} does not answer") from None
    except OSError as error:
        raise _Unanswered(f"{name} cannot be started: {(error.strerror or str(error)).lower()}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _Unanswered(f"{name}: {said[-1].removeprefix(f'{name}: ') if said else 'failed'}")
    return done.stdout.decode("utf-8", "replace")


def build(options: Options, context: Context) -> Collector:
    """The running collector."""
    return SlurmCollector(options)
