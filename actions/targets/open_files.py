"""Which processes use what lies below a path: open files, mapped files, working folders, programs.

Only the texts of links are read: asking for the files behind them could hang on a dead mount. Processes of
other users hide theirs unless this one runs as root, and a process with mounts of its own may know a file
by another path; neither is seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress


def users(paths: Sequence[str], proc: str = "/proc") -> dict[str, int]:
    """Path -> the id of a process, other than this one, that uses it or something below it.

    Args:
        paths: absolute.
        proc: where processes are listed.
    """
    wanted = {os.path.realpath(path): path for path in paths}
    found: dict[str, int] = {}
    try:
        names = os.listdir(proc)
    except OSError:
        return found
    # A collector of this process may have the folder open while it walks.
    for pid in sorted(int(name) for name in names if name.isdigit() and int(name) != os.getpid()):
        for used in _used(os.path.join(proc, str(pid))):
            for real, path in _above(used, wanted):
                found.setdefault(path, pid)
                del wanted[real]
    return found


def _above(used: str, wanted: dict[str, str]) -> list[tuple[str, str]]:
    return [
        (real, path)
        for real, path in wanted.items()
        if used == real or used.startswith(real.rstrip("/") + "/")
    ]


def _used(process: str) -> Iterator[str]:
    """Every path that a process holds, as far as it can be seen."""
    for name in ("cwd", "root", "exe"):
        with suppress(OSError):
            yield os.readlink(f"{process}/{name}")
    handles: list[str] = []
    with suppress(OSError):
        handles = os.listdir(f"{process}/fd")
    for handle in handles:
        with suppress(OSError):
            yield os.readlink(f"{process}/fd/{handle}")
    with suppress(OSError), open(f"{process}/maps", encoding="utf-8", errors="surrogateescape") as stream:
        mapped = {line.rstrip("\n").split(None, 5)[-1] for line in stream if "/" in line}
        yield from mapped
