"""Moves things to a trash folder beside them, brings them back, and deletes what has lain there for a day.

The trash of a folder is `.stoploss-trash/ORDER/` in it, so that a move is one rename on one file system.
What is moved stands in a manifest there and in a registry before anything is moved. Folders are held by
handles, and no link is followed.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from stoploss.actions import files
from stoploss.actions.contract import Means, Refused
from stoploss.actions.targets import trash_registry
from stoploss.actions.targets.trash_registry import FOLDER, MANIFEST, box_name, mounts_in
from stoploss.engine.model import Order, Outcome

VERSION = 1

Check = Callable[["Item"], None]


@dataclass(frozen=True, slots=True)
class Item:
    """A file or folder that is moved, and what makes it this one and no other.

    Attributes:
        path: absolute.
        dev, ino: of it.
        bytes: of all files in it.
        newest: the last write of it or in it, in nanoseconds since the epoch.
        folder: inode of the folder that it lies in.
    """

    path: str
    dev: int
    ino: int
    bytes: int
    newest: int
    folder: int

    @property
    def parent(self) -> str:
        """The folder that it lies in."""
        return os.path.dirname(self.path)

    @property
    def name(self) -> str:
        """Its name there."""
        return os.path.basename(self.path)

    def trashed(self, order: str) -> str:
        """Where an order moves it."""
        return os.path.join(self.parent, FOLDER, box_name(order), self.name)

    def state(self, order: str) -> str:
        """`there`, `moved` by this order, `other` where its path is another's by now, or `gone`."""
        if self._is(self.path):
            return "there"
        if self._is(self.trashed(order)):
            return "moved"
        return "other" if os.path.lexists(self.path) else "gone"

    def _is(self, path: str) -> bool:
        try:
            return self.same(os.lstat(path))
        except OSError:
            return False

    def same(self, status: os.stat_result) -> bool:
        """Whether this is it."""
        # After a reboot a device may have another number.
        same_device = status.st_dev == self.dev or status.st_mtime_ns <= self.newest
        return status.st_ino == self.ino and same_device


def seen(path: str, *, links: bool = False) -> Item:
    """What lies at a path now.

    Args:
        path: absolute.
        links: a symbolic link counts as a thing by itself; it is never followed.

    Raises:
        OSError: it is not there, or some of it cannot be looked at.
        ValueError: it is a link, a mount point, holds one, or holds what is neither file, folder nor link.
    """
    status = os.lstat(path)
    size, newest = 0, status.st_mtime_ns
    if stat.S_ISLNK(status.st_mode):
        if not links:
            raise ValueError("is a symbolic link")
    else:
        mounted = mounts_in(path)
        if mounted:
            raise ValueError("is a mount point" if mounted[0] == os.path.realpath(path) else "holds a mount")
        for entry in files.walk(path):
            newest = max(newest, entry.status.st_mtime_ns)
            size += 0 if entry.is_link else entry.status.st_size
    folder = os.stat(os.path.dirname(path)).st_ino
    return Item(path, status.st_dev, status.st_ino, size, newest, folder)


def plain(items: Sequence[Item]) -> list[dict[str, str | int]]:
    """Items as JSON values."""
    return [asdict(item) for item in items]


def read(before: Mapping[str, object], key: str = "items") -> tuple[Item, ...]:
    """Items out of what was written down."""
    records = before[key]
    assert isinstance(records, list | tuple)
    return tuple(Item(**record) for record in records)


def local_path(order: Order, means: Means) -> str:
    """The path of what an order is about, on this machine.

    Raises:
        Refused: it is another machine's, or its path is not told.
    """
    host = order.labels.get("host", "")
    path = order.labels.get("path", "")
    if not host and not path and order.resource.kind in ("volume", "log"):
        host, _, path = order.resource.id.partition(":")
    if host != means.hostname:
        raise Refused(f"{order.resource} is on host {host or '?'}, and this is {means.hostname}")
    if not path.startswith("/") or os.path.normpath(path) != path or "\0" in path:
        raise Refused(f"nothing says at which path {order.resource} lies")
    return path


def sized(count: int) -> str:
    """A number of bytes for people."""
    number, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return f"{number:.3g} {units[0]}"


