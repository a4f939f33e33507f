"""Moves a checkpoint or a folder to a cheaper file system: copied, compared by checksums, then to the trash.

The original stays in the trash of its folder for a day. The newest complete checkpoint of a job stays where
it is, and so does what a process uses.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress

from stoploss.actions import files
from stoploss.actions.contract import Means, Refused
from stoploss.actions.snapshot_result import Waiting
from stoploss.actions.targets import checkpoint_copy, trash
from stoploss.actions.targets.checkpoint_copy import MANIFEST, Copy
from stoploss.actions.targets.open_files import users
from stoploss.actions.targets.trash_store import Bin, Item, local_path, plain, read, seen, sized
from stoploss.actions.verify import Demand, Seen, look
from stoploss.engine.model import Found, Order, Outcome

LIMIT = 4 * 3600.0
"""Seconds that one copy may take; the next try goes on with what is there."""

PAUSE = 1.0
"""Seconds between two looks at the copy."""


class Move:
    """Moves one checkpoint or volume below the folder that the step names."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._bin = Bin(means, "original")

    def find(self, order: Order) -> Found:
        """Look at both places.

        Raises:
            Refused: it must stay where it is, or the folder is not there, too full, or no other file system.
        """
        path = local_path(order, self._means)
        item = self._movable(order, path)
        target = self._target(order, path)
        try:
            if os.stat(str(order.parameters["path"])).st_dev == item.dev:
                raise Refused(f"{path} and {order.parameters['path']} are on the same file system")
            free = shutil.disk_usage(str(order.parameters["path"])).free
        except OSError as error:
            raise Refused(f"{order.parameters['path']} {files.words_of(error)}") from None
        if free < item.bytes and not os.path.lexists(target):
            raise Refused(f"{path} has {sized(item.bytes)}, and {sized(free)} are free in {target}")
        if os.path.lexists(target) and _manifest_source(target) != path:
            raise Refused(f"{target} is there already")
        words = f"would move {path} ({sized(item.bytes)}) to {target}"
        return Found(words, {"items": plain([item]), "target": target, "bytes": item.bytes}, undoable=True)

    def act(self, order: Order, found: Found) -> Outcome:
        """Copy it, compare, and only then move the original to the trash."""
        items, target = read(found.before), str(found.before["target"])
        source = items[0].path
        if items[0].state(order.id) == "moved":
            return self.look(order, found)
        try:
            now = self._movable(order, source)
        except Refused as refused:
            return Outcome("skipped", refused.words)
        if (now.ino, now.bytes, now.newest) != (items[0].ino, items[0].bytes, items[0].newest):
            return Outcome("skipped", f"{source} has changed since it was looked at")
        trouble = self._copied(source, target)
        if trouble is not None:
            return Outcome("failed", trouble, retry=True)

        def check(item: Item) -> None:
            self._movable(order, item.path)

        moved = self._bin.move(order, items, check)
        if moved.state != "done":
            words = f"a whole copy is at {target}, but the original stays: {moved.words}"
            return Outcome("failed", words, {"target": target}, retry=moved.retry)
        after = {**moved.after, "target": target}
        return Outcome("done", f"{source} is at {target}; the original is in the trash for 24 h", after)

    def look(self, order: Order, found: Found) -> Outcome:
        """Where it is now."""
        item, target = read(found.before)[0], str(found.before["target"])
        whole = _is_whole(target)
        state = item.state(order.id)
        after = {"target": target}
        if state == "there":
            if os.path.lexists(target) or os.path.lexists(Copy(item.path, target).draft):
                return Outcome("failed", f"{item.path} is still there, beside a copy", after, retry=True)
            return Outcome("undone", f"{item.path} is where it was", after)
        if whole:
            return Outcome("done", f"{item.path} is at {target}", after)
        if state == "moved":
            return Outcome("failed", f"{item.path} is in the trash, and {target} is not whole", after)
        return Outcome("skipped", f"{item.path} is not there any more", after)

    def undo(self, order: Order, found: Found) -> Outcome:
        """Bring it back: from the trash, else as a copy with checksums. What was moved to stays too."""
        items, target = read(found.before), str(found.before["target"])
        path = items[0].path
        if items[0].state(order.id) == "moved":
            back = self._bin.back(order, items)
            return Outcome(back.state, f"{back.words}; {target} stays too", back.after)
        if items[0].state(order.id) == "there":
            return Outcome("done", f"{path} is where it was")
        if os.path.lexists(path) and _manifest_source(path) != target and not _equal(path, target):
            return Outcome("skipped", f"{path} is there again, and is something else")
        if not _is_whole(target):
            return Outcome("failed", f"{target} is not there as it was left")
        trouble = None if _equal(path, target) else self._copied(target, path)
        if trouble is not None:
            return Outcome("failed", trouble, retry=True)
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(path, MANIFEST))
        return Outcome("done", f"{path} is back; {target} stays too")

    def _movable(self, order: Order, path: str) -> Item:
        """Raises Refused where it must stay."""
        if order.resource.kind == "checkpoint":
            job = order.labels.get("job", "")
            item = trash.looked_at(self._means, order, [path])[0]
            why = trash.stays_newest(trash.members(self._means, job), [path])
            if why is not None:
                raise Refused(why)
        else:
            try:
                item = seen(path)
            except FileNotFoundError:
                raise Refused(f"{path} is not there any more", gone=True) from None
            except (OSError, ValueError) as error:
                raise Refused(f"{path} {files.words_of(error)}") from None
            used = users([path])
            if used:
                raise Refused(f"process {used[path]} uses {path}")
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise Refused(f"{path} is a single file, and only folders are moved")
        if any(entry.is_link for entry in files.walk(path)):
            raise Refused(f"{path} holds a symbolic link, which may lead anywhere")
        if not item.bytes:
            raise Refused(f"{path} is empty")
        return item

    def _target(self, order: Order, path: str) -> str:
        """Where it goes: below the folder of the step by the job's name and its own."""
        folder = str(order.parameters.get("path") or "")
        if not folder.startswith("/"):
            raise Refused("the folder to move to is no absolute path")
        if not os.path.isdir(folder):
            raise Refused(f"{folder} is no folder that is there")
        parts = [os.path.basename(path)]
        if order.resource.kind == "checkpoint":
            parts = order.resource.id.partition("@")[0].split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise Refused(f"{order.resource} has no name that a folder can have")
        return os.path.join(os.path.normpath(folder), *parts)

    def _copied(self, source: str, target: str) -> str | None:
        """Copy, with owners and rights; what went wrong, else None."""
        waiting = Waiting(self._means.now, self._means.monotonic, self._means.sleep, LIMIT, PAUSE)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            # Completeness was asked of the source: a layout's files beside a checkpoint are not copied.
            done = checkpoint_copy.take(Copy(source, target), Demand(lambda path: None), waiting)
            if not done.verified:
                return done.why
            _like(source, target)
        except (OSError, ValueError) as error:
            return f"{target} {files.words_of(error)}"
        return None


