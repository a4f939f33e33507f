"""Prunes checkpoints: moves them to the trash of their folder, after looking again at what would be left.

Which checkpoints nobody needs is the plan's word. That the newest complete one stays, and that enough
complete ones are left, is looked at here once more, on the file system, at the moment of the act.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stoploss.actions.contract import Checkpoints, Means, Refused
from stoploss.actions.files import words_of
from stoploss.actions.targets.open_files import users
from stoploss.actions.targets.trash_registry import FOLDER, empty, empty_all
from stoploss.actions.targets.trash_store import Bin, Item, local_path, plain, read, seen, sized
from stoploss.engine.model import Found, Order, Outcome

__all__ = ["LEAST", "PruneJob", "PruneOne", "empty", "empty_all", "spared"]

LEAST = 2
"""Complete checkpoints that always stay."""

KEEP_FILE = ".stoploss-keep"
"""A checkpoint with this file is never moved."""

NO = ("", "false", "no", "0")


@dataclass(frozen=True, slots=True)
class Member:
    """A checkpoint of a job as it is now."""

    path: str
    step: int | None
    complete: bool


def members(means: Means, job: str) -> tuple[Member, ...]:
    """The checkpoints of a job that are there now, without what lies in the trash.

    Raises:
        Refused: they cannot be looked at.
    """
    known = _known(means)
    found = []
    for path, step in known.of_job(job):
        if FOLDER in path.split("/"):
            continue
        try:
            complete = known.lacks(path) is None
        except (OSError, ValueError):
            complete = False
        found.append(Member(path, step, complete))
    return tuple(found)


def _known(means: Means) -> Checkpoints:
    if means.checkpoints is None:
        raise Refused("checkpoints cannot be looked at: no collector of them is named")
    return means.checkpoints


def spared(
    there: Sequence[Member], doomed: Collection[str], keep: int = LEAST
) -> tuple[tuple[str, ...], str | None]:
    """The complete checkpoints that would be left, and why none of `doomed` may go; None where all may.

    Steps are compared as numbers. One that is not complete counts neither as the newest nor among those
    that are left.

    Args:
        there: all checkpoints of the job.
        doomed: paths of those that would go.
        keep: complete ones that must be left; never fewer than two.
    """
    left = tuple(item.path for item in there if item.complete and item.path not in doomed)
    why = stays_newest(there, doomed)
    need = max(LEAST, keep)
    if why is None and len(left) < need:
        why = f"{len(left)} complete checkpoints would be left, and {need} must be"
    return left, why


def stays_newest(there: Sequence[Member], doomed: Collection[str]) -> str | None:
    """Why none of `doomed` may leave its place: the newest complete one is among them, or it is not known."""
    steps = {item.path: item.step for item in there}
    newest = max((item.step for item in there if item.complete and item.step is not None), default=None)
    for path in doomed:
        if path not in steps:
            return f"{path} is no checkpoint of this job"
        step = steps[path]
        if step is None:
            return f"the step of {path} is not known, so it is kept"
        if newest is None or step > newest:
            return f"{path} may still be written: no complete checkpoint is newer"
        if step == newest:
            return f"{path} is of step {step}, as the newest complete checkpoint is"
    return None


def roots(means: Means) -> tuple[str, ...]:
    """The folders in which checkpoints lie, as the options of their collector name them, in that order."""
    named: Iterable[object] = means.collectors.get("checkpoints", {}).get("paths") or ()
    return tuple(option(place, "path") for place in named)


def option(place: object, name: str) -> str:
    """An option of a path: a path by itself, a mapping, or an option model."""
    if isinstance(place, str):
        return place if name == "path" else ""
    value = place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)
    return str(value or "")


def within(path: str, folders: Sequence[str]) -> str | None:
    """The folder that a path lies below, also when links are followed."""
    for folder in folders:
        real = os.path.realpath(folder)
        below = os.path.realpath(os.path.dirname(path)) + "/"
        if path.startswith(folder.rstrip("/") + "/") and below.startswith(real.rstrip("/") + "/"):
            return folder
    return None


def looked_at(means: Means, order: Order, paths: Sequence[str]) -> list[Item]:
    """What lies at the paths of checkpoints.

    Raises:
        Refused: one of them is not there, is kept by a file, is in use, or is nothing that can be moved.
    """
    keep = order.labels.get("keep", "")
    if keep.strip().lower() not in NO:
        said = "nothing that can be read" if keep == "?" else repr(keep)
        raise Refused(f"its label keep says {said}")
    folders = roots(means)
    items = []
    for path in paths:
        if within(path, folders) is None:
            raise Refused(f"{path} lies in no folder of checkpoints that is named")
        try:
            items.append(seen(path))
        except FileNotFoundError:
            raise Refused(f"{path} is not there any more", gone=True) from None
        except (OSError, ValueError) as error:
            raise Refused(f"{path} {words_of(error)}") from None
        kept_by(path)
        if order.saved is not None and (order.saved + "/").startswith(path + "/"):
            raise Refused(f"this very step relies on {path}")
    used = users(paths)
    if used:
        path, pid = next(iter(used.items()))
        raise Refused(f"process {pid} uses {path}")
    return items


def kept_by(path: str) -> None:
    """Raises Refused where a file in a checkpoint says that it is kept."""
    if os.path.lexists(os.path.join(path, KEEP_FILE)):
        raise Refused(f"{path} is kept: it holds {KEEP_FILE}")


class _Prune:
    """What both have in common."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._bin = Bin(means, "checkpoint")

    def act(self, order: Order, found: Found) -> Outcome:
        """Move them to the trash, after looking again at what would be left."""
        items = read(found.before)
        doomed = [item.path for item in items if item.state(order.id) == "there"]
        if not doomed:
            return self._bin.move(order, items, _nothing)
        try:
            left = self._left(order, str(found.before["job"]), doomed)
        except Refused as refused:
            return self._withheld(order, items, refused)
        need = max(LEAST, _number(order, "keep", LEAST))

        def check(item: Item) -> None:
            kept_by(item.path)
            # Somebody else may delete too while this goes on.
            if sum(os.path.lexists(path) for path in left) < need:
                raise Refused(f"{item.path} stays: of those that were to be left some are gone")

        return self._bin.move(order, items, check)

    def look(self, order: Order, found: Found) -> Outcome:
        """Which of them are in the trash."""
        return self._bin.look(order, read(found.before))

    def undo(self, order: Order, found: Found) -> Outcome:
        """Bring them back, until the trash is emptied."""
        return self._bin.back(order, read(found.before))

    def _found(self, order: Order, job: str, paths: Sequence[str]) -> Found:
        items = looked_at(self._means, order, paths)
        left = self._left(order, job, paths)
        size = sum(item.bytes for item in items)
        words = (
            f"would move {len(items)} checkpoints ({sized(size)}) to the trash, to be deleted after 24 h; "
            f"{len(left)} complete ones are left"
        )
        return Found(words, {"job": job, "items": plain(items), "bytes": size}, undoable=True)

    def _left(self, order: Order, job: str, doomed: Sequence[str]) -> tuple[str, ...]:
        there = members(self._means, job)
        left, why = spared(there, doomed, _number(order, "keep", LEAST))
        if why is not None:
            raise Refused(why)
        older = order.parameters.get("older-than")
        for path in doomed if isinstance(older, int | float) else ():
            try:
                age = self._means.now() - seen(path).newest / 1e9
            except (OSError, ValueError) as error:
                raise Refused(f"{path} {words_of(error)}") from None
            if age <= float(older or 0):
                raise Refused(f"{path} is not old enough")
        return left

    def _withheld(self, order: Order, items: Sequence[Item], refused: Refused) -> Outcome:
        moved = self._bin.look(order, items)
        if moved.after.get("moved"):
            return Outcome("failed", f"{moved.words}; the rest stays: {refused.words}", moved.after)
        return Outcome("skipped", refused.words, moved.after)