@dataclass(frozen=True, slots=True)
class Bin:
    """Moves items to the trash and back; `noun` is what one is called, such as `checkpoint`."""

    means: Means
    noun: str

    def move(self, order: Order, items: Sequence[Item], check: Check) -> Outcome:
        """Move what is not moved yet; what is not as it was found is left alone.

        Args:
            order: names the trash folder.
            items: of one or several folders.
            check: is asked right before each is moved, and raises `Refused` where it must stay.
        """
        why: list[str] = []
        broken = False
        for parent in dict.fromkeys(item.parent for item in items):
            group = [item for item in items if item.parent == parent]
            there = [item for item in group if item.state(order.id) == "there"]
            if not there:
                continue
            try:
                with self._opened(order, parent, group) as (source, box):
                    for item in there:
                        try:
                            check(item)
                            _take(item, source, box)
                        except Refused as refused:
                            why.append(refused.words)
            except (OSError, ValueError) as error:
                broken = True
                why.append(f"{parent}: {files.words_of(error)}")
        return self._told(order, items, why, broken)

    def _told(self, order: Order, items: Sequence[Item], why: Sequence[str], broken: bool) -> Outcome:
        states = [item.state(order.id) for item in items]
        moved = [item for item, state in zip(items, states, strict=True) if state == "moved"]
        count = f"{len(moved)} of {len(items)} {self.noun}s"
        after = {
            "moved": len(moved),
            "bytes": sum(item.bytes for item in moved),
            "trash": sorted({os.path.dirname(item.trashed(order.id)) for item in moved}),
        }
        size = sized(sum(item.bytes for item in moved))
        if not moved and not broken:
            reason = "; ".join(why) or "nothing of it is there as it was found"
            return Outcome("skipped", reason, after)
        if {"there", "other"}.isdisjoint(states) and not broken:
            return Outcome("done", f"{count} ({size}) are in the trash, to be deleted after 24 h", after)
        if "other" in states:
            why = [*why, "what lies there is another by now"]
        return Outcome("failed", f"{count} are in the trash: {'; '.join(why)}", after, retry=broken)

    def look(self, order: Order, items: Sequence[Item]) -> Outcome:
        """Which of them are in the trash; changes nothing."""
        states = [item.state(order.id) for item in items]
        moved, there = states.count("moved"), states.count("there")
        count = f"{moved} of {len(items)} {self.noun}s are in the trash"
        after = {"moved": moved}
        if moved and not there and "other" not in states:
            return Outcome("done", count, after)
        if there and not moved:
            return Outcome("undone", f"no {self.noun} was moved", after)
        if not moved:
            return Outcome("skipped", f"no {self.noun} is there any more as it was found", after)
        return Outcome("failed", count, after, retry=True)

    def back(self, order: Order, items: Sequence[Item]) -> Outcome:
        """Bring back what lies in the trash, each to where it was; nothing is replaced."""
        why: list[str] = []
        for item in items:
            if item.state(order.id) != "moved" and not os.path.lexists(item.trashed(order.id)):
                continue
            try:
                _give_back(item, order.id)
            except (OSError, ValueError) as error:
                why.append(f"{item.path} {files.words_of(error)}")
        states = [item.state(order.id) for item in items]
        there = states.count("there")
        after = {"there": there}
        if there == len(items):
            for parent in dict.fromkeys(item.parent for item in items):
                _clear(os.path.join(parent, FOLDER, box_name(order.id)))
            return Outcome("done", f"{there} {self.noun}s are back", after)
        if "other" in states:
            why.append("something else is there by now")
        if "gone" in states:
            why.append("the trash was emptied")
        words = f"{there} of {len(items)} {self.noun}s are there: {'; '.join(dict.fromkeys(why))}"
        return Outcome("failed" if there else "skipped", words, after)

    @contextmanager
    def _opened(self, order: Order, parent: str, group: Sequence[Item]) -> Iterator[tuple[int, int]]:
        """Handles of the folder and of its trash, in which the manifest is."""
        source = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held = [source]
        try:
            if os.fstat(source).st_ino != group[0].folder:
                raise ValueError("is another folder by now")
            trash_registry.note(self.means, order.id, parent, os.fstat(source).st_ino)
            box = source
            for name in (FOLDER, box_name(order.id)):
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=box)
                    os.fsync(box)
                box = os.open(name, trash_registry.HOLD, dir_fd=box)
                held.append(box)
            record = {
                "version": VERSION,
                "order": order.id,
                "by": order.by,
                # The time of the last try: what it moves can be brought back for a whole day.
                "at": self.means.now(),
                "items": plain(group),
            }
            trash_registry.put(box, MANIFEST, json.dumps(record).encode())
            yield source, box
        finally:
            for handle in reversed(held):
                os.close(handle)


def _take(item: Item, source: int, box: int) -> None:
    """Move one item. Raises Refused where it has changed; OSError or ValueError where it cannot be moved."""
    try:
        now = seen(item.path, links=True)
    except (OSError, ValueError) as error:
        raise Refused(f"{item.path} {files.words_of(error)}") from None
    if (now.ino, now.bytes, now.newest) != (item.ino, item.bytes, item.newest):
        raise Refused(f"{item.path} has changed since it was looked at")
    with suppress(FileNotFoundError):
        os.stat(item.name, dir_fd=box, follow_symlinks=False)
        raise ValueError(f"holds something of the name {item.name} in its trash")
    os.rename(item.name, item.name, src_dir_fd=source, dst_dir_fd=box)
    if not item.same(os.stat(item.name, dir_fd=box, follow_symlinks=False)):
        # Somebody put another one there between the look and the move.
        os.rename(item.name, item.name, src_dir_fd=box, dst_dir_fd=source)
        raise Refused(f"{item.path} is another by now")
    os.fsync(box)
    os.fsync(source)


def _give_back(item: Item, order: str) -> None:
    """Raises OSError or ValueError where it stays in the trash."""
    trashed = item.trashed(order)
    box = os.open(os.path.dirname(trashed), trash_registry.HOLD)
    try:
        status = os.stat(item.name, dir_fd=box, follow_symlinks=False)
        if not item.same(status):
            raise ValueError("is not what lies in the trash")
        parent = os.open(item.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(status.st_mode):
                # Unlike a rename, this never replaces what has come meanwhile.
                if os.path.lexists(item.path) and not item._is(item.path):
                    raise ValueError("is there again")
                with suppress(FileExistsError):
                    os.link(item.name, item.name, src_dir_fd=box, dst_dir_fd=parent, follow_symlinks=False)
                if item._is(item.path):
                    os.unlink(item.name, dir_fd=box)
            elif os.path.lexists(item.path):
                raise ValueError("is there again")
            else:
                os.rename(item.name, item.name, src_dir_fd=box, dst_dir_fd=parent)
            os.fsync(parent)
            os.fsync(box)
        finally:
            os.close(parent)
    finally:
        os.close(box)


def _clear(box: str) -> None:
    """Remove what is left of an order's trash, once all is back."""
    with suppress(OSError):
        os.unlink(os.path.join(box, MANIFEST))
    with suppress(OSError):
        os.rmdir(box)
        os.rmdir(os.path.dirname(box))
