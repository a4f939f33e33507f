"""Jobs of Slurm: cancelled, queued again and held, released, started anew, and asked by a signal.

A job is this one by its id, the time of its submission and its count of restarts, which a requeue changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from stoploss.actions.contract import Means, Refused
from stoploss.actions.targets import slurm_calls as calls
from stoploss.actions.targets.slurm_calls import Job, Unanswered
from stoploss.engine.model import Found, Order, Outcome

GRACE = 60.0
"""Seconds between SIGTERM and the end where the step does not say."""

END_LIMIT = 90.0
"""Seconds that a job may take to leave its nodes; Slurm waits 30 s (KillWait) before it kills."""

RELEASE_LIMIT = 15.0
"""Seconds until a change of a waiting job must be seen."""

_SIGNAL = re.compile(r"[A-Z][A-Z0-9]*|\d+")


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancels a job: SIGTERM to all of it, a grace, then `scancel`."""

    means: Means

    def find(self, order: Order) -> Found:
        """The job as it is now.

        Raises:
            Refused: Slurm does not know it, it is over, or Slurm does not answer.
        """
        name, job = _find(self.means, order)
        if job.over:
            raise Refused(f"Slurm job {name} has ended: {job.state}", gone=True)
        words = f"would cancel Slurm job {name} of {job.user} ({job.state}){_runs_in(order, name)}"
        return Found(words, {**job.identity(), "name": name})

    def act(self, order: Order, found: Found) -> Outcome:
        """Signal, wait, cancel, and look whether it has left the queue."""
        return _guarded(lambda: self._act(order, found))

    def _act(self, order: Order, found: Found) -> Outcome:
        name = found.before["name"]
        job = calls.job(self.means, name)
        if job is None or job.over:
            return Outcome("skipped", f"Slurm job {name} has ended: {_state(job)}", _after(job))
        if not _is(job, found):
            return _other(name, job)
        if job.holds and job.state != "COMPLETING":
            job = self._asked(name, float(order.parameters.get("grace", GRACE)), found)
            if job is not None and not job.over and not _is(job, found):
                words = f"Slurm job {name} was queued again when it was asked to end"
                return Outcome("failed", words, _after(job))
        if job is not None and not job.over:
            # One that is ending already may refuse.
            with suppress(Unanswered) if job.state == "COMPLETING" else nullcontext():
                calls.change(self.means, "scancel", name)
            job = calls.wait(self.means, name, END_LIMIT, lambda now: now is None or now.over)
        if job is None or job.over:
            return Outcome("done", f"Slurm job {name} has ended: {_state(job)}", _after(job))
        return Outcome("failed", f"Slurm job {name} is still {job.state}", _after(job), retry=True)

    def _asked(self, name: str, grace: float, found: Found) -> Job | None:
        """The job after its grace, or as soon as it does not go on."""
        if grace > 0:
            try:
                calls.change(self.means, "scancel", "--signal=TERM", "--full", name)
            except Unanswered:
                # It may have ended in between; one that runs must not be cancelled unasked.
                job = calls.job(self.means, name)
                if job is not None and job.holds and job.state != "COMPLETING":
                    raise
        return calls.wait(self.means, name, grace, lambda now: not _goes_on(now, found))

    def look(self, order: Order, found: Found) -> Outcome:
        """Whether the job still waits or runs."""

        def seen() -> Outcome:
            name = found.before["name"]
            job = calls.job(self.means, name)
            if job is None or job.over:
                return Outcome("done", f"Slurm job {name} has ended: {_state(job)}", _after(job))
            if not _is(job, found):
                return _other(name, job)
            if job.state == "COMPLETING" and found.before["state"] != "COMPLETING":
                return Outcome("failed", f"Slurm job {name} is ending", _after(job), retry=True)
            return Outcome("undone", f"Slurm job {name} is {job.state}", _after(job), retry=True)

        return _guarded(seen, "unknown")

    def undo(self, order: Order, found: Found) -> Outcome:
        """It cannot be undone."""
        return Outcome("failed", "a cancelled job cannot be brought back as it was; it can be resumed")


@dataclass(frozen=True, slots=True)
class Release(Cancel):
    """Cancels a job that keeps an allocation although its work is over."""

    def find(self, order: Order) -> Found:
        """The job as it is now.

        Raises:
            Refused: as `Cancel`, and where it holds no nodes.
        """
        what = order.parameters.get("what")
        if what not in (None, "allocation"):
            raise Refused(f"of a job only its allocation can be released, not what: {what}")
        name, job = _find(self.means, order)
        if not job.holds:
            raise Refused(f"Slurm job {name} holds no nodes: {job.state}", gone=job.over)
        words = f"would release the allocation of Slurm job {name} of {job.user} by cancelling it"
        return Found(words + _runs_in(order, name), {**job.identity(), "name": name})