def _like(source: str, target: str) -> None:
    """Give a copy the folders, owners and rights of what it is of."""
    for folder, _, names in os.walk(source):
        copy = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))
        os.makedirs(copy, exist_ok=True)
        for name in ("", *names):
            if name == MANIFEST:
                continue
            status = os.lstat(os.path.join(folder, name))
            path = os.path.join(copy, name)
            with suppress(PermissionError):
                os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)
            if not stat.S_ISLNK(status.st_mode):
                os.chmod(path, stat.S_IMODE(status.st_mode))


def _manifest_source(path: str) -> str | None:
    """What a copy says it is of; None where it is none."""
    found = checkpoint_copy._manifest(path) if os.path.isdir(path) else {}
    source = found.get("source")
    return source if isinstance(source, str) else None


def _is_whole(path: str) -> bool:
    """Whether a copy has every file of its manifest, of the right size."""
    try:
        listed = checkpoint_copy._manifest(path).get("files")
        return isinstance(listed, dict) and dict(_sizes(look(path))) == {
            name: record["bytes"] for name, record in listed.items()
        }
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _equal(path: str, copy: str) -> bool:
    """Whether what lies at a path has the files of a copy, by name, size and date."""
    try:
        mine, theirs = look(path), look(copy)
    except (OSError, ValueError):
        return False
    return not os.path.lexists(os.path.join(path, MANIFEST)) and _marks(mine) == _marks(theirs)


def _sizes(found: Seen) -> Iterator[tuple[str, int]]:
    return ((name, size) for name, size, _ in found.files if name != MANIFEST)


def _marks(found: Seen) -> list[tuple[str, int, int]]:
    return [item for item in found.files if item[0] != MANIFEST]
