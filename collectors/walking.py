"""A bounded walk through a folder, which goes on at the next look where it had to stop.

A walk lasts as long as a look lets it. What lies between two looks of an unfinished walk is one open folder
per level, however many files there are. Symbolic links are not followed and other file systems
not entered, so a walk cannot go in circles; what vanishes on the way is left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Generic, Protocol, TypeVar

from stoploss.collectors.background import in_background
from stoploss.collectors.contract import CollectorError

TIME_LIMIT = 5.0
"""Seconds that a look walks."""

GRACE = 1.5
"""Seconds that a walk gets to come to a halt; one that takes longer hangs."""

ENTRY_LIMIT = 1_000_000
"""Files and folders that a look walks in one tree."""

DEEPEST = 64
"""Folders within folders; each costs an open file while its content is walked."""

TROUBLES_NAMED = 3
"""Folders named in a note; of others only the number is told."""


TRASH = ".stoploss-trash"
"""Folders that hold what was deleted and can still be brought back; it is nobody's checkpoint and no log."""


class Visitor(Protocol):
    """What is told of each thing on the way."""

    def enter(self, folder: str, status: os.stat_result) -> bool:
        """A folder begins; whether it is to be walked."""
        ...

    def file(self, folder: str, name: str, status: os.stat_result) -> None:
        """A regular file."""
        ...

    def leave(self, folder: str) -> None:
        """A folder that was entered is through."""
        ...

    def denied(self, folder: str, reason: str) -> None:
        """A folder, or the rest of it, cannot be read."""
        ...


def words_of(error: OSError) -> str:
    """What is wrong, in the same few words each time."""
    return (error.strerror or str(error)).lower()


def shown(path: str) -> str:
    """A path, which may hold any bytes, as text."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def open_unnoticed(path: str) -> int:
    """Open a file to be read, without counting as a reader of it where the system allows that.

    Raises:
        OSError: it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        # Only the owner of a file may ask for that.
        return os.open(path, flags)


def read_unnoticed(path: str, length: int, offset: int = 0) -> bytes:
    """At most `length` bytes of a file from `offset`, negative from its end.

    Raises:
        OSError: it cannot be read.
    """
    handle = open_unnoticed(path)
    try:
        if offset < 0:
            offset = max(0, os.fstat(handle).st_size + offset)
        return os.pread(handle, length, offset)
    finally:
        os.close(handle)


@dataclass(slots=True)
class Walk:
    """One walk through all that lies under a folder.

    Attributes:
        seen: files and folders so far.
        troubles: folders that could not be read so far.
        named: the first of them, each with its reason.
    """

    root: str
    visitor: Visitor
    seen: int = 0
    troubles: int = 0
    named: list[str] = field(default_factory=list)
    _stack: list[tuple[str, Iterator[os.DirEntry[str]]]] = field(default_factory=list)
    _device: int | None = None

    def advance(self, stop: Callable[[], bool], entries: int = ENTRY_LIMIT) -> bool:
        """Go on until all is walked, `stop()` is true or `entries` more were seen; whether all is walked.

        Raises:
            OSError: the folder itself cannot be read.
        """
        if self._device is None:
            self._begin()
        end = self.seen + entries
        while self._stack:
            if self.seen >= end or stop():
                return False
            folder, content = self._stack[-1]
            try:
                entry = next(content, None)
            except OSError as error:
                self._trouble(folder, error)
                entry = None
            if entry is None:
                self._leave()
                continue
            self.seen += 1
            self._visit(folder, entry)
        return True

    def close(self) -> None:
        """Let go of the folders that are open."""
        while self._stack:
            _close(self._stack.pop()[1])

    def __del__(self) -> None:
        self.close()

    def _begin(self) -> None:
        status = os.stat(self.root)
        content = os.scandir(self.root)
        self._device = status.st_dev
        if self.visitor.enter(self.root, status):
            self._stack.append((self.root, content))
        else:
            content.close()

    def _visit(self, folder: str, entry: os.DirEntry[str]) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError as error:
            # A folder that may be listed but not searched fails alike for each of its entries.
            self._trouble(folder, error)
            self._leave()
            return
        if stat.S_ISREG(status.st_mode):
            self.visitor.file(folder, entry.name, status)
        elif stat.S_ISDIR(status.st_mode) and status.st_dev == self._device:
            self._enter(entry.path, status)

    def _enter(self, folder: str, status: os.stat_result) -> None:
        if not self.visitor.enter(folder, status):
            return
        if len(self._stack) >= DEEPEST:
            self._trouble(folder, OSError(0, f"more than {DEEPEST} folders deep"))
            self.visitor.leave(folder)
            return
        try:
            self._stack.append((folder, os.scandir(folder)))
        except FileNotFoundError:
            self.visitor.leave(folder)
        except OSError as error:
            self._trouble(folder, error)
            self.visitor.leave(folder)

    def _leave(self) -> None:
        folder, content = self._stack.pop()
        _close(content)
        self.visitor.leave(folder)

    def _trouble(self, folder: str, error: OSError) -> None:
        reason = words_of(error)
        self.troubles += 1
        if len(self.named) < TROUBLES_NAMED:
            self.named.append(f"{shown(folder)} ({reason})")
        self.visitor.denied(folder, reason)


