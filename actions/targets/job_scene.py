"""Keeps the scene of a job that failed: its logs, its processes, its configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass

from stoploss.actions.contract import Means, Refused
from stoploss.actions.routing import SCHEDULER
from stoploss.actions.targets import process_tree, scene
from stoploss.actions.targets.process_signal import Process
from stoploss.engine.model import Found, Order, Outcome

LOGS = (".log", ".jsonl", ".out", ".err", ".txt")
MOST_LOGS = 20


@dataclass(frozen=True, slots=True)
class Keep:
    """Keeps it in a folder of its own; it is no checkpoint, and lets nothing be ended."""

    means: Means

    def find(self, order: Order) -> Found:
        """What would be kept.

        Raises:
            Refused: nothing of the job is on this machine, or nothing says where to.
        """
        if not self.means.folder or self.means.masker is None:
            raise Refused("nothing says where the scene is kept")
        kept = self._scene(order)
        if not kept.logs and not kept.processes:
            raise Refused(f"neither a log nor a process of {order.resource} is on this machine")
        words = (
            f"would keep {len(kept.logs)} logs and {len(kept.processes)} processes of {order.resource} "
            f"in {kept.target}"
        )
        return Found(words, {"target": kept.target})

    def act(self, order: Order, found: Found) -> Outcome:
        """Write it, unless it is there."""
        if self.means.masker is None:
            return Outcome("failed", "nothing masks the secrets of a scene")
        kept = scene.keep(self._scene(order), self.means.masker, self.means.now())
        if kept.path is None:
            return Outcome("failed", kept.why, retry=True)
        missing = f"; not kept: {len(kept.missing)}" if kept.missing else ""
        words = f"{len(kept.files)} files are kept in {kept.path}{missing}"
        return Outcome("done", words, {"scene": kept.path, "files": len(kept.files)})

    def look(self, order: Order, found: Found) -> Outcome:
        """Whether it is there; it is there as a whole or not at all."""
        target = str(found.before["target"])
        if os.path.exists(os.path.join(target, scene.MANIFEST)):
            return Outcome("done", f"it is kept in {target}", {"scene": target})
        return Outcome("undone", "it is not kept")

    def undo(self, order: Order, found: Found) -> Outcome:
        """It cannot be undone, and need not be."""
        return Outcome("failed", "a scene is not taken back")

    def _scene(self, order: Order) -> scene.Scene:
        folder = order.labels.get("run_dir", "")
        there = folder if folder.startswith("/") and os.path.isdir(folder) else None
        processes = tuple(Process(seen.pid, seen.start) for seen in _members(order))
        return scene.Scene(
            os.path.join(self.means.folder, "scenes", order.id),
            _logs(there) if there else (),
            processes,
            there,
            why=order.by,
        )


def _members(order: Order) -> tuple[process_tree.Seen, ...]:
    """The processes of the job on this machine, by the name that they were told or the id that Slurm gave."""
    tree = process_tree.look()
    members = tree.members(order.resource.id)
    if not members and order.labels.get(SCHEDULER) == "slurm":
        return tree.of_slurm(order.labels.get("slurm_job") or order.resource.id)
    return members


def _logs(folder: str) -> tuple[str, ...]:
    """The logs of a run's folder, the newest first."""
    found: list[tuple[float, str]] = []
    for place in (folder, os.path.join(folder, ".stoploss")):
        try:
            with os.scandir(place) as entries:
                found += [
                    (entry.stat(follow_symlinks=False).st_mtime, entry.path)
                    for entry in entries
                    if entry.name.endswith(LOGS) and entry.is_file(follow_symlinks=False)
                ]
        except OSError:
            continue
    return tuple(path for _, path in sorted(found, reverse=True)[:MOST_LOGS])
