"""What actions are given on this machine: clocks, options of collectors, and how checkpoints are judged."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoploss.actions.contract import Action, Means
from stoploss.engine import clock

if TYPE_CHECKING:
    from stoploss.collectors.checkpoint_jobs import Job
    from stoploss.rules.policy import PolicySet

FOLDER = "stoploss-kept"
"""Folder beside the state for what actions keep."""


def means_of(policies: PolicySet, *, folder: str, environ: Mapping[str, str]) -> Means:
    """What actions of a policy set are given.

    Args:
        policies: says which collectors are named, and with which options.
        folder: below which actions keep what they move away; made absolute.
        environ: variables; their secrets are kept out of everything.
    """
    from stoploss.collectors.contract import Context
    from stoploss.engine.masking import Masker

    options = {setting.name: dict(setting.options) for setting in policies.collectors}
    hostname = Context().hostname
    return Means(
        hostname=hostname,
        now=lambda: clock.now().timestamp(),
        monotonic=clock.monotonic,
        sleep=clock.sleep,
        environ=environ,
        collectors=options,
        folder=os.path.abspath(folder),
        checkpoints=Known(options["checkpoints"]) if "checkpoints" in options else None,
        mask=Masker(environ).text,
        masker=lambda more: Masker({**environ, **more}),
    )


def actions_of(means: Means) -> dict[str, Callable[[], Action]]:
    """Name -> makes the action; those that only tell somebody are left out."""
    from stoploss.actions.registry import ACTIONS

    return {name: _maker(name, means) for name, entry in ACTIONS.items() if entry.kind != "notify"}


def _maker(name: str, means: Means) -> Callable[[], Action]:
    def make() -> Action:
        made: Action = importlib.import_module(f"stoploss.actions.{name}").build(means)
        return made

    return make


@dataclass(frozen=True, slots=True)
class Known:
    """Checkpoints of this machine by the rules of the collector `checkpoints`, with its options."""

    options: Mapping[str, Any]

    def lacks(self, path: str) -> str | None:
        """What the checkpoint at a path lacks to be complete, in words; None where it lacks nothing."""
        from stoploss.collectors.checkpoint_census import Census
        from stoploss.collectors.checkpoint_jobs import lacking
        from stoploss.collectors.walking import Walk, words_of

        census = Census()
        # Twice: a size that stands still is told by a second look only.
        for _ in range(2):
            census = Census(before=census.found)
            walk = Walk(os.path.dirname(path), census)
            try:
                walk.advance(lambda: False)
            except OSError as error:
                return f"it cannot be looked at: {words_of(error)}"
            finally:
                walk.close()
        return lacking(census, clock.now().timestamp()).get(path, "it is no checkpoint")

    def domain(self, path: str) -> str | None:
        """The failure domain of a path, such as `host`; None where it is not known."""
        from stoploss.collectors import mounts
        from stoploss.collectors.checkpoint_jobs import failure_domain
        from stoploss.engine.model import Bad

        options = self._options()
        below = [place for place in options.paths if f"{path}/".startswith(f"{place.path.rstrip('/')}/")]
        said = None
        if below:
            longest = max(below, key=lambda place: len(place.path))
            said = longest.failure_domain or options.failure_domain
        mount = mounts.mount_of(os.path.realpath(path), mounts.mounts())
        found = failure_domain(said, mount.fstype if mount else None)
        return None if isinstance(found, Bad) else str(found)

    def folder_of(self, job: str) -> str | None:
        """The folder in which the newest checkpoint of a job lies; None where there is none."""
        found = self._job(job)
        return found.members[-1].checkpoint.parent if found and found.members else None

    def of_job(self, job: str) -> tuple[tuple[str, int | None], ...]:
        """The checkpoints of a job that are there now: path and step, in any state."""
        found = self._job(job)
        members = found.members if found else ()
        return tuple((item.checkpoint.path, item.checkpoint.name.step) for item in members)

    def _job(self, job: str) -> Job | None:
        from stoploss.collectors.checkpoints import CheckpointsCollector, build
        from stoploss.collectors.contract import Context

        collector = build(self._options(), Context())
        assert isinstance(collector, CheckpointsCollector), "that is what the module builds"
        return collector.seen(clock.now().timestamp()).get(job)

    def _options(self) -> Any:
        from stoploss.collectors.checkpoints_options import Options

        return Options.model_validate(dict(self.options))
