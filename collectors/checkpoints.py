"""Checkpoints on disk: which are whole, which is the newest, and how much work is at risk.

The folders are named; nothing else is walked. It needs the right to list and to read what lies
in them, and changes nothing.

**What is a checkpoint.** A folder or a file, by its name. It is whole when the headers of its weights
can be read and nothing of them is cut off, and when beside that

- `huggingface`, `checkpoint-N/`: `trainer_state.json` is there (or `random_states_0.pkl`, the last file
  of Accelerate), and every shard of an index; any other folder with an index counts too;
- `deepspeed`, `global_stepN/`: the file `latest` beside it names this step or a later one;
- `megatron`, `iter_N/`: `latest_checkpointed_iteration.txt` beside it names this step or a later one;
- `lightning`, `epoch=E-step=N.ckpt` or `last.ckpt`, and `pytorch`, `*.pt`, `*.pth`, `*.ckpt`, and
  `safetensors`, `*.safetensors`: nothing else;
- `folder`, `step-N/`, `epoch_N/`, `ckpt-N/` and the like: a marker file, where a neighbour has one.

Parts that are no checkpoint by themselves (`optimizer.pt`, shards) count only within a folder, and
symbolic links nowhere. A name with `tmp` or `incomplete` at its end is unfinished.

- `checkpoint.complete` needs all of that, and that its size stood still over two looks or its
  newest write is ten minutes old; else it is 0, and the label `lacks` says what is missing.
- Steps are ordered as numbers. `checkpoint.newest` is the complete one with the highest step; one
  without a step in its name (`last.ckpt`) when it was written later than that. A partial one is
  never the newest.
- `checkpoint.best` is what the newest `trainer_state.json` of the job says.
- `checkpoint.failure_domain` is `host` on a local disk. What a network file system would be lost with
  cannot be seen from here: the option `failure-domain` says it, for all paths or for one.
- `checkpoint.interval` and `checkpoint.save_time` are medians over the complete checkpoints; what is
  deleted meanwhile is remembered for the interval. The time of saving is told by the writes of
  several files, so a single file does not tell it.

**Whose it is.** The job is what a file `STOPLOSS_JOB` says in one of the folders above it, else `job`
in a `run.json` there, else the folders that the option `job` names (`{team}/{job}`), else the first
folder below the path; a checkpoint right in the path belongs to a job named like the path. A
`run.json` can give the labels team, user, owner, class, stage, env, experiment, trial, recipe, keep
and asg too. A checkpoint is named `JOB/NAME`, with its path below the folder of the job.

A walk takes at most five seconds of a look and goes on at the next one; a note says how far it is.
An unfinished walk keeps folders open, so that the file system cannot be unmounted meanwhile. What
cannot be read is named in a note, and makes bad readings of its checkpoint alone. Of one path at most
5,000 checkpoints are told.

This version tells nothing of references to checkpoints and of steps at risk.

Right:

```yaml
collectors:
  checkpoints:
    paths:
      - /local/checkpoints
      - {path: /nfs/checkpoints, failure-domain: zone}
    job: "{team}/{job}"
```

Wrong, because no folder is named:

```yaml
collectors:
  checkpoints: {every: 5m}
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stoploss.collectors import checkpoint_jobs as jobs
from stoploss.collectors import mounts, path_labels
from stoploss.collectors.checkpoint_census import Census
from stoploss.collectors.checkpoint_jobs import Job, Member
from stoploss.collectors.checkpoints_options import Options, Place
from stoploss.collectors.contract import Collector, Context
from stoploss.collectors.walking import ENTRY_LIMIT, TIME_LIMIT, Tree, notes_of, shown, walk_or_fail
from stoploss.engine.model import Bad, LabelValue, Look, Reading, ResourceId, Sample

NAME = "checkpoints"


@dataclass(slots=True)
class CheckpointsCollector:
    """Looks at the checkpoints in folders of one machine."""

    hostname: str
    places: Sequence[Place]
    job: re.Pattern[str] | None = None
    time_limit: float = TIME_LIMIT
    entries: int = ENTRY_LIMIT
    _trees: list[Tree[Census]] = field(init=False)
    _saved: dict[str, jobs.Saved] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._trees = [Tree(place.path, _fresh, entries=self.entries) for place in self.places]

    def look(self, at: float) -> Look:
        """Look once; every sample carries `at`.

        Raises:
            CollectorError: none of the folders can be read.
        """
        walk_or_fail(self._trees, self.time_limit)
        notes = [*notes_of(NAME, self._trees), *_census_notes(self._trees)]
        found = self._jobs(at)
        reason = self._unsure()
        samples: list[Sample] = []
        for name, job in sorted(found.items()):
            saved = self._saved.setdefault(name, jobs.Saved())
            resource = ResourceId("job", name)
            for signal, reading in jobs.job_readings(job, saved, at).items():
                samples.append(Sample(at, resource, signal, Bad(reason) if reason else reading, job.labels))
            for member in job.members:
                samples += self._member_samples(member, job, at)
        self._saved = {name: saved for name, saved in self._saved.items() if name in found}
        whole = all(tree.whole and tree.walked and not tree.walked.more for tree in self._trees)
        return Look(tuple(samples), frozenset({"checkpoint"}) if whole else frozenset(), tuple(notes))

    def seen(self, at: float) -> dict[str, Job]:
        """Job -> its checkpoints as they are at the instant `at`: walked to the end, twice, here and now.

        Twice, because a size that stands still is told by a second look only.
        """
        for tree in self._trees:
            for _ in range(2):
                tree.advance(lambda: False)
                while tree.under_way is not None:
                    tree.advance(lambda: False)
        return self._jobs(at)

    def _unsure(self) -> str | None:
        """Why what is told of jobs may not be all."""
        if any(tree.walked is None and not tree.trouble for tree in self._trees):
            return "not walked to the end yet"
        if any(tree.walked is not None and tree.walked.more for tree in self._trees):
            return "too many checkpoints below one path"
        return None

    def _jobs(self, at: float) -> dict[str, Job]:
        """Job name -> its checkpoints, each judged at the instant `at`."""
        mounted = mounts.mounts()
        grouped: dict[str, list[Member]] = {}
        labels: dict[str, dict[str, str]] = {}
        taken: set[str] = set()
        for place, tree in zip(self.places, self._trees, strict=True):
            if tree.walked is None:
                continue
            mount = mounts.mount_of(tree.real or place.path, mounted)
            domain = jobs.failure_domain(place.failure_domain, mount.fstype if mount else None)
            lacking = jobs.lacking(tree.walked, at)
            for checkpoint in tree.walked.found.values():
                owner = jobs.owner_of(checkpoint.path, tree.root, tree.walked.facts, self.job)
                name = f"{owner.job}/{owner.name}"
                if name in taken:
                    # A copy of the same name elsewhere is another checkpoint.
                    name += f"@{shown(tree.root)}"
                taken.add(name)
                trouble = tree.trouble or checkpoint.trouble
                member = Member(name, checkpoint, lacking[checkpoint.path], trouble, domain)
                grouped.setdefault(owner.job, []).append(member)
                labels.setdefault(owner.job, {}).update(owner.labels)
        return {name: jobs.job(name, members, labels[name]) for name, members in grouped.items()}

    def _member_samples(self, member: Member, job: Job, at: float) -> list[Sample]:
        labels: Mapping[str, LabelValue] = {
            **job.labels,
            "job": job.name,
            "host": self.hostname,
            "layout": member.checkpoint.name.layout,
            "path": shown(member.checkpoint.path),
            "lacks": member.lacks,
        }
        resource = ResourceId("checkpoint", member.name)
        readings: Mapping[str, Reading] = jobs.member_readings(member, job, at)
        return [Sample(at, resource, signal, reading, labels) for signal, reading in readings.items()]


def _fresh(before: Census | None) -> Census:
    return Census(before.found if before is not None else {})


def _census_notes(trees: Sequence[Tree[Census]]) -> list[str]:
    notes = []
    for tree in trees:
        census = tree.walked
        if census is None:
            continue
        if census.more:
            notes.append(
                f"{NAME}: {shown(tree.root)}: only the first {len(census.found)} checkpoints are told"
            )
        if census.unread:
            notes.append(f"{NAME}: cannot be read: {', '.join(sorted(census.unread)[:3])}")
    return notes


def build(options: Options, context: Context) -> Collector:
    """The running collector."""
    once = {
        place.path: place
        if place.failure_domain
        else place.model_copy(update={"failure_domain": options.failure_domain})
        for place in options.paths
    }
    job = path_labels.pattern_of(options.job) if options.job else None
    return CheckpointsCollector(options.name or context.hostname, tuple(once.values()), job)
