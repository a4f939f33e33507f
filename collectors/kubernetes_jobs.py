"""What pods and Jobs of Kubernetes say, turned into jobs; nothing here asks the cluster.

Objects are those of the client, with the field names of the Kubernetes API.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from stoploss.engine.model import Bad, Reading

Key = tuple[str, str, str]
"""Namespace, kind and name of an object."""

_LONGEST_CHAIN = 10

_NOT_OWNERS = frozenset({"CronJob", "Node"})
"""Each run of a CronJob is a job of its own, and a node owns its pods only on paper."""

_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)
}

_LOST = frozenset({"NodeLost", "NodeShutdown", "Terminated", "Shutdown", "DeletionByTaintManager"})
_TAKEN = frozenset({"Preempting", "PreemptionByScheduler", "PreemptionByKubeScheduler", "Evicted"})


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a job, or a Job of which no pod is there; times are seconds since the epoch.

    Attributes:
        owner: the job that it belongs to.
        state: queued, running, suspended, ended, failed, or unknown.
        reason: how it ended, in words of `job.exit_reason`.
        labels: labels of the pod.
        gpus: GPUs that it holds now.
        node: where it lies, while it is not over.
        created: when it was made.
        placed: when it got its node.
        started: when it began.
        ended: when it ended.
        time_limit: seconds that it may run, or None without a limit.
        restarts: how often its containers were started again.
        stands: whether it counts as an attempt; what its Job counts as failed does not.
    """

    owner: Key
    state: str
    reason: str
    labels: Mapping[str, str]
    gpus: int
    node: str | None
    created: float | None
    placed: float | None
    started: float | None
    ended: float | None
    time_limit: float | None
    restarts: int
    stands: bool


def top_owner(namespace: str, own: tuple[str, str], references: Any, known: Mapping[Key, Any]) -> Key:
    """The last controller above an object, as far as the chain is known.

    Args:
        namespace: where all of the chain lies.
        own: the object's kind and name.
        references: its owner references.
        known: the owner references of Jobs and ReplicaSets.
    """
    key = (namespace, *own)
    for _ in range(_LONGEST_CHAIN):
        above = next((ref for ref in references or () if ref.controller), None)
        if above is None or above.kind in _NOT_OWNERS:
            break
        key = (namespace, above.kind, above.name)
        references = known.get(key)
    return key


def controller(namespace: str, references: Any) -> Key | None:
    """The object that directly controls another."""
    above = next((ref for ref in references or () if ref.controller), None)
    return None if above is None else (namespace, above.kind, above.name)


def gpus_of(spec: Any, patterns: Sequence[str]) -> int:
    """GPUs that a pod asks for: those of all containers, or of the greediest that runs before them."""
    inits = [_asked(container, patterns) for container in spec.initContainers or ()]
    return max([sum(_asked(container, patterns) for container in spec.containers or ()), *inits])


def _asked(container: Any, patterns: Sequence[str]) -> int:
    resources = container.resources
    if resources is None:
        return 0
    asked: dict[str, Any] = {**(resources.requests or {}), **(resources.limits or {})}
    return sum(
        int(quantity(str(value)))
        for name, value in asked.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    )


def quantity(text: str) -> float:
    """A number such as `2`, `500m` or `100Gi`.

    Raises:
        ValueError: it is none.
    """
    match = re.fullmatch(r"([0-9.]+(?:[eE][0-9]+)?)([A-Za-z]*)", text.strip())
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is not a quantity")
    return float(match[1]) * _UNITS[match[2]]


def seconds(time: datetime | None) -> float | None:
    """Seconds since the epoch."""
    return None if time is None else time.timestamp()


def of_pod(pod: Any, owner: Key, job: Any, gpus: int) -> Member:
    """What a pod says; `job` is the Job that controls it, where that is known."""
    status, spec = pod.status, pod.spec
    phase = (status and status.phase) or "Pending"
    over = phase in ("Succeeded", "Failed")
    state, reason = _outcome(pod, phase, job)
    containers = [*(status.containerStatuses or ()), *(status.initContainerStatuses or ())] if status else []
    placed = next(
        (seconds(item.lastTransitionTime) for item in _conditions(pod) if _holds(item, "PodScheduled")), None
    )
    node = None if over else spec.nodeName
    return Member(
        owner=owner,
        state=state,
        reason=reason,
        labels=pod.metadata.labels or {},
        gpus=gpus if node else 0,
        node=node,
        created=seconds(pod.metadata.creationTimestamp),
        placed=placed,
        started=seconds(status.startTime) if status else None,
        ended=_job_end(job) or max((end for item in containers if (end := _ended(item))), default=None),
        time_limit=_limit(job and job.spec) or _limit(spec),
        restarts=max((item.restartCount or 0 for item in containers), default=0),
        stands=phase not in ("Pending", "Failed") or (phase == "Failed" and job is None),
    )


def of_job(job: Any, owner: Key) -> Member:
    """What a Job says of which no pod is there."""
    template = job.spec.template.metadata
    state, reason = _verdict(job) or (("suspended" if job.spec.suspend else "queued"), "none")
    status = job.status
    return Member(
        owner=owner,
        state=state,
        reason=reason,
        labels=(template and template.labels) or job.metadata.labels or {},
        gpus=0,
        node=None,
        created=seconds(job.metadata.creationTimestamp),
        placed=seconds(status.startTime) if status and state in ("ended", "failed") else None,
        started=seconds(status.startTime) if status else None,
        ended=_job_end(job),
        time_limit=_limit(job.spec),
        restarts=0,
        stands=state == "ended",
    )


