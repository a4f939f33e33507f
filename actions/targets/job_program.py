"""Has a job save by a program of the user's, and verifies what it saved.

The program is run as the action `exec` runs one: at most once for one order, also after a crash. What it says
counts for nothing; a new checkpoint that is complete does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stoploss.actions.exec import Exec
from stoploss.actions.snapshot_result import Snapshot, Waiting
from stoploss.actions.targets.job_checkpoint import Ask, demand_of, outcome_of, waiting_of
from stoploss.engine.model import Found, Order, Outcome


@dataclass(frozen=True, slots=True)
class Save(Ask):
    """Runs the program of the step, and waits for a checkpoint that was begun since."""

    def find(self, order: Order) -> Found:
        """Look whether the program may be run.

        Raises:
            Refused: it may not, or nobody can say whether a checkpoint is complete.
        """
        demand_of(self.means, order.since)
        program = Exec(self.means).find(order)
        words = (
            f"{program.words} and wait for a new checkpoint up to {waiting_of(self.means, order).limit:g} s"
        )
        before = {**program.before, "newest": self._newest(order), "intended": self.means.now()}
        return Found(words, before)

    def act(self, order: Order, found: Found) -> Outcome:
        """Run it, and verify what came of it; after a crash only look."""
        end = self.means.monotonic() + waiting_of(self.means, order).limit
        ran = Exec(self.means).act(order, found)
        if ran.state in ("failed", "skipped"):
            return ran
        waiting = replace(waiting_of(self.means, order), limit=max(0.0, end - self.means.monotonic()))

        def seen_now() -> Snapshot:
            seen = self._since(order, found, waiting)
            return seen if seen.verified else replace(seen, state="pending")

        return outcome_of(waiting.until_over(seen_now), again=True)

    def look(self, order: Order, found: Found) -> Outcome:
        """What came of it; nothing is run by looking."""
        ran = Exec(self.means).look(order, found)
        if ran.state in ("undone", "failed"):
            return ran
        seen = self._since(order, found, replace(waiting_of(self.means, order), limit=0.0))
        if seen.verified:
            return outcome_of(seen, again=True)
        return Outcome("failed", "the program was run, and nothing new is complete yet", retry=True)

    def _since(self, order: Order, found: Found, waiting: Waiting) -> Snapshot:
        return self._new(order, found, float(found.before["intended"]), waiting)
