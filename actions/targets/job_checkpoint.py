"""Asks the run of a job for a checkpoint: by its request file, by SIGUSR1, or through Slurm.

The request file is used where the label `run_dir` names a folder of this machine. A signal goes to the one
process of the job that handles it, and the folder of its newest checkpoint is watched. A signal leaves no
trace, so a note is written before it and taken away when it is over: after a crash none is sent again.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass, replace
from typing import Any

from stoploss.actions import files, snapshot
from stoploss.actions.contract import Means, Refused
from stoploss.actions.routing import SCHEDULER
from stoploss.actions.snapshot import Candidate
from stoploss.actions.snapshot_result import Snapshot, Waiting
from stoploss.actions.targets import process_signal, process_tree
from stoploss.actions.verify import Demand, look
from stoploss.engine.model import Found, Order, Outcome

TIMEOUT = 600.0
"""Seconds that it may take where the step does not say."""

LOST_WITH = frozenset({"process"})
"""What a step on a job ends."""

FOLDER, REQUEST = ".stoploss", "request.json"

ASKED = "asked"
"""Folder with a note of each order whose signal was sent, or was about to be, until its end is known."""

COARSE = 1.0
"""Seconds by which a file may look older than it is: a file system keeps whole seconds in places."""


def demand_of(means: Means, since: float | None) -> Demand:
    """What a checkpoint must be that a step may rely on.

    Raises:
        Refused: nobody can say whether one is complete.
    """
    known = means.checkpoints
    if known is None:
        raise Refused("no collector of checkpoints is named, so nobody can say whether one is complete")
    return Demand(known.lacks, since, LOST_WITH, known.domain)


def waiting_of(means: Means, order: Order) -> Waiting:
    """How long a step waits."""
    limit = float(order.parameters.get("timeout", TIMEOUT))
    return Waiting(means.now, means.monotonic, means.sleep, limit, min(1.0, max(limit / 100, 0.05)))


def outcome_of(found: Snapshot, *, again: bool) -> Outcome:
    """A snapshot as an outcome; `again`: another try later is of use."""
    if not found.verified:
        return Outcome("failed", found.why, retry=again)
    seen = {"path": found.path, "step": found.step, "began": found.began, "bytes": found.bytes}
    return Outcome("done", found.why, {name: value for name, value in seen.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks the run of a job to save, and verifies what it saved."""

    means: Means

    def find(self, order: Order) -> Found:
        """How the run would be asked.

        Raises:
            Refused: there is no way to ask it, or nobody can say whether its checkpoint is complete.
        """
        demand_of(self.means, order.since)
        before = self._way(order)
        words = snapshot.would(self._ordered(order, before), waiting_of(self.means, order).limit)
        if before["way"] == "slurm":
            words = f"would send USR1 through Slurm to job {before['job']} and watch {before['folder']}"
        return Found(words, {**before, "intended": self.means.now()})

    def act(self, order: Order, found: Found) -> Outcome:
        """Ask, wait, and verify; where the signal was sent before a crash, only wait for the rest."""
        demand, waiting = demand_of(self.means, order.since), waiting_of(self.means, order)
        if found.before["way"] == "request":
            return outcome_of(snapshot.take(self._ordered(order, found.before), demand, waiting), again=True)
        asked = self._asked(order)
        if asked is not None:
            left = max(0.0, asked + waiting.limit - self.means.now())
            outcome = self._watch(order, found, asked, replace(waiting, limit=left))
        else:
            try:
                self._note(order)
            except OSError as error:
                words = f"the run was not asked: a note of it cannot be written: {files.words_of(error)}"
                return Outcome("failed", words, retry=True)
            outcome = self._signal(order, found, demand, waiting)
        self._forget(order)
        return outcome

    def look(self, order: Order, found: Found) -> Outcome:
        """What came of it: an answer, or a checkpoint that is there. Nobody is asked by looking."""
        demand = demand_of(self.means, order.since)
        waiting = replace(waiting_of(self.means, order), limit=0.0)
        before = found.before
        if before["way"] == "request":
            known = self._answered(order, before, demand)
            return (
                known if known is not None else Outcome("failed", "the run has not answered yet", retry=True)
            )
        seen = self._new(order, found, float(before["intended"]), waiting)
        if seen.verified:
            return outcome_of(seen, again=True)
        if self._asked(order) is not None:
            return Outcome("failed", "the run was asked, and nothing new is complete yet", retry=True)
        return Outcome("undone", "the run was not asked, and nothing new was saved")

    def undo(self, order: Order, found: Found) -> Outcome:
        """It cannot be undone, and need not be."""
        return Outcome("failed", "a checkpoint is not taken back; prune deletes it")

    # ---- ways ----------------------------------------------------------------------------

    def _way(self, order: Order) -> dict[str, Any]:
        folder = order.labels.get("run_dir", "")
        if folder.startswith("/") and os.path.isdir(folder):
            return {"way": "request", "request": os.path.join(folder, FOLDER, REQUEST)}
        known = self.means.checkpoints
        kept = known.folder_of(order.resource.id) if known is not None else None
        if kept is None:
            raise Refused(
                "nothing says how the run is asked: its folder is not on this machine (label run_dir), "
                "and no checkpoint of it tells where it saves"
            )
        scheduler = order.labels.get(SCHEDULER)
        if scheduler == "slurm":
            number = order.labels.get("slurm_job") or order.resource.id
            return {"way": "slurm", "job": number, "folder": kept, "newest": self._newest(order)}
        if scheduler == "process":
            process = _handles_usr1(order.resource.id)
            asked = {"way": "signal", "pid": process.pid, "start": process.start}
            return {**asked, "folder": kept, "newest": self._newest(order)}
        raise Refused("nothing says how the run is asked: its folder is not on this machine (label run_dir)")

    def _ordered(self, order: Order, before: Any) -> snapshot.Order:
        if before["way"] == "request":
            return snapshot.Order(order.id, order.by, request=before["request"])
        if before["way"] == "signal":
            process = process_signal.Process(before["pid"], before["start"])
            return snapshot.Order(order.id, order.by, process=process, folder=before["folder"])
        return snapshot.Order(order.id, order.by)

    # ---- signals -------------------------------------------------------------------------

    def _signal(self, order: Order, found: Found, demand: Demand, waiting: Waiting) -> Outcome:
        if found.before["way"] == "signal":
            taken = snapshot.take(self._ordered(order, found.before), demand, waiting)
            step = next((item.step for item in self._candidates(order) if item.path == taken.path), None)
            return outcome_of(replace(taken, step=step), again=True)
        from stoploss.actions.targets import slurm

        begun = self.means.now()
        why = slurm.ask(self.means, found.before["job"], "USR1")
        if why is not None:
            return Outcome("failed", why, retry=True)
        return self._watch(order, found, begun, waiting)

    def _watch(self, order: Order, found: Found, asked: float, waiting: Waiting) -> Outcome:
        """Wait for a checkpoint that was begun since the run was asked."""
        process = self._ordered(order, found.before).process

        def seen_now() -> Snapshot:
            # Asked before the checkpoints are looked at: what it wrote last is then seen.
            alive = process is None or process.is_there()
            seen = self._new(order, found, asked, waiting)
            return seen if seen.verified or not alive else replace(seen, state="pending")

        return outcome_of(waiting.until_over(seen_now), again=True)

    def _new(self, order: Order, found: Found, begun: float, waiting: Waiting) -> Snapshot:
        """The newest checkpoint that was begun since an instant, and is not that which was there before."""
        newer = demand_of(self.means, max(order.since, begun - COARSE))
        seen = snapshot.check(self._candidates(order), newer, waiting)
        if seen.verified and [seen.path, seen.began] == found.before["newest"]:
            return replace(seen, state="failed", why="nothing new is there")
        return seen

    def _newest(self, order: Order) -> list[Any]:
        """Path and beginning of the newest checkpoint that is there now."""
        there = self._candidates(order)
        if not there:
            return [None, None]
        path = there[-1].path
        try:
            return [path, look(path).began]
        except (OSError, ValueError):
            return [path, None]

    def _mark(self, order: Order) -> str | None:
        folder = self.means.folder
        return os.path.join(folder, ASKED, os.path.basename(order.id)) if folder else None

    def _asked(self, order: Order) -> float | None:
        """When the signal of an order was sent, or was about to be, in seconds since the epoch."""
        path = self._mark(order)
        if path is None:
            return None
        try:
            return float(files.read(path, 64))
        except (OSError, ValueError):
            return None

    def _note(self, order: Order) -> None:
        """Raises OSError where it cannot be written."""
        path = self._mark(order)
        if path is not None:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            files.replace(path, f"{self.means.now()}\n".encode())

    def _forget(self, order: Order) -> None:
        path = self._mark(order)
        if path is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)

    # ---- what is there -------------------------------------------------------------------

    def _candidates(self, order: Order) -> tuple[Candidate, ...]:
        known = self.means.checkpoints
        found = known.of_job(order.resource.id) if known is not None else ()
        return tuple(Candidate(path, step) for path, step in found)

    def _answered(self, order: Order, before: Any, demand: Demand) -> Outcome | None:
        """What the answer says, if there is one; the request is not written."""
        from stoploss.actions.targets import request_file
        from stoploss.actions.verify import verify

        ask = request_file.Ask(before["request"], order.id, order.by)
        waiting = waiting_of(self.means, order)
        deadline = float(before["intended"]) + waiting.limit
        seen = request_file.look(
            ask,
            deadline,
            min(self.means.now(), deadline),
            lambda path, step: verify(path, demand, waiting, step),
        )
        return None if seen.state == "pending" else outcome_of(seen, again=True)


def _handles_usr1(job: str) -> process_signal.Process:
    """The one process of a job on this machine that handles SIGUSR1.

    Raises:
        Refused: there is none, or there are several.
    """
    tree = process_tree.look()
    found = [
        process_signal.Process(seen.pid, seen.start)
        for seen in tree.members(job)
        if process_signal.handles(seen.pid, signal.SIGUSR1)
    ]
    if not found:
        raise Refused(f"no process of {job} on this machine handles SIGUSR1", gone=not tree.members(job))
    if len(found) > 1:
        raise Refused(f"{len(found)} processes of {job} handle SIGUSR1, and which of them saves is not known")
    return found[0]
