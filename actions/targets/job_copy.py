"""Copies the newest complete checkpoint of a job to a folder, or a bucket, that outlives what a step ends."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial

from stoploss.actions import snapshot
from stoploss.actions.contract import Means, Refused
from stoploss.actions.snapshot import Candidate
from stoploss.actions.targets.job_checkpoint import demand_of, outcome_of, waiting_of
from stoploss.actions.verify import Demand
from stoploss.engine.model import Found, Order, Outcome

BUCKET = "s3://"
"""What the address of a place in S3 begins with."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies; nobody is asked."""

    means: Means

    def find(self, order: Order) -> Found:
        """Which folder a copy would be made in.

        Raises:
            Refused: nothing says where to, its bucket does not answer, or nobody knows the job's checkpoints.
        """
        self._demand()
        folder = self._folder(order)
        ordered = self._ordered(order, folder)
        if not ordered.candidates:
            raise Refused(f"{order.resource} has no checkpoint on this machine")
        if folder.startswith(BUCKET):
            from stoploss.actions.targets import bucket_copy

            if why := bucket_copy.unreachable(self.means, folder):
                raise Refused(f"nothing can be copied to {folder}: {why}")
        words = snapshot.would(ordered, waiting_of(self.means, order).limit)
        return Found(words, {"folder": ordered.copy_to, "intended": self.means.now()})

    def act(self, order: Order, found: Found) -> Outcome:
        """Copy, compare by checksums, verify; goes on where it was left."""
        ordered = self._ordered(order, str(found.before["folder"]))
        seen = snapshot.take(ordered, self._demand(), waiting_of(self.means, order))
        if seen.verified and seen.began is not None and seen.began < order.since:
            seen = replace(seen, why=f"{seen.why}; begun before what was found, it lets no run be ended")
        return outcome_of(seen, again=True)

    def look(self, order: Order, found: Found) -> Outcome:
        """Whether the copy is there and whole."""
        folder = str(found.before["folder"])
        steps = {os.path.basename(path): step for path, step in self._known(order)}
        if folder.startswith(BUCKET):
            return self._look_at_bucket(folder, steps)
        try:
            names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
        except FileNotFoundError:
            return Outcome("undone", "nothing was copied")
        except OSError:
            return Outcome("unknown", f"{folder} cannot be read")
        candidates = tuple(Candidate(os.path.join(folder, name), steps.get(name)) for name in names)
        seen = snapshot.check(candidates, self._demand(), waiting_of(self.means, order))
        return outcome_of(seen, again=True) if seen.verified else Outcome("failed", seen.why, retry=True)

    def undo(self, order: Order, found: Found) -> Outcome:
        """It cannot be undone, and need not be."""
        return Outcome("failed", "a copy is not taken back; prune deletes it")

    def _folder(self, order: Order) -> str:
        given = order.parameters.get("path")
        if isinstance(given, str) and given:
            if not given.startswith(("/", BUCKET)):
                raise Refused(f"path {given!r} does not begin at the root")
            return os.path.join(given.rstrip("/") or "/", os.path.basename(order.resource.id))
        if not self.means.folder:
            raise Refused("nothing says where the copy goes: give path")
        return os.path.join(self.means.folder, "checkpoints", os.path.basename(order.resource.id))

    def _demand(self) -> Demand:
        # What is copied may be old: it is what is there.
        return replace(demand_of(self.means, None), since=None)

    def _known(self, order: Order) -> tuple[tuple[str, int | None], ...]:
        known = self.means.checkpoints
        return known.of_job(order.resource.id) if known is not None else ()

    def _ordered(self, order: Order, folder: str) -> snapshot.Order:
        candidates = tuple(
            Candidate(path, step) for path, step in self._known(order) if not path.startswith(f"{folder}/")
        )
        ordered = snapshot.Order(order.id, order.by, copy_to=folder, candidates=candidates)
        if not folder.startswith(BUCKET):
            return ordered
        from stoploss.actions.targets import bucket_copy

        return replace(ordered, copier=partial(bucket_copy.take, self.means))

    def _look_at_bucket(self, folder: str, steps: dict[str, int | None]) -> Outcome:
        from stoploss.actions.targets import bucket_copy
        from stoploss.aws import FAILURES, reason

        try:
            seen = bucket_copy.newest(self.means, folder, steps)
        except FAILURES as error:
            return Outcome("unknown", f"{folder} cannot be looked at: {reason(error)}", retry=True)
        if seen.state == "pending":
            return Outcome("undone", seen.why)
        return outcome_of(seen, again=True)
