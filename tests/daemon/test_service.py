"""The service stepped minute by minute: restarts, reloads and failures change nothing of what comes out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.toys import BEGIN, CHAIN, Act, Fleet, kinds

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

SECONDS = 11.0
"""A tick comes so many seconds after the end of its slot."""


@dataclass
class World:
    """A fleet, a collector that looks at it, and services over one state, one after the other."""

    fleet: Fleet
    text: str = CHAIN
    failing: set[int] = field(default_factory=set)
    service: Service | None = None

    def look(self, at: float) -> Look:
        """What the collector sees; it fails in some minutes."""
        minute = round((at - BEGIN) / 60.0)
        if minute in self.failing:
            raise CollectorError("no answer")
        samples = []
        for job in self.fleet.running():
            for gpu in (f"{job}/0", f"{job}/1"):
                labels = {"job": job, "class": "train", "team": "vision", "user": "ann"}
                value = 0.9 if job in self.fleet.busy else 0.0
                samples.append(Sample(at, ResourceId("gpu", gpu), "gpu.utilization", value, labels))
                samples.append(Sample(at, ResourceId("gpu", gpu), "gpu.model", "H100"))
                samples.append(Sample(at, ResourceId("gpu", gpu), "gpu.energy", 100.0 * minute))
        return Look(tuple(samples), frozenset({"gpu"}))

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
            actions={name: lambda name=name: Act(fleet, name) for name in ("snapshot", "terminate")},  # type: ignore[misc]
            deliver=fleet.deliver,
            lacks=fleet.lacks,
        )
        clocks = Clocks(fleet.now, lambda: fleet.now().timestamp())
        self.service = Service(
            self.policies(),
            fleet.url,
            clocks,
            environ={},
            live=lambda policies: Live({"gpu": self}, {"gpu": 60.0}, (), ()),
            making=making,
        )
        return self.service

    def minutes(self, count: int) -> None:
        """Live through some minutes."""
        for _ in range(count):
            service = self.service or self.start()
            self.fleet.minutes += 1
            service.look(["gpu"], self.fleet.now().timestamp())
            self.fleet.seconds = SECONDS
            service.tick()
            self.fleet.seconds = 0.0

    def kill(self) -> None:
        """End the service without a word."""
        if self.service is not None:
            self.service.history.close()
            self.service.ledger.close()
            self.service = None


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three idle jobs."""
    fleet = Fleet(tmp_path)
    fleet.start("a", "b", "c")
    return World(fleet)


def test_a_chain_is_carried_out_over_ticks(world: World) -> None:
    """Told, saved and ended, as the plan says."""
    world.minutes(20)

    assert sorted(kinds(world.fleet.lines("calls"))) == sorted(
        f"{what} {job}" for job in "abc" for what in ("snapshot", "terminate")
    )
    assert sum(line.startswith("firing") for line in world.fleet.lines("told")) == 1


def story(world: World, seed: int, *, disturbed: bool) -> dict[str, Any]:
    """Two hours of jobs that turn idle and busy, alike for both; restarts only where it is disturbed."""
    draw, other = random.Random(seed), random.Random(seed + 1)
    fleet = world.fleet
    fleet.start(*"abcdef")
    world.failing = {minute for minute in range(120) if draw.random() < 0.03}
    for minute in range(120):
        for job in "abcdef":
            if draw.random() < 0.05:
                fleet.busy ^= {job}
        if disturbed and other.random() < 0.15:
            world.kill()
        if disturbed and other.random() < 0.1 and world.service is not None:
            world.text = CHAIN + f"# edited in minute {minute}\n"
            assert world.service.reload(world.policies()) == ()
        world.minutes(1)
    assert world.service is not None
    latest = world.service.latest
    assert latest is not None
    return {
        "calls": fleet.lines("calls"),
        "told": fleet.lines("told"),
        "findings": [
            (f.id, f.state, f.since, f.waste and round(f.waste.so_far or 0, 6)) for f in latest.findings
        ],
        "unknown": [(u.resource, u.reason) for u in latest.unknown],
        "decisions": [(d.id, d.verdict, d.due, d.whys) for d in latest.decisions],
        "again": fleet.lines("again"),
        "ledger": Ledger(fleet.url, read_only=True, environ={}).verify(),
    }


@pytest.mark.parametrize("seed", [0, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 2, 3))])
def test_restarts_and_reloads_change_nothing(tmp_path: Path, seed: int) -> None:
    """Killed and reloaded at random, findings, notices and actions are those of a run without."""
    found = []
    for name, disturbed in (("whole", False), ("disturbed", True)):
        (tmp_path / name).mkdir()
        world = World(Fleet(tmp_path / name))
        result = story(world, seed, disturbed=disturbed)
        found.append({key: str(value).replace(str(tmp_path / name), "") for key, value in result.items()})

    assert found[0] == found[1]
    assert found[0]["calls"] != "[]"
