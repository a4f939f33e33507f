"""How fast recorded signals are read and folded, per format, and how fast the store writes and reads.

python benchmarks/history.py [--series 1000] [--hours 24]
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from stoploss.engine.history.recorded import read_recorded
from stoploss.engine.history.store import SampleStore
from stoploss.rules.catalogue import catalogue

COLUMNS = ("time", "resource", "kind", "signal", "value", "label.job")
START = 1_764_547_200


def rows(series: int, slots: int) -> Iterator[tuple[str, ...]]:
    """One row a minute for each of many GPUs."""
    random.seed(1)
    for slot in range(1, slots + 1):
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START + 60 * slot))
        for gpu in range(series):
            yield moment, f"gpu{gpu:04}", "gpu", "gpu.utilization", f"{random.random():.4f}", f"job{gpu // 8}"


def write(folder: Path, series: int, slots: int) -> list[Path]:
    """The same rows in every format."""
    paths = [folder / f"signals{end}" for end in (".csv", ".csv.gz", ".jsonl")]
    with (
        paths[0].open("w") as plain,
        gzip.open(paths[1], "wt", compresslevel=1) as packed,
        paths[2].open("w") as objects,
    ):
        for file in (plain, packed):
            file.write(",".join(COLUMNS) + "\n")
        for row in rows(series, slots):
            line = ",".join(row) + "\n"
            plain.write(line)
            packed.write(line)
            objects.write(json.dumps(dict(zip(COLUMNS, row, strict=True)) | {"value": float(row[4])}) + "\n")
    try:
        import polars
    except ImportError:
        return paths
    paths.append(folder / "signals.parquet")
    polars.read_csv(paths[0]).write_parquet(paths[-1])
    return paths


def main() -> None:
    """Measure and print one line per format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--hours", type=int, default=24)
    options = parser.parse_args()
    slots = options.hours * 60
    count = options.series * slots
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{count:,} rows, {options.series:,} series")
        frame = None
        for path in write(folder, options.series, slots):
            start = time.perf_counter()
            recording = read_recorded([path], catalogue=catalogue(), timezone="UTC")
            frame = recording.frame(60.0)
            seconds = time.perf_counter() - start
            print(f"{path.name:16} {seconds:6.2f} s {count / seconds:12,.0f} rows/s")
        assert frame is not None
        store = SampleStore(f"sqlite:///{folder}/store.db", 60.0)
        start = time.perf_counter()
        for slot in range(frame.first, frame.last + 1):
            store.append(frame.cut(slot, slot))
        middle = time.perf_counter()
        store.read(frame.first, frame.last)
        end = time.perf_counter()
        store.close()
        size = (folder / "store.db").stat().st_size / count
        print(f"store append     {(middle - start) / slots * 1000:6.2f} ms per slot, {size:.1f} B per sample")
        print(f"store read       {end - middle:6.2f} s {count / (end - middle):12,.0f} samples/s")


if __name__ == "__main__":
    main()
