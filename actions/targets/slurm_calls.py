"""Slurm's commands: what a job is now, and changes to it; each call has a time limit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stoploss.actions.contract import Means, Refused
from stoploss.engine.model import Order

LIMIT = 10.0
"""Seconds that a command may take."""

PAUSE = 1.0
"""Seconds between two looks at a job that is waited for."""

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
HOLDING = frozenset(
    {
        "RUNNING",
        "CONFIGURING",
        "COMPLETING",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "SUSPENDED",
        "STOPPED",
    }
)
"""States in which a job has its nodes."""

OVER = frozenset(
    {
        "COMPLETED",
        "CANCELLED",
        "REVOKED",
        "PREEMPTED",
        "TIMEOUT",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "OUT_OF_MEMORY",
        "NODE_FAIL",
        "BOOT_FAIL",
    }
)

# None of these fields holds what a user wrote.
_FIELDS = (
    "JobArrayID",
    "State",
    "UserName",
    "SubmitTime",
    "StartTime",
    "RestartCnt",
    "Requeue",
    "PriorityLong",
)
_FORMAT = ",".join(f"{name}:|" for name in _FIELDS)
_NAME = re.compile(r"\d+(?:[_+]\d+)?")
_PASSED_ON = ("HOME", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "TZ")


class Unanswered(Exception):
    """A command gave no answer or refused; the text says which, and nothing that it printed."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job, or a task of an array, as Slurm tells it.

    Attributes:
        id: `ID`, `ID_TASK` of an array or `ID+PART` of a heterogeneous job.
        state: Slurm's own word.
        user: who submitted it.
        submitted: when it was queued, in seconds since the epoch; a requeue sets it anew.
        started: when it began, as Slurm tells it; only for people.
        restarts: how often it was queued again.
        requeues: whether it may be queued again.
        held: whether it waits for somebody to release it.
    """

    id: str
    state: str
    user: str
    submitted: int
    started: str
    restarts: int
    requeues: bool
    held: bool

    @property
    def waits(self) -> bool:
        """Whether it is queued."""
        return self.state in WAITING

    @property
    def holds(self) -> bool:
        """Whether it has its nodes."""
        return self.state in HOLDING

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in OVER

    def identity(self) -> dict[str, Any]:
        """What makes it this attempt of this job, and how it stands; JSON values."""
        return {
            "id": self.id,
            "user": self.user,
            "submitted": self.submitted,
            "restarts": self.restarts,
            "state": self.state,
            "started": self.started,
        }


def name_of(order: Order) -> str:
    """The id by which Slurm knows the job of an order: its label `slurm_job`, else its own name.

    Raises:
        Refused: it is no id of Slurm's.
    """
    told = order.labels.get("slurm_job", "")
    name = order.resource.id if told in ("", "?") else told
    if _NAME.fullmatch(name) is None:
        raise Refused(
            f"nothing says which Slurm job {order.resource.id} is: it has no readable label 'slurm_job'"
        )
    return name


def job(means: Means, name: str) -> Job | None:
    """A job as it is now; None where Slurm does not know it or hides it.

    Raises:
        Unanswered: it cannot be told.
    """
    whole = name.partition("+")[0]
    arguments = ["squeue", "-h", "-a", "-r", "-t", "all", "-j", whole, "-O", _FORMAT]
    done = _run(means, arguments)
    if done.returncode:
        if b"Invalid job id" in done.stderr:
            return None
        raise Unanswered(f"squeue failed with exit code {done.returncode}")
    rows = [line.split("|") for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
    try:
        found = [_row(fields) for fields in rows]
    except (ValueError, IndexError):
        raise Unanswered("squeue printed something else than jobs") from None
    if same := [row for row in found if row.id == name]:
        return same[0]
    if not found or not name.isdigit():
        return None
    if len(found) > 1:
        raise Unanswered(f"Slurm job {name} has {len(found)} tasks or parts; name one of them")
    # A task of an array also has a number of its own.
    return found[0]


def _row(fields: list[str]) -> Job:
    name, state, user, submitted, started, restarts, requeues, priority = (
        text.strip() for text in fields[:8]
    )
    if state not in WAITING | HOLDING | OVER:
        raise ValueError("a state that is not known here")
    waits = state in WAITING
    return Job(
        id=name,
        state=state,
        user=user,
        submitted=int(submitted),
        started=started,
        restarts=int(restarts),
        requeues=requeues == "1",
        # Of those that wait, what is held alone has no priority.
        held=waits and int(priority) == 0,
    )


def change(means: Means, *arguments: str) -> None:
    """Run a command that changes something.

    Raises:
        Unanswered: it failed or did not answer; it may have worked all the same.
    """
    done = _run(means, list(arguments))
    if done.returncode:
        raise Unanswered(f"{' '.join(arguments[:2])} failed with exit code {done.returncode}")


def wait(means: Means, name: str, limit: float, holds: Callable[[Job | None], bool]) -> Job | None:
    """Look at a job until something holds of it, or for `limit` seconds; returns the newest look.

    Raises:
        Unanswered: it cannot be told at the last look.
    """
    end = means.monotonic() + limit
    while True:
        left = end - means.monotonic()
        try:
            found = job(means, name)
        except Unanswered:
            if left <= 0:
                raise
        else:
            if left <= 0 or holds(found):
                return found
        means.sleep(min(PAUSE, max(left, 0.0)))


def _run(means: Means, arguments: list[str]) -> subprocess.CompletedProcess[bytes]:
    path = means.environ.get("PATH", os.defpath)
    program = shutil.which(arguments[0], path=path)
    if program is None:
        raise Unanswered(f"{arguments[0]} is not installed")
    environment = {key: means.environ[key] for key in _PASSED_ON if key in means.environ}
    environment |= {"PATH": path, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
    try:
        return subprocess.run(  # noqa: S603
            [program, *arguments[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise Unanswered(f"{arguments[0]} does not answer") from None
    except OSError:
        raise Unanswered(f"{arguments[0]} cannot be started") from None
