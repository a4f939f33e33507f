"""Recorded signals as Parquet, read with polars."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stoploss.engine.history.recorded_cells import Chunk, Intake
from stoploss.engine.history.recorded_problems import Problems, Unreadable, check_columns
from stoploss.engine.model import UNREADABLE, LabelValue

if TYPE_CHECKING:
    import polars as pl

LABEL = "label."
_ROWS = 100_000
_NAIVE = "%Y-%m-%dT%H:%M:%S%.6f"
_ZONED = f"{_NAIVE}+00:00"


def read_parquet(
    path: Path, intake: Intake, problems: Problems, advance: Callable[[int], None]
) -> Iterator[Chunk]:
    """The rows of a Parquet file in chunks; the line of a problem is the number of its row.

    Raises:
        Unreadable: polars is not installed, or nothing of the file can be used.
    """
    try:
        import polars as pl
    except ImportError as error:
        message = "reading Parquet needs polars"
        fix = "pip install 'stoploss[parquet]'"
        raise Unreadable("recorded-needs-extra", message, fix=fix) from error
    try:
        with path.open("rb") as file:
            table = pl.read_parquet(file)
        size = path.stat().st_size
    except OSError as error:
        raise Unreadable(
            "recorded-unreadable", f"the file cannot be read: {error.strerror or error}"
        ) from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise Unreadable("recorded-damaged", f"the file is no Parquet file: {error}") from error
    check_columns(path, table.columns, problems)
    names = [name for name in table.columns if name.startswith(LABEL)]
    labels = [name.removeprefix(LABEL) for name in names]

    def read_labels(cells: tuple[Hashable, ...]) -> Iterator[tuple[str, LabelValue]]:
        return zip(labels, map(_label, cells), strict=True)

    intake.begin(path, read_labels)
    for start in range(0, table.height, _ROWS):
        part = table.slice(start, _ROWS)
        names_of = {column: _texts(part[column]) for column in ("resource", "kind", "signal")}
        yield Chunk(
            range(start + 1, start + 1 + part.height),
            _cells(part["time"]),
            names_of["resource"],
            names_of["kind"],
            names_of["signal"],
            _cells(part["value"]),
            _cells(part["every"]) if "every" in part.columns else None,
            tuple(part[name].cast(pl.String).to_list() for name in names),
        )
        advance(size * (start + part.height) // table.height)


def _cells(column: pl.Series) -> list[str | float | None]:
    """Numbers and texts as they are, instants as ISO texts, durations in seconds."""
    import polars as pl

    if isinstance(column.dtype, pl.Datetime):
        if column.dtype.time_zone is None:
            return column.dt.strftime(_NAIVE).to_list()
        return column.dt.convert_time_zone("UTC").dt.strftime(_ZONED).to_list()
    if isinstance(column.dtype, pl.Duration):
        return (column.dt.total_microseconds() / 1e6).to_list()
    if column.dtype.is_numeric():
        return column.cast(pl.Float64).to_list()
    return column.cast(pl.String).to_list()


def _label(cell: Hashable) -> LabelValue:
    return UNREADABLE if cell == "?" else None if cell is None else str(cell)


def _texts(column: pl.Series) -> list[str]:
    import polars as pl

    return column.cast(pl.String).fill_null("").to_list()
