"""Finds logs by patterns while a folder is walked, and follows them from look to look."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from stoploss.collectors import log_lines
from stoploss.collectors.walking import TRASH, open_unnoticed, words_of

SAMPLE = 256 << 10
"""Bytes of new text that are read of a log at a look."""

MOST = 2000
"""Logs followed of one pattern."""

ROTATED = re.compile(r"(.+?)[.-](?:\d{1,4}|\d{8}(?:[-.]?\d{1,6})?)(?:\.(?:gz|bz2|xz|zst))?")
"""A file that rotation has set aside, with the log that it was."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern for paths: the folder where it begins, and a pattern for each name below."""

    base: str
    parts: tuple[str, ...]

    @property
    def literal(self) -> str | None:
        """The path, where the pattern names just one."""
        return None if any(_is_wild(part) for part in self.parts) else os.path.join(self.base, *self.parts)

    def relative(self, path: str) -> list[str]:
        """The names of a path below the base."""
        return [name for name in path[len(self.base) :].split("/") if name]


def _is_wild(part: str) -> bool:
    return any(sign in part for sign in "*?[")


def glob(pattern: str) -> Glob:
    """A pattern taken apart; its last part is always one for the names of files."""
    names = [name for name in pattern.split("/") if name]
    plain = 0
    while plain < len(names) - 1 and not _is_wild(names[plain]):
        plain += 1
    return Glob("/" + "/".join(names[:plain]), tuple(names[plain:]))


def matches(parts: Sequence[str], names: Sequence[str]) -> bool:
    """Whether names fit a pattern; `**` stands for any number of folders."""
    if not parts:
        return not names
    if parts[0] == "**":
        return matches(parts[1:], names) or (bool(names) and matches(parts, names[1:]))
    return bool(names) and fnmatchcase(names[0], parts[0]) and matches(parts[1:], names[1:])


def may_hold(parts: Sequence[str], names: Sequence[str]) -> bool:
    """Whether something within a folder of these names can fit a pattern."""
    for number, name in enumerate(names):
        if number >= len(parts) - 1:
            return "**" in parts[: number + 1]
        if parts[number] == "**":
            return True
        if not fnmatchcase(name, parts[number]):
            return False
    return True


@dataclass(slots=True)
class Finder:
    """The logs of one pattern that a walk has found, and the bytes that rotation has set aside of each."""

    glob: Glob
    found: dict[str, None] = field(default_factory=dict)
    aside: dict[str, int] = field(default_factory=dict)
    more: bool = False

    def enter(self, folder: str, status: os.stat_result) -> bool:
        """Whether a folder can hold logs of the pattern."""
        return os.path.basename(folder) != TRASH and may_hold(self.glob.parts, self.glob.relative(folder))

    def file(self, folder: str, name: str, status: os.stat_result) -> None:
        """A file: a log, a rotated one, or something else."""
        rotated = ROTATED.fullmatch(name)
        if rotated is not None:
            log = os.path.join(folder, rotated[1])
            if log in self.aside or len(self.aside) < MOST:
                self.aside[log] = self.aside.get(log, 0) + status.st_size
        path = os.path.join(folder, name)
        if matches(self.glob.parts, self.glob.relative(path)):
            if len(self.found) < MOST:
                self.found[path] = None
            else:
                self.more = True

    def leave(self, folder: str) -> None:
        """Nothing is kept of a folder."""

    def denied(self, folder: str, reason: str) -> None:
        """The walk itself tells what was left out."""

    def logs(self) -> list[str]:
        """The logs; what rotation has set aside belongs to its log where that is one too."""
        paths = dict(self.found)
        if self.glob.literal is not None:
            paths[self.glob.literal] = None
        return [path for path in paths if not _set_aside(path, paths)]


def _set_aside(path: str, paths: dict[str, None]) -> bool:
    folder, name = os.path.split(path)
    rotated = ROTATED.fullmatch(name)
    return rotated is not None and os.path.join(folder, rotated[1]) in paths


