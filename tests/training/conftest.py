"""Logs for the tests of readers: written ones, and real ones where they lie beside the checkout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stoploss.collectors import training
from stoploss.collectors.training.records import ReadProblem
from stoploss.engine.model import TrainingLog

SHARED = Path(__file__).parents[3] / "shared" / "data" / "loss"

Read = Callable[..., tuple[TrainingLog, ...]]


@pytest.fixture
def real_runs() -> Callable[[str], tuple[TrainingLog, ...]]:
    """Reads a real log, of as many runs as it holds."""

    def read(name: str) -> tuple[TrainingLog, ...]:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"the real log {name} is not on this machine")
        return training.read(path)

    return read


@pytest.fixture
def real(real_runs: Callable[[str], tuple[TrainingLog, ...]]) -> Callable[[str], TrainingLog]:
    """Reads a real log that holds one run."""

    def read(name: str) -> TrainingLog:
        (log,) = real_runs(name)
        return log

    return read


@pytest.fixture
def read_text(tmp_path: Path) -> Read:
    """Writes a text to a file of a name that says nothing, and reads it without any problem."""

    def read(text: str | bytes, **options: object) -> tuple[TrainingLog, ...]:
        path = tmp_path / "x"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        problems: list[ReadProblem] = []
        logs = training.read(path, problems=problems, **options)  # type: ignore[arg-type]
        assert problems == []
        return logs

    return read
