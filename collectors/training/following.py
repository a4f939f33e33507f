"""Finds training logs below a path while it is walked, and follows them from look to look."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stoploss.collectors.training.tail import Tail
from stoploss.collectors.walking import Tree
from stoploss.engine.model import TrainingLog

MOST = 5000
"""Files below one path that are tried."""

PIECE = 1 << 22
"""Bytes that are read of a log before it is asked whether the look is over."""


@dataclass(slots=True)
class Files:
    """The files below a path: path -> (time of the newest write in ns, size)."""

    found: dict[str, tuple[int, int]] = field(default_factory=dict)
    more: bool = False

    def enter(self, folder: str, status: os.stat_result) -> bool:
        """Every folder is walked."""
        return True

    def file(self, folder: str, name: str, status: os.stat_result) -> None:
        """A file that may be a log."""
        if len(self.found) < MOST:
            self.found[os.path.join(folder, name)] = status.st_mtime_ns, status.st_size
        else:
            self.more = True

    def leave(self, folder: str) -> None:
        """Nothing is kept of a folder."""

    def denied(self, folder: str, reason: str) -> None:
        """The walk itself tells what was left out."""


class Place(Tree[Files]):
    """A path, which is a folder or a single file."""

    def _advance(self, stop: Callable[[], bool]) -> None:
        status = os.stat(self.root)
        if not stat.S_ISREG(status.st_mode):
            super()._advance(stop)
            return
        self.walked, self.under_way, self.trouble = Files(), None, None
        self.walked.file(os.path.dirname(self.root), os.path.basename(self.root), status)
        self._beside(stop)


@dataclass(frozen=True, slots=True)
class Log:
    """One log as it was read.

    Attributes:
        path: the file.
        written: seconds since the epoch of its newest write.
        run: its newest run; None where nothing could be read of it.
        trouble: why it cannot be read now.
    """

    path: str
    written: float
    run: TrainingLog | None
    trouble: str | None


@dataclass(slots=True)
class Follower:
    """The logs below one path."""

    patterns: Sequence[re.Pattern[str]]
    tails: dict[str, Tail] = field(default_factory=dict)
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    behind: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    _runs: dict[str, TrainingLog | None] = field(default_factory=dict)

    def follow(self, files: Files, stop: Callable[[], bool]) -> None:
        """Read what is new in each file that was not read in this look."""
        for path, mark in files.found.items():
            if stop():
                return
            tail = self.tails.get(path)
            # What was no log is tried again when it has changed.
            if path in self.done or (tail is not None and tail.format is None and self.marks[path] == mark):
                continue
            if tail is None:
                tail = self.tails[path] = Tail(path, patterns=self.patterns)
            if self.marks.get(path) != mark:
                self._runs.pop(path, None)
            self.marks[path] = mark
            self.behind.add(path)
            while tail.feed(PIECE):
                self._runs.pop(path, None)
                if stop():
                    return
            self.behind.discard(path)
            self.done.add(path)

    def forget(self, files: Files) -> None:
        """Only these files are still there."""
        self.tails = {path: tail for path, tail in self.tails.items() if path in files.found}
        self.marks = {path: mark for path, mark in self.marks.items() if path in files.found}
        self._runs = {path: run for path, run in self._runs.items() if path in files.found}
        self.behind &= files.found.keys()

    def logs(self) -> list[Log]:
        """The logs, and the files that cannot be opened, in order of their names."""
        found = []
        for path in sorted(self.tails):
            tail = self.tails[path]
            if path not in self._runs:
                # Curves are copied once for each change, not at each look.
                self._runs[path] = next(reversed(tail.logs()), None)
            run, trouble = self._runs[path], tail.problem
            if path in self.behind:
                trouble = "not read to its end yet"
            if run is not None or (trouble and tail.format is None and _denied(trouble)):
                found.append(Log(path, self.marks[path][0] / 1e9, run, trouble))
        return found


def _denied(trouble: str) -> bool:
    """Whether a file could not be opened at all, so that it may be a log."""
    return not trouble.startswith(("no known format", "the file is empty", "no plain file"))
