"""What a run is asked for: a checkpoint, or to save and stop; and how it answers.

Whoever asks replaces `request.json` as a whole; the run answers in `answer.json` beside it. Nothing here
raises: a run must not end because of a request that cannot be read or an answer that cannot be written.
"""

from __future__ import annotations

import json
import os
import signal
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType

from stoploss.engine import clock
from stoploss.training import places

VERSION = 1
"""Version of the two files."""

REQUEST, ANSWER = "request.json", "answer.json"

VARIABLE = "STOPLOSS_REQUEST"
"""Environment variable with the path of the request file."""

ACTIONS = ("checkpoint", "stop")

FINAL = {"checkpoint": ("saved", "failed"), "stop": ("stopped", "failed")}
"""Action -> the states in which it is over, so that a run that starts again does not do it again."""

LONGEST = 65_536
"""Bytes of a request or an answer that are read."""

_LONGEST_ID = 200


@dataclass(frozen=True, slots=True)
class Request:
    """One thing that the run is asked for.

    Attributes:
        id: names the request in its answer.
        action: `checkpoint`, or `stop`: save, then end.
        requested_at: when it was asked; None where that is not said.
        deadline: until when an answer is of use; None where that is not said.
        by: who asks.
        answer: path of the answer file.
    """

    id: str
    action: str
    requested_at: datetime | None
    deadline: datetime | None
    by: str
    answer: str = field(repr=False)

    def saved(self, path: str | os.PathLike[str], step: int | None = None) -> None:
        """Answer that the checkpoint of `step` is complete at `path`."""
        self._tell("saved", path=path, step=step)

    def stopped(self, path: str | os.PathLike[str] | None = None, step: int | None = None) -> None:
        """Answer that no step is done after `step`, and where its checkpoint lies."""
        self._tell("stopped", path=path, step=step)

    def failed(self, reason: str) -> None:
        """Answer that it could not be done, and why."""
        self._tell("failed", reason=reason)

    def seen(self) -> None:
        """Answer that the run knows of the request."""
        self._tell("seen")

    def _tell(
        self,
        state: str,
        *,
        path: str | os.PathLike[str] | None = None,
        step: int | None = None,
        reason: str | None = None,
    ) -> None:
        record = {
            "version": VERSION,
            "id": self.id,
            "state": state,
            "step": None if step is None else int(step),
            "path": None if path is None else os.path.abspath(path),
            "reason": reason,
            "at": clock.now().isoformat(timespec="milliseconds"),
        }
        try:
            places.write_whole(self.answer, record)
        except OSError as error:
            places.note(f"the answer {state!r} to request {self.id} cannot be written: {error}")


class Mailbox:
    """The request file of one run; every request in it is given once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._answer = os.path.join(os.path.dirname(path), ANSWER)
        self._mark: tuple[int, int, int] | None = None
        self._given: str | None = None
        self._noted = ""
        self._heard = _bell.rings

    def poll(self) -> Request | None:
        """The request that came since the last poll; None where none did."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return self._signalled()
        except OSError as error:
            self._note(f"cannot be read: {error.strerror}")
            return self._signalled()
        mark = status.st_ino, status.st_mtime_ns, status.st_size
        if mark == self._mark:
            return self._signalled()
        request = self._opened(status, mark)
        if request is None:
            return self._signalled()
        # A signal beside a request file only says to look at the file.
        self._heard = _bell.rings
        return self._taken(request)

    def _signalled(self) -> Request | None:
        if self._heard == _bell.rings:
            return None
        self._heard = _bell.rings
        now = clock.now()
        name = f"signal-{os.getpid()}-{_bell.rings}"
        return self._taken(Request(name, "checkpoint", now, None, _bell.name, self._answer))

    def _taken(self, request: Request) -> Request:
        self._given = request.id
        request.seen()
        return request

    def _opened(self, status: os.stat_result, mark: tuple[int, int, int]) -> Request | None:
        """The request in the file, where it is one that is still to be done."""
        if not stat.S_ISREG(status.st_mode):
            self._note("is no plain file")
            return None
        try:
            with open(self.path, "rb") as stream:
                content = stream.read(LONGEST + 1)
        except OSError as error:
            self._note(f"cannot be read: {error.strerror}")
            return None
        self._mark = mark
        try:
            request = parsed(content, self._answer)
        except ValueError as error:
            self._note(f"is ignored: {error}")
            return None
        if request.id == self._given or self._is_over(request):
            return None
        if request.deadline is not None and request.deadline < clock.now():
            self._note(f"is ignored: the deadline of {request.id} has passed")
            request.failed("its deadline had passed when it was seen")
            return None
        return request

    def _is_over(self, request: Request) -> bool:
        """Whether this run, or the same one before it was started again, has done it."""
        try:
            with open(self._answer, "rb") as stream:
                answer = json.loads(stream.read(LONGEST))
        except (OSError, ValueError, RecursionError):
            return False
        return (
            isinstance(answer, dict)
            and answer.get("id") == request.id
            and answer.get("state") in FINAL[request.action]
        )

    def _note(self, text: str) -> None:
        """Tell what is wrong with the file, once until something else is."""
        if text != self._noted:
            self._noted = text
            places.note(f"{self.path} {text}")


