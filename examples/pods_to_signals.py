"""Convert per-pod GPU series to recorded signals.

    python examples/pods_to_signals.py pods.csv signals.csv --start 2026-01-01T00:00:00Z

The input has the columns `pod`, `t_s` (seconds since the start), `gpu_duty_pct` and
`gpu_mem_bytes`. A cell that is empty stays empty: a reading that could not be taken is not 0.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

COLUMNS = ("pod", "t_s", "gpu_duty_pct", "gpu_mem_bytes")
HEADER = ("time", "resource", "kind", "signal", "value")


def convert(rows: Iterable[Mapping[str, str]], start: datetime) -> Iterator[tuple[str, ...]]:
    """Two recorded samples for every row: utilization as a share, memory in bytes.

    Raises:
        ValueError: a number cannot be read; the message names the row, counted from 1.
    """
    for number, row in enumerate(rows, 1):
        try:
            time = (start + timedelta(seconds=float(row["t_s"]))).isoformat().replace("+00:00", "Z")
            duty = row["gpu_duty_pct"].strip()
            share = f"{float(duty) / 100:.6g}" if duty else ""
        except (ValueError, OverflowError) as error:
            raise ValueError(f"row {number}: {error}") from error
        yield time, row["pod"], "gpu", "gpu.utilization", share
        yield time, row["pod"], "gpu", "gpu.memory.used", row["gpu_mem_bytes"].strip()


def read(source: Path, start: datetime) -> list[tuple[str, ...]]:
    """The samples of a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: a column is missing or a number cannot be read.
    """
    with source.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"no column {', '.join(missing)}")
        return list(convert(reader, start))


def instant(text: str) -> datetime:
    """An ISO time; without an offset it is in UTC."""
    time = datetime.fromisoformat(text)
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, convert, and return the exit status."""
    parser = argparse.ArgumentParser(description="Convert per-pod GPU series to recorded signals.")
    parser.add_argument("source", type=Path, help="CSV with pod, t_s, gpu_duty_pct, gpu_mem_bytes")
    parser.add_argument("target", type=Path, help="CSV to write")
    parser.add_argument(
        "--start", type=instant, default=instant("2026-01-01T00:00:00Z"), help="time of t_s 0"
    )
    options = parser.parse_args(arguments)
    try:
        samples = read(options.source, options.start)
        with options.target.open("w", newline="", encoding="utf-8") as target:
            writer = csv.writer(target, lineterminator="\n")
            writer.writerow(HEADER)
            writer.writerows(samples)
    except (OSError, ValueError) as error:
        print(f"{options.source}: {error}", file=sys.stderr)
        return 2
    print(f"{len(samples):,} samples written to {options.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
