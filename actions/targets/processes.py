"""Ends the processes of a job, or one process and what it started, on this machine.

A job's processes are those that were told its name by `STOPLOSS_JOB`, else by `WANDB_RUN_ID`, and what
they started, unless that was told another. What runs in Slurm or in a pod is ended through them.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stoploss.actions.contract import Means, Refused
from stoploss.actions.files import words_of
from stoploss.actions.targets import process_tree
from stoploss.actions.targets.process_end import Ending
from stoploss.actions.targets.process_tree import Key, Seen, Tree
from stoploss.engine.model import Found, Order, Outcome

GRACE = 60.0
"""Seconds between SIGTERM and SIGKILL where the step does not say."""

DEVICES = ("/dev/nvidia[0-9]*",)
"""Patterns of device files that stand for GPUs where the collector `process` is not named."""

_NAME = re.compile(r"(.+)/(\d+)@(\d+)")
_INIT = 1


@dataclass(frozen=True, slots=True)
class _Ends:
    """What all that end processes have in common, once these are found."""

    means: Means

    def act(self, order: Order, found: Found) -> Outcome:
        """SIGTERM, wait, SIGKILL what is left, and look whether all are gone."""
        return _end(self.means, order, found)

    def look(self, order: Order, found: Found) -> Outcome:
        """How many of those that were found still live."""
        return _came_of(self.means, found)

    def undo(self, order: Order, found: Found) -> Outcome:
        """It cannot be undone."""
        return _final()


@dataclass(frozen=True, slots=True)
class End(_Ends):
    """Ends the processes of a job on this machine."""

    def find(self, order: Order) -> Found:
        """The processes of the job as they are now.

        Raises:
            Refused: there are none, they are of two users, a scheduler runs them, stoploss is one of them,
                or they cannot be looked at.
        """
        tree = _look()
        job = order.resource.id
        members = tree.members(job)
        if not members:
            if hidden := tree.hidden:
                raise Refused(f"no process of {job} is seen, but {hidden} processes hide their environment")
            raise Refused(f"no process of {job} is on this machine", gone=True)
        ids = {seen.pid for seen in members}
        leaders = [seen for seen in members if tree.leads(seen.pid, ids)]
        if len({seen.uid for seen in leaders}) > 1:
            raise Refused(f"{job} names processes of two users")
        _refuse_controlled(tree, members)
        words = f"would end {_told(members)}"
        return Found(words, _before(self.means, members, job=job, uid=leaders[0].uid))


@dataclass(frozen=True, slots=True)
class EndOne(_Ends):
    """Ends one process, named `HOST/PID@START`, and what it started."""

    def find(self, order: Order) -> Found:
        """The process and what it started, as they are now.

        Raises:
            Refused: it is gone, is on another machine, a scheduler runs it, stoploss is one of them, or it
                cannot be looked at.
        """
        pid, start = named(self.means, order)
        tree = _look()
        seen = tree.processes.get(pid)
        if seen is None or seen.start != start:
            raise Refused(f"process {pid} has ended", gone=True)
        members = tree.below(pid)
        _refuse_controlled(tree, members)
        return Found(f"would end {_told(members)}", _before(self.means, members, job=None, uid=seen.uid))


@dataclass(frozen=True, slots=True)
class Release(_Ends):
    """Ends what a job that is over has left behind, so that its GPUs are free."""

    def find(self, order: Order) -> Found:
        """The processes that are left and the GPUs that they hold.

        Raises:
            Refused: as `End`, and where they hold no GPU.
        """
        what = order.parameters.get("what")
        if what not in (None, "allocation"):
            raise Refused(f"of a job only its allocation can be released, not what: {what}")
        found = End(self.means).find(order)
        patterns = self.means.collectors.get("process", {}).get("devices", DEVICES)
        held = _gpus([pid for pid, _, _ in found.before["processes"]], patterns)
        if held == 0:
            raise Refused(f"the processes of {order.resource.id} hold no GPU")
        gpus = "the GPUs (how many cannot be told)" if held is None else f"{held} GPU{'s' * (held > 1)}"
        ending = found.words.removeprefix("would end ")
        return Found(f"would release {gpus} held by {ending}", {**found.before, "gpus": held})


def named(means: Means, order: Order) -> Key:
    """Id and start of the process that an order is about.

    Raises:
        Refused: it is on another machine, or its name is none.
    """
    match = _NAME.fullmatch(order.resource.id)
    if match is None:
        raise Refused(f"{order.resource.id} is no name of a process: HOST/PID@START")
    if match[1] != means.hostname:
        raise Refused(f"process {match[2]} is on {match[1]}, and this is {means.hostname}")
    return int(match[2]), int(match[3])


def _look() -> Tree:
    try:
        return process_tree.look()
    except OSError as error:
        raise Refused(f"processes cannot be looked at: {words_of(error)}") from None


def _refuse_controlled(tree: Tree, members: Sequence[Seen]) -> None:
    own = {os.getpid(), _INIT, *(parent.pid for parent in tree.parents(os.getpid()))}
    for seen in members:
        if seen.pid in own:
            raise Refused(f"process {seen.pid} is stoploss itself, or what it runs under")
        if controller := tree.controller(seen.pid):
            raise Refused(f"process {seen.pid} is run by {controller}, which it must be ended through")


def _before(means: Means, members: Sequence[Seen], job: str | None, uid: int | None) -> dict[str, Any]:
    try:
        boot = process_tree.boot()
    except OSError as error:
        raise Refused(f"the boot of the machine cannot be told: {words_of(error)}") from None
    return {
        "host": means.hostname,
        "boot": boot,
        "job": job,
        "uid": uid,
        "processes": [[seen.pid, seen.start, seen.comm] for seen in members],
    }


def _told(members: Sequence[Seen]) -> str:
    first, more = members[0], len(members) - 1
    others = "" if not more else f" and {more} more" if more > 1 else f" and process {members[1].pid}"
    return f"process {first.pid} ({first.comm}){others}"


def _keys(before: Mapping[str, Any]) -> frozenset[Key]:
    return frozenset((int(pid), int(start)) for pid, start, _ in before["processes"])


def _elsewhere(means: Means, before: Mapping[str, Any]) -> Outcome | None:
    """An outcome where what was found is of another machine or another boot."""
    try:
        boot = process_tree.boot()
    except OSError as error:
        return Outcome("unknown", f"the boot of the machine cannot be told: {words_of(error)}", retry=True)
    if before["host"] != means.hostname:
        return Outcome("unknown", f"it was found on {before['host']}, and this is {means.hostname}")
    if before["boot"] != boot:
        return Outcome("skipped", "the machine was started anew since, and the processes are gone")
    return None


def _end(means: Means, order: Order, found: Found) -> Outcome:
    if elsewhere := _elsewhere(means, found.before):
        return elsewhere
    job, uid = found.before["job"], found.before["uid"]
    grace = float(order.parameters.get("grace", GRACE))
    return Ending(_keys(found.before), job, uid, means).run(grace)


def _came_of(means: Means, found: Found) -> Outcome:
    if elsewhere := _elsewhere(means, found.before):
        return elsewhere
    keys = _keys(found.before)
    left = [pid for pid, start in keys if (seen := process_tree.see(pid)) and seen.start == start]
    if not left:
        return Outcome("done", f"none of {len(keys)} processes lives any more")
    words = f"{len(left)} of {len(keys)} processes still live"
    return Outcome("undone" if len(left) == len(keys) else "failed", words, retry=True)


def _final() -> Outcome:
    return Outcome("failed", "what has ended cannot be brought back")


def _gpus(pids: Sequence[int], patterns: Sequence[str]) -> int | None:
    """How many GPUs processes hold by their open device files; None where that cannot be told."""
    wanted = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns)).match
    held: set[str] = set()
    for pid in pids:
        try:
            with os.scandir(f"/proc/{pid}/fd") as entries:
                for entry in entries:
                    held |= {path for path in [_target(entry.path)] if wanted(path)}
        except PermissionError:
            return None
        except OSError:
            continue
    return len(held)


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""
