"""Keeps the state of a job: asks it to save, or copies what it saved, and verifies what there is then.

Everything is given: paths, process, clocks, and what a whole checkpoint is. Taking the same order again
after a crash looks for what came of it first; only a signal leaves no trace, so `reconcile` looks and
never sends it a second time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stoploss.actions.contract import Action, Means
from stoploss.actions.routing import Routed
from stoploss.actions.snapshot_result import Snapshot, Waiting
from stoploss.actions.targets import checkpoint_copy, process_signal, request_file
from stoploss.actions.targets.checkpoint_copy import Copy
from stoploss.actions.targets.process_signal import Process
from stoploss.actions.verify import Demand, verify

NAME = "snapshot"

_ASK, _COPY, _SCENE, _RUN = (
    f"stoploss.actions.targets.{name}"
    for name in ("job_checkpoint:Ask", "job_copy:Copy", "job_scene:Keep", "job_program:Save")
)
TARGETS = {
    **{f"job/{where}?what=scene": _SCENE for where in ("process", "slurm", "kubernetes")},
    **{f"job/{where}?what=checkpoint": _COPY for where in ("process", "slurm", "kubernetes")},
    **{f"job/{where}?command": _RUN for where in ("process", "slurm", "kubernetes")},
    **{f"job/{where}": _ASK for where in ("process", "slurm", "kubernetes")},
    "volume/aws?what=volume": "stoploss.actions.targets.ebs:Snapshot",
    "instance?what=volume": "stoploss.actions.targets.ebs_instance:SnapshotAll",
}
"""Place -> who carries it out there."""


def build(means: Means) -> Action:
    """The action, with what it needs."""
    return Routed(NAME, TARGETS, means)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that is there, with the step that its name tells."""

    path: str
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked of which job; paths are absolute.

    Attributes:
        id: of the intent; the same one after a crash.
        by: who asks, for people.
        request: the request file of the run, where it has one. It is used before a signal.
        process: that handles SIGUSR1 by saving.
        folder: in which that process saves.
        copy_to: the folder in which a copy of the newest complete of `candidates` is made; nobody is asked
            then.
        candidates: checkpoints that are there.
        copier: makes such a copy, and verifies it.
    """

    id: str
    by: str
    request: str | None = None
    process: Process | None = None
    folder: str | None = None
    copy_to: str | None = None
    candidates: tuple[Candidate, ...] = ()
    copier: Callable[[Copy, Demand, Waiting], Snapshot] = checkpoint_copy.take


def would(order: Order, limit: float) -> str:
    """What `take` would do, in words; touches nothing.

    Args:
        order: what is asked for.
        limit: seconds that it may take.
    """
    if order.copy_to is not None:
        return f"would copy the newest complete checkpoint to {order.copy_to} within {limit:g} s"
    if order.request is not None:
        return f"would ask for a checkpoint by {order.request} and wait up to {limit:g} s"
    if order.process is not None and order.folder is not None:
        return f"would send SIGUSR1 to process {order.process.pid} and watch {order.folder} up to {limit:g} s"
    return "would fail: nothing says how the job is asked"


def take(order: Order, demand: Demand, waiting: Waiting) -> Snapshot:
    """Do it, wait for it, and verify it."""
    if order.copy_to is not None:
        return _copy(order, order.copy_to, demand, waiting)
    if order.request is not None:
        ask = request_file.Ask(order.request, order.id, order.by)
        return request_file.take(ask, demand, waiting)
    if order.process is not None and order.folder is not None:
        return process_signal.take(order.process, order.folder, demand, waiting)
    return Snapshot("failed", why="nothing says how the job is asked: no request file, no process, no copy")


def reconcile(order: Order, intended: float, demand: Demand, waiting: Waiting) -> Snapshot:
    """What came of an order whose result was never written down; a signal is not sent again.

    Args:
        order: as it was, its candidates as they are now.
        intended: when it was written down, in seconds since the epoch.
        demand: what the checkpoint must be.
        waiting: how long is still waited.
    """
    if order.copy_to is not None or order.request is not None:
        return take(order, demand, waiting)
    since = intended if demand.since is None else max(intended, demand.since)
    return check(order.candidates, replace(demand, since=since), waiting)


def check(candidates: Sequence[Candidate], demand: Demand, waiting: Waiting) -> Snapshot:
    """The newest of the checkpoints that are there on which one may rely.

    Where there is none it has failed, with what the newest lacks and how many steps lie between it and
    the newest that would be left.
    """
    ordered = _newest_first(candidates)
    refused: list[Snapshot] = []
    for item in ordered:
        found = verify(item.path, demand, waiting, item.step)
        if found.verified:
            return found
        refused.append(found)
    if not refused:
        return Snapshot("failed", why="there is no checkpoint")
    return replace(refused[0], why=refused[0].why + _at_risk(ordered, demand))


def _at_risk(ordered: Sequence[Candidate], demand: Demand) -> str:
    """How far the newest that outlives the step lies behind."""
    if not demand.lost_with:
        return ""
    left = next((item for item in ordered if _outlives(item, demand)), None)
    if left is None:
        return "; no complete checkpoint would be left"
    newest = ordered[0].step
    if left.step is None or newest is None:
        return f"; the newest that would be left is {left.path}"
    return f"; the newest that would be left is of step {left.step}: {newest - left.step} steps are at risk"


def _outlives(item: Candidate, demand: Demand) -> bool:
    domain = demand.domain(item.path)
    if domain is None or domain in demand.lost_with:
        return False
    try:
        return demand.lacks(item.path) is None
    except OSError:
        return False


def _copy(order: Order, folder: str, demand: Demand, waiting: Waiting) -> Snapshot:
    # What is copied may lie where it would be lost; the copy may not.
    source = check(order.candidates, replace(demand, lost_with=frozenset()), waiting)
    if not source.verified or source.path is None:
        return source
    target = os.path.join(folder, os.path.basename(source.path))
    return order.copier(Copy(source.path, target, source.step), demand, waiting)


def _newest_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """By step; those without one come last, as what they hold is not known."""
    return sorted(
        candidates, key=lambda item: (item.step is not None, item.step or 0, item.path), reverse=True
    )
