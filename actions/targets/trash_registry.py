"""Knows where trash lies, and deletes it when it has lain there long enough."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from stoploss.actions import files
from stoploss.actions.contract import Means

FOLDER = ".stoploss-trash"
"""Folder beside what is moved; collectors leave it out."""

MANIFEST = "manifest.json"

REGISTRY = "trash.jsonl"
"""File that knows every trash folder."""

KEPT = 86400.0
"""Seconds that something lies in the trash."""

REMEMBERED = 30 * 86400.0
"""Seconds for which a trash folder is remembered whose file system is not there."""

MOUNTS = "/proc/self/mountinfo"

HOLD = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_DEEPEST = 200
_LONGEST = 64 << 20
_PLAIN = re.compile(r"\w[\w.-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the registry: the order, the folder that has the trash and its inode, and when."""

    order: str
    folder: str
    ino: int
    at: float


def box_name(order: str) -> str:
    """The name of an order's folder in the trash."""
    return order if _PLAIN.fullmatch(order) else hashlib.sha256(order.encode()).hexdigest()


def mounts_in(path: str) -> tuple[str, ...]:
    """The mount points at a path or below it, with links resolved."""
    real = os.path.realpath(path)
    below = real.rstrip("/") + "/"
    found = []
    with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            point = line.split(" ")[4]
            for sign in (" ", "\t", "\n", "\\"):
                point = point.replace(f"\\{ord(sign):03o}", sign)
            if point == real or point.startswith(below):
                found.append(point)
    return tuple(sorted(found))


def put(folder: int, name: str, content: bytes, mode: int = 0o600) -> None:
    """Write a file in an open folder, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    draft = f"{name}.{os.getpid()}.tmp"
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, mode, dir_fd=folder), "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
    os.fsync(folder)


def note(means: Means, order: str, folder: str, ino: int) -> None:
    """Remember that an order uses the trash of a folder; forced to disk.

    Raises:
        OSError: it cannot be written.
        ValueError: nothing says where.
    """
    if not means.folder:
        raise ValueError("nothing says where the registry of the trash lies")
    os.makedirs(means.folder, mode=0o700, exist_ok=True)
    with _locked(means.folder):
        if any((line.order, line.folder) == (order, folder) for line in _lines(means.folder)):
            return
        record = asdict(_Line(order, folder, ino, means.now()))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(os.path.join(means.folder, REGISTRY), flags, 0o600)
        try:
            # A line that a crash has cut short must not swallow this one.
            os.write(handle, b"\n" + json.dumps(record).encode() + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)
        files.force_folder(means.folder)


def empty_all(means: Means) -> tuple[str, ...]:
    """Delete what has lain in any trash for a day; the paths that it had before it was moved."""
    if not os.path.isdir(means.folder):
        return ()
    now = means.now()
    deleted: list[str] = []
    with _locked(means.folder):
        lines = _lines(means.folder)
        for folder in dict.fromkeys(line.folder for line in lines):
            deleted += empty(folder, now)
        kept = [line for line in lines if _is_used(line, now)]
        if kept != lines:
            text = "".join(json.dumps(asdict(line)) + "\n" for line in kept)
            files.replace(os.path.join(means.folder, REGISTRY), text.encode())
    return tuple(deleted)


def _is_used(line: _Line, now: float) -> bool:
    if os.path.lexists(os.path.join(line.folder, FOLDER, box_name(line.order))):
        return True
    try:
        mounted = os.stat(line.folder).st_ino == line.ino
    except OSError:
        mounted = False
    return not mounted and now - line.at < REMEMBERED


def empty(root: str, now: float, keep_for: float = KEPT) -> tuple[str, ...]:
    """Delete what has lain in the trash of one folder for longer than `keep_for`.

    Only what a manifest names, and is still just that, is deleted. Calling it again goes on.

    Args:
        root: the folder that has the trash; absolute.
        now: seconds since the epoch.
        keep_for: seconds.

    Returns:
        The paths of what was deleted, as they were before it was moved.
    """
    try:
        parent = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return ()
    deleted: list[str] = []
    try:
        trash = os.open(FOLDER, HOLD, dir_fd=parent)
        try:
            for name in sorted(os.listdir(trash)):
                deleted += _empty_box(root, trash, name, now - keep_for)
        finally:
            os.close(trash)
        with suppress(OSError):
            os.rmdir(FOLDER, dir_fd=parent)
    except OSError:
        pass
    finally:
        os.close(parent)
    return tuple(deleted)


def _empty_box(root: str, trash: int, name: str, before: float) -> Sequence[str]:
    """Delete what one order moved before an instant."""
    try:
        box = os.open(name, HOLD, dir_fd=trash)
    except OSError:
        return ()
    deleted: list[str] = []
    try:
        manifest = _manifest(box)
        at = manifest.get("at")
        if not isinstance(at, int | float) or at >= before:
            return ()
        left = False
        for record in manifest.get("items", ()):
            try:
                gone = _delete(record, os.path.join(root, FOLDER, name), box)
            except (OSError, ValueError, LookupError, TypeError):
                left = True
                continue
            deleted += [str(record["path"])] if gone else []
        if not left:
            with suppress(OSError):
                os.unlink(MANIFEST, dir_fd=box)
        return deleted
    finally:
        os.close(box)
        # What a crash left behind has no content; anything else stays.
        with suppress(OSError):
            os.rmdir(name, dir_fd=trash)


def _delete(record: dict[str, Any], path: str, box: int) -> bool:
    """Delete one item of a manifest; whether it was there. Raises OSError or ValueError where it stays."""
    name = os.path.basename(str(record["path"]))
    if name in ("", ".", "..", MANIFEST):
        raise ValueError("is no name")
    try:
        status = os.stat(name, dir_fd=box, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if status.st_ino != record["ino"]:
        raise ValueError("is not what was moved")
    if mounts_in(os.path.join(path, name)):
        # A folder of the same device that is mounted there shows only so.
        raise ValueError("holds a mount")
    _remove(name, box, status.st_dev, 0)
    os.fsync(box)
    return True


def _remove(name: str, parent: int, device: int, depth: int) -> None:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if status.st_dev != device or depth > _DEEPEST:
        raise ValueError("holds another file system, or is too deep")
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=parent)
        return
    handle = os.open(name, HOLD, dir_fd=parent)
    try:
        for child in os.listdir(handle):
            _remove(child, handle, device, depth + 1)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=parent)


def _manifest(box: int) -> dict[str, Any]:
    try:
        handle = os.open(MANIFEST, files.READ, dir_fd=box)
        with os.fdopen(handle, "rb") as stream:
            found = json.loads(stream.read(_LONGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("items"), list) else {}


def _lines(folder: str) -> list[_Line]:
    found = []
    try:
        with open(os.path.join(folder, REGISTRY), "rb") as stream:
            for text in stream:
                with suppress(ValueError, KeyError, TypeError):
                    found.append(_Line(**json.loads(text)))
    except FileNotFoundError:
        pass
    return found


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    handle = os.open(os.path.join(folder, f"{REGISTRY}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
