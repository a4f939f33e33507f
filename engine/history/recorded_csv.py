"""Recorded signals as CSV: a header, then one row per line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from stoploss.engine.history.recorded_cells import Chunk, Intake
from stoploss.engine.history.recorded_problems import REQUIRED, Problems, Unreadable, check_columns
from stoploss.engine.history.recorded_text import Lines, read_lines
from stoploss.engine.model import UNREADABLE, LabelValue
from stoploss.rules.diagnostics import Position

LABEL = "label."
_COMMA, _NEWLINE = ord(","), ord("\n")


def read_csv(
    path: Path, intake: Intake, problems: Problems, advance: Callable[[int], None]
) -> Iterator[Chunk]:
    """The rows of a CSV file in chunks.

    Raises:
        Unreadable: nothing of the file can be used.
    """
    header: list[str] | None = None
    for block in read_lines(path, problems, advance):
        lines: Lines | None = block
        if header is None:
            header, lines = _header(path, block, problems)
            if header is not None:
                _begin(path, header, intake)
        if header is None or lines is None:
            continue
        columns: Sequence[Sequence[str]] | None = _plain(lines, len(header))
        if columns is not None:
            numbers: range | list[int] = range(lines.first, lines.first + len(columns[0]))
        else:
            rows, numbers = _rows(path, lines, len(header), problems)
            columns = list(zip(*rows, strict=True))
        if columns:
            yield _chunk(header, columns, numbers)


def _plain(block: Lines, width: int) -> list[list[str]] | None:
    """The columns of a block without quotes whose rows all have `width` cells; None for any other.

    Most recordings are like that, and one split of the whole block is several times faster than
    a row at a time.
    """
    text = block.text
    if not block.ended or '"' in text or "\r" in text:
        return None
    marks = np.frombuffer(text.encode("utf-8"), np.uint8)
    marks = marks[(marks == _COMMA) | (marks == _NEWLINE)]
    if (len(marks) + 1) % width:
        return None
    expected = np.full((len(marks) + 1) // width * width, _COMMA, np.uint8)
    expected[width - 1 :: width] = _NEWLINE
    if not np.array_equal(marks, expected[:-1]):
        return None
    cells = text.replace("\n", ",").split(",")
    return [cells[start::width] for start in range(width)]


def _header(path: Path, block: Lines, problems: Problems) -> tuple[list[str] | None, Lines | None]:
    """The header, where the block holds a line that is not blank, and the lines after it."""
    start = 0
    for index, line in enumerate(block.split()):
        start += len(line) + 1
        if line.strip():
            try:
                header = [cell.strip() for cell in next(csv.reader([line]))]
            except csv.Error as error:
                raise Unreadable("recorded-missing-column", f"the header cannot be read: {error}") from error
            check_columns(path, header, problems, block.first + index)
            rest = block.text[start:]
            return header, Lines(rest, block.first + index + 1, block.ended) if rest else None
    return None, None


def _begin(path: Path, header: list[str], intake: Intake) -> None:
    names = [column.removeprefix(LABEL) for column in header if column.startswith(LABEL)]

    def read_labels(cells: tuple[Hashable, ...]) -> Iterator[tuple[str, LabelValue]]:
        return zip(names, map(_label, cells), strict=True)

    intake.begin(path, read_labels)


def _label(cell: Hashable) -> LabelValue:
    text = str(cell).strip()
    return UNREADABLE if text == "?" else text or None


def _chunk(header: list[str], cells: Sequence[Sequence[str]], numbers: range | list[int]) -> Chunk:
    columns = dict(zip(header, cells, strict=True))
    time, resource, kind, signal, value = (columns[name] for name in REQUIRED)
    labels = tuple(columns[name] for name in header if name.startswith(LABEL))
    return Chunk(numbers, time, resource, kind, signal, value, columns.get("every"), labels)


def _rows(
    path: Path, block: Lines, width: int, problems: Problems
) -> tuple[list[list[str]], range | list[int]]:
    """The rows that have all cells, and their line numbers."""
    rows: list[list[str]] = []
    lines = block.split()
    with suppress(csv.Error):
        rows = list(csv.reader(lines))
    if len(rows) == len(lines) and set(map(len, rows)) == {width}:
        return rows, range(block.first, block.first + len(rows))
    # A quote that is never closed, or a row of another length: find out which lines are well.
    kept: list[list[str]] = []
    numbers: list[int] = []
    for number, line in enumerate(lines, block.first):
        row = _row(line)
        if row is not None and len(row) == width:
            kept.append(row)
            numbers.append(number)
        elif line.strip():
            cut = not block.ended and number == block.first + len(lines) - 1
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