def _outcome(pod: Any, phase: str, job: Any) -> tuple[str, str]:
    if phase == "Running":
        return "running", "none"
    if phase == "Pending":
        return "queued", "none"
    if phase not in ("Succeeded", "Failed"):
        return "unknown", "none"
    own = ("failed", failure(pod)) if phase == "Failed" else ("ended", "completed")
    if job is None:
        return own
    verdict = _verdict(job)
    if verdict is None:
        # The Job will try again, or has more to run.
        return ("suspended" if job.spec.suspend else "queued"), "none"
    # A pod knows more of a failure than its Job, except that time was up.
    return own if verdict == ("failed", "failed") and own[0] == "failed" else verdict


def _verdict(job: Any) -> tuple[str, str] | None:
    """How a Job ended, or None while it has not."""
    for item in _conditions(job):
        if _holds(item, "Complete"):
            return "ended", "completed"
        if _holds(item, "Failed"):
            return "failed", "timeout" if item.reason == "DeadlineExceeded" else "failed"
    return None


def failure(pod: Any) -> str:
    """Why a pod failed, in words of `job.exit_reason`."""
    status = pod.status
    whys = {status.reason or ""} | {
        item.reason or "" for item in _conditions(pod) if _holds(item, "DisruptionTarget")
    }
    containers = [*(status.containerStatuses or ()), *(status.initContainerStatuses or ())]
    if any((ended := _terminated(item)) and ended.reason == "OOMKilled" for item in containers):
        return "out-of-memory"
    if "DeadlineExceeded" in whys:
        return "timeout"
    if whys & _LOST:
        return "node-failure"
    return "preempted" if whys & _TAKEN else "failed"


def _conditions(thing: Any) -> Iterable[Any]:
    return (thing.status and thing.status.conditions) or ()


def _holds(condition: Any, kind: str) -> bool:
    return bool(condition.type == kind and condition.status == "True")


def _terminated(container: Any) -> Any:
    return container.state and container.state.terminated


def _ended(container: Any) -> float | None:
    ended = _terminated(container)
    return seconds(ended.finishedAt) if ended else None


def _job_end(job: Any) -> float | None:
    if job is None:
        return None
    return next(
        (
            seconds(item.lastTransitionTime)
            for item in _conditions(job)
            if _holds(item, "Complete") or _holds(item, "Failed")
        ),
        None,
    )


def _limit(spec: Any) -> float | None:
    return float(spec.activeDeadlineSeconds) if spec and spec.activeDeadlineSeconds else None


def state_of(members: Sequence[Member]) -> str:
    """Where the job stands: running while a part of it runs, failed where a part failed and none goes on."""
    states = {member.state for member in members}
    order = ("running", "unknown", "queued", "suspended", "failed")
    return next((state for state in order if state in states), "ended")


def ended_at(members: Sequence[Member]) -> float | None:
    """When the last of its parts ended, or None while one has not."""
    if state_of(members) not in ("ended", "failed"):
        return None
    return max((member.ended for member in members if member.ended is not None), default=None)


def readings(members: Sequence[Member], failures: int, at: float) -> Iterator[tuple[str, Reading]]:
    """Every signal of a job; `failures` is how many of its pods its Jobs count as failed."""
    state = state_of(members)
    over, ended = state in ("ended", "failed"), ended_at(members)
    running = [member for member in members if member.state == "running"]
    starts = [m.started for m in (members if over else running) if m.started is not None]
    attempts = failures + max(m.restarts for m in members) + any(m.stands for m in members)
    limits = [member.time_limit for member in members if member.time_limit is not None]
    unheard = Bad("the node of a pod is not heard from")
    runtime: Reading = 0.0
    if over or running:
        until = ended if over else at
        runtime = _span(min(starts, default=None), until)
    yield "job.state", unheard if state == "unknown" else state
    yield "job.exit_reason", unheard if state == "unknown" else _reason(members, state)
    yield "job.time_limit", min(limits) if limits else Bad("no time limit")
    yield "job.gpus", float(sum(member.gpus for member in members))
    yield "job.nodes", float(len({member.node for member in members if member.node}))
    yield "job.queue_time", _queue_time(members, at)
    yield "job.attempts", float(attempts)
    yield "job.runtime", runtime
    yield "job.since_end", _span(ended, at) if over else 0.0


def _reason(members: Sequence[Member], state: str) -> str:
    if state != "failed":
        return "completed" if state == "ended" else "none"
    failed = [member for member in members if member.state == "failed"]
    # Of several the newest tells, and one that is exact more than one that is not.
    return max(failed, key=lambda member: (member.reason != "failed", member.ended or 0.0)).reason


def _queue_time(members: Sequence[Member], at: float) -> Reading:
    waiting = [m.created for m in members if m.state == "queued" and m.placed is None and m.created]
    if waiting:
        return _span(min(waiting), at)
    waits = [m.placed - m.created for m in members if m.placed is not None and m.created is not None]
    return max(max(waits), 0.0) if waits else Bad("the cluster does not tell the time")


def _span(since: float | None, until: float | None) -> Reading:
    if since is None or until is None:
        return Bad("the cluster does not tell the time")
    return max(until - since, 0.0)
