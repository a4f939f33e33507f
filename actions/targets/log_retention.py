"""Moves what rotation has set aside of a log to the trash, where it is older than the retention.

A file was set aside where its name is that of the log and a number (`app.log.1`) or a day
(`app.log-20260101.gz`). The log itself stays as it is.
"""

from __future__ import annotations

import os
import re
import stat

from stoploss.actions.contract import Means, Refused
from stoploss.actions.files import words_of
from stoploss.actions.targets.open_files import users
from stoploss.actions.targets.trash_store import Bin, Item, local_path, plain, read, seen, sized
from stoploss.engine.model import Found, Order, Outcome

ASIDE = re.compile(r"(?:\.\d{1,4}|[.-]\d{8}(?:[-.]?\d{1,6})?)(?:\.(?:gz|bz2|xz|zst))?")
"""What follows the name of a log; stricter than what is counted, as `run-2` may be a log by itself."""


class Shorten:
    """Moves the files that rotation set aside of one log, and that are older than the retention."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._bin = Bin(means, "rotated file")

    def find(self, order: Order) -> Found:
        """Look which files are old enough.

        Raises:
            Refused: there is none, the log is not there, or is another machine's.
        """
        retention = order.parameters.get("retention")
        if not isinstance(retention, int | float) or isinstance(retention, bool) or retention <= 0:
            raise Refused("the retention is no time")
        path = local_path(order, self._means)
        items = self._old(path, float(retention))
        if not items:
            raise Refused(f"{path} has no rotated file that is older than its retention")
        size = sum(item.bytes for item in items)
        words = f"would move {len(items)} rotated files of {path} ({sized(size)}) to the trash"
        return Found(words, {"items": plain(items), "bytes": size}, undoable=True)

    def act(self, order: Order, found: Found) -> Outcome:
        """Move them, each unless it was written to again."""
        items = read(found.before)
        used = users([item.path for item in items])

        def check(item: Item) -> None:
            if item.path in used:
                raise Refused(f"process {used[item.path]} has {item.path} open")

        return self._bin.move(order, items, check)

    def look(self, order: Order, found: Found) -> Outcome:
        """Which of them are in the trash."""
        return self._bin.look(order, read(found.before))

    def undo(self, order: Order, found: Found) -> Outcome:
        """Bring them back, until the trash is emptied."""
        return self._bin.back(order, read(found.before))

    def _old(self, path: str, retention: float) -> list[Item]:
        folder, name = os.path.split(path)
        try:
            live = os.lstat(path)
            if not stat.S_ISREG(live.st_mode):
                raise Refused(f"{path} is no plain file")
            names = sorted(entry for entry in os.listdir(folder) if entry.startswith(name))
            beside = [entry for entry in names if ASIDE.fullmatch(entry[len(name) :])]
        except FileNotFoundError:
            raise Refused(f"{path} is not there any more", gone=True) from None
        except OSError as error:
            raise Refused(f"{path} {words_of(error)}") from None
        found = []
        for entry in beside:
            try:
                item = seen(os.path.join(folder, entry))
                plain_file = stat.S_ISREG(os.lstat(item.path).st_mode)
            except (OSError, ValueError):
                continue
            old = self._means.now() - item.newest / 1e9 > retention
            if plain_file and old and (item.dev, item.ino) != (live.st_dev, live.st_ino):
                found.append(item)
        used = users([item.path for item in found])
        return [item for item in found if item.path not in used]
