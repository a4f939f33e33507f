"""Fixtures of several folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scenes import Scene


@pytest.fixture
def scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    """Commands run in a folder of their own."""
    return Scene(tmp_path, capsys)
