"""Reading folders that somebody else writes, and writing files that are whole or not there.

A folder is read by handles, not by paths, and links are never followed: whoever may write in it cannot
lead the reader out of it, also not while it is read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

MOST = 100_000
"""Files of one folder that are looked at."""

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a link; `folder` is an open handle that holds until the next one is asked for."""

    below: str
    name: str
    folder: int
    status: os.stat_result

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link, which is not followed."""
        return stat.S_ISLNK(self.status.st_mode)

    def open(self) -> int:
        """A handle to read it with.

        Raises:
            OSError: it cannot be opened, or is a link by now.
        """
        return os.open(self.name, READ, dir_fd=self.folder)


def walk(root: str) -> Iterator[Entry]:
    """All files and links under a folder in the order of their paths; of a file, itself.

    Raises:
        OSError: some of it cannot be read.
        ValueError: it is a link, holds what is neither file, folder nor link, or too much.
    """
    mode = os.lstat(root).st_mode
    if stat.S_ISREG(mode):
        yield from _file(root)
        return
    if not stat.S_ISDIR(mode):
        raise ValueError("is neither a file nor a folder")
    count = 0
    for folder, folders, names, handle in os.fwalk(root, onerror=_fail, follow_symlinks=False):
        found = {
            name: os.stat(name, dir_fd=handle, follow_symlinks=False) for name in sorted([*names, *folders])
        }
        # A link to a folder is among the folders; it would be looked at again on the way down.
        folders[:] = [name for name, status in found.items() if stat.S_ISDIR(status.st_mode)]
        for name, status in found.items():
            if stat.S_ISDIR(status.st_mode):
                continue
            below = os.path.relpath(os.path.join(folder, name), root)
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                raise ValueError(f"holds {below}, which is no file")
            count += 1
            if count > MOST:
                raise ValueError(f"holds more than {MOST:,} files")
            yield Entry(below, name, handle, status)


def _file(path: str) -> Iterator[Entry]:
    handle = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name = os.path.basename(path)
        yield Entry(name, name, handle, os.stat(name, dir_fd=handle, follow_symlinks=False))
    finally:
        os.close(handle)


def _fail(error: OSError) -> None:
    raise error


def read(path: str, most: int) -> bytes:
    """The first `most` bytes of a regular file.

    Raises:
        OSError: it cannot be read, or is a link.
        ValueError: it is no regular file.
    """
    handle = os.open(path, READ)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("is no plain file")
        return os.pread(handle, most, 0)
    finally:
        os.close(handle)


def write(path: str, content: bytes, mode: int = 0o600) -> None:
    """Write a new file and force it to disk.

    Raises:
        OSError: it cannot be written, or something is there.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as stream:
        # The mask of this process must not decide whether the other side may read it.
        os.fchmod(stream.fileno(), mode)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def replace(path: str, content: bytes, mode: int = 0o600) -> None:
    """Write a file so that no reader ever sees a part of it, also after a crash.

    Raises:
        OSError: it cannot be written.
    """
    draft = f"{path}.{os.getpid()}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    try:
        write(draft, content, mode)
        os.replace(draft, path)
    except OSError:
        if os.path.lexists(draft):
            os.unlink(draft)
        raise
    force_folder(os.path.dirname(path) or ".")


def force_folder(path: str) -> None:
    """Force to disk which files a folder holds.

    Raises:
        OSError: it is not there.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def words_of(error: Exception) -> str:
    """What is wrong, in few words; what the system says does not begin a sentence."""
    told = getattr(error, "strerror", None)
    return str(told).lower() if told else str(error)
