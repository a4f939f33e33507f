"""Asks a run for a checkpoint by its request file, and believes the answer only after a look.

One request is known by its id. Taking it again, after a crash or not, first looks for what came of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from stoploss.actions import files
from stoploss.actions.snapshot_result import Snapshot, Waiting
from stoploss.actions.verify import Demand, verify

VERSION = 1
"""Version of the two files."""

ANSWER = "answer.json"

LONGEST = 65_536
"""Bytes of an answer that are read."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a run is asked for.

    Attributes:
        file: path of its request file.
        id: of the request, at most 200 characters; the same one for the same intent.
        by: who asks, for people.
        action: `checkpoint`: save and go on; `stop`: save, then end.
    """

    file: str
    id: str
    by: str
    action: Literal["checkpoint", "stop"] = "checkpoint"


def take(ask: Ask, demand: Demand, waiting: Waiting) -> Snapshot:
    """Ask, unless that was done before; wait for the answer; verify what it names."""
    try:
        deadline = _sent(ask, waiting)
    except (OSError, ValueError) as error:
        return Snapshot("failed", why=f"{ask.file} {files.words_of(error)}")
    return waiting.until_over(
        lambda: look(ask, deadline, waiting.now(), lambda path, step: verify(path, demand, waiting, step))
    )


def look(ask: Ask, deadline: float, now: float, check: Callable[[str, int | None], Snapshot]) -> Snapshot:
    """What has come of a request.

    Args:
        ask: the request.
        deadline: until when an answer counts, in seconds since the epoch.
        now: seconds since the epoch.
        check: verifies a path and the step that it is said to be of.
    """
    answer = _record(os.path.join(os.path.dirname(ask.file), ANSWER))
    state = answer.get("state") if answer.get("id") == ask.id else None
    if state == "failed":
        return Snapshot(
            "failed", why=f"the run could not save: {answer.get('reason') or 'it says no reason'}"
        )
    if state == ("stopped" if ask.action == "stop" else "saved"):
        return _answered(answer, deadline, check)
    why = "the run has not looked at the request" if state is None else f"the run says only {state!r}"
    if now > deadline:
        return Snapshot("failed", why=f"no answer before the deadline: {why}")
    return Snapshot("pending", why=why)


def _answered(
    answer: dict[str, Any], deadline: float, check: Callable[[str, int | None], Snapshot]
) -> Snapshot:
    path, step = answer.get("path"), answer.get("step")
    step = step if isinstance(step, int) and not isinstance(step, bool) else None
    if not isinstance(path, str) or not path or "\0" in path:
        return Snapshot("failed", step=step, why="the run says that it saved, and not where")
    at = _instant(answer.get("at"))
    if at is not None and at > deadline:
        return Snapshot("failed", path, step, why="the run saved after the deadline")
    return check(path, step)


def _sent(ask: Ask, waiting: Waiting) -> float:
    """The deadline of the request, which is written where it is not there yet.

    Raises:
        OSError: it cannot be written.
        ValueError: another request is open.
    """
    now = waiting.now()
    there = _record(ask.file)
    open_until = _instant(there.get("deadline"))
    if there.get("id") == ask.id:
        return now + waiting.limit if open_until is None else open_until
    answer = _record(os.path.join(os.path.dirname(ask.file), ANSWER))
    final = ("failed", "stopped" if there.get("action") == "stop" else "saved")
    over = answer.get("id") == there.get("id") and answer.get("state") in final
    if open_until is not None and open_until >= now and not over:
        raise ValueError(f"holds the open request {there.get('id')} by {there.get('by')}")
    deadline = now + waiting.limit
    record = {
        "version": VERSION,
        "id": ask.id,
        "action": ask.action,
        "requested_at": _words(now),
        "deadline": _words(deadline),
        "by": ask.by,
    }
    os.makedirs(os.path.dirname(ask.file), exist_ok=True)
    # The run may belong to another user than the one who asks.
    files.replace(ask.file, json.dumps(record).encode() + b"\n", mode=0o644)
    return deadline


def _record(path: str) -> dict[str, Any]:
    """A JSON object of a file; an empty one where it is none."""
    try:
        found = json.loads(files.read(path, LONGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _words(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="milliseconds")


def _instant(value: object) -> float | None:
    """Seconds since the epoch of a time in ISO 8601 or in seconds; None where it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
