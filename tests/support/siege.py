"""A daemon under load that is killed at moments drawn by chance, and its folder."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stoploss.engine.history.store import open_store
from stoploss.engine.history.store_errors import StoreError
from stoploss.means import FOLDER
from support.around import Around
from support.daemons import LIVELY, Daemon
from support.receivers import Hook, hook

POLICIES = """
version: 1
settings:
  resolution: 1s
  mode: enforce
  state: "sqlite:///{folder}/state.db"
  retention: 5m
  limits: {{share-of-population: 100%, actions-per-run: 100, gpus-per-run: 1000}}
collectors:
  gpu: {{every: 2s}}
  training: {{paths: ["{folder}/runs"], job: "{folder}/runs/{{job}}", every: 2s}}
prices: {{gpu-hour: {{default: $2.00/GPU-hour}}}}
notify: {{people: "{url}"}}
policies:
  - name: idle
    summary: A job that does nothing.
    each: job
    contact: people
    where: class == "train"
    waste: 100%
    for: 1s
    when: ['max(gpu.utilization, 5s) < 5%']
    then:
      - alert: {{to: people}}
      - exec: {{after: 2s, command: ["{folder}/deed"], snapshot: not-needed}}
  - name: lossy
    summary: A run that learns nothing.
    each: job
    contact: people
    where: class == "train"
    for: 1s
    when: ['train.loss > 5']
    then:
      - alert: {{to: people}}
      - exec: {{after: 1s, command: ["{folder}/deed"], approve: required, snapshot: not-needed}}
  - name: hot
    each: gpu
    waste: $1/h
    when: ['avg(gpu.utilization, 10s) > 80%']
    then: [{{alert: {{to: people}}}}]
  - name: sick
    each: job
    where: job =~ "^l[0-9]"
    when: ['train.loss > 5']
    then: [{{alert: {{to: people}}}}]
  - name: stuck
    each: job
    where: job =~ "^l[0-9]"
    when: ['increase(train.step, 1m) == 0 or absent(train.step, 1m)']
    then: [{{alert: {{to: people}}}}]
"""

DEED = """#!/bin/sh
sleep 0.07
echo "$STOPLOSS_RESOURCE_ID $STOPLOSS_ORDER" >> {folder}/deeds
sleep 0.07
"""
"""What is done to a job: something that can be counted."""


@dataclass
class Siege:
    """A daemon that is killed, and what came of it.

    Attributes:
        folder: of everything.
        receiver: takes notices.
        draw: by which the moments are drawn.
        lives: of each daemon, when it was started and when it was killed.
        slots: the newest slot that was stored at the end of each life.
    """

    folder: Path
    receiver: Hook
    draw: random.Random
    lives: list[tuple[float, float]] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    daemon: Daemon | None = None

    @property
    def url(self) -> str:
        """Of the state."""
        return f"sqlite:///{self.folder}/state.db"

    @property
    def deeds(self) -> list[str]:
        """A line for each time that something was done to a job: the job, and the order."""
        file = self.folder / "deeds"
        return file.read_text().splitlines() if file.exists() else []

    def port(self) -> int | None:
        """Where the daemon of now answers."""
        return None if self.daemon is None else self.daemon.port()

    def start(self) -> Daemon:
        """Start the next daemon."""
        self.lives.append((time.time(), 0.0))
        self.daemon = Daemon(self.folder, f"log{len(self.lives)}", ("-c", LIVELY))
        return self.daemon

    def kill(self, moment: str) -> None:
        """Start one, and kill it at a moment that is drawn."""
        daemon, draw = self.start(), self.draw
        if moment != "start":
            daemon.logged("running:")
        if moment == "start":
            time.sleep(draw.uniform(0.1, 1.3))
        elif moment == "tick":
            # Looks and ticks begin with each second.
            time.sleep(draw.randint(1, 2) - time.time() % 1.0 + draw.uniform(0.0, 0.3))
        elif moment == "told":
            # The receiver takes a moment to answer.
            self._after(lambda: len(self.receiver.requests), draw.uniform(0.0, 0.1))
        elif moment == "act":
            place = self.folder / FOLDER / "exec"
            self._after(lambda: len(list(place.glob("*.begun"))), draw.uniform(0.0, 1.0))
        elif moment == "stop":
            time.sleep(draw.uniform(0.0, 2.0))
            daemon.child.send_signal(signal.SIGTERM)
            time.sleep(draw.uniform(0.0, 0.6))
        else:
            time.sleep(draw.uniform(0.0, 2.5))
        daemon.kill()
        self.lives[-1] = self.lives[-1][0], time.time()
        self.slots.append(newest_slot(self.folder))

    def _after(self, count: Callable[[], int], more: float) -> None:
        """Wait until something is counted once more, but not for ever, and a moment longer."""
        before, limit = count(), time.monotonic() + 4.0
        while count() == before and time.monotonic() < limit:
            time.sleep(0.002)
        time.sleep(more)


def newest_slot(folder: Path) -> int:
    """The newest slot that is stored; 0 before the first."""
    try:
        store = open_store(f"sqlite:///{folder}/state.db", read_only=True)
    except StoreError:
        # It was killed before there was any.
        return 0
    try:
        return store.last_slot or 0
    finally:
        store.close()


@contextmanager
def siege(folder: Path, seed: int) -> Iterator[tuple[Siege, Around]]:
    """A folder with policies and a receiver, and all that goes on around; ended afterwards."""
    with hook() as receiver:
        receiver.seconds = 0.05
        text = POLICIES.format(folder=folder, url=receiver.url())
        (folder / "policies.yaml").write_text(text, "utf-8")
        (folder / "deed").write_text(DEED.format(folder=folder), "utf-8")
        (folder / "deed").chmod(0o755)
        (folder / "runs").mkdir()
        besieged = Siege(folder, receiver, random.Random(seed))
        around = Around(folder, besieged.port)
        try:
            yield besieged, around
        finally:
            around.end()
            if besieged.daemon is not None:
                besieged.daemon.child.kill()
                besieged.daemon.child.wait()