@dataclass(slots=True)
class Log:
    """A log that is followed; sizes in bytes, times in seconds since the epoch.

    Attributes:
        total: bytes written since it was first seen, and what it held then.
        lines: written likewise; estimated from a sample where more was written than is read.
        counts: over the newest lines that were read.
        trouble: why the log cannot be looked at, else None.
        unread: why its text cannot be read, else None.
        binary: whether what was last read of it is no text.
    """

    path: str
    inode: tuple[int, int] | None = None
    size: int = 0
    total: int = 0
    lines: int = 0
    counts: log_lines.Counts = field(default_factory=log_lines.Counts)
    written: float = 0.0
    trouble: str | None = None
    unread: str | None = None
    binary: bool = False
    _position: int = 0

    def follow(self, stop: Callable[[], bool]) -> None:
        """Take what is new; of text at most a sample, and none when `stop()` is true."""
        try:
            status = os.stat(self.path)
            if not stat.S_ISREG(status.st_mode):
                self.trouble = "no regular file"
                return
            pieces, goes_on = self._news(status)
        except OSError as error:
            self.trouble = words_of(error)
            return
        self.total += sum(piece.length for piece in pieces)
        self.trouble = None
        self.inode, self.size, self.written = (status.st_dev, status.st_ino), status.st_size, status.st_mtime
        if goes_on:
            # A line that had no end at the look before is read again as a whole.
            pieces[0] = replace(pieces[0], begin=self._position)
        self._take_text(pieces, stop)

    def _news(self, status: os.stat_result) -> tuple[list[Piece], bool]:
        """What was written since the look before, the oldest first, and whether that goes on where it was."""
        whole = Piece(self.path, 0, status.st_size)
        if self.inode is None:
            return [whole], False
        if self.inode == (status.st_dev, status.st_ino):
            if status.st_size < self.size:
                return [whole], False
            return [replace(whole, begin=self.size)], True
        rest = self._renamed()
        return ([whole], False) if rest is None else ([rest, whole], True)

    def _renamed(self) -> Piece | None:
        """The rest of the file that the log was before, where rotation has set it aside."""
        folder, name = os.path.split(self.path)
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(name) or entry.name == name:
                    continue
                status = entry.stat(follow_symlinks=False)
                if (status.st_dev, status.st_ino) == self.inode and status.st_size >= self.size:
                    return Piece(entry.path, self.size, status.st_size)
        return None

    def _take_text(self, pieces: Sequence[Piece], stop: Callable[[], bool]) -> None:
        length = sum(piece.length for piece in pieces)
        if stop():
            # No time to read: as many lines as there were per byte until now.
            self.lines += round(length * self.lines / max(1, self.total - length))
            self._position = self.size
            return
        room = SAMPLE
        texts: list[bytes] = []
        try:
            for piece in reversed(pieces):
                data, begin = piece.newest(room)
                room -= len(data)
                texts.insert(0, data)
                if piece is pieces[-1]:
                    self._position = begin + data.rfind(b"\n") + 1
        except OSError as error:
            self.unread = words_of(error)
            return
        self._count(b"".join(texts), length)

    def _count(self, data: bytes, length: int) -> None:
        self.unread = None
        if not data:
            return
        self.binary = not log_lines.is_text(data)
        if self.binary:
            self._position = self.size
            return
        lines = data.count(b"\n")
        if lines:
            # Of a sample the lines stand for those of all that is new.
            self.lines += round(lines * max(1.0, length / len(data)))
            self.counts = log_lines.counted(data[: data.rfind(b"\n") + 1].lstrip(b"\0"))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file, from `begin` to `end`."""

    path: str
    begin: int
    end: int

    @property
    def length(self) -> int:
        """Its bytes."""
        return max(0, self.end - self.begin)

    def newest(self, room: int) -> tuple[bytes, int]:
        """Its last `room` bytes, without a line that begins before them; and where they begin.

        Raises:
            OSError: it cannot be read.
        """
        begin = max(self.begin, self.end - room)
        handle = open_unnoticed(self.path)
        try:
            data = os.pread(handle, self.end - begin, begin)
        finally:
            os.close(handle)
        if begin > self.begin and (cut := data.find(b"\n") + 1):
            return data[cut:], begin + cut
        return data, begin
