"""A small fleet of jobs that are files, with actions on them, for cycles that are stepped by hand.

A job runs while its file lies in `running/`. Asked to save it writes a file into `saved/`; ended, its file is
moved to `ended/`. Every call that would change something appends a line to `calls`, first; one that finds
done already what it is about to do appends one to `again`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stoploss.actions.registry import action_options
from stoploss.collectors.registry import option_models
from stoploss.engine.execution.cycle import Cycle, Tools
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.ledger import Ledger
from stoploss.engine.model import Found, Look, Notice, Order, Outcome, Refused, ResourceId, Sample
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load

BEGIN = datetime(2026, 12, 1, 14, tzinfo=UTC).timestamp()
MINUTE = 60.0

PLACES = {"snapshot": "saved", "terminate": "ended", "downscale": "smaller"}
"""Folder in which an action leaves the file of a job."""

CHAIN = """
version: 1
settings: {mode: enforce, limits: {share-of-population: 100%, actions-per-run: 100, gpus-per-run: 1000}}
prices: {gpu-hour: {default: $2.00/GPU-hour}}
policies:
  - name: idle
    summary: A job that does nothing.
    each: job
    waste: 100%
    for: 2m
    when: ['max(gpu.utilization, 5m) < 5%']
    then:
      - alert: {to: owner}
      - snapshot: {after: 2m}
      - terminate: {after: 4m}
