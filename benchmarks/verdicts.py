"""Measure loss verdicts: many whole runs at once, live runs that grow by a record, and the cost per record.

`python benchmarks/verdicts.py [--quick] [--json FILE]`. Curves come from a fixed seed: power laws with 3 %
of noise and an outlier in 500 records. Whole runs are judged from arrays on as many processes as there
are cores; a tick gives one record (loss, learning rate, gradient norm) to each live run and judges it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import math
import time
from array import array
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from table import Row, as_json, machine, text

from stoploss.engine.losses.incremental import LiveRun, judge
from stoploss.engine.model import Curve, TrainingLog

SEED = 7


def run_of(points: int, number: int, *, start: int = 0) -> TrainingLog:
    """The records of run `number` from `start` up to `points`."""
    random = np.random.default_rng((SEED, number))
    steps = np.arange(1, points + 1, dtype=np.float64)
    loss = (1.5 + 8 * steps ** -random.uniform(0.2, 0.5)) * (1 + 0.03 * random.normal(size=points))
    loss[random.random(points) < 0.002] *= 1.8
    columns = {
        "train.loss": loss,
        "train.lr": 1e-3 * np.minimum(1, steps / 100),
        "train.grad_norm": random.lognormal(0, 0.3, points),
    }
    curves = {
        name: Curve(
            name, _packed(steps[start:]), _packed(column[start:]), array("d", [math.nan] * (points - start))
        )
        for name, column in columns.items()
    }
    return TrainingLog(str(number), "memory", "arrays", curves)


def _packed(numbers: np.ndarray[tuple[int], np.dtype[np.float64]]) -> array[float]:
    packed = array("d")
    packed.frombytes(np.ascontiguousarray(numbers).tobytes())
    return packed


def judged(points: int, first: int, last: int) -> tuple[float, float]:
    """Seconds, and seconds of processor, to judge the runs `first` up to `last` once they are arrays."""
    spent = busy = 0.0
    for number in range(first, last):
        log = run_of(points, number)
        begun, used = time.perf_counter(), time.process_time()
        judge(log)
        spent += time.perf_counter() - begun
        busy += time.process_time() - used
    return spent, busy


def whole(runs: int, points: int) -> Row:
    """All runs from arrays, the time of the slower process."""
    cores = os.cpu_count() or 1
    edges = [runs * k // cores for k in range(cores + 1)]
    with ProcessPoolExecutor(cores) as pool:
        found = list(pool.map(judged, [points] * cores, edges[:-1], edges[1:]))
    spent, busy = max(wall for wall, _ in found), sum(used for _, used in found)
    share = f"{runs:,} runs x {points:,} records, {cores} processes"
    each = f"{busy:.1f} s of processor: {busy / runs / points * 1e9:.0f} ns per record of three curves"
    return Row("whole", share, target="< 60 s", met=spent < 60, seconds=spent, note=each)


def tick(runs: int, points: int) -> Row:
    """One record more for each live run, and its verdict."""
    live = [LiveRun(run_of(points - 10, number)) for number in range(runs)]
    parts = [
        [run_of(points - 10 + k + 1, number, start=points - 10 + k) for number in range(runs)]
        for k in range(4)
    ]
    spent = []
    for round_ in parts:
        begun, used = time.perf_counter(), time.process_time()
        for run, part in zip(live, round_, strict=True):
            run.extend(part)
            run.verdict()
        spent.append((time.perf_counter() - begun, time.process_time() - used))
    best, busy = min(spent[1:])
    what = f"one record of three curves for {runs:,} live runs of {points:,}"
    note = f"{busy * 1000:.0f} ms of processor"
    return Row("tick", what, target="< 100 ms", met=best < 0.1, seconds=best, note=note)


def growth() -> list[Row]:
    """Nanoseconds per record of whole runs as they grow, against the smallest."""
    rows, base = [], None
    for points in (100, 1_000, 10_000, 100_000):
        runs = max(1, 200_000 // points)
        judged(points, 0, 1)
        each = judged(points, 0, runs)[1] / runs / points
        base = base or each
        what = f"a run of {points:,} records: {each * 1e9:.0f} ns per record"
        rows.append(Row("growth", what, ratio=each / base, meaning="x the smallest", seconds=each * points))
    return rows


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure loss verdicts.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work; no basis for a claim")
    parser.add_argument("--json", type=Path, help="write the table to a file as well")
    given = parser.parse_args()
    runs = 1_000 if given.quick else 10_000
    rows = [whole(runs, 10_000), tick(runs // 10 if given.quick else 1_000, 2_000), *growth()]
    head = machine()
    print(text(head, rows), end="")
    if given.json:
        given.json.write_text(as_json(head, rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
