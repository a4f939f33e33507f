"""Jobs that are files and make steps; how fast, and at what price, changes when they are made smaller."""

from __future__ import annotations

from dataclasses import dataclass, field

from stoploss.engine.execution.cycle import Cycle, Cycled
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import Look, ResourceId, Sample
from support.toys import BEGIN, MINUTE, Fleet

SMALLER = """
version: 1
settings: {mode: enforce, limits: {share-of-population: 100%, actions-per-run: 100, gpus-per-run: 1000}}
policies:
  - name: too-large
    summary: A job that uses little of its GPUs.
    each: job
    waste: 50%
    for: 2m
    contact: owner
    when: ['max(gpu.utilization, 5m) < 5%']
    then:
      - alert: {to: owner}
      - downscale: {after: 60m, snapshot: not-needed, replicas: 1}
"""
"""The policy that makes jobs smaller after an hour."""
ACTED = 70
"""Minutes after which the policy has acted."""


@dataclass
class Stepping(Fleet):
    """A fleet whose jobs make steps.

    Attributes:
        speed: steps per minute as they are at first.
        factor: how many times as fast a job is when it is smaller.
        price: of a GPU-hour as it is at first; None: nobody says.
        cheaper: how many times that price it costs when it is smaller.
        uneven: share by which every other minute is faster, and the one between slower.
        mute: no step is told.
    """

    speed: float = 100.0
    factor: float = 1.0
    price: float | None = 2.0
    cheaper: float = 1.0
    uneven: float = 0.0
    mute: bool = False
    steps: dict[str, float] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def smaller(self) -> list[str]:
        """Jobs that are smaller than they were."""
        return sorted(path.name for path in (self.folder / "smaller").iterdir())

    def look(self, minutes: int | None = None) -> None:
        """See every running job, its price and its step."""
        super().look(minutes)
        at = BEGIN + self.minutes * MINUTE
        steps, prices = [], []
        for job in self.running():
            small = job in self.smaller()
            gone = self.minutes - self.seen.get(job, self.minutes)
            self.seen[job] = self.minutes
            wave = 1 + self.uneven * (1 if (self.minutes // 20) % 2 else -1)
            speed = self.speed * (self.factor if small else 1.0) * wave
            self.steps[job] = self.steps.get(job, 0.0) + gone * speed
            if not self.mute:
                steps.append(Sample(at, ResourceId("job", job), "train.step", self.steps[job]))
            for gpu in (f"{job}/0", f"{job}/1") if self.price is not None else ():
                amount = self.price * (self.cheaper if small else 1.0)
                prices.append(Sample(at, ResourceId("gpu", gpu), "gpu.price", amount))
        self.buffer.add("training", Look(tuple(steps)), slot_time=at)
        self.buffer.add("prices", Look(tuple(prices)), slot_time=at)

    def live(self, cycle: Cycle, minutes: int, every: int = 1) -> list[Cycled]:
        """Live through some minutes, and step the cycle in some of them."""
        out = []
        for minute in range(1, minutes + 1):
            self.minutes += 1
            self.look()
            if minute % every == 0:
                out.append(cycle.step())
        return out

    def act(self, text: str = SMALLER) -> Cycle:
        """Live until the jobs are smaller."""
        cycle = self.cycle(text)
        self.live(cycle, ACTED, every=5)
        return cycle

    def undone(self) -> list[str]:
        """The jobs that were given back what they had, each as often as that was done."""
        return [line.split()[1] for line in self.lines("calls") if line.startswith("undo")]

    def warned(self) -> list[str]:
        """What people were told of steps that backfired, and of no other things."""
        return [line for line in self.lines("told") if "made it dearer" in line]

    def notes(self) -> list[Entry]:
        """What the ledger says that steps have brought."""
        entries = Ledger(self.url, environ={}).entries(kinds=("note",))
        return [item for item in entries if item.action == "downscale"]
