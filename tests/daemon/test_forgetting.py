"""A daemon forgets what is over: it holds no more for what was, and says nothing else because of that."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.months import said
from support.toys import Reply

from stoploss.actions.registry import action_options
from stoploss.collectors.registry import option_models
from stoploss.daemon.cycle import Making
from stoploss.daemon.live import Live
from stoploss.daemon.service import Clocks, Service
from stoploss.engine.costs import accrual
from stoploss.engine.history import presences
from stoploss.engine.ledger import Ledger
from stoploss.engine.model import Look, ResourceId, Sample
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load
from stoploss.rules.policy import PolicySet

STEP = 3600.0
PLACES = 4
TEXT = """
version: 1
settings: {mode: enforce, resolution: 1h, retention: RETENTION}
prices: {gpu-hour: {default: $2.00/GPU-hour}}
budgets:
  - {name: hours, each: job, limit: 20 GPU-hours}
  - {name: daily, each: team, limit: $60, per: day}
  - {name: monthly, each: team, limit: $5000, per: month, where: 'class == "train"'}
policies:
  - name: idle
    each: job
    waste: 100%
    for: 1h
    when: ['max(gpu.utilization, 3h) < 5%']
    then: [{alert: {to: people}}, {exec: {after: 200h, command: [echo]}}]
  - name: never-idle
    each: gpu
    waste: $1/h
    when: ['avg(gpu.utilization, 3h) > 50%']
    then: [{alert: {to: people}}]
  - name: old
    each: team
    min-age: 20h
    when: ['budget.used >= 0%']
    then: [{alert: {to: people}}]
  - name: spent
    each: job
    when: ['budget.used >= 80% or cost.total > $30']
    then: [{alert: {to: people}}]
  - name: team-spent
    each: team
    when: ['budget.used >= 50%']
    then: [{alert: {to: people}}]
notify: {people: "https://people.example.org"}
"""


@dataclass
class Life:
    """A service over jobs that come and go, each on two GPUs of its place; one job stays for good."""

    folder: Path
    retention: str
    seed: int = 1
    lasting: float = 5.0
    at: float = datetime(2026, 11, 27, tzinfo=UTC).timestamp()
    jobs: dict[int, tuple[str, bool, float]] = field(default_factory=dict)
    count: int = 0
    told: list[str] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)
    service: Service | None = None

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)

    @property
    def url(self) -> str:
        """Where the state is."""
        return f"sqlite:///{self.folder}/state.db"

    def now(self) -> datetime:
        """The instant of the clock."""
        return datetime.fromtimestamp(self.at, UTC)

    def look(self, at: float) -> Look:
        """What there is to be seen."""
        samples = []
        for place in range(PLACES):
            if place not in self.jobs or (place and self.draw.random() < 1 / self.lasting):
                self.count += 1
                self.jobs[place] = f"j{self.count}", not place or self.draw.random() < 0.3, at
            job, idle, begun = self.jobs[place]
            team = "vision" if place % 2 else "speech"
            kind = "train" if self.count % 3 else "eval"
            labels = {"job": job, "class": kind if place else "train", "team": team, "user": "ann"}
            for name in (f"g{place}.0", f"g{place}.1"):
                gpu = ResourceId("gpu", name)
                samples.append(Sample(at, gpu, "gpu.utilization", 0.0 if idle else 0.9, labels))
            samples.append(Sample(at, ResourceId("job", job), "train.step", at - begun, labels))
        return Look(tuple(samples), frozenset({"gpu", "job"}))

    def policies(self) -> PolicySet:
        """The policy set."""
        file = self.folder / "policies.yaml"
        file.write_text(TEXT.replace("RETENTION", self.retention), "utf-8")
        read = load(
            [file], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
        )
        assert read.policies is not None, read.diagnostics
        return read.policies

    def deliver(self, receiver: str, notice: Any) -> Reply:
        """A message arrives."""
        self.told.append(f"{notice.event} {receiver} {notice.key} {notice.title}")
        return Reply()

    def start(self) -> Service:
        """A service that takes up the work."""
        self.service = Service(
            self.policies(),
            self.url,
            Clocks(self.now, lambda: self.at),
            environ={},
            live=lambda policies: Live({"gpu": self}, {"gpu": STEP}, (), ()),
            making=Making(actions={}, deliver=self.deliver),
        )
        return self.service

    def hours(self, count: int) -> None:
        """Live through some slots; the service is started again now and then."""
        for number in range(count):
            service = self.service or self.start()
            self.at += STEP
            service.look(["gpu"], self.at)
            self.at += 11
            cycled = service.tick()
            self.at -= 11
            assert cycled is not None, service.vitals.problems
            self.seen.append((self.at, said(cycled.result)))
            if number % 40 == 39:
                service.stop()
                self.service = None

    def held(self) -> dict[str, int]:
        """How much is held, in memory and to be carried on."""
        service = self.service or self.start()
        frame = service.history.frame(STEP)
        carry = service._carry
        assert carry is not None
        return {
            "series": sum(len(plane.series) for plane in frame.planes.values()),
            "resources": len(frame.resources),
            "labels and absences": sum(len(p.changes) + len(p.absences) for p in frame.resources.values()),
            "names in the buffer": len(service.history._buffer.resources),
            "columns on disk": sum(map(len, service.history.store(STEP)._tables().cadence.values())),
            "resources on disk": len(service.history.store(STEP)._tables().resources),
            "streams": len(carry.past.days),
            "claims": sum(len(claim.spans) for claims in carry.claims.values() for claim in claims),
            "rows": sum(
                len(rows) for state in carry.lifecycles.values() for rows in state["policies"].values()
            ),
            "bytes": len(json.dumps(carry.as_json())) // 100,
        }

    def ledger(self) -> list[Any]:
        """What was written down."""
        ledger = Ledger(self.url, read_only=True, environ={})
        lines = [
            (e.at.isoformat(), e.kind, e.episode, e.policy, e.action, e.target, e.verdict, str(e.resource))
            for e in ledger.entries()
        ]
        ledger.close()
        return lines


@pytest.mark.slow
def test_what_a_daemon_holds_does_not_grow_with_jobs_that_are_gone(tmp_path: Path) -> None:
    """When several times as many jobs have gone it holds no more than before."""
    life = Life(tmp_path, "12h", lasting=1.5)
    life.hours(64)
    early, jobs = life.held(), life.count
    life.hours(64)
    late = life.held()

    assert life.count > 1.8 * jobs
    assert all(number <= 1.2 * early[name] + 10 for name, number in late.items()), (early, late)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_life_with_forgetting_is_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Findings, money, budgets, messages and ledger are what they are where all is held for good."""
    lives = []
    for retention in ("12h", "90d"):
        if retention == "90d":
            monkeypatch.setattr(presences, "shortened", lambda resources, over, before: dict(resources))
            monkeypatch.setattr(accrual, "together", lambda past, *rest: past)
        folder = tmp_path / retention
        folder.mkdir()
        life = Life(folder, retention, seed, lasting=3.0)
        life.hours(70)
        lives.append(life)
    short, long = lives

    assert short.seen == long.seen
    assert short.told == long.told
    assert short.ledger() == long.ledger()
    assert short.held()["resources on disk"] < long.held()["resources on disk"] / 1.2
    assert short.held()["resources"] < long.held()["resources"]
    first = {finding[1] for _, seen in short.seen[:20] for finding in seen["findings"]}
    assert first & {finding[1] for finding in short.seen[-1][1]["findings"]}
