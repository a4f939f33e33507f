"""Whether a checkpoint can be relied on: looked at twice, and never believed because somebody says so."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from stoploss.actions.files import walk, words_of
from stoploss.actions.snapshot_result import Snapshot, Waiting


def _unknown(path: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Demand:
    """What a checkpoint must be before something is ended.

    Attributes:
        lacks: what the checkpoint at a path lacks to be complete by the rules of its layout (marker,
            shards, headers), in words; None where it lacks nothing.
        since: it must have been begun at or after this instant, in seconds since the epoch; None for a
            job that does not run any more.
        lost_with: the failure domains that the step ends, such as `host`.
        domain: the failure domain of a path; None where it is not known.
    """

    lacks: Callable[[str], str | None]
    since: float | None = None
    lost_with: frozenset[str] = frozenset()
    domain: Callable[[str], str | None] = _unknown


@dataclass(frozen=True, slots=True)
class Seen:
    """The files of a checkpoint at one look: path below it, bytes, last write in nanoseconds."""

    files: tuple[tuple[str, int, int], ...]

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(size for _, size, _ in self.files)

    @property
    def began(self) -> float:
        """When the oldest file was written, in seconds since the epoch."""
        return min(written for _, _, written in self.files) / 1e9


def look(path: str) -> Seen:
    """The files of a checkpoint, of each of which the first and the last byte were read.

    Raises:
        OSError: it is not there, or some of it cannot be read.
        ValueError: it is nothing that can be looked at, or it holds no byte.
    """
    found: list[tuple[str, int, int]] = []
    for entry in walk(path):
        if entry.is_link:
            continue
        size = entry.status.st_size
        handle = entry.open()
        try:
            if size and not (os.pread(handle, 1, 0) and os.pread(handle, 1, size - 1)):
                raise ValueError(f"{entry.below} is cut short")
        finally:
            os.close(handle)
        found.append((entry.below, size, entry.status.st_mtime_ns))
    seen = Seen(tuple(found))
    if not seen.bytes:
        raise ValueError("is empty")
    return seen


def verify(path: str, demand: Demand, waiting: Waiting, step: int | None = None) -> Snapshot:
    """Look at a checkpoint twice, one pause apart.

    Args:
        path: of a folder or a single file; absolute.
        demand: what it must be.
        waiting: gives the pause between the looks.
        step: what is said to be its step.
    """
    before: Seen | None = None
    try:
        before = look(path)
        _judge(path, before, before, demand)
        waiting.sleep(waiting.every)
        after = look(path)
        # Once more: it may have lost its marker since, or its neighbours gained one.
        _judge(path, before, after, demand)
    except (OSError, ValueError) as error:
        began, size = (before.began, before.bytes) if before else (None, None)
        return Snapshot("failed", path, step, began, size, f"{path} {words_of(error)}")
    return Snapshot("verified", path, step, after.began, after.bytes, f"{path} is complete and stands still")


def _judge(path: str, before: Seen, seen: Seen, demand: Demand) -> None:
    """Raises ValueError with what is wrong."""
    if not os.path.isabs(path):
        raise ValueError("is no absolute path")
    if seen != before:
        raise ValueError("is still being written")
    lacks = demand.lacks(path)
    if lacks is not None:
        raise ValueError(f"is not complete: {lacks}")
    if demand.since is not None and seen.began < demand.since:
        raise ValueError(f"was begun {demand.since - seen.began:.0f} s before it was needed")
    if not demand.lost_with:
        return
    domain = demand.domain(path)
    if domain is None:
        raise ValueError("would be lost with something that is not known")
    if domain in demand.lost_with:
        raise ValueError(f"would be lost with the {domain}")
