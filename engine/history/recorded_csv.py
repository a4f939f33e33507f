"""Recorded signals as CSV: a header, then one row per line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from pathlib import Path

from stoploss.engine.history.recorded_cells import Chunk, Intake
from stoploss.engine.history.recorded_problems import REQUIRED, Problems, Unreadable, check_columns
from stoploss.engine.history.recorded_text import Lines, read_lines
from stoploss.engine.model import UNREADABLE, LabelValue
from stoploss.rules.diagnostics import Position

LABEL = "label."


def read_csv(
    path: Path, intake: Intake, problems: Problems, advance: Callable[[int], None]
) -> Iterator[Chunk]:
    """The rows of a CSV file in chunks.

    Raises:
        Unreadable: nothing of the file can be used.
    """
    header: list[str] | None = None
    for block in read_lines(path, problems, advance):
        lines = block
        if header is None:
            header, lines = _header(path, block, problems)
            if header is None:
                continue
            _begin(path, header, intake)
        rows, numbers = _rows(path, lines, len(header), problems)
        if rows:
            yield _chunk(header, rows, numbers)


def _header(path: Path, block: Lines, problems: Problems) -> tuple[list[str] | None, Lines]:
    """The header, where the block holds a line that is not blank, and the lines after it."""
    for index, line in enumerate(block.lines):
        if line.strip():
            try:
                header = [cell.strip() for cell in next(csv.reader([line]))]
            except csv.Error as error:
                raise Unreadable("recorded-missing-column", f"the header cannot be read: {error}") from error
            check_columns(path, header, problems, block.first + index)
            return header, Lines(block.lines[index + 1 :], block.first + index + 1, block.ended)
    return None, block


def _begin(path: Path, header: list[str], intake: Intake) -> None:
    names = [column.removeprefix(LABEL) for column in header if column.startswith(LABEL)]

    def read_labels(cells: tuple[Hashable, ...]) -> Iterator[tuple[str, LabelValue]]:
        return zip(names, map(_label, cells), strict=True)

    intake.begin(path, read_labels)


def _label(cell: Hashable) -> LabelValue:
    text = str(cell).strip()
    return UNREADABLE if text == "?" else text or None


def _chunk(header: list[str], rows: list[list[str]], numbers: range | list[int]) -> Chunk:
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    time, resource, kind, signal, value = (columns[name] for name in REQUIRED)
    labels = tuple(columns[name] for name in header if name.startswith(LABEL))
    return Chunk(numbers, time, resource, kind, signal, value, columns.get("every"), labels)


def _rows(
    path: Path, block: Lines, width: int, problems: Problems
) -> tuple[list[list[str]], range | list[int]]:
    """The rows that have all cells, and their line numbers."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows = list(csv.reader(block.lines))
    if len(rows) == len(block.lines) and set(map(len, rows)) == {width}:
        return rows, range(block.first, block.first + len(rows))
    # A quote that is never closed, or a row of another length: find out which lines are well.
    kept: list[list[str]] = []
    numbers: list[int] = []
    for number, line in enumerate(block.lines, block.first):
        row = _row(line)
        if row is not None and len(row) == width:
            kept.append(row)
            numbers.append(number)
        elif line.strip():
            cut = not block.ended and number == block.first + len(block.lines) - 1
            _tell(Position(str(path), number), row, width, problems, cut=cut)
    return kept, numbers


def _row(line: str) -> list[str] | None:
    """The cells of one line; None where a quote is not closed or the line cannot be read."""
    if line.count('"') % 2:
        return None
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return None


def _tell(place: Position, row: list[str] | None, width: int, problems: Problems, *, cut: bool) -> None:
    if cut:
        problems.tell(
            "recorded-truncated", "the last line is cut off and skipped", Path(place.file), place.line
        )
    elif row is None:
        problems.count(("recorded-bad-row", f"{place.file} quote"), "a quote that is not closed", place, 1)
    else:
        message = f"{len(row)} cells instead of {width}"
        problems.count(("recorded-bad-row", f"{place.file} width"), message, place, 1)
