"""Asks a run to keep only a share of its DEBUG and INFO lines, by a file for `stoploss.SamplingFilter`.

The file is `.stoploss/sampling.json` in the run's folder. What is a warning or worse, and what tells a
metric, is never left out. A run that does not use the filter goes on as it did.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from stoploss.actions import files
from stoploss.actions.contract import Means, Refused
from stoploss.actions.targets.trash_registry import HOLD, put
from stoploss.actions.targets.trash_store import local_path
from stoploss.engine.model import Found, Order, Outcome

VERSION = 1

FOLDER, FILE = ".stoploss", "sampling.json"

LEVELS = ("DEBUG", "INFO")
"""Levels of which lines may be left out."""

_LONGEST = 65_536


class _Sampling:
    """What both have in common: a run's folder, and the file in it."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def act(self, order: Order, found: Found) -> Outcome:
        """Write the file, unless somebody else has changed it since; read it back."""
        wanted = _wanted(order)
        try:
            with _opened(found.before, make=True) as box:
                there = _text(box)
                if there != wanted:
                    if there != found.before["content"]:
                        return Outcome("skipped", f"{found.before['file']} was changed by somebody else")
                    put(box, FILE, wanted.encode(), 0o644)
                if _text(box) != wanted:
                    return Outcome("failed", f"{found.before['file']} is not what was written", retry=True)
        except Refused as refused:
            return Outcome("skipped", refused.words)
        except (OSError, ValueError) as error:
            return Outcome("failed", f"{found.before['file']} {files.words_of(error)}", retry=True)
        share = _share(order)
        return Outcome("done", f"{found.before['file']} asks for {share:g} of the lines", {"share": share})

    def look(self, order: Order, found: Found) -> Outcome:
        """What the file says now."""
        try:
            with _opened(found.before) as box:
                there = _text(box)
        except Refused as refused:
            return Outcome("skipped", refused.words)
        except FileNotFoundError:
            there = None
        except (OSError, ValueError) as error:
            return Outcome("unknown", f"{found.before['file']} {files.words_of(error)}")
        if there == _wanted(order):
            return Outcome("done", f"{found.before['file']} asks for a share of the lines")
        if there == found.before["content"]:
            return Outcome("undone", f"{found.before['file']} is as it was")
        return Outcome("skipped", f"{found.before['file']} was changed by somebody else")

    def undo(self, order: Order, found: Found) -> Outcome:
        """Bring back what the file said before, or that there was none."""
        before = found.before["content"]
        words = f"{found.before['file']} is as it was"
        try:
            with _opened(found.before) as box:
                there = _text(box)
                if there not in (before, _wanted(order)):
                    return Outcome("skipped", f"{found.before['file']} was changed by somebody else since")
                if there == before:
                    return Outcome("done", words)
                if before is None:
                    os.unlink(FILE, dir_fd=box)
                    os.fsync(box)
                else:
                    put(box, FILE, str(before).encode(), 0o644)
                if _text(box) != before:
                    return Outcome("failed", f"{found.before['file']} is not as it was", retry=True)
        except Refused as refused:
            return Outcome("skipped", refused.words)
        except FileNotFoundError:
            state = before is None
            return Outcome(
                "done" if state else "skipped", words if state else "its folder is not there any more"
            )
        except (OSError, ValueError) as error:
            return Outcome("failed", f"{found.before['file']} {files.words_of(error)}", retry=True)
        if before is None and not found.before["made"]:
            with suppress(OSError):
                os.rmdir(os.path.dirname(str(found.before["file"])))
        return Outcome("done", words)

    def _found(self, order: Order, folder: str) -> Found:
        share = _share(order)
        path = os.path.join(folder, FOLDER, FILE)
        try:
            status = os.stat(folder)
            if not stat.S_ISDIR(status.st_mode):
                raise Refused(f"{folder} is no folder")
            before: dict[str, object] = {"folder": folder, "ino": status.st_ino, "file": path}
            made = os.path.lexists(os.path.dirname(path))
            content = None
            if made:
                with _opened(before) as box:
                    content = _text(box)
        except FileNotFoundError:
            raise Refused(f"{folder} is not there any more", gone=True) from None
        except (OSError, ValueError) as error:
            raise Refused(f"{path} {files.words_of(error)}") from None
        if content == _wanted(order):
            raise Refused(f"{path} asks for that already")
        words = f"would ask by {path} for {share:g} of the {' and '.join(LEVELS)} lines"
        return Found(words, {**before, "content": content, "made": made}, undoable=True)


class Sample(_Sampling):
    """Asks the program that writes a log, by a file beside that log."""

    def find(self, order: Order) -> Found:
        """Look at the file beside the log.

        Raises:
            Refused: the log is another machine's or not there, or the file cannot be read.
        """
        path = local_path(order, self._means)
        if not os.path.isfile(path):
            raise Refused(f"{path} is not there any more", gone=True)
        return self._found(order, os.path.dirname(path))


class SampleJob(_Sampling):
    """Asks a job by a file in its run's folder, which its label `run_dir` names."""

    def find(self, order: Order) -> Found:
        """Look at the file in the run's folder.

        Raises:
            Refused: nothing names the folder, or it is not there.
        """
        folder = order.labels.get("run_dir", "")
        if not folder.startswith("/"):
            raise Refused(f"nothing says where {order.resource} runs: it has no readable label 'run_dir'")
        host = order.labels.get("host")
        if host not in (None, "", self._means.hostname):
            raise Refused(f"{order.resource} is on host {host}, and this is {self._means.hostname}")
        return self._found(order, os.path.normpath(folder))


def _share(order: Order) -> float:
    """Raises Refused where the order names no share."""
    share = order.parameters.get("sample")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise Refused("the share of lines to keep is no number from 0 to 1")
    return float(share)


def _wanted(order: Order) -> str:
    """What the file shall say; the same for the same order."""
    record: dict[str, object] = {
        "version": VERSION,
        "id": order.id,
        "by": order.by,
        "share": _share(order),
        "levels": list(LEVELS),
    }
    until = order.parameters.get("until")
    if isinstance(until, int | float):
        record["until"] = until
    return json.dumps(record) + "\n"


@contextmanager
def _opened(before: Mapping[str, object], *, make: bool = False) -> Iterator[int]:
    """A handle of `.stoploss` in the run's folder.

    Raises:
        OSError: it is not there.
        Refused: the run's folder is another by now.
    """
    run = os.open(str(before["folder"]), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(run)
        if status.st_ino != before["ino"]:
            raise Refused(f"{before['folder']} is another folder by now", gone=True)
        if make:
            with suppress(FileExistsError):
                os.mkdir(FOLDER, 0o755, dir_fd=run)
                with suppress(PermissionError):
                    # The run writes here too.
                    os.chown(FOLDER, status.st_uid, status.st_gid, dir_fd=run, follow_symlinks=False)
        box = os.open(FOLDER, HOLD, dir_fd=run)
    finally:
        os.close(run)
    try:
        yield box
    finally:
        os.close(box)


def _text(box: int) -> str | None:
    """What the file says; None where there is none.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no plain file, or no text.
    """
    try:
        handle = os.open(FILE, files.READ, dir_fd=box)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("is no plain file")
        content = stream.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise ValueError("is longer than any that asks for a share")
    return content.decode()