def parsed(content: bytes, answer: str) -> Request:
    """The request that the bytes of a file are.

    Args:
        content: of the file.
        answer: path of the file to answer in.

    Raises:
        ValueError: they are none; the message says why.
    """
    if len(content) > LONGEST:
        raise ValueError(f"it has more than {LONGEST:,} bytes")
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("it is not complete JSON; write another file and rename it to this one") from None
    record = record if isinstance(record, dict) else {}
    if record.get("version") != VERSION:
        raise ValueError(f"its version is {record.get('version')!r}, not {VERSION}")
    name, action = record.get("id"), record.get("action")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_ID:
        raise ValueError(f"its id is no text of 1 to {_LONGEST_ID} characters")
    if action not in ACTIONS:
        raise ValueError(f"its action is {action!r}, not one of {', '.join(ACTIONS)}")
    asked, until = _instant(record, "requested_at"), _instant(record, "deadline")
    return Request(name, action, asked, until, str(record.get("by") or "unknown"), answer)


def _instant(record: dict[str, object], key: str) -> datetime | None:
    """A time in ISO 8601, in UTC where it has no zone, or in seconds since the epoch."""
    value = record.get(key)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError(f"its {key} {value!r} is no time")


@dataclass(slots=True)
class _Bell:
    """How often a signal asked for a checkpoint, and which."""

    rings: int = 0
    name: str = ""


_bell = _Bell()
_mailboxes: dict[str, Mailbox] = {}
_known: dict[tuple[str | os.PathLike[str] | None, str | None], Mailbox] = {}


def listen(number: int = signal.SIGUSR1) -> None:
    """Let a signal ask for a checkpoint, which `requested()` then tells; a handler that was there still runs.

    Args:
        number: of the signal.

    Raises:
        ValueError: this is not the main thread, or there is no such signal.
    """
    before = signal.getsignal(number)

    def ring(number: int, frame: FrameType | None) -> None:
        _bell.rings += 1
        _bell.name = signal.Signals(number).name
        if callable(before):
            before(number, frame)

    signal.signal(number, ring)


def requested(run_dir: str | os.PathLike[str] | None = None) -> Request | None:
    """What the run is asked for since the last call; None nearly always, within microseconds.

    Args:
        run_dir: the run's folder, which has the file `.stoploss/request.json`. Where it is left out, the file
            is that of `STOPLOSS_REQUEST`, else in the folder `STOPLOSS_RUN_DIR` or the working directory.
    """
    key = run_dir, os.environ.get(VARIABLE)
    mailbox = _known.get(key)
    if mailbox is None:
        path = places.file_of(REQUEST, VARIABLE, run_dir)
        mailbox = _known[key] = _mailboxes.setdefault(path, Mailbox(path))
    return mailbox.poll()
