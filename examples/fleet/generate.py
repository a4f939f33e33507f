"""Write recorded signals of a simulated GPU cluster: one CSV file per family.

    python examples/fleet/generate.py --seed 7
    stoploss audit policies.example.yaml --signals examples/fleet/signals

Nothing in the files was measured: every row carries the label `origin` with the value
`simulated`. The same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from model import Grid, Series, gpu_series
from scenes import (
    checkpoint_series,
    host_series,
    instance_series,
    job_series,
    log_series,
    storage_series,
)

HERE = Path(__file__).parent
LABELS = ("job", "host", "team", "user", "env", "class", "stage")
HEADER = ",".join(["time,resource,kind,signal,value,every", *(f"label.{name}" for name in LABELS)])
ORIGIN = "simulated"


def grid_of(every: str, days: int) -> Grid:
    """The looks of a span of whole days.

    Raises:
        ValueError: `every` is not a number of minutes that divides a day, or `days` is below 1.
    """
    match = re.fullmatch(r"([1-9]\d*)m", every)
    if match is None or 1440 % int(match[1]):
        raise ValueError(f"--every {every}: give minutes that divide a day, such as 1m, 5m or 15m")
    if days < 1:
        raise ValueError(f"--days {days}: give at least 1")
    return Grid(int(match[1]) * 60, days * 1440 // int(match[1]))


def rows(series: Iterable[Series], grid: Grid) -> list[str]:
    """The lines of a file, without its header."""
    times, lines = grid.times(), []
    for item in series:
        minutes = grid.every_s * item.stride // 60
        middle = f",{item.resource},{item.kind},{item.signal},"
        tail = ",".join(["", f"{minutes}m", *(item.labels.get(name, "") for name in LABELS), ORIGIN])
        # Slow series are counted back from the end, so that the last look is always one of theirs.
        offset = (grid.slots - 1 - item.first) % item.stride
        for index in range(offset, len(item.values), item.stride):
            value = item.values[index]
            if value is not None:
                lines.append(times[item.first + index] + middle + value + tail)
    return lines


def generate(out: Path, *, seed: int, every: str, days: int) -> dict[str, int]:
    """Write the files and tell how many rows each has."""
    grid, rng = grid_of(every, days), np.random.default_rng(seed)
    families = {
        "gpu.csv": gpu_series(grid, rng),
        "hosts.csv": host_series(grid, rng),
        "jobs.csv": job_series(grid, rng),
        "checkpoints.csv": checkpoint_series(grid),
        "storage.csv": storage_series(grid),
        "logs.csv": log_series(grid, rng),
        "instances.csv": instance_series(grid, rng),
    }
    out.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name, series in families.items():
        lines = rows(series, grid)
        text = "\n".join([f"{HEADER},label.origin", *lines, ""])
        (out / name).write_bytes(text.encode())
        counts[name] = len(lines)
    return counts


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description="Write recorded signals of a simulated GPU cluster.")
    parser.add_argument("--out", type=Path, default=HERE / "signals", help="folder to write to")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--every", default="5m", help="time between two looks, in minutes (5m)")
    parser.add_argument("--days", type=int, default=7)
    options = parser.parse_args()
    try:
        counts = generate(options.out, seed=options.seed, every=options.every, days=options.days)
    except ValueError as error:
        parser.error(str(error))
    print(f"Simulated data, nothing was measured: seed {options.seed}, {sum(counts.values()):,} rows")
    for name, count in counts.items():
        print(f"{count:>9,}  {options.out / name}")


if __name__ == "__main__":
    main()
