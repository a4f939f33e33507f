"""What folders hold: how much, how old, and when it was last written and read.

The folders are named; nothing else is walked. It needs the right to list them, reads no file,
and changes nothing.

- A folder is a volume, named `HOST:PATH`. The labels `host`, `path` and `mount` tell the
  machine, the folder, and the mount point of its file system.
- A walk takes at most five seconds of a look and goes on at the next one. Until the first walk is
  through, what it counts is a bad reading; later the last whole walk counts while the next is
  under way, and a note says how much is walked. An unfinished walk keeps folders open, so that the
  file system cannot be unmounted meanwhile.
- Symbolic links are not followed and other file systems within the folder are not entered. A
  folder that may not be read is left out, and named in a note.
- `storage.size` adds up the lengths of files; a sparse or compressed one counts what it
  occupies, and one with several names counts in equal parts. `storage.objects` counts names.
- `storage.age` is the time since the oldest entry was last changed: it is at least that old.
- `storage.last_read` needs a file system that records reads. Mounted with `noatime` it is a bad
  reading; with `relatime`, the default of Linux, it is exact to a day, and a note says so.
- `storage.role` and `storage.tier` are what the options say, never guessed.
- Where the path is no mount of its own, it tells how full the file system is under it, space
  and inodes alike; where it is one, the collector `host` does.

This version tells nothing of readers, bytes read and written, and latency.

Right:

```yaml
collectors:
  storage:
    paths:
      - /scratch
      - {path: /data/imagenet, role: dataset, tier: fast}
```

Wrong, because a role is one of a closed list:

```yaml
collectors:
  storage:
    paths: [{path: /data/imagenet, role: images}]
```
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stoploss.collectors import mounts, volumes
from stoploss.collectors.contract import Collector, Context
from stoploss.collectors.storage_options import Options, Place
from stoploss.collectors.walking import ENTRY_LIMIT, TIME_LIMIT, Tree, notes_of, shown, walk_or_fail
from stoploss.engine.model import Bad, Look, Reading, ResourceId, Sample

if TYPE_CHECKING:
    from psutil._ntuples import sdiskpart

NAME = "storage"

BLOCK = 512
"""Bytes of what the system calls a block, whatever the file system has."""

COUNTED = ("storage.size", "storage.objects", "storage.age", "storage.last_written", "storage.last_read")
"""Signals that a walk gives."""


@dataclass(slots=True)
class Totals:
    """What a walk has added up; times in seconds since the epoch."""

    size: float = 0.0
    objects: int = 0
    written: float | None = None
    read: float | None = None
    made: float | None = None
    folder_written: float = 0.0

    def enter(self, folder: str, status: os.stat_result) -> bool:
        """A folder counts only by its times."""
        self.folder_written = max(self.folder_written, status.st_mtime)
        self.made = status.st_ctime if self.made is None else min(self.made, status.st_ctime)
        return True

    def file(self, folder: str, name: str, status: os.stat_result) -> None:
        """Add one file."""
        occupied = status.st_blocks * BLOCK
        # File systems that keep no blocks of their own, such as mounted buckets, tell none.
        size = min(status.st_size, occupied) if occupied else status.st_size
        self.size += size / status.st_nlink if status.st_nlink > 1 else size
        self.objects += 1
        if self.written is None or status.st_mtime > self.written:
            self.written = status.st_mtime
        if self.read is None or status.st_atime > self.read:
            self.read = status.st_atime
        if self.made is None or status.st_ctime < self.made:
            self.made = status.st_ctime

    def leave(self, folder: str) -> None:
        """Nothing is kept of a folder."""

    def denied(self, folder: str, reason: str) -> None:
        """The walk itself tells what was left out."""


def counted(totals: Totals, at: float) -> dict[str, Reading]:
    """The readings of a whole walk; sizes in bytes, times in seconds before `at`."""
    written = totals.folder_written if totals.written is None else totals.written
    return {
        "storage.size": float(round(totals.size)),
        "storage.objects": float(totals.objects),
        "storage.age": _since(totals.made, at, "empty"),
        "storage.last_written": _since(written, at, "empty"),
        "storage.last_read": _since(totals.read, at, "there is no file that could be read"),
    }


def _since(time: float | None, at: float, without: str) -> Reading:
    return Bad(without) if time is None else max(0.0, at - time)


def usage_of(points: Sequence[str]) -> tuple[str, volumes.Usage] | None:
    """How full the file system is under a path, told for this path even where others lie on it too.

    Raises:
        OSError: it cannot be asked.
    """
    found = volumes.usage_of(points)
    return None if found is None else (found[0], replace(found[1], device=hash(found[0])))


@dataclass(slots=True)
class StorageCollector:
    """Looks at folders of one machine."""

    hostname: str
    places: Sequence[Place]
    time_limit: float = TIME_LIMIT
    entries: int = ENTRY_LIMIT
    prober: volumes.Prober = field(default_factory=lambda: volumes.Prober(usage_of))
    _trees: list[Tree[Totals]] = field(init=False)

    def __post_init__(self) -> None:
        self._trees = [Tree(place.path, lambda _: Totals(), entries=self.entries) for place in self.places]

    def look(self, at: float) -> Look:
        """Look once; every sample carries `at`.

        Raises:
            CollectorError: none of the folders can be read.
        """
        walk_or_fail(self._trees, self.time_limit)
        mounted = mounts.mounts()
        usages = self._usages(mounted)
        samples: list[Sample] = []
        notes = list(notes_of(NAME, self._trees))
        for place, tree in zip(self.places, self._trees, strict=True):
            mount = mounts.mount_of(tree.real or place.path, mounted)
            path = shown(place.path)
            resource = ResourceId("volume", f"{self.hostname}:{path}")
            labels = {"host": self.hostname, "path": path}
            if mount is not None:
                labels["mount"] = shown(mount.mountpoint)
            readings = {**self._readings(place, tree, mount, at), **usages.get(place.path, {})}
            samples += [Sample(at, resource, signal, value, labels) for signal, value in readings.items()]
            if mount is not None and "relatime" in mount.opts.split(","):
                notes.append(f"{NAME}: {path}: mounted with relatime; last_read is exact to a day")
        return Look(tuple(samples), notes=tuple(notes))

    def _usages(self, mounted: Sequence[sdiskpart]) -> dict[str, dict[str, Reading]]:
        """Path -> how full its file system is, of paths that are no volume by themselves."""
        paths = [place.path for place in self.places if not mounts.is_volume(place.path, mounted)]
        answers = self.prober.probe([(path,) for path in paths])
        return {path: volumes.readings(answers.get(path, Bad("not a directory"))) for path in paths}

    def _readings(
        self, place: Place, tree: Tree[Totals], mount: sdiskpart | None, at: float
    ) -> dict[str, Reading]:
        readings: dict[str, Reading]
        if tree.trouble:
            readings = dict.fromkeys(COUNTED, Bad(tree.trouble))
        elif tree.walked is None:
            readings = dict.fromkeys(COUNTED, Bad("not walked to the end yet"))
        else:
            readings = counted(tree.walked, at)
        if mount is not None and "noatime" in mount.opts.split(","):
            readings["storage.last_read"] = Bad("mounted with noatime")
        readings["storage.role"] = place.role or Bad("the options name no role")
        readings["storage.tier"] = place.tier or Bad("the options name no tier")
        return readings


def build(options: Options, context: Context) -> Collector:
    """The running collector."""
    once = {place.path: place for place in options.paths}
    return StorageCollector(options.name or context.hostname, tuple(once.values()))
