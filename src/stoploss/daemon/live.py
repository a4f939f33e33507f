"""The collectors of a policy set, run when they are due, and what they saw."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.model import Look
from stoploss.rules.catalogue import catalogue

if TYPE_CHECKING:
    from stoploss.collectors.contract import Collector
    from stoploss.collectors.runner import CollectorRun
    from stoploss.engine.audit import CollectorStatus
    from stoploss.engine.history.frame import Frame
    from stoploss.rules.policy import PolicySet

TIME_LIMIT = 10.0
"""Seconds that a look may take."""


@dataclass(slots=True)
class Live:
    """Collectors that are built, and a buffer of what they saw.

    Attributes:
        collectors: name -> running collector.
        every: name -> seconds between two looks.
        unbuilt: those that could not be built, with the reason.
        notes: what is to be said of collectors that are not there.
        buffer: what was seen.
    """

    collectors: Mapping[str, Collector]
    every: Mapping[str, float]
    unbuilt: tuple[CollectorStatus, ...]
    notes: tuple[str, ...]
    buffer: SampleBuffer = field(init=False)

    def __post_init__(self) -> None:
        self.buffer = SampleBuffer(catalogue(), self.every)

    def look(
        self,
        at: float,
        monotonic: Callable[[], float],
        names: Collection[str] | None = None,
        time_limit: float = TIME_LIMIT,
    ) -> list[CollectorRun]:
        """Let collectors look side by side, and keep what they saw under the instant `at`.

        Args:
            at: seconds since the epoch.
            monotonic: seconds on a clock that never goes back.
            names: of those that look; all where it is left out.
            time_limit: seconds that they may take.
        """
        runs = self.runs(at, monotonic, names, time_limit)
        self.keep(runs, at)
        return runs

    def runs(
        self,
        at: float,
        monotonic: Callable[[], float],
        names: Collection[str] | None = None,
        time_limit: float = TIME_LIMIT,
    ) -> list[CollectorRun]:
        """As `look`, and keep nothing."""
        from stoploss.collectors.runner import run_collectors

        due = {name: item for name, item in self.collectors.items() if names is None or name in names}
        return run_collectors(due, at=at, monotonic=monotonic, time_limit=time_limit)

    def keep(self, runs: Iterable[CollectorRun], at: float) -> None:
        """Keep what looks saw under the instant `at`."""
        for run in runs:
            if run.look is not None:
                self.buffer.add(run.name, run.look, slot_time=at)
            else:
                self.buffer.add("runner", Look(run.samples), slot_time=at)
            if not run.ok:
                self.buffer.add_failure(run.name, at, run.reason or "failed")

    def frame(self, resolution: float) -> Frame:
        """What was seen, in slots of `resolution` seconds."""
        return self.buffer.frame(resolution)


def live_of(policies: PolicySet) -> Live:
    """The collectors that look by default or are named by a policy set, built."""
    from stoploss.collectors import registry
    from stoploss.collectors.contract import CollectorError, Context
    from stoploss.engine.audit import CollectorStatus
    from stoploss.engine.losses.signals import conclude

    known, context = registry.load(), Context(conclude=conclude)
    named = {setting.name: setting for setting in policies.collectors}
    collectors: dict[str, Collector] = {}
    every: dict[str, float] = {}
    failures = [CollectorStatus("plug-ins", ok=False, reason=problem) for problem in known.problems]
    notes = [f"collector {name} is not part of this version" for name in named if name not in known.entries]
    for name in dict.fromkeys((*registry.DEFAULT_ON, *named)):
        if name not in known.entries:
            continue
        setting = named.get(name)
        try:
            collectors[name] = known.build(name, setting.options if setting else {}, context)
        except CollectorError as error:
            failures.append(CollectorStatus(name, ok=False, reason=error.reason))
            continue
        every[name] = setting.every if setting else known.options[name].default_every
    return Live(collectors, every, tuple(failures), tuple(notes))