@dataclass(frozen=True, slots=True)
class Shrink:
    """Takes a job's GPUs away: a running one is queued again and held, a waiting one is held."""

    means: Means

    def find(self, order: Order) -> Found:
        """The job as it is now.

        Raises:
            Refused: Slurm does not know it, it is over, held or cannot be queued again, some of its GPUs
                shall stay, or Slurm does not answer.
        """
        if gpus := order.parameters.get("gpus"):
            raise Refused(
                f"Slurm cannot leave {gpus} GPUs to a job that has more: only 0, until it is released"
            )
        if other := sorted(
            {"replicas", "instance-type"} & {key for key, given in order.parameters.items() if given}
        ):
            raise Refused(f"a Slurm job has no {other[0]}")
        name, job = _find(self.means, order)
        if job.over:
            raise Refused(f"Slurm job {name} has ended: {job.state}", gone=True)
        if job.held:
            raise Refused(f"Slurm job {name} is held already")
        if job.state == "COMPLETING":
            raise Refused(f"Slurm job {name} is ending")
        if job.holds and not job.requeues:
            raise Refused(f"Slurm job {name} may not be queued again (Requeue=0), so its work would be lost")
        how = "hold" if job.waits else "requeuehold"
        does = "queue again and hold" if job.holds else "hold"
        words = f"would {does} Slurm job {name} of {job.user}{_runs_in(order, name)}"
        return Found(words, {**job.identity(), "name": name, "how": how}, undoable=True)

    def act(self, order: Order, found: Found) -> Outcome:
        """Do it once, and look whether the job waits and is held."""
        return _guarded(lambda: self._act(found))

    def _act(self, found: Found) -> Outcome:
        name, how = found.before["name"], found.before["how"]
        job = calls.job(self.means, name)
        if _shrunk(job, found):
            return Outcome("done", f"Slurm job {name} waits and is held", _after(job))
        if job is None or job.over:
            return Outcome("skipped", f"Slurm job {name} has ended: {_state(job)}", _after(job))
        if not _leaves(job, found):
            if not _is(job, found) or job.waits != (how == "hold"):
                return _other(name, job)
            calls.change(self.means, "scontrol", how, name)
        job = calls.wait(
            self.means, name, END_LIMIT, lambda now: now is None or now.over or _shrunk(now, found)
        )
        if _shrunk(job, found):
            return Outcome("done", f"Slurm job {name} waits and is held", _after(job))
        return Outcome("failed", f"Slurm job {name} is {_state(job)} and not held", _after(job), retry=True)

    def look(self, order: Order, found: Found) -> Outcome:
        """Whether the job waits and is held."""

        def seen() -> Outcome:
            name = found.before["name"]
            job = calls.job(self.means, name)
            if _shrunk(job, found):
                return Outcome("done", f"Slurm job {name} waits and is held", _after(job))
            if job is None or job.over:
                return Outcome("skipped", f"Slurm job {name} has ended: {_state(job)}", _after(job))
            if _leaves(job, found):
                return Outcome("failed", f"Slurm job {name} is leaving its nodes", _after(job), retry=True)
            if not _is(job, found):
                return _other(name, job)
            return Outcome("undone", f"Slurm job {name} is {job.state}", _after(job), retry=True)

        return _guarded(seen, "unknown")

    def undo(self, order: Order, found: Found) -> Outcome:
        """Release it, unless somebody else has changed it since."""

        def back() -> Outcome:
            name = found.before["name"]
            job = calls.job(self.means, name)
            if job is None or not _shrunk(job, found):
                return Outcome(
                    "skipped", f"Slurm job {name} is {_state(job)} and not held by this", _after(job)
                )
            return _release(self.means, name)

        return _guarded(back)


