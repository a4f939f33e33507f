"""Measure evaluation against plain numpy and against named peers, and print one table.

`python benchmarks/evaluate.py [--json FILE] [--quick] [--only NAME]`. Times are the best of a
few rounds after a warm-up, on one thread; nothing is asserted. README.md says what each row is.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
# Read by numpy's and polars' thread pools when they are first imported.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["POLARS_MAX_THREADS"] = "1"

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import data
import numpy as np
from peers import custodian, promtool
from table import Row, as_json, machine, text

if TYPE_CHECKING:
    from stoploss.engine.evaluation.evaluator import Evaluator
    from stoploss.engine.history.frame import Frame
    from stoploss.rules.policy import Policy

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a run does: series and slots of each benchmark."""

    core: tuple[int, int]
    gpus: int
    day: int
    growth: tuple[int, ...]


FULL = Size(core=(1_000, 10_000), gpus=100_000, day=1_000, growth=(1_000, 10_000, 100_000))
QUICK = Size(core=(100, 10_000), gpus=10_000, day=100, growth=(1_000, 10_000))


def best(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The shortest of `rounds` runs in seconds, after one that is not counted."""
    work()
    shortest = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def policies(source: str) -> tuple[Policy, ...]:
    """The policies of a file with this text."""
    from stoploss.rules.catalogue import catalogue
    from stoploss.rules.loader import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policies.yaml"
        path.write_text(source, encoding="utf-8")
        loaded = load([path], catalogue=catalogue(), collector_options={}, action_options={})
    if loaded.policies is None:
        raise ValueError("; ".join(str(problem) for problem in loaded.diagnostics))
    return loaded.policies.policies


def evaluator(loaded: tuple[Policy, ...]) -> Evaluator:
    """An engine that has seen nothing yet."""
    from stoploss.engine.evaluation.evaluator import Evaluator
    from stoploss.rules.catalogue import catalogue

    return Evaluator(loaded, catalogue())


def firing(engine: Evaluator) -> int:
    """How many (policy, resource) pairs fire in the newest slot."""
    return sum(row.state == "firing" for row in engine.status())


def agreement(ours: int, other: int) -> str:
    """A note where two engines did not find the same number; empty where they did."""
    return "" if ours == other else f"verdicts differ: {ours:,} of ours, {other:,} of the other"


def faster(name: str, what: str, seconds: tuple[float, float], aim: int, note: str) -> Row:
    """A row against a peer: our seconds and its; with a note on verdicts that differ no aim is met."""
    ours, other = seconds
    ratio = other / ours
    met = ratio >= aim and not note
    return Row(name, what, ratio, f"x faster than {name}", f">= {aim}", met, ours, other, note)


def replay(loaded: tuple[Policy, ...], frame: Frame) -> float:
    """The best time in seconds of a whole frame through a new engine."""
    return best(lambda: evaluator(loaded).advance(frame), 3)


def core(size: Size) -> Iterator[Row]:
    """Three windowed conditions over arrays, against one sum over each array."""
    series, slots = size.core
    values = data.busy_and_idle(slots, series)
    frame = data.frame(values, data.presences(data.gpus(series)))
    loaded = policies(data.CORE_POLICY)
    ours = replay(loaded, frame)
    sums = best(lambda: [np.nansum(array) for array in values.values()])
    what = f"{series * slots / 1e6:g} M samples per signal, 3 windowed conditions, for"
    ratio = ours / sums
    yield Row("core", what, ratio, "x np.nansum", "<= 10", ratio <= 10, ours, sums)


class Warm:
    """A fleet whose windows are full, ready for one slot more at a time."""

    def __init__(self, count: int) -> None:
        self.fleet = data.Steady.fleet(count)
        self.presences = data.presences(data.gpus(count))
        self.engine = evaluator(policies(data.tick_policies()))
        self.next = data.EPOCH_SLOT
        # The longest window is an hour, and `for` needs eleven slots more.
        self.advance(self.samples(75))

    def samples(self, slots: int) -> dict[str, data.Array]:
        """The next samples of the fleet."""
        return self.fleet.samples(slots, seed=self.next)

    def advance(self, samples: Mapping[str, data.Array]) -> None:
        """Let the engine take the next samples."""
        frame = data.frame(samples, self.presences, self.next)
        self.next += frame.slots
        self.engine.advance(frame)

    def tick_seconds(self) -> float:
        """The best time of one slot for the whole fleet, from arrays."""
        shortest = float("inf")
        for _ in range(ROUNDS + 1):
            samples = self.samples(1)
            start = time.perf_counter()
            self.advance(samples)
            shortest = min(shortest, time.perf_counter() - start)
        return shortest


def tick(size: Size) -> Iterator[Row]:
    """One slot of a large fleet, against the bare comparisons of its newest values."""
    warm = Warm(size.gpus)
    ours = warm.tick_seconds()
    newest = list(warm.samples(1).values())
    compared = best(lambda: [column < 0.5 for column in newest for _ in range(20)])
    what = f"one slot, {size.gpus:,} GPUs x 20 policies x 3 windowed conditions"
    yield Row("tick", what, ours / compared, "x bare numpy <", "< 300 ms", ours < 0.3, ours, compared)


def cloud_custodian(size: Size) -> Iterator[Row]:
    """The same slot from the same dicts, ours over windows, theirs on the newest values."""
    fleet = data.Steady.fleet(size.gpus)
    resources = data.records(fleet.samples(1, seed=0), data.gpus(size.gpus))
    filters = [
        custodian.less_than(
            [
                (data.SIGNALS[0], limits.utilization / 100),
                (data.SIGNALS[1], limits.power),
                (data.SIGNALS[2], limits.memory / 100),
            ]
        )
        for limits in data.tick_limits()
    ]
    with tempfile.TemporaryDirectory() as folder:
        peer = custodian.measure(Path(folder), resources, filters, 3)
    warm = Warm(size.gpus)
    ours = float("inf")
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        warm.advance(data.columns(resources))
        ours = min(ours, time.perf_counter() - start)
    what = f"{size.gpus:,} dicts x 20 policies x 3 conditions; c7n {peer.version}"
    note = agreement(firing(warm.engine), peer.matches)
    yield faster("c7n", what, (ours, peer.seconds), 20, note)


def prometheus(size: Size) -> Iterator[Row]:
    """A day of the core policy, against promtool: our core on arrays, then our command on a file."""
    day, series = data.day(size.day), data.gpus(size.day)
    expected = data.idle_at_the_end(day)
    with tempfile.TemporaryDirectory() as folder:
        peer = promtool.measure(Path(folder), day, expected, 3)
    peers_note = "" if peer.agrees else "promtool did not find the expected alerts"
    work = f"{size.day:,} series x 24 h, 3 signals, 3 windowed conditions, for; promtool {peer.version}"

    frame = data.frame(day, data.presences(series))
    loaded = policies(data.CORE_POLICY)
    ours = replay(loaded, frame)
    engine = evaluator(loaded)
    engine.advance(frame)
    note = peers_note or agreement(firing(engine), len(expected))
    yield faster("promtool", f"core, {work}", (ours, peer.seconds), 300, note)

    with tempfile.TemporaryDirectory() as folder:
        policy, signals = Path(folder) / "policies.yaml", Path(folder) / "signals.csv"
        policy.write_text(data.CORE_POLICY, encoding="utf-8")
        data.write_csv(signals, day, series)
        arguments = ["audit", str(policy), "--signals", str(signals), "--format", "json"]
        findings = json.loads(command(arguments))["findings"]
        found = sum(finding["state"] == "firing" for finding in findings)
        ours = best(lambda: command(arguments), 3)
    note = peers_note or agreement(found, len(expected))
    yield faster("promtool", f"audit from CSV, {work}", (ours, peer.seconds), 20, note)


def growth(size: Size) -> Iterator[Row]:
    """The cost of one unit of work as the work grows; 1 is no growth."""
    slots = 240
    loaded = policies(data.CORE_POLICY)
    first = 0.0
    for series in size.growth:
        frame = data.frame(data.busy_and_idle(slots, series), data.presences(data.gpus(series)))
        seconds = replay(loaded, frame)
        unit = seconds / (series * slots * len(data.SIGNALS))
        first = first or unit
        what = f"core, {series:,} series x {slots} slots: {unit * 1e9:.1f} ns a sample"
        yield Row("growth", what, unit / first, f"x cost at {size.growth[0]:,}", seconds=seconds)
    first = 0.0
    for count in size.growth:
        seconds = Warm(count).tick_seconds()
        unit = seconds / (count * 60)
        first = first or unit
        what = f"tick, {count:,} GPUs x 60 conditions: {unit * 1e9:.1f} ns a condition"
        yield Row("growth", what, unit / first, f"x cost at {size.growth[0]:,}", seconds=seconds)


def start_up(size: Size) -> Iterator[Row]:
    """The help page, against an interpreter that does nothing."""
    ours = best(lambda: command(["--help"]), 2 * ROUNDS)
    nothing = best(lambda: python(["-c", "pass"]), 2 * ROUNDS)
    yield Row(
        "start-up", "stoploss --help", ours / nothing, "x python -c pass", seconds=ours, reference=nothing
    )


def command(arguments: list[str]) -> str:
    """What `stoploss` prints for these arguments; findings are no failure.

    Raises:
        Unavailable: the command could not do its work.
    """
    return python(["-m", "stoploss", *arguments])


def python(arguments: list[str]) -> str:
    """Run this interpreter on this checkout and return its standard output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    # Compiling every module at each start would be measured instead of the start itself.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode not in (0, 1) or (done.returncode and not done.stdout):
        said = done.stderr.strip().splitlines() or ["no message"]
        raise custodian.Unavailable(f"{' '.join(arguments[:3])} ended with {done.returncode}: {said[0]}")
    return done.stdout


BENCHMARKS: dict[str, Callable[[Size], Iterator[Row]]] = {
    "core": core,
    "tick": tick,
    "c7n": cloud_custodian,
    "promtool": prometheus,
    "growth": growth,
    "start-up": start_up,
}


def measured(names: list[str], size: Size) -> Iterator[Row]:
    """The rows of these benchmarks; one that cannot run is a row that says why."""
    for name in names:
        sys.stderr.write(f"measuring {name} ...\n")
        try:
            yield from BENCHMARKS[name](size)
        except (custodian.Unavailable, ImportError) as error:
            yield Row(name, "skipped", note=str(error))


def main() -> int:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description="Measure stoploss against plain numpy and named peers.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON too")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for a first look")
    parser.add_argument("--only", choices=BENCHMARKS, help="one benchmark alone")
    arguments = parser.parse_args()
    head = machine()
    rows = list(
        measured([arguments.only] if arguments.only else list(BENCHMARKS), QUICK if arguments.quick else FULL)
    )
    if arguments.json:
        arguments.json.write_text(as_json(head, rows), encoding="utf-8")
    sys.stdout.write(text(head, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
