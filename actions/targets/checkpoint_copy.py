"""Copies a checkpoint to a place that outlives what is ended, with checksums.

It is written under a name that says `unfinished`, forced to disk, and renamed when all is there and equal.
After a crash the same call goes on: a file that is already there with the right content is kept, and a
copy that is finished is found by its manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stoploss.actions import files
from stoploss.actions.snapshot_result import Snapshot, Waiting
from stoploss.actions.verify import Demand, Seen, look, verify

MANIFEST = "stoploss-manifest.json"
"""File in a copy with the size and the SHA-256 of every other."""

VERSION = 1

_PIECE = 1 << 20
_LONGEST_MANIFEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Copy:
    """What is copied: a folder, and the path that the copy gets, both absolute."""

    source: str
    target: str
    step: int | None = None

    @property
    def draft(self) -> str:
        """Where the copy lies until it is whole."""
        parent, name = os.path.split(self.target)
        return os.path.join(parent, f".tmp-{name}")


def take(copy: Copy, demand: Demand, waiting: Waiting) -> Snapshot:
    """Copy a checkpoint and verify the copy; the limit of `waiting` is looked at while a file is copied.

    A checkpoint that holds a symbolic link is not copied: what the link leads to may lie anywhere.
    """
    hurry = waiting.hurry()
    try:
        _check_places(copy)
        source = look(copy.source)
        if not os.path.lexists(copy.target):
            _into_draft(copy, source, hurry)
            os.rename(copy.draft, copy.target)
            files.force_folder(os.path.dirname(copy.target))
        _check_copy(copy, source, hurry)
    except (OSError, ValueError) as error:
        why = f"{copy.source} was not copied to {copy.target}: {files.words_of(error)}"
        return Snapshot("failed", copy.target, copy.step, why=why)
    return verify(copy.target, demand, waiting, copy.step)


def _check_places(copy: Copy) -> None:
    if not (os.path.isabs(copy.source) and os.path.isabs(copy.target)):
        raise ValueError("a path is not absolute")
    if not stat.S_ISDIR(os.lstat(copy.source).st_mode):
        raise ValueError("it is no folder")
    source, target = os.path.realpath(copy.source), os.path.realpath(copy.target)
    if os.path.commonpath([source, target]) in (source, target):
        raise ValueError("source and copy would lie in one another")


def _into_draft(copy: Copy, source: Seen, hurry: Callable[[], None]) -> None:
    """Bring the draft to what the source is; a draft that can never be whole is removed.

    Raises:
        OSError: something cannot be read or written.
        ValueError: the source cannot be copied as it is, or it takes too long.
    """
    os.makedirs(copy.draft, mode=0o700, exist_ok=True)
    if not stat.S_ISDIR(os.lstat(copy.draft).st_mode):
        raise ValueError(f"{copy.draft} is no folder")
    try:
        _make_room(copy, source)
        sums = _all_copied(copy, source, hurry)
        sizes = {name: size for name, size, _ in source.files}
        listed = {name: {"bytes": sizes[name], "sha256": digest} for name, digest in sums.items()}
        record = {"version": VERSION, "source": copy.source, "step": copy.step, "files": listed}
        files.replace(os.path.join(copy.draft, MANIFEST), json.dumps(record, indent=1).encode())
        for folder, _, _ in os.walk(copy.draft):
            files.force_folder(folder)
    except TimeoutError:
        # The next try goes on with what is there.
        raise
    except (OSError, ValueError):
        # A disk that is full, or a source that changed: what is there is of no use, and takes space.
        shutil.rmtree(copy.draft, ignore_errors=True)
        raise


def _all_copied(copy: Copy, source: Seen, hurry: Callable[[], None]) -> dict[str, str]:
    """Copy every file; path -> SHA-256. Raises as `_into_draft` does."""
    sums: dict[str, str] = {}
    for entry in files.walk(copy.source):
        if entry.is_link:
            raise ValueError(f"it holds the link {entry.below}")
        if entry.below != MANIFEST:
            sums[entry.below] = _copied(entry, os.path.join(copy.draft, entry.below), hurry)
    if look(copy.source) != source:
        raise ValueError("it changed while it was copied")
    return sums


def _make_room(copy: Copy, source: Seen) -> None:
    """Remove from the draft what the source does not have, and see that the rest fits."""
    wanted = {name for name, _, _ in source.files}
    there = 0
    for entry in files.walk(copy.draft):
        if entry.is_link or entry.below not in wanted:
            os.unlink(entry.name, dir_fd=entry.folder)
        else:
            there += entry.status.st_size
    free = shutil.disk_usage(copy.draft).free
    if source.bytes - there > free:
        raise ValueError(f"it needs {source.bytes - there:,} bytes more, and {free:,} are free")


def _copied(entry: files.Entry, path: str, hurry: Callable[[], None]) -> str:
    """Copy one file, unless the same is there; the SHA-256 of both."""
    handle = entry.open()
    with os.fdopen(handle, "rb") as source:
        if os.path.exists(path) and os.path.getsize(path) == entry.status.st_size:
            digest = _digest(handle, hurry)
            if _digest_of(path, hurry) == digest:
                _date(path, entry.status)
                return digest
        if os.path.exists(path):
            os.unlink(path)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        source.seek(0)
        digest_of_source = hashlib.sha256()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as target:
            # No more than was seen: a file that grows must not keep this going.
            left = entry.status.st_size
            while piece := source.read(min(_PIECE, left)):
                left -= len(piece)
                hurry()
                digest_of_source.update(piece)
                target.write(piece)
            target.flush()
            os.fchmod(target.fileno(), stat.S_IMODE(entry.status.st_mode) & 0o777)
            os.fsync(target.fileno())
    _date(path, entry.status)
    return digest_of_source.hexdigest()


def _date(path: str, status: os.stat_result) -> None:
    # When the checkpoint was begun is what decides about it, not when it was copied.
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


def _check_copy(copy: Copy, source: Seen, hurry: Callable[[], None]) -> None:
    """Raises OSError or ValueError where the copy is not, byte for byte, what its manifest says."""
    found = _manifest(copy.target)
    listed = found.get("files")
    seen = look(copy.target)
    own = tuple(item for item in seen.files if item[0] != MANIFEST)
    theirs = tuple(item for item in source.files if item[0] != MANIFEST)
    if not isinstance(listed, dict) or own != theirs or set(listed) != {item[0] for item in own}:
        raise ValueError("something else is there already")
    for name, size, _ in own:
        digest = _digest_of(os.path.join(copy.target, name), hurry)
        if listed[name] != {"bytes": size, "sha256": digest}:
            raise ValueError(f"the checksum of {name} is not what it was")


def _manifest(folder: str) -> dict[str, Any]:
    try:
        found = json.loads(files.read(os.path.join(folder, MANIFEST), _LONGEST_MANIFEST))
    except (FileNotFoundError, json.JSONDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _digest_of(path: str, hurry: Callable[[], None]) -> str:
    handle = os.open(path, files.READ)
    try:
        return _digest(handle, hurry)
    finally:
        os.close(handle)


def _digest(handle: int, hurry: Callable[[], None]) -> str:
    digest, offset, size = hashlib.sha256(), 0, os.fstat(handle).st_size
    while piece := os.pread(handle, min(_PIECE, size - offset), offset):
        hurry()
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()
