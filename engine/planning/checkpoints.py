"""Which checkpoints of a job may be deleted, and why the others stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST = 2
"""Complete checkpoints that always stay."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is known of a checkpoint; None is not known. `age` is in seconds."""

    id: str
    step: float | None = None
    complete: bool | None = None
    newest: bool | None = None
    best: bool | None = None
    referenced: bool | None = None
    milestone: bool | None = False
    age: float | None = None
    domain: str | None = None


def prunable(
    checkpoints: Sequence[Checkpoint], keep: int = LEAST, older_than: float | None = None
) -> tuple[tuple[str, ...], dict[str, str]]:
    """What may be deleted of one job's checkpoints, the oldest first, and why each other one stays.

    Steps are compared as numbers: 10000 is newer than 9000.
    """
    stays = {item.id: why for item in checkpoints if (why := _why_kept(item)) is not None}
    whole = sorted(
        (item for item in checkpoints if item.complete and item.step is not None),
        key=lambda item: (item.step or 0.0, item.id),
    )
    if whole:
        stays.setdefault(whole[-1].id, "the newest complete checkpoint is kept")
    for item in whole[-max(LEAST, keep) :]:
        stays.setdefault(item.id, f"one of the newest {max(LEAST, keep)} is kept")
    for item in checkpoints:
        if not item.complete and (not whole or (item.step or 0.0) >= (whole[-1].step or 0.0)):
            stays.setdefault(item.id, "it may still be written")
        if older_than is not None and (item.age is None or item.age <= older_than):
            stays.setdefault(item.id, "it is not old enough")
    gone = [item for item in checkpoints if item.id not in stays]
    return tuple(item.id for item in sorted(gone, key=lambda c: (c.step or 0.0, c.id))), stays


def _why_kept(item: Checkpoint) -> str | None:
    for flag, word in (
        (item.newest, "the newest complete checkpoint is kept"),
        (item.best, "the best checkpoint is kept"),
        (item.milestone, "a milestone is kept"),
        (item.referenced, "a checkpoint in use is kept"),
    ):
        if flag:
            return word
    flags = {
        "its step": item.step,
        "whether it is complete": item.complete,
        "whether it is the newest": item.newest,
        "whether it is the best": item.best,
        "whether it is in use": item.referenced,
        "whether it is a milestone": item.milestone,
    }
    missing = [name for name, value in flags.items() if value is None]
    return f"{missing[0]} is not known, so it is kept" if missing else None
