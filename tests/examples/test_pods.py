"""The converter from per-pod series to recorded signals."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "pods_to_signals.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the converter."""
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def convert(folder: Path, text: str, *options: str) -> list[list[str]]:
    """The rows that the converter makes of a file."""
    source, target = folder / "pods.csv", folder / "signals.csv"
    source.write_text(text)
    result = run(str(source), str(target), *options)
    assert result.returncode == 0, result.stderr
    with target.open(newline="") as lines:
        return list(csv.reader(lines))


def test_a_row_becomes_two_samples(tmp_path: Path) -> None:
    """Percent becomes a share, bytes stay bytes, and seconds are counted from the start."""
    rows = convert(tmp_path, "pod,t_s,gpu_duty_pct,gpu_mem_bytes\np1,60,7.6,18592000000\n")

    assert rows == [
        ["time", "resource", "kind", "signal", "value"],
        ["2026-01-01T00:01:00Z", "p1", "gpu", "gpu.utilization", "0.076"],
        ["2026-01-01T00:01:00Z", "p1", "gpu", "gpu.memory.used", "18592000000"],
    ]


def test_a_blank_cell_stays_blank(tmp_path: Path) -> None:
    """A reading that could not be taken is not turned into 0."""
    rows = convert(tmp_path, "pod,t_s,gpu_duty_pct,gpu_mem_bytes\np1,0,,\n")

    assert [row[-1] for row in rows[1:]] == ["", ""]


def test_columns_are_found_by_name_and_the_start_is_moved(tmp_path: Path) -> None:
    """The order of columns does not matter, further ones are left out, and an offset becomes UTC."""
    text = "gpu_mem_bytes,x,pod,gpu_duty_pct,t_s\n5,y,p2,100,1.5\n"
    rows = convert(tmp_path, text, "--start", "2026-06-01T02:00:00+02:00")

    assert rows[1] == ["2026-06-01T00:00:01.500000Z", "p2", "gpu", "gpu.utilization", "1"]


def test_what_cannot_be_read_is_told_in_one_line(tmp_path: Path) -> None:
    """A missing column, a bad number and a missing file end with status 2 and name the file."""
    source = tmp_path / "pods.csv"
    for text, reason in (
        ("pod,t_s\np1,0\n", "no column gpu_duty_pct, gpu_mem_bytes"),
        ("pod,t_s,gpu_duty_pct,gpu_mem_bytes\np1,0,5,1\np1,later,5,1\n", "row 2: "),
        ("pod,t_s,gpu_duty_pct,gpu_mem_bytes\np1,1e99,5,1\n", "row 1: "),
    ):
        source.write_text(text)
        result = run(str(source), str(tmp_path / "out.csv"))
        assert result.returncode == 2
        assert reason in result.stderr
        assert len(result.stderr.splitlines()) == 1

    result = run(str(tmp_path / "none.csv"), str(tmp_path / "out.csv"))
    assert result.returncode == 2
    assert not (tmp_path / "out.csv").exists()