def _close(content: Iterator[os.DirEntry[str]]) -> None:
    close = getattr(content, "close", None)
    if close is not None:
        close()


V = TypeVar("V", bound=Visitor)


@dataclass(slots=True)
class Tree(Generic[V]):
    """A folder that is walked again and again.

    Attributes:
        root: the folder.
        begin: makes the visitor of a new walk out of that of the last whole one, if any.
        beside: what else is to be done at each look, in the same thread and time, before and after
            the walk: it gets the visitor of the last whole walk, else of the first, and `stop`.
        entries: files and folders walked at a look.
        walked: the visitor of the last whole walk.
        under_way: the visitor of an unfinished walk.
        trouble: why the folder cannot be read now, else None.
        real: the folder without symbolic links.
    """

    root: str
    begin: Callable[[V | None], V]
    beside: Callable[[V, Callable[[], bool]], None] | None = None
    entries: int = ENTRY_LIMIT
    walked: V | None = None
    under_way: V | None = None
    trouble: str | None = None
    real: str = ""
    note: str | None = None
    _walk: Walk | None = None
    _total: int = 0
    _future: Future[None] | None = None

    @property
    def hangs(self) -> bool:
        """Whether an earlier look still waits for an answer."""
        return self._future is not None and not self._future.done()

    @property
    def whole(self) -> bool:
        """Whether the last whole walk was made now, and nothing was left out of it."""
        return self.walked is not None and self.trouble is None and self.note is None

    def start(self, stop: Event) -> Future[None]:
        """Go on walking in the background until `stop` is set."""
        self._future = in_background(partial(self.advance, stop.is_set), f"walk {self.root}")
        return self._future

    def advance(self, stop: Callable[[], bool]) -> None:
        """Go on walking here and now."""
        try:
            self._advance(stop)
        except OSError as error:
            self._walk, self.under_way, self.note = None, None, None
            self.trouble = words_of(error)

    def _advance(self, stop: Callable[[], bool]) -> None:
        if self._walk is None:
            self.under_way = self.begin(self.walked)
            self._walk = Walk(self.root, self.under_way)
            self.real = os.path.realpath(self.root)
            self._total = self._total or _entries_of(self.real)
        walk = self._walk
        self._beside(stop)
        whole = walk.advance(stop, self.entries)
        self.trouble = None
        self.note = _left_out(walk)
        if whole:
            self.walked, self.under_way = self.under_way, None
            self._walk, self._total = None, walk.seen
        else:
            self.note = _joined(self._progress(walk.seen), self.note)
        self._beside(stop)

    def _beside(self, stop: Callable[[], bool]) -> None:
        visitor = self.walked or self.under_way
        if self.beside is not None and visitor is not None:
            self.beside(visitor, stop)

    def _progress(self, seen: int) -> str:
        if not self._total:
            return f"partly walked ({seen} entries), goes on at the next look"
        return f"{min(99, 100 * seen // self._total)} % walked, goes on at the next look"


def _left_out(walk: Walk) -> str | None:
    if not walk.troubles:
        return None
    more = walk.troubles - len(walk.named)
    return "left out: " + ", ".join(walk.named) + (f" and {more} more" if more else "")


def _joined(*parts: str | None) -> str:
    return "; ".join(part for part in parts if part)


def _entries_of(path: str) -> int:
    """How many entries the file system holds that is mounted there; 0 where it is not told."""
    if not os.path.ismount(path):
        return 0
    status = os.statvfs(path)
    return max(0, status.f_files - status.f_ffree)


def walk_all(trees: Sequence[Tree[V]], time_limit: float = TIME_LIMIT, grace: float = GRACE) -> None:
    """Let all trees go on side by side for `time_limit` seconds; what each came to stands in it.

    One that does not stop within `grace` seconds more has its trouble, and is not asked again
    before it answers.
    """
    stop = Event()
    started = [(tree, tree.start(stop)) for tree in trees if not tree.hangs]
    wait([future for _, future in started], timeout=time_limit)
    stop.set()
    wait([future for _, future in started], timeout=grace)
    for tree, future in started:
        if future.done() and (error := future.exception()) is not None:
            tree.trouble = f"{type(error).__name__}: {error}"
    for tree in trees:
        if tree.hangs:
            tree.trouble = "the folder does not answer"


def walk_or_fail(trees: Sequence[Tree[V]], time_limit: float) -> None:
    """Let all trees go on, as `walk_all` does.

    Raises:
        CollectorError: none of them can be read.
    """
    walk_all(trees, time_limit)
    failed = [tree for tree in trees if tree.trouble]
    if len(failed) == len(trees):
        raise CollectorError("; ".join(f"{tree.trouble}: {shown(tree.root)}" for tree in failed))


def notes_of(name: str, trees: Sequence[Tree[V]]) -> tuple[str, ...]:
    """What is to be told of the trees of a collector: troubles, what was left out, and how far it is."""
    return tuple(
        f"{name}: {shown(tree.root)}: {said}" for tree in trees if (said := tree.trouble or tree.note)
    )
