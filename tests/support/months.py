"""A small cluster over weeks, and services on one state: killed, stopped, reloaded, asleep.

One step is one look and one tick. What happens in the cluster is drawn from one seed; what is done to the
daemon from another, so that two lives differ in nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from stoploss.actions.registry import action_options
from stoploss.collectors.contract import CollectorError
from stoploss.collectors.registry import option_models
from stoploss.daemon.cycle import Making
from stoploss.daemon.live import Live
from stoploss.daemon.service import Clocks, Service
from stoploss.engine.ledger import Ledger
from stoploss.engine.model import Look, ResourceId, Sample
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load
from stoploss.rules.policy import PolicySet
from support.toys import BEGIN, Act, Fleet

STEP = 900.0
"""Seconds of a slot, and from one look to the next."""
SECONDS = 11.0
"""A tick comes so many seconds after the end of its slot."""
PLACES = 6
"""Jobs that run at the same time, each on two GPUs of its place."""

TEXT = """
version: 1
settings:
  mode: enforce
  timezone: Europe/Berlin
  resolution: 15m
  retention: 4d
  limits: {share-of-population: 100%, actions-per-run: 100, gpus-per-run: 1000}
prices: {gpu-hour: {default: $2.00/GPU-hour}}
budgets:
  - {name: job-hours, each: job, limit: 60 GPU-hours}
  - {name: daily, each: team, limit: $150, per: day}
  - {name: monthly, each: team, limit: $5000, per: month}
notify: {people: "https://people.example.org", night: "https://night.example.org"}
policies:
  - name: idle
    summary: A job that does nothing.
    each: job
    waste: 100%
    for: 30m
    hold: 30m
    when: ['max(gpu.utilization, 2h) < 5%']
    active: {from: "07:00", until: "21:00"}
    then:
      - alert: {to: people}
      - snapshot: {after: 30m}
      - terminate: {after: 90m}
  - name: no-step
    each: job
    waste: 50%
    for: 1h
    when: ['increase(train.step, 3h) == 0 or absent(train.step, 3h)']
    then: [{alert: {to: night, repeat: 12h}}]
  - name: hot
    each: gpu
    waste: $1/h
    hold: 1h
    when: ['avg(gpu.utilization, 3h) > 70%']
    active: {quiet: "22:00-06:00"}
    then: [{alert: {to: people}}]
  - name: coarse
    each: job
    resolution: 1h
    for: 2h
    when: ['p50(gpu.utilization, 6h) < 50%']
    then: [{alert: {to: people}}]
  - name: spent
    each: job
    when: ['budget.used >= 80% or cost.total > $80']
    then: [{alert: {to: people}}]
  - name: day-spent
    each: team
    when: ['budget.used >= 80%']
    then: [{alert: {to: people}}]
"""


def minutes_of(at: datetime) -> int:
    """Minutes from the beginning of the toys' time to an instant."""
    return round((at.timestamp() - BEGIN) / 60.0)


@dataclass
class Cluster:
    """What there is to be seen: jobs that come, work, idle and go."""

    fleet: Fleet
    draw: random.Random
    places: dict[int, str] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    failing: bool = False
    lives: int = 0

    def live(self) -> None:
        """A step of the cluster."""
        draw, fleet = self.draw, self.fleet
        running = set(fleet.running())
        for place in range(PLACES):
            job = self.places.get(place)
            if job is not None and (job not in running or draw.random() < 0.006):
                (fleet.folder / "running" / job).unlink(missing_ok=True)
                del self.places[place]
                job = None
            if job is None and draw.random() < 0.1:
                self.lives += 1
                job = self.places[place] = f"j{self.lives}"
                fleet.start(job)
                fleet.busy.add(job)
            if job is not None and draw.random() < 0.03:
                fleet.busy ^= {job}
            if job is not None and draw.random() < 0.01:
                self.stuck ^= {job}
            if job is not None and job in fleet.busy and job not in self.stuck:
                self.steps[job] = self.steps.get(job, 0.0) + 100.0
        self.failing = draw.random() < 0.02 or (self.failing and draw.random() < 0.7)

    def look(self, at: float) -> Look:
        """What the collector sees; it fails now and then."""
        if self.failing:
            raise CollectorError("no answer")
        samples = []
        for place, job in sorted(self.places.items()):
            if not (self.fleet.folder / "running" / job).exists():
                continue
            team = "vision" if place % 2 else "speech"
            labels = {"job": job, "class": "train", "team": team, "user": "ann"}
            value = 0.9 if job in self.fleet.busy else 0.0
            for gpu in (f"g{place}.0", f"g{place}.1"):
                resource = ResourceId("gpu", gpu)
                samples.append(Sample(at, resource, "gpu.utilization", value, labels))
                samples.append(Sample(at, resource, "gpu.model", "H100"))
                samples.append(Sample(at, resource, "gpu.energy", at - BEGIN + 1e8))
            if job in self.steps:
                samples.append(Sample(at, ResourceId("job", job), "train.step", self.steps[job], labels))
        return Look(tuple(samples), frozenset({"gpu", "job"}))


