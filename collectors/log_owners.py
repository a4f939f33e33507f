"""Which processes have logs open to write, and so whose the logs are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stoploss.collectors.job_labels import PROC, Identities
from stoploss.engine.model import UNREADABLE, LabelValue

_FLAGS = re.compile(rb"^flags:\s+0*([0-7]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Writers:
    """Processes that write to files: path -> process id, and whether some processes hide theirs."""

    of: dict[str, int] = field(default_factory=dict)
    hidden: bool = False


def writers(paths: frozenset[str], proc: Path = PROC) -> Writers:
    """The processes that have one of these files open to write, as far as they can be seen."""
    found: dict[str, int] = {}
    hidden = False
    for pid in sorted(int(name) for name in _names(proc) if name.isdigit()):
        try:
            handles = os.listdir(proc / str(pid) / "fd")
        except PermissionError:
            hidden = True
            continue
        except OSError:
            continue
        for path in _written(proc / str(pid), handles, paths):
            # Of several the first to have begun: the job, not its helpers.
            found.setdefault(path, pid)
    return Writers(found, hidden)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _written(process: Path, handles: list[str], paths: frozenset[str]) -> Iterator[str]:
    for handle in handles:
        try:
            # Only the text of the link: asking for the file behind it could hang on a dead mount.
            path = os.readlink(process / "fd" / handle)
            if path in paths and (match := _FLAGS.search((process / "fdinfo" / handle).read_bytes())):
                flags = int(match[1], 8)
                if flags & os.O_ACCMODE != os.O_RDONLY:
                    yield path
        except OSError:
            continue


def labels(path: str, known: Writers, identities: Identities) -> dict[str, LabelValue]:
    """The labels of a log by the process that writes it."""
    pid = known.of.get(path)
    if pid is None:
        return {"job": UNREADABLE if known.hidden else None}
    return {
        name: value for name, value in identities.of(pid).labels.items() if value is not None or name == "job"
    }
