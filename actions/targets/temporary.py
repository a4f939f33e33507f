"""Empties a temporary folder of what is older than a day, by way of its trash; the folder itself stays.

That a folder is temporary is what the options of the collector `storage` say of it: its role is `temporary`,
or it is `scratch` or `cache` and the step says `what: temporary` too.
"""

from __future__ import annotations

import os
import stat

from stoploss.actions.contract import Means, Refused
from stoploss.actions.files import words_of
from stoploss.actions.targets.open_files import users
from stoploss.actions.targets.trash import option
from stoploss.actions.targets.trash_registry import FOLDER
from stoploss.actions.targets.trash_store import Bin, Item, local_path, plain, read, seen, sized
from stoploss.engine.model import Found, Order, Outcome

OLD = 86400.0
"""Seconds without a write after which an entry is left over."""

TEMPORARY, WITH_WORD = "temporary", ("scratch", "cache")


class Release:
    """Moves what is left over in a temporary folder to its trash."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._bin = Bin(means, "entry")

    def find(self, order: Order) -> Found:
        """Look what in it is old, and whether somebody uses the folder.

        Raises:
            Refused: it is not temporary, is in use, is another machine's, or has nothing old.
        """
        path = local_path(order, self._means)
        self._must_be_temporary(order, path)
        self._must_be_unused(path)
        items = self._old(path)
        if not items:
            raise Refused(f"{path} holds nothing that was not written for a day")
        size = sum(item.bytes for item in items)
        words = f"would move {len(items)} old entries of {path} ({sized(size)}) to its trash"
        return Found(words, {"folder": path, "items": plain(items), "bytes": size}, undoable=True)

    def act(self, order: Order, found: Found) -> Outcome:
        """Move them, unless somebody uses the folder by now."""
        items = read(found.before)
        try:
            self._must_be_unused(str(found.before["folder"]))
        except Refused as refused:
            moved = self._bin.look(order, items)
            if moved.state == "done":
                return moved
            return Outcome("failed" if moved.after["moved"] else "skipped", refused.words, moved.after)
        return self._bin.move(order, items, _nothing)

    def look(self, order: Order, found: Found) -> Outcome:
        """Which of them are in the trash."""
        return self._bin.look(order, read(found.before))

    def undo(self, order: Order, found: Found) -> Outcome:
        """Bring them back, until the trash is emptied."""
        return self._bin.back(order, read(found.before))

    def _must_be_temporary(self, order: Order, path: str) -> None:
        what = order.parameters.get("what")
        if what not in (None, TEMPORARY):
            raise Refused(f"a folder is not what the step gives back: {what}")
        places = self._means.collectors.get("storage", {}).get("paths") or ()
        role = next((option(place, "role") for place in places if option(place, "path") == path), None)
        if role is None:
            raise Refused(f"no option of the collector storage names {path}")
        if role != TEMPORARY and not (role in WITH_WORD and what == TEMPORARY):
            raise Refused(f"nothing says that {path} is temporary: its role is {role or 'not told'}")

    def _must_be_unused(self, path: str) -> None:
        used = users([path])
        if used:
            raise Refused(f"process {used[path]} uses {path}")

    def _old(self, path: str) -> list[Item]:
        try:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise Refused(f"{path} is no folder")
            names = sorted(os.listdir(path))
        except FileNotFoundError:
            raise Refused(f"{path} is not there any more", gone=True) from None
        except OSError as error:
            raise Refused(f"{path} {words_of(error)}") from None
        found = []
        for name in names:
            if name == FOLDER:
                continue
            try:
                item = seen(os.path.join(path, name), links=True)
            except (OSError, ValueError):
                # Sockets, mounts, and what cannot be read are somebody's.
                continue
            if self._means.now() - item.newest / 1e9 > OLD:
                found.append(item)
        return found


def _nothing(item: Item) -> None:
    """The whole folder was looked at right before."""
