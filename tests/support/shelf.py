"""Orders about files of this machine, the means to carry them out, and checkpoints looked at on disk."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stoploss.actions.contract import Checkpoints, Means
from stoploss.engine.model import Order, ResourceId
from support.snapshots import lacks

HOST = "n1"

DAY = 86400.0


class Shelf:
    """The checkpoints below a folder, judged by the rules of the collector; a job is a folder in it."""

    def __init__(self, *roots: Path) -> None:
        self.roots = roots

    def lacks(self, path: str) -> str | None:
        """As the collector judges it."""
        return lacks(path)

    def domain(self, path: str) -> str | None:
        """A local disk."""
        return "host"

    def of_job(self, job: str) -> tuple[tuple[str, int | None], ...]:
        """Every folder `step-N` and file `step-N.pt` of the job, the trash included."""
        found: list[tuple[str, int | None]] = []
        for root in self.roots:
            for folder, folders, names in os.walk(root / job):
                for name in sorted([*folders, *names]):
                    match = re.fullmatch(r"step-(\d+)(?:\.pt)?|last\.pt", name)
                    if match is not None:
                        found.append((os.path.join(folder, name), int(match[1]) if match[1] else None))
        return tuple(found)


class Clock:
    """Seconds since the epoch that a test moves."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        """The present instant, and what the test has added."""
        return time.time() + self.ahead


def means(
    folder: Path,
    *roots: Path,
    clock: Callable[[], float] = time.time,
    storage: object = (),
    **more: Any,
) -> Means:
    """The means of machine n1: a state folder, and checkpoints below `roots`."""
    given: dict[str, Any] = {
        "environ": {"PATH": os.environ.get("PATH", ""), "HOME": "/root", "API_TOKEN": "hunter22"},
        "collectors": {
            "checkpoints": {"paths": [{"path": str(root), "failure_domain": None} for root in roots]},
            "storage": {"paths": storage},
        },
        "folder": str(folder / "state"),
        "checkpoints": Shelf(*roots),
        **more,
    }
    known: Checkpoints | None = given["checkpoints"]
    assert known is None or known.domain("/") == "host"
    return Means(HOST, clock, time.monotonic, time.sleep, **given)


def order(kind: str, name: str, labels: Mapping[str, str] | None = None, **parameters: object) -> Order:
    """An order of a policy; an underscore in a parameter stands for a hyphen."""
    plain = {key.replace("_", "-"): value for key, value in parameters.items()}
    return Order("o-1", "act", ResourceId(kind, name), plain, labels or {}, "policy tidy")


def tree(*folders: Path) -> dict[str, tuple[int, int, int]]:
    """Every path below folders with its inode, size and date."""
    return {
        str(path): (status.st_ino, status.st_size, status.st_mtime_ns)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        for status in [path.lstat()]
    }


def age(path: Path, seconds: float) -> None:
    """Let a path, and all below it, be last written so many seconds ago."""
    at = time.time() - seconds
    for item in [*sorted(path.rglob("*"), reverse=True), path]:
        os.utime(item, (at, at), follow_symlinks=False)