"""


@dataclass(frozen=True)
class Reply:
    """How a delivery went."""

    delivered: bool = True
    retry: bool = True
    words: str = "delivered"


@dataclass
class Fleet:
    """The files of a fleet, its clock, and what is observed of it.

    Attributes:
        folder: of everything.
        point: called at each place where a crash could come.
        minutes, seconds: how far the clock is, from `BEGIN`.
        faults: (action, job) -> what happens instead: `fail`, `raise`, `lie` (says done and does nothing),
            `old` (keeps what was begun before the episode).
        undeliverable: receivers that cannot be reached.
        means: receiver -> who is told in the end, where that is another.
        busy: jobs whose GPUs work.
        silent: jobs that nobody can see.
        labels: of jobs, beside those that all have.
    """

    folder: Path
    point: Callable[[], object] = lambda: None
    minutes: int = 0
    seconds: float = 0.0
    faults: dict[tuple[str, str], str] = field(default_factory=dict)
    undeliverable: set[str] = field(default_factory=set)
    means: dict[str, str] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    buffer: SampleBuffer = field(default_factory=lambda: SampleBuffer(catalogue(), {"gpu": MINUTE}))

    def start(self, *jobs: str) -> None:
        """Let jobs run."""
        for name in ("running", *PLACES.values()):
            (self.folder / name).mkdir(exist_ok=True)
        for job in jobs:
            (self.folder / "running" / job).touch()

    def now(self) -> datetime:
        """The instant of the clock."""
        return datetime.fromtimestamp(BEGIN + self.minutes * MINUTE + self.seconds, UTC)

    def running(self) -> list[str]:
        """Jobs that run."""
        return sorted(path.name for path in (self.folder / "running").iterdir())

    def saved(self) -> list[str]:
        """Jobs that have saved."""
        return sorted(path.name for path in (self.folder / "saved").iterdir())

    def look(self, minutes: int | None = None) -> None:
        """See every running job, each with two GPUs."""
        at = BEGIN + (self.minutes if minutes is None else minutes) * MINUTE
        samples = []
        for job in self.running():
            if job in self.silent:
                continue
            for gpu in (f"{job}/0", f"{job}/1"):
                labels = {"job": job, "class": "train", "team": "vision", "user": "ann"}
                labels |= self.labels.get(job, {})
                value = 0.9 if job in self.busy else 0.0
                samples.append(Sample(at, ResourceId("gpu", gpu), "gpu.utilization", value, labels))
                samples.append(Sample(at, ResourceId("gpu", gpu), "gpu.model", "H100"))
        inventories = frozenset() if self.silent else frozenset({"gpu"})
        self.buffer.add("gpu", Look(tuple(samples), inventories), slot_time=at)

    def write(self, file: str, line: str) -> None:
        """Append a line for good."""
        with (self.folder / file).open("a") as stream:
            stream.write(line + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def lines(self, file: str) -> list[str]:
        """The lines of a file; none where it is not there."""
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []

    def calling(self, order: Order) -> None:
        """Told of every order right before it changes something."""

    def deliver(self, receiver: str, notice: Notice) -> Reply:
        """A message arrives, or does not."""
        self.point()
        if receiver in self.undeliverable:
            return Reply(False, True, "no connection")
        self.write("told", f"{notice.event} {receiver} {notice.key}: {notice.title}")
        self.point()
        return Reply()

    def lacks(self, path: str) -> str | None:
        """Why one may not rely on what was saved."""
        return None if os.path.exists(path) else "it is not there"

    def tools(self) -> Tools:
        """What a cycle works with."""
        return Tools(
            frames=lambda resolution: self.buffer.frame(resolution),
            look=self.look,
            actions={
                name: lambda name=name: Act(self, name) for name in ("snapshot", "terminate", "downscale")
            },
            lacks=self.lacks,
            deliver=self.deliver,
            recipient=lambda receiver, labels: self.means.get(receiver, receiver),
            now=self.now,
        )

    def cycle(self, text: str = CHAIN) -> Cycle:
        """A cycle on these jobs, its state beside them."""
        file = self.folder / "policies.yaml"
        file.write_text(text, "utf-8")
        read = load(
            [file], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
        )
        assert read.policies is not None, read.diagnostics
        return Cycle(read.policies, catalogue(), Ledger(self.url, environ={}), self.tools())

    @property
    def url(self) -> str:
        """Of the state."""
        return f"sqlite:///{self.folder}/state.db"

    def run(self, cycle: Cycle, minutes: int) -> list[Any]:
        """Live through some minutes."""
        out = []
        for _ in range(minutes):
            self.minutes += 1
            self.look()
            out.append(cycle.step())
        return out


class Act:
    """An action on the files of a fleet."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name = fleet, name

    def _path(self, order: Order, folder: str) -> Path:
        return self.fleet.folder / folder / order.resource.id

    def find(self, order: Order) -> Found:
        """The file of the job."""
        self.fleet.point()
        if not self._path(order, "running").exists():
            raise Refused("it does not run any more", gone=True)
        return Found(
            f"would {self.name} {order.resource}", {"file": order.resource.id}, self.name == "downscale"
        )

    def act(self, order: Order, found: Found) -> Outcome:
        """Write or move its file."""
        fault = self.fleet.faults.get((self.name, order.resource.id))
        if fault == "raise":
            raise RuntimeError("password=hunter2")
        if fault == "fail":
            return Outcome("failed", "it says no", retry=True)
        before = self.look(order, found)
        if before.state == "done":
            return before
        self.fleet.point()
        if fault != "lie":
            self.fleet.calling(order)
            self.fleet.write("calls", f"{self.name} {order.resource.id} {order.id} saved={order.saved}")
            self.fleet.point()
            self._do(order)
        self.fleet.point()
        return self.look(order, found)

    def _do(self, order: Order) -> None:
        running = self._path(order, "running")
        there = self._path(order, PLACES[self.name])
        if self._saved(order) if self.name == "snapshot" else there.exists():
            self.fleet.write("again", f"{self.name} {order.resource.id}")
        if self.name == "terminate":
            os.rename(running, there)
        elif self.name == "snapshot":
            half = self.fleet.folder / f"half-{order.resource.id}"
            half.write_text(str(self.fleet.now().timestamp()))
            os.replace(half, there)
        else:
            there.touch()

    def _saved(self, order: Order) -> bool:
        """Whether it has saved since the episode began."""
        path = self._path(order, "saved")
        return path.exists() and float(path.read_text() or "inf") >= order.since

    def look(self, order: Order, found: Found) -> Outcome:
        """Whether the file is where it should be."""
        ended = self._path(order, "ended")
        if self.name == "terminate":
            gone = not self._path(order, "running").exists()
            return Outcome("done", "it ended") if gone and ended.exists() else Outcome("undone", "it runs")
        if self.name == "snapshot":
            if self._saved(order):
                path = self._path(order, "saved")
                old = self.fleet.faults.get((self.name, order.resource.id)) == "old"
                began = order.since - MINUTE if old else float(path.read_text())
                return Outcome("done", "saved", {"path": str(path), "began": began})
            return Outcome("undone", "nothing was saved")
        smaller = self._path(order, "smaller").exists()
        return Outcome("done", "it is smaller") if smaller else Outcome("undone", "as it was")

    def undo(self, order: Order, found: Found) -> Outcome:
        """Make it as large as it was."""
        self.fleet.write("calls", f"undo {order.resource.id} {order.id}")
        self._path(order, "smaller").unlink(missing_ok=True)
        return Outcome("done", "as it was")


def verdicts(result: Any, action: str) -> Mapping[str, str]:
    """Job -> the verdict on a step."""
    return {item.resource.id: item.verdict for item in result.decisions if item.action == action}


def kinds(lines: Iterable[str]) -> list[str]:
    """The first two words of lines."""
    return [" ".join(line.split()[:2]) for line in lines]