@dataclass
class Life:
    """Services over one state, one after the other, and what they told and did.

    Attributes:
        text: the policies.
        leaps: step -> seconds by which the clock leaps before it.
        asleep: steps in which nothing looks and nothing ticks.
    """

    fleet: Fleet
    cluster: Cluster
    text: str = field(default_factory=lambda: TEXT)
    leaps: dict[int, float] = field(default_factory=dict)
    asleep: set[int] = field(default_factory=set)
    service: Service | None = None
    step: int = 0
    restarts: int = 0
    edits: int = 0
    seen: list[Any] = field(default_factory=list)

    def policies(self) -> PolicySet:
        """The policy set of `text`."""
        file = self.fleet.folder / "policies.yaml"
        file.write_text(self.text, "utf-8")
        read = load(
            [file], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
        )
        assert read.policies is not None, read.diagnostics
        return read.policies

    def start(self) -> Service:
        """A service that takes up the work."""
        fleet = self.fleet
        making = Making(
            actions={
                "snapshot": lambda: Act(fleet, "snapshot"),
                "terminate": lambda: Act(fleet, "terminate"),
            },
            deliver=fleet.deliver,
            lacks=fleet.lacks,
        )
        self.service = Service(
            self.policies(),
            fleet.url,
            Clocks(fleet.now, lambda: self.step * STEP),
            environ={},
            live=lambda policies: Live({"gpu": self.cluster}, {"gpu": STEP}, (), ()),
            making=making,
        )
        return self.service

    def kill(self) -> None:
        """End the service without a word."""
        if self.service is not None:
            self.service.history.close()
            self.service.ledger.close()
            self.service = None
            self.restarts += 1

    def stop(self) -> None:
        """End the service well."""
        if self.service is not None:
            self.service.stop()
            self.service = None
            self.restarts += 1

    def edit(self) -> None:
        """Other words in the policies, under which they keep what they know."""
        self.edits += 1
        self.text = TEXT.replace("A job that does nothing.", f"A job that does nothing (edit {self.edits}).")
        if self.service is not None:
            told = self.service.reload(self.policies())
            assert told == ("policy idle has changed",)

    def pass_(self, disturb: Callable[[], None] = lambda: None) -> None:
        """Live through one step; `disturb` is called before the look, and before the tick."""
        self.step += 1
        fleet = self.fleet
        fleet.minutes += round(STEP / 60.0)
        fleet.seconds = 0.0
        fleet.minutes += round(self.leaps.get(self.step, 0.0) / 60.0)
        self.cluster.live()
        if self.step in self.asleep:
            return
        disturb()
        service = self.service or self.start()
        service.look(["gpu"], fleet.now().timestamp() // STEP * STEP)
        disturb()
        fleet.seconds = SECONDS
        service = self.service or self.start()
        cycled = service.tick()
        assert cycled is not None, service.vitals.problems
        if self.step % 4 == 0:
            self.seen.append((fleet.now().isoformat(), said(cycled.result)))

    def told(self) -> dict[str, Any]:
        """All that came of it."""
        ledger = Ledger(self.fleet.url, read_only=True, environ={})
        assert ledger.verify() == ()
        folder = str(self.fleet.folder)
        lines = [
            (e.at.isoformat(), e.kind, e.episode, e.policy, e.action, e.target, e.verdict, str(e.resource))
            for e in ledger.entries()
        ]
        ledger.close()
        return {
            "calls": [line.replace(folder, "") for line in self.fleet.lines("calls")],
            "notices": self.fleet.lines("told"),
            "again": self.fleet.lines("again"),
            "ledger": lines,
            "seen": self.seen,
        }


def said(result: Any) -> Any:
    """What an audit says of findings, of what is unknown, of the plan and of money, but for rounding."""
    return {
        "findings": sorted(
            (
                f.policy.name,
                f.id,
                f.state,
                str(f.since),
                str(f.stale_since),
                f.waste and round(f.waste.so_far or 0, 6),
                [(e.condition, _rounded(e.value), e.samples, e.of) for e in f.evidence],
            )
            for f in result.findings
        ),
        "unknown": sorted((u.policy.name, str(u.resource), u.reason) for u in result.unknown),
        "decisions": sorted(
            (d.id, d.verdict, str(d.due), d.whys, d.saves_per_hour) for d in result.decisions
        ),
        "totals": {kind: round(amount.so_far, 6) for kind, amount in result.totals.by_kind.items()},
    }


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def life(fleet: Fleet, seed: int, begin: datetime) -> Life:
    """A life from an instant on."""
    fleet.minutes = minutes_of(begin.astimezone(UTC))
    fleet.start()
    return Life(fleet, Cluster(fleet, random.Random(seed)))