class PruneJob(_Prune):
    """Moves the checkpoints of a job to the trash that the plan names."""

    def find(self, order: Order) -> Found:
        """Look at each of them and at what would be left.

        Raises:
            Refused: one of them must stay, cannot be told from another, or is not there.
        """
        named = order.parameters.get("checkpoints")
        if not isinstance(named, list | tuple) or not named:
            raise Refused(f"nothing names the checkpoints of {order.resource} that would go")
        job = order.resource.id
        there = [item.path for item in members(self._means, job)]
        path_of = _namer(job, there, roots(self._means))
        return self._found(order, job, list(dict.fromkeys(path_of(str(name)) for name in named)))


class PruneOne(_Prune):
    """Moves one checkpoint to the trash."""

    def find(self, order: Order) -> Found:
        """Look at it and at what would be left of its job.

        Raises:
            Refused: it must stay, is another machine's, or is not there.
        """
        path = local_path(order, self._means)
        job = order.labels.get("job", "")
        if not job or job == "?":
            raise Refused(f"nothing says which job {order.resource} is of")
        return self._found(order, job, [path])


def _namer(job: str, paths: Sequence[str], folders: Sequence[str]) -> Callable[[str], str]:
    """From the name of a checkpoint, `JOB/NAME` or for a copy elsewhere `JOB/NAME@FOLDER`, to its path."""

    def path_of(name: str) -> str:
        if not name.startswith(f"{job}/"):
            raise Refused(f"checkpoint {name} is not one of job {job}")
        below = name[len(job) + 1 :]
        for folder in folders:
            if below.endswith(f"@{folder}"):
                fits = _fitting(below[: -len(folder) - 1], [p for p in paths if within(p, [folder])])
                break
        else:
            # The first folder that has one of the name gives it without its own.
            each = (_fitting(below, [p for p in paths if within(p, [folder])]) for folder in folders)
            fits = next((some for some in each if some), [])
        if not fits:
            raise Refused(f"checkpoint {name} is not there any more", gone=True)
        if len(fits) > 1:
            raise Refused(f"checkpoint {name} can be {' or '.join(fits[:3])}")
        return fits[0]

    return path_of


def _fitting(below: str, paths: Sequence[str]) -> list[str]:
    return [path for path in paths if path.endswith(f"/{below}")]


def _number(order: Order, name: str, default: int) -> int:
    value = order.parameters.get(name, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _nothing(item: Item) -> None:
    """Nothing is left to be asked."""
