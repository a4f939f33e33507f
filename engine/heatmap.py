"""The use of every GPU over time, small enough for a page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One GPU: its owner at the end, and its mean utilisation per column (None is unknown)."""

    gpu: str
    job: str | None
    host: str | None
    cells: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Rows of GPUs grouped by job; columns are equal spans of time.

    Attributes:
        starts: the beginning of each column in seconds since the epoch.
        span: seconds per column.
        rows: the GPUs.
        left_out: GPUs beyond the number of rows shown.
    """

    starts: tuple[float, ...]
    span: float
    rows: tuple[HeatRow, ...]
    left_out: int = 0
