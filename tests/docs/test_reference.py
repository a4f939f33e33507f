"""The reference pages: nothing is missing, nothing is out of date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stoploss.rules.catalogue import catalogue
from stoploss.rules.codes import CODES
from stoploss.rules.conditions.functions import FUNCTIONS

ROOT = Path(__file__).parents[2]


def headings(name: str, level: int) -> list[str]:
    """The headings of a page at one level."""
    text = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    return re.findall(rf"^{'#' * level} (.+)$", text, re.MULTILINE)


def test_pages_are_up_to_date() -> None:
    """The pages say what the tables of the program say now."""
    command = [sys.executable, str(ROOT / "docs" / "reference.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("name", "level", "entries"),
    [
        ("signals.md", 3, list(catalogue())),
        ("functions.md", 2, list(FUNCTIONS)),
        ("codes.md", 2, list(CODES)),
    ],
)
def test_every_entry_has_its_section(name: str, level: int, entries: list[str]) -> None:
    """Each signal, function and code has exactly one section, and no section is about anything else."""
    assert sorted(headings(name, level)) == sorted(entries)
