"""The example trainer as a child process, checkpoints in a folder, and what a snapshot must be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from stoploss.actions.snapshot_result import Waiting
from stoploss.actions.verify import Demand
from stoploss.collectors.checkpoint_census import Census
from stoploss.collectors.checkpoint_jobs import lacking
from stoploss.collectors.walking import Walk

ROOT = Path(__file__).parents[2]
TRAINER = ROOT / "examples" / "trainer" / "train.py"


def lacks(path: str) -> str | None:
    """What a checkpoint lacks by the rules of its layout, as the collector of checkpoints judges it."""
    census = Census()
    for _ in range(2):
        census = Census(before=census.found)
        walk = Walk(os.path.dirname(path), census)
        walk.advance(lambda: False)
        walk.close()
    return lacking(census, time.time()).get(path, "it is no checkpoint")


def demand(**more: object) -> Demand:
    """A complete checkpoint by the rules of the collector, and more."""
    return Demand(lacks, **more)  # type: ignore[arg-type]


def real(limit: float = 20.0, every: float = 0.03) -> Waiting:
    """Waiting by the clocks of the machine."""
    return Waiting(time.time, time.monotonic, time.sleep, limit, every)


class Played:
    """Clocks that only sleeping moves; `at` holds what happens at a sleep, by its number from 1."""

    def __init__(self, start: float = 2_000_000_000.0) -> None:
        self.time = start
        self.sleeps = 0
        self.at: dict[int, Callable[[], object]] = {}

    def sleep(self, seconds: float) -> None:
        """Pass the time, and do what is due."""
        self.time += seconds
        self.sleeps += 1
        self.at.get(self.sleeps, lambda: None)()

    def waiting(self, limit: float = 600.0, every: float = 10.0) -> Waiting:
        """Waiting by these clocks."""
        return Waiting(lambda: self.time, lambda: self.time, self.sleep, limit, every)


def checkpoint(folder: Path, step: int, *, marked: bool = True, at: float | None = None) -> Path:
    """A checkpoint of the example trainer's layout."""
    path = folder / f"step-{step}"
    path.mkdir(parents=True)
    (path / "weights.npz").write_bytes(b"w" * 5000)
    (path / "state.json").write_text(f'{{"step": {step}}}', "utf-8")
    if marked:
        (path / "COMPLETE").write_text(f"{step}\n", "utf-8")
    for file in path.iterdir() if at is not None else ():
        os.utime(file, (at, at))
    return path


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files with what they hold and when they were written."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


class Trainer:
    """The example trainer, which runs until it is asked to stop."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.log = folder / "run.jsonl"
        self.request = folder / ".stoploss" / "request.json"
        self.kept = folder / "kept"
        self.kept.mkdir()
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STOPLOSS_")}
        command = [sys.executable, str(TRAINER), "--out", str(self.log), "--steps", "1000000", *options]
        environment = {**clean, "PYTHONPATH": str(ROOT / "src"), "API_TOKEN": "hunter22", "PLAIN": "seen"}
        self.child = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

    def wait_for_steps(self, count: int) -> None:
        """Wait until the log has so many lines."""
        limit = time.monotonic() + 30
        while not self.log.exists() or self.log.read_bytes().count(b"\n") < count:
            assert time.monotonic() < limit
            time.sleep(0.005)

    def end(self) -> None:
        """Kill it, if it lives."""
        self.child.kill()
        self.child.wait()
