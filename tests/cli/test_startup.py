"""What the command line may import before it knows what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = str(Path(__file__).parents[2] / "src")

HEAVY = {
    "apscheduler",
    "boto3",
    "bottleneck",
    "durable",
    "jinja2",
    "lark",
    "numpy",
    "polars",
    "psutil",
    "pydantic",
    "pynvml",
    "rich",
    "sqlalchemy",
    "yaml",
}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """Help and version are shown without importing any heavy package."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "stoploss", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": SOURCES},
    )

    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "stoploss.cli.main" in imported
    assert {name.partition(".")[0] for name in imported} & HEAVY == set()
