"""When most of a fleet turns idle at once, and when one job is half of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.toys import BEGIN, CHAIN, MINUTE, Fleet, verdicts

from stoploss.engine.model import Look, ResourceId, Sample

TURN = 10
"""The minute in which jobs stop working."""


@dataclass
class Wide(Fleet):
    """Jobs of any number of GPUs, of which some stop working after ten minutes.

    Attributes:
        gpus: of each job.
        stops: jobs that stop working.
    """

    gpus: dict[str, int] = field(default_factory=dict)
    stops: set[str] = field(default_factory=set)

    def look(self, minutes: int | None = None) -> None:
        """See every GPU of every job."""
        at = BEGIN + self.minutes * MINUTE
        samples = []
        for job in self.running():
            value = 0.0 if job in self.stops and self.minutes > TURN else 0.9
            said = {"job": job, "class": "train", "team": job[-1]} | self.labels.get(job, {})
            for number in range(self.gpus.get(job, 1)):
                resource = ResourceId("gpu", f"{job}/{number}")
                samples.append(Sample(at, resource, "gpu.utilization", value, said))
                samples.append(Sample(at, resource, "gpu.model", "H100"))
        self.buffer.add("gpu", Look(tuple(samples), frozenset({"gpu"})), slot_time=at)


@pytest.mark.slow
def test_800_of_1000_gpus_below_one_switch(tmp_path: Path) -> None:
    """Nothing is ended for an hour, and one notice names the switch; afterwards it goes on."""
    jobs = [f"j{at}" for at in range(1000)]
    fleet = Wide(tmp_path, stops=set(jobs[:800]))
    fleet.labels = {job: {"switch": "s7" if at < 800 else f"t{at % 9}"} for at, job in enumerate(jobs)}
    fleet.start(*jobs)
    cycle = fleet.cycle(CHAIN.replace("actions-per-run: 100", "actions-per-run: 10000"))
    verdict: set[str] = set()
    for minute in range(1, 75):
        fleet.minutes = minute
        fleet.look()
        if minute > TURN and minute % 8 == 1:
            verdict |= set(verdicts(cycle.step().result, "terminate").values())

    assert verdict == {"held"}
    assert len(fleet.running()) == 1000
    [told] = [line for line in fleet.lines("told") if "s7" in line]
    assert "800 of 1000 jobs turned idle or unknown within 10m; they share switch s7" in told


@pytest.mark.parametrize("jobs", [60])
def test_a_storm_of_a_small_fleet(tmp_path: Path, jobs: int) -> None:
    """The same with 48 jobs of 60, minute by minute, until it is over: then they are ended."""
    names = [f"j{at}" for at in range(jobs)]
    stops = set(names[: jobs * 4 // 5])
    fleet = Wide(tmp_path, stops=stops)
    fleet.labels = {job: {"switch": "s7" if job in stops else "s8"} for job in names}
    fleet.start(*names)
    cycle = fleet.cycle(CHAIN)
    for minute in range(1, TURN + 60):
        fleet.minutes = minute
        fleet.look()
        if minute % 5 == 0:
            cycle.step()
    lasted = len(fleet.running())
    for minute in range(TURN + 60, TURN + 90):
        fleet.minutes = minute
        fleet.look()
        if minute % 5 == 0:
            cycle.step()

    assert lasted == jobs
    assert sum("they share switch s7" in line for line in fleet.lines("told")) == 1
    assert set(fleet.running()) == set(names) - stops


@pytest.mark.parametrize(
    ("limits", "ended"),
    [
        ("gpus-per-run: 64, actions-per-run: 100", False),
        pytest.param("gpus-per-run: 511, actions-per-run: 100", False, marks=pytest.mark.slow),
        ("gpus-per-run: 512, actions-per-run: 1, jobs-per-team: 1", True),
    ],
)
def test_a_job_of_512_gpus_is_one(tmp_path: Path, limits: str, ended: bool) -> None:
    """It is ended whole or not at all: a cap on GPUs stops all of it, and it is one action and one job."""
    fleet = Wide(tmp_path, gpus={"a": 512}, stops={"a"})
    fleet.start("a", "b", "c")
    cycle = fleet.cycle(CHAIN.replace("actions-per-run: 100, gpus-per-run: 1000", limits))
    for minute in range(1, TURN + 20):
        fleet.minutes = minute
        fleet.look()
        if minute > TURN + 6:
            result = cycle.step().result
    whys = [item.why for item in result.decisions if item.action == "terminate"]

    assert fleet.running() == (["b", "c"] if ended else ["a", "b", "c"])
    assert [line.split()[:2] for line in fleet.lines("calls")] == [["snapshot", "a"]] + [
        ["terminate", "a"]
    ] * ended
    if not ended:
        assert "512 > " in whys[0]
