"""Recorded signals as JSON lines: one object a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from stoploss.engine.history.recorded_cells import Chunk, Intake
from stoploss.engine.history.recorded_problems import REQUIRED, Problems, Unreadable, check_columns
from stoploss.engine.history.recorded_text import Lines, read_lines
from stoploss.engine.model import UNREADABLE, LabelValue
from stoploss.rules.diagnostics import Position

LABEL = "label."
LABELS = "labels"
_Row = dict[str, Any]


def read_jsonl(
    path: Path, intake: Intake, problems: Problems, advance: Callable[[int], None]
) -> Iterator[Chunk]:
    """The rows of a JSON lines file in chunks.

    Raises:
        Unreadable: nothing of the file can be used.
    """
    intake.begin(path, _read_labels)
    shapes: dict[tuple[str, ...], list[str]] = {}
    good = False
    for block in read_lines(path, problems, advance):
        numbers, rows = _objects(path, block, problems)
        numbers, rows = _complete(path, (numbers, rows), shapes, problems)
        if rows:
            good = True
            yield _chunk(numbers, rows)
    if shapes and not good:
        missing = next(iter(shapes.values())) or [LABELS]
        raise Unreadable(
            "recorded-missing-column", f"no row has all keys; the first lacks {', '.join(missing)}"
        )


def _objects(path: Path, block: Lines, problems: Problems) -> tuple[Sequence[int], list[_Row]]:
    """The objects of the lines that hold one, and their line numbers."""
    lines = block.split()
    try:
        rows = json.loads(f"[{','.join(lines)}]")
    except (ValueError, RecursionError):
        rows = []
    # Half of a surrogate pair can only come from an escape; it is no text and cannot be written again.
    escaped = "\\ud" in block.text or "\\uD" in block.text
    if not escaped and len(rows) == len(lines) and set(map(type, rows)) == {dict}:
        return range(block.first, block.first + len(rows)), rows
    numbers, rows = [], []
    last = block.first + len(lines) - 1
    for number, line in enumerate(lines, block.first):
        try:
            row = json.loads(line) if line.strip() else None
            if escaped:
                json.dumps(row, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError):
            row = line
        if isinstance(row, dict):
            numbers.append(number)
            rows.append(row)
        elif row is not None and number == last and not block.ended:
            problems.tell("recorded-truncated", "the last line is cut off and skipped", path, number)
        elif row is not None:
            key = ("recorded-bad-row", f"{path} json")
            problems.count(key, "a line that is no JSON object", Position(str(path), number), 1)
    return numbers, rows


def _complete(
    path: Path,
    table: tuple[Sequence[int], list[_Row]],
    shapes: dict[tuple[str, ...], list[str]],
    problems: Problems,
) -> tuple[Sequence[int], list[_Row]]:
    """The rows that have all required keys; what the others lack is told."""
    numbers, rows = table
    lacking = []
    for row in rows:
        shape = tuple(row)
        if shape not in shapes:
            shapes[shape] = [name for name in REQUIRED if name not in row]
            if not shapes[shape]:
                check_columns(path, [name for name in shape if name != LABELS], problems)
        lacking.append(shapes[shape] or (LABELS in row and not isinstance(row[LABELS], dict | None)))
    if not any(lacking):
        return table
    kept_numbers, kept = [], []
    for number, row, wrong in zip(numbers, rows, lacking, strict=True):
        if not wrong:
            kept_numbers.append(number)
            kept.append(row)
            continue
        message = (
            f"a row without {', '.join(wrong)}" if isinstance(wrong, list) else "labels that are no object"
        )
        problems.count(("recorded-bad-row", f"{path} {message}"), message, Position(str(path), number), 1)
    return kept_numbers, kept


def _chunk(numbers: Sequence[int], rows: list[_Row]) -> Chunk:
    resource, kind, signal = ([_text(row[name]) for row in rows] for name in ("resource", "kind", "signal"))
    return Chunk(
        numbers,
        [_cell(row["time"]) for row in rows],
        resource,
        kind,
        signal,
        [_cell(row["value"]) for row in rows],
        [_cell(row["every"]) if "every" in row else None for row in rows],
        ([_labels(row) for row in rows],),
    )


def _cell(value: Any) -> str | float | None:
    return value if value is None or isinstance(value, str | float | int) else json.dumps(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _labels(row: _Row) -> tuple[tuple[str, str | None], ...]:
    said = dict(row.get(LABELS) or {})
    said |= {name.removeprefix(LABEL): row[name] for name in row if name.startswith(LABEL)}
    return tuple((name, None if value is None else _text(value)) for name, value in said.items())


def _read_labels(cells: tuple[Hashable, ...]) -> Iterable[tuple[str, LabelValue]]:
    (pairs,) = cells
    assert isinstance(pairs, tuple)
    return [(name, UNREADABLE if value == "?" else value) for name, value in pairs]
