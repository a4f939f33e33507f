"""What is remembered of jobs from look to look: who leads them, when they ended, what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stoploss.engine.model import Bad, Labels, Reading, ResourceId, Sample

ProcessKey = tuple[int, int]
"""A process's id and start; ids alone are used again."""

NO_GROUP = Bad("the job has no control group of its own")


@dataclass(frozen=True, slots=True)
class Member:
    """A living process of a job.

    Attributes:
        key: its id and start.
        parents: ids of its parent, its parent's parent, and so on.
        began: when it was started, in seconds since the epoch.
        stopped: whether it is suspended.
        open_devices: device files of GPUs that it has open, or why they cannot be told.
        listed: device files of GPUs on which the driver lists it.
        labels: what it says of its job.
        read: bytes it has read from storage so far, or why that is unknown.
        oom_kills: kills in the job's control group, or why they cannot be told.
    """

    key: ProcessKey
    parents: tuple[int, ...]
    began: float
    stopped: bool
    open_devices: frozenset[str] | Bad
    listed: frozenset[str]
    labels: Labels
    read: float | Bad
    oom_kills: float | Bad = NO_GROUP


@dataclass(slots=True)
class _Job:
    """A job as of its newest look."""

    began: float = 0.0
    leads: dict[ProcessKey, bool] = field(default_factory=dict)
    labels: Labels = field(default_factory=dict)
    state: str = "ended"
    ended: float = 0.0
    last_alive: float = 0.0
    gpus: Reading = 0.0
    read: Reading = 0.0
    read_total: float = 0.0
    read_by: dict[ProcessKey, float] = field(default_factory=dict)
    oom_kills: float | Bad = NO_GROUP


@dataclass(slots=True)
class Jobs:
    """Every job that was seen, until it has been without a process for `forget` seconds.

    A process leads its job when none of its parents is of the job. A job runs while one that
    leads it lives; what its leaders leave behind holds GPUs, but does not keep it running. A
    process that appears later without a parent in the job leads it anew, so a doubt never ends
    a job.
    """

    forget: float
    _jobs: dict[str, _Job] = field(default_factory=dict)

    def look(self, at: float, found: Mapping[str, Iterable[Member]]) -> Iterator[Sample]:
        """Take the living processes of every job; yields what is known of every job at `at`.

        Of a job that is forgotten at this look it yields that it is gone.
        """
        for name in sorted({*self._jobs, *found}):
            members = sorted(found.get(name, ()), key=lambda member: (member.key[1], member.key[0]))
            job = self._jobs.setdefault(name, _Job())
            resource = ResourceId("job", name)
            if members:
                _take(job, members, at)
            else:
                _empty(job, at)
                if at - job.last_alive > self.forget:
                    del self._jobs[name]
                    yield Sample(at, resource, "resource.present", 0.0)
                    continue
            for signal, reading in _readings(job, at):
                yield Sample(at, resource, signal, reading, job.labels)


def _take(job: _Job, members: list[Member], at: float) -> None:
    ids = {member.key[0] for member in members}
    leads = {member.key: job.leads.get(member.key, ids.isdisjoint(member.parents)) for member in members}
    job.leads, job.last_alive = leads, at
    job.gpus = _held(members)
    job.read = _read(job, members)
    job.oom_kills = next((m.oom_kills for m in members if not isinstance(m.oom_kills, Bad)), job.oom_kills)
    leaders = [member for member in members if leads[member.key]]
    if not leaders:
        _end(job, at)
        return
    if job.state == "ended":
        job.began = leaders[0].began
    job.labels = leaders[0].labels
    job.state = "suspended" if all(member.stopped for member in members) else "running"


def _empty(job: _Job, at: float) -> None:
    _end(job, at)
    job.leads, job.gpus, job.read = {}, 0.0, job.read_total


def _end(job: _Job, at: float) -> None:
    if job.state != "ended":
        job.state, job.ended = "ended", at


def _held(members: Sequence[Member]) -> Reading:
    if listed := frozenset[str]().union(*(member.listed for member in members)):
        return float(len(listed))
    held: set[str] = set()
    for member in members:
        if isinstance(member.open_devices, Bad):
            return member.open_devices
        held |= member.open_devices
    return float(len(held))


def _read(job: _Job, members: Sequence[Member]) -> Reading:
    """What the job's processes have read, those that ended included as of their last look."""
    for member in members:
        if not isinstance(member.read, Bad):
            job.read_total += member.read - job.read_by.get(member.key, 0.0)
            job.read_by[member.key] = member.read
    return next((member.read for member in members if isinstance(member.read, Bad)), job.read_total)


def _readings(job: _Job, at: float) -> Iterator[tuple[str, Reading]]:
    over = job.state == "ended"
    yield "job.state", job.state
    yield "job.since_end", at - job.ended if over else 0.0
    yield "job.gpus_held", job.gpus
    until = job.ended if over else at
    yield "job.runtime", max(until - job.began, 0.0)
    yield "job.oom_kills", job.oom_kills
    yield "data.bytes_read", job.read
