"""Tables of text: comma, semicolon or tab between cells, names in the first row, padded or not, one row a
record.

A row of names further down, as a run writes it that goes on in the same file, holds for what follows it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

from stoploss.collectors.training import names
from stoploss.collectors.training.lines import LineReader
from stoploss.collectors.training.records import NAN, instant, number

NAME = "generic_csv"

_SEPARATORS = ",;\t|"
_AXES = frozenset({names.STEP, names.EPOCH, names.TIME})


def cells_of(line: str, separator: str) -> list[str]:
    """The cells of a row without padding."""
    if '"' in line:
        try:
            return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]
        except csv.Error:
            return []
    return [cell.strip() for cell in line.split(separator)]


def header_of(line: str) -> tuple[str, list[str]] | None:
    """Separator and names, where the line is a row of names with an axis and a core signal in it."""
    line = line.strip().lstrip("#").strip()
    separator = max(_SEPARATORS, key=line.count)
    cells = cells_of(line, separator)
    signals = {found.signal for cell in cells if (found := names.meaning(cell)) is not None}
    if len(cells) < 2 or not signals & _AXES or not signals & names.CORE:
        return None
    return separator, cells


def fits(head: bytes, lines: Sequence[str]) -> bool:
    """Whether a file that begins so is of this format."""
    return any(header_of(line) is not None for line in lines[:20])


class TableReader(LineReader):
    """Reads a table."""

    name = NAME

    def __init__(self, subject: str = "") -> None:
        super().__init__(subject)
        self._separator = ","
        self._names: list[str] = []
        self._columns: list[str] = []

    def line(self, text: str) -> None:
        """Read one row."""
        cells = cells_of(text, self._separator)
        if not self._names or number(cells[0] if cells else "") is None:
            found = header_of(text)
            if found is not None:
                self._separator, self._names = found
                self._columns = [self._column(name) for name in self._names]
                return
        if not self._names or text.lstrip().startswith("#"):
            return
        if len(cells) != len(self._names):
            self.notes.add("a row with another number of cells than the header was left out")
            return
        values: dict[str, float] = {}
        time = NAN
        for name, kind, cell in zip(self._names, self._columns, cells, strict=True):
            if not cell:
                continue
            if kind == names.TIME:
                time = instant(cell)
            elif (value := number(cell)) is not None:
                values[name] = value
        self.put_row(values, time)

    @staticmethod
    def _column(name: str) -> str:
        found = names.meaning(name)
        return found.signal if found is not None else ""


READER = TableReader
