"""Training logs as they grow: losses, speeds and steps of each job, and how its training goes.

The logs are named by paths, files or folders of them; [their formats](../training-logs.md) are found by
what a file holds. It needs the right to read them, and changes nothing.

- A log is followed from its beginning, each record once, also when it is cut short, replaced or
  rotated. A look tells the newest value of each signal; what did not move is repeated.
- The job is what the option `job` says (`/runs/{team}/{job}`), else that of the process which has the
  log open to write (`STOPLOSS_JOB` and others), else the first folder below the path, else the name
  of the file. Several logs of one job are put together; where two formats tell the same signal,
  the one with the newest record counts. Of a file with several runs the last one counts.
- The label `run_dir` is the folder of the log, where a run looks for what it is asked; unreadable where
  the logs of a job lie in several.
- `train.step` goes back when a run resumes, which counts in `train.resumes` and
  `train.redone_steps`. A log without steps counts its records.
- `train.non_finite_share` is what the log says, else the share of the losses and gradient norms since the
  look before that were not finite.
- `loss.verdict` and the other loss signals are concluded from every record of the log. A run
  counts as hung only while a process has its log open.
- A log that was not written for `max-age`, and that no process has open, is over: nothing is told of it.
- A log that cannot be read makes bad readings of its job. A job of which no log was found has the
  verdict `cannot-tell`, which is an answer.
- Of one path at most 5,000 files are tried. Symbolic links are not followed, and other file systems not
  entered.

Right:

```yaml
collectors:
  training:
    paths: [/runs]
    job: /runs/{team}/{job}
```

Wrong, because a path begins at the root:

```yaml
collectors:
  training: {paths: [runs]}
```
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stoploss.collectors import log_owners, path_labels
from stoploss.collectors.contract import Collector, CollectorError, Context
from stoploss.collectors.job_labels import PROC, Identities
from stoploss.collectors.training.following import MOST, Files, Follower, Log, Place
from stoploss.collectors.training.jobs import Job, job_readings, merged
from stoploss.collectors.training.keyvalue import compiled
from stoploss.collectors.training.options import Options
from stoploss.collectors.walking import TIME_LIMIT, notes_of, shown, walk_all
from stoploss.engine.model import UNREADABLE, LabelValue, Look, Reading, ResourceId, Sample, TrainingLog

NAME = "training"

OWN_FOLDER = ".stoploss"
"""Folder in that of a run for what the run and stoploss tell each other."""

Conclude = Callable[[TrainingLog, float | None], Mapping[str, float | str]]


@dataclass(slots=True)
class TrainingCollector:
    """Looks at the training logs of one machine; `max_age` is in seconds."""

    hostname: str
    paths: Sequence[str]
    patterns: Sequence[re.Pattern[str]] = ()
    job: re.Pattern[str] | None = None
    max_age: float = 86400.0
    conclude: Conclude | None = None
    time_limit: float = TIME_LIMIT
    _followers: list[Follower] = field(init=False)
    _places: list[Place] = field(init=False)
    _jobs: dict[str, Job] = field(default_factory=dict)
    _seen: dict[str, list[Log]] = field(default_factory=dict)
    _owners: dict[str, Mapping[str, LabelValue]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._followers = [Follower(self.patterns) for _ in self.paths]
        self._places = [
            Place(path, lambda _: Files(), follower.follow)
            for path, follower in zip(self.paths, self._followers, strict=True)
        ]

    def look(self, at: float) -> Look:
        """Look once; every sample carries `at`.

        Raises:
            CollectorError: none of the paths can be read.
        """
        for follower, place in zip(self._followers, self._places, strict=True):
            if not place.hangs:
                follower.done.clear()
        walk_all(self._places, self.time_limit)
        failed = [place for place in self._places if place.trouble]
        if len(failed) == len(self._places):
            raise CollectorError("; ".join(f"{place.trouble}: {shown(place.root)}" for place in failed))
        grouped, labels, live = self._grouped(at)
        samples: list[Sample] = []
        for name, logs in sorted(grouped.items()):
            resource = ResourceId("job", name)
            for signal, reading in self._readings(name, logs, at, live=name in live).items():
                samples.append(Sample(at, resource, signal, reading, labels[name]))
        self._jobs = {name: job for name, job in self._jobs.items() if name in grouped}
        return Look(tuple(samples), notes=(*notes_of(NAME, self._places), *self._more()))

    def _grouped(
        self, at: float
    ) -> tuple[dict[str, list[Log]], dict[str, Mapping[str, LabelValue]], set[str]]:
        """Job -> its logs, its labels, and which jobs have a process that writes."""
        found: dict[str, tuple[Log, str]] = {}
        for follower, place in zip(self._followers, self._places, strict=True):
            for log in self._logs(follower, place):
                found.setdefault(log.path, (log, place.root))
        real = {path: os.path.realpath(path) for path in found}
        writers = log_owners.writers(frozenset(real.values()), PROC)
        identities = Identities(PROC)
        grouped: dict[str, list[Log]] = {}
        labels: dict[str, Mapping[str, LabelValue]] = {}
        live: set[str] = set()
        for path, (log, root) in found.items():
            writes = real[path] in writers.of
            if not writes and at - log.written > self.max_age:
                continue
            told = self._owner(path, root, writers, identities)
            name = str(told["job"])
            grouped.setdefault(name, []).append(log)
            folder = _run_dir(path)
            mine = labels.setdefault(name, {**told, "host": self.hostname, "run_dir": folder})
            if mine["run_dir"] != folder:
                labels[name] = {**mine, "run_dir": UNREADABLE}
            if writes:
                live.add(name)
        return grouped, labels, live

    def _logs(self, follower: Follower, place: Place) -> list[Log]:
        """The logs below a path; those of the look before, with the trouble, where it cannot be read now."""
        if place.trouble:
            return [replace(log, trouble=place.trouble) for log in self._seen.get(place.root, [])]
        if place.walked is not None:
            follower.forget(place.walked)
        self._seen[place.root] = follower.logs()
        return self._seen[place.root]

    def _owner(
        self, path: str, root: str, writers: log_owners.Writers, identities: Identities
    ) -> Mapping[str, LabelValue]:
        """The labels of a log, of which `job` is always a text; once a process has named it, it stays."""
        named = path_labels.labels_in(self.job, path) if self.job is not None else None
        if named is not None:
            return {name: shown(value) for name, value in named.labels.items()}
        told = log_owners.labels(os.path.realpath(path), writers, identities)
        if isinstance(told["job"], str):
            self._owners[path] = told
        if path in self._owners:
            return self._owners[path]
        below = os.path.relpath(path, root).split(os.sep) if path != root else [os.path.basename(path)]
        first = below[0] if len(below) > 1 else below[0].split(".")[0] or below[0]
        return {"job": shown(first)}

    def _readings(self, name: str, logs: Sequence[Log], at: float, *, live: bool) -> dict[str, Reading]:
        job = self._jobs.setdefault(name, Job())
        run = merged(name, logs)
        readings = job_readings(job, run, logs)
        if self.conclude is None or run is None or any(log.trouble for log in logs):
            return readings
        # Only a run that is still going can change its verdict without a record.
        if live or job.concluded[0] != job.told:
            job.concluded = dict(job.told), self.conclude(run, at if live else None)
        return {**job.concluded[1], **readings}

    def _more(self) -> list[str]:
        return [
            f"{NAME}: {shown(place.root)}: only the first {MOST} files are tried"
            for place in self._places
            if place.walked is not None and place.walked.more
        ]


def _run_dir(path: str) -> str:
    """The folder of a run by the path of its log; what `stoploss.track` writes lies in one below it."""
    folder = os.path.dirname(path)
    return shown(os.path.dirname(folder) if os.path.basename(folder) == OWN_FOLDER else folder)


def build(options: Options, context: Context) -> Collector:
    """The running collector."""
    job = path_labels.pattern_of(options.job) if options.job else None
    return TrainingCollector(
        options.name or context.hostname,
        tuple(dict.fromkeys(os.path.normpath(path) for path in options.paths)),
        compiled(options.patterns),
        job,
        options.max_age,
        context.conclude,
    )