@dataclass(frozen=True, slots=True)
class Resume:
    """Lets a job run again that was interrupted: releases it, or queues it again, once."""

    means: Means

    def find(self, order: Order) -> Found:
        """The job as it is now.

        Raises:
            Refused: Slurm has forgotten it, it waits or runs, was held before it ever ran, or cannot be
                queued again; or Slurm does not answer.
        """
        name, job = _find(self.means, order)
        if job.over:
            if not job.requeues:
                raise Refused(f"Slurm job {name} may not be queued again (Requeue=0)")
            how, does = "requeue", "queue again"
        elif job.held:
            if job.restarts == 0:
                raise Refused(f"Slurm job {name} was held before it ever ran: nothing has interrupted it")
            how, does = "release", "release"
        else:
            raise Refused(f"Slurm job {name} is {job.state} and not interrupted")
        words = f"would {does} Slurm job {name} of {job.user} ({job.state}){_runs_in(order, name)}"
        return Found(words, {**job.identity(), "name": name, "how": how})

    def act(self, order: Order, found: Found) -> Outcome:
        """Do it once, and look whether the job waits or runs."""
        return _guarded(lambda: self._act(order, found))

    def _act(self, order: Order, found: Found) -> Outcome:
        name, how = found.before["name"], found.before["how"]
        came = self.look(order, found)
        if came.state != "undone":
            return came
        if how == "release":
            return _release(self.means, name)
        calls.change(self.means, "scontrol", "requeue", name)
        job = calls.wait(self.means, name, RELEASE_LIMIT, lambda now: _again(now, found))
        if job is not None and _again(job, found):
            return Outcome("done", f"Slurm job {name} is {job.state} again", _after(job))
        return Outcome("failed", f"Slurm job {name} is {_state(job)}", _after(job), retry=True)

    def look(self, order: Order, found: Found) -> Outcome:
        """Whether the job waits or runs again, by its count of restarts."""

        def seen() -> Outcome:
            name = found.before["name"]
            job = calls.job(self.means, name)
            if job is None:
                return Outcome("skipped", f"Slurm does not know job {name} any more")
            if _again(job, found):
                return Outcome("done", f"Slurm job {name} is {job.state} again", _after(job))
            if not _is(job, found) or job.over != (found.before["how"] == "requeue"):
                return _other(name, job)
            return Outcome("undone", f"Slurm job {name} is {job.state}", _after(job), retry=True)

        return _guarded(seen, "unknown")

    def undo(self, order: Order, found: Found) -> Outcome:
        """It cannot be undone: the job may run by now."""
        return Outcome("failed", "a job that runs again is not interrupted again; it can be cancelled")


def ask(means: Means, job: str, number: str = "USR1") -> str | None:
    """Send a signal to the script of a job that runs; returns why it was not sent, or None.

    Args:
        means: what commands are run with.
        job: its id, as Slurm knows it.
        number: the signal, by its name without SIG or its number.
    """
    if _SIGNAL.fullmatch(number) is None:
        return f"{number} is no signal"
    try:
        found = calls.job(means, job)
        if found is None:
            return f"Slurm does not know job {job}, or hides it"
        if found.state != "RUNNING":
            return f"Slurm job {job} is {found.state}"
        calls.change(means, "scancel", f"--signal={number}", "--batch", job)
    except Unanswered as error:
        return str(error)
    return None


def _find(means: Means, order: Order) -> tuple[str, Job]:
    name = calls.name_of(order)
    try:
        job = calls.job(means, name)
    except Unanswered as error:
        raise Refused(str(error)) from None
    if job is None:
        raise Refused(f"Slurm does not know job {name}, or hides it", gone=True)
    return name, job


def _is(job: Job, found: Found) -> bool:
    """Whether it is the attempt of the job that was found."""
    before = found.before
    return (job.submitted, job.restarts, job.user) == (
        before["submitted"],
        before["restarts"],
        before["user"],
    )


def _goes_on(job: Job | None, found: Found) -> bool:
    return job is not None and not job.over and _is(job, found)


def _shrunk(job: Job | None, found: Found) -> bool:
    """Whether it waits and is held, after one requeue where there had to be one."""
    if job is None or not job.held or job.user != found.before["user"]:
        return False
    if found.before["how"] == "hold":
        return _is(job, found)
    return bool(job.restarts == found.before["restarts"] + 1)


def _leaves(job: Job, found: Found) -> bool:
    """Whether it gives up its nodes; one that is being queued again counts the restart to come."""
    before = found.before["restarts"]
    return job.state == "COMPLETING" and job.restarts in (before, before + 1)


def _again(job: Job | None, found: Found) -> bool:
    """Whether it is on its way again by one step from what was found."""
    if job is None or job.user != found.before["user"]:
        return False
    if found.before["how"] == "requeue":
        return not job.over and bool(job.restarts == found.before["restarts"] + 1)
    return _is(job, found) and not job.held


def _release(means: Means, name: str) -> Outcome:
    calls.change(means, "scontrol", "release", name)
    job = calls.wait(means, name, RELEASE_LIMIT, lambda now: now is not None and not now.held)
    if job is not None and not job.held:
        return Outcome("done", f"Slurm job {name} is released: {job.state}", _after(job))
    return Outcome("failed", f"Slurm job {name} is {_state(job)} and held", _after(job), retry=True)


def _other(name: str, job: Job) -> Outcome:
    return Outcome("skipped", f"Slurm job {name} was changed since: {job.state}", _after(job))


def _state(job: Job | None) -> str:
    return "not in the queue" if job is None else job.state


def _after(job: Job | None) -> dict[str, Any]:
    return {} if job is None else job.identity()


def _runs_in(order: Order, name: str) -> str:
    return "" if order.resource.id == name else f", in which {order.resource.id} runs"


def _guarded(step: Callable[[], Outcome], state: Any = "failed") -> Outcome:
    try:
        return step()
    except Unanswered as error:
        return Outcome(state, str(error), retry=True)
