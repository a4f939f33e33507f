"""Runs a program of the user's: a list of arguments, never a shell line; at most once for one order.

It is given little of the environment, a time limit, and no input. What it writes is kept in a file, with
secrets masked. That it was started is written down before, and how it ended after, so that after a crash
it is never started a second time.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from stoploss.actions import files
from stoploss.actions.contract import Action, Means, Refused
from stoploss.actions.targets.trash_registry import box_name
from stoploss.engine.model import Found, Order, Outcome

NAME = "exec"

PASSED = ("PATH", "HOME", "LANG")
"""Variables that the program is given, where they are set; all others begin with STOPLOSS_."""

TIMEOUT = 300.0
"""Seconds that it may take, where the step says nothing."""

GRACE = 10.0
"""Seconds between asking it to end and ending it."""

KEPT = 64 << 10
"""Bytes of its output that are kept, the last ones."""

_MORE = 4 << 10
"""Bytes before them that are read, so that a secret is not cut in two before it is masked."""

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_EVERY = 0.05
_LONGEST = 65_536


def build(means: Means) -> Action:
    """The action, with what it needs."""
    return Exec(means)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit status, negative for a signal, None where it was never started."""

    status: int | None
    late: bool
    seconds: float
    words: str = ""


class Exec:
    """Runs the program of the step once."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def find(self, order: Order) -> Found:
        """Look whether the program is there and may be run.

        Raises:
            Refused: it is not, or it was started for this order before.
        """
        if not self._means.folder.startswith("/"):
            raise Refused("nothing says in which folder the program would run")
        command = _command(order)
        program = self._program(command[0])
        if os.path.lexists(self._file(order, "begun")):
            raise Refused("it was started for this order before")
        words = f"would run {self._means.mask(program)} with {len(command) - 1} arguments"
        return Found(words, {"program": program, "mark": _mark(program), "timeout": _timeout(order)})

    def act(self, order: Order, found: Found) -> Outcome:
        """Run it, unless it was started for this order before, and wait for it."""
        program = str(found.before["program"])
        if os.path.lexists(self._file(order, "begun")):
            return self.look(order, found)
        try:
            if _mark(program) != list(found.before["mark"]):
                return Outcome("skipped", f"{program} is another program by now")
        except OSError as error:
            return Outcome("skipped", f"{program} {files.words_of(error)}")
        try:
            os.makedirs(os.path.dirname(self._file(order, "begun")), mode=0o700, exist_ok=True)
            files.write(self._file(order, "begun"), json.dumps({"at": self._means.now()}).encode())
            files.force_folder(os.path.dirname(self._file(order, "begun")))
        except FileExistsError:
            return self.look(order, found)
        except OSError as error:
            return Outcome("failed", f"it was not started: {files.words_of(error)}", retry=True)
        ended, output = self._run(order, program)
        with suppress(OSError):
            files.replace(self._file(order, "log"), self._masked(output))
        try:
            record = {"status": ended.status, "late": ended.late, "seconds": round(ended.seconds, 3)}
            files.replace(self._file(order, "ended"), json.dumps({**record, "words": ended.words}).encode())
        except OSError as error:
            return Outcome("unknown", f"how it ended could not be written down: {files.words_of(error)}")
        return self._told(order, ended)

    def look(self, order: Order, found: Found) -> Outcome:
        """Whether it was started, and how it ended, by what was written down."""
        ended = self._ended(order)
        if ended is not None:
            return self._told(order, ended)
        if os.path.lexists(self._file(order, "begun")):
            return Outcome("unknown", "it was started; whether it finished is not known. It is not run again")
        return Outcome("undone", "it was not started")

    def undo(self, order: Order, found: Found) -> Outcome:
        """What a program has done cannot be taken back."""
        return Outcome("skipped", "what a program has done cannot be taken back")

    def _file(self, order: Order, ending: str) -> str:
        return os.path.join(self._means.folder, NAME, f"{box_name(order.id)}.{ending}")

    def _program(self, name: str) -> str:
        """The path of the program. Raises Refused where it cannot be run."""
        if "/" in name and not name.startswith("/"):
            raise Refused(f"{name} is neither an absolute path nor a name alone")
        path = self._means.environ.get("PATH", _SYSTEM_PATH)
        program = shutil.which(name, path=path)
        if program is None or not os.path.isabs(program):
            if name.startswith("/") and os.path.isfile(name):
                raise Refused(f"{name} may not be run")
            raise Refused(f"there is no program {name}")
        return program

    def _environment(self, order: Order) -> dict[str, str]:
        given = {name: self._means.environ[name] for name in PASSED if name in self._means.environ}
        given["STOPLOSS_ORDER"] = order.id
        given["STOPLOSS_ACTION"] = order.action
        given["STOPLOSS_RESOURCE_KIND"] = order.resource.kind
        given["STOPLOSS_RESOURCE_ID"] = order.resource.id
        given["STOPLOSS_BY"] = order.by
        for label, value in sorted(order.labels.items()):
            if value != "?":
                name = re.sub(r"\W", "_", label, flags=re.ASCII).upper()
                given.setdefault(f"STOPLOSS_LABEL_{name}", value)
        return {name: value for name, value in given.items() if "\0" not in value}

    def _run(self, order: Order, program: str) -> tuple[Ended, bytes]:
        """Run the program to its end or to the limit; how it ended, and the last that it wrote."""
        begun = self._means.monotonic()
        try:
            child = subprocess.Popen(  # noqa: S603 - a list of arguments, of a program that the policy names
                [program, *_command(order)[1:]],
                cwd=self._means.folder,
                env=self._environment(order),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Ended(None, False, 0.0, files.words_of(error)), b""
        assert child.stdout is not None
        tail = _Tail(child.stdout.fileno())
        late = not self._waited(child.pid, tail, begun + _timeout(order))
        if late:
            # It is not reaped before, so that its id cannot be another's.
            _tell_group(child.pid, signal.SIGTERM)
            self._waited(child.pid, tail, self._means.monotonic() + GRACE)
            _tell_group(child.pid, signal.SIGKILL)
        status = child.wait()
        tail.drain()
        child.stdout.close()
        return Ended(status, late, self._means.monotonic() - begun), tail.content

    def _waited(self, pid: int, tail: _Tail, end: float) -> bool:
        """Read what it writes until it ends; False where it has not by then."""
        while True:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                return True
            if self._means.monotonic() >= end:
                return False
            if not tail.read(_EVERY):
                self._means.sleep(_EVERY)

    def _masked(self, output: bytes) -> bytes:
        text = self._means.mask(output.decode("utf-8", "replace")).encode("utf-8", "replace")
        return text[-KEPT:]

    def _ended(self, order: Order) -> Ended | None:
        try:
            found: dict[str, Any] = json.loads(files.read(self._file(order, "ended"), _LONGEST))
            return Ended(found["status"], bool(found["late"]), float(found["seconds"]), str(found["words"]))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def _told(self, order: Order, ended: Ended) -> Outcome:
        after: Mapping[str, Any] = {
            "status": ended.status,
            "seconds": ended.seconds,
            "log": self._file(order, "log"),
        }
        if ended.status is None:
            return Outcome("failed", f"it could not be started: {ended.words}", after)
        if ended.late:
            return Outcome("failed", "it was ended, as it took longer than it may", after)
        if ended.status < 0:
            return Outcome("failed", f"it was ended by signal {-ended.status}", after)
        if ended.status:
            return Outcome("failed", f"it ended with status {ended.status}", after)
        return Outcome("done", "it ended with status 0", after)


class _Tail:
    """The last bytes that come through a pipe."""

    def __init__(self, handle: int) -> None:
        os.set_blocking(handle, False)
        self._handle = handle
        self._open = True
        self.content = b""

    def read(self, limit: float) -> bool:
        """Take what comes within so many seconds; False where nothing can come any more."""
        if not self._open:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._handle, selectors.EVENT_READ)
            if selector.select(limit):
                self._take()
        return True

    def drain(self) -> None:
        """Take what is there, of a program that has ended; others may hold the pipe open."""
        for _ in range(64):
            if not self._open or not self._take():
                return

    def _take(self) -> bool:
        try:
            piece = os.read(self._handle, KEPT)
        except BlockingIOError:
            return False
        self._open = bool(piece)
        self.content = (self.content + piece)[-KEPT - _MORE :]
        return self._open


def _tell_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _command(order: Order) -> Sequence[str]:
    """Raises Refused where the order names no list of arguments."""
    command = order.parameters.get("command")
    if not isinstance(command, list | tuple) or not command:
        raise Refused("the command is no list of arguments")
    if not all(isinstance(part, str) and "\0" not in part for part in command) or not command[0]:
        raise Refused("an argument of the command is no text")
    return command


def _timeout(order: Order) -> float:
    value = order.parameters.get("timeout", TIMEOUT)
    return float(value) if isinstance(value, int | float) and value > 0 else TIMEOUT


def _mark(program: str) -> list[int]:
    """What makes a program this one: its place on disk, size and date."""
    status = os.stat(program)
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]
