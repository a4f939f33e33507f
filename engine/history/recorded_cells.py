"""Turns columns of cells into columns of numbers, a chunk of rows at a time.

Most cells of a recording repeat (names, times, labels), so each distinct cell is understood
once and then looked up.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress
from pathlib import Path
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np

from stoploss.engine.history.assemble import PRESENT
from stoploss.engine.history.frame import VALID, Floats, Ints
from stoploss.engine.history.recorded_problems import Problems
from stoploss.engine.history.rows import Block, Rows
from stoploss.engine.model import LabelValue, ResourceId
from stoploss.rules.catalogue import KINDS, Catalogue
from stoploss.rules.diagnostics import Position, suggestion
from stoploss.rules.units import QuantityError, parse_duration

Cell: TypeAlias = "str | float | None"
LabelReader: TypeAlias = Callable[[tuple[Hashable, ...]], Iterable[tuple[str, LabelValue]]]

_MANY = 100_000
_LAST_INSTANT = 253_402_300_800.0
_MILLISECONDS = 1e11
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a file as columns of cells, with the line of each row."""

    lines: Sequence[int]
    time: Sequence[Cell]
    resource: Sequence[str]
    kind: Sequence[str]
    signal: Sequence[str]
    value: Sequence[Cell]
    every: Sequence[Cell] | None = None
    labels: tuple[Sequence[Hashable], ...] = ()

    def chosen(self, mask: Sequence[bool]) -> Chunk:
        """The rows where `mask` is true."""

        def pick(column: Sequence[Any]) -> list[Any]:
            return list(compress(column, mask))

        return Chunk(
            pick(self.lines),
            pick(self.time),
            pick(self.resource),
            pick(self.kind),
            pick(self.signal),
            pick(self.value),
            None if self.every is None else pick(self.every),
            tuple(pick(column) for column in self.labels),
        )


class _Memo(dict[Any, Any]):
    """A dict that works out what it does not hold, and forgets all before it grows too large."""

    def __init__(self, work_out: Callable[[Any], Any], limit: int = _MANY) -> None:
        super().__init__()
        self._work_out, self._limit = work_out, limit

    def __missing__(self, key: Any) -> Any:
        value = self._work_out(key)
        if len(self) >= self._limit:
            self.clear()
        self[key] = value
        return value


class Intake:
    """Takes the chunks of one file after the other; `notes` says how times were understood."""

    def __init__(self, rows: Rows, catalogue: Catalogue, timezone: str, problems: Problems) -> None:
        self._rows, self._catalogue, self._problems = rows, catalogue, problems
        self._zone = ZoneInfo(timezone)
        self._refusals: list[tuple[tuple[str, str], str, str | None]] = []
        self._refusal_of: dict[tuple[str, str], int] = {}
        self._times = _Memo(self._time)
        self._every = _Memo(_interval)
        self._readings = _Readings(rows, catalogue)
        self._naive: str | None = None
        self.notes: tuple[str, ...] = ()
        self._path = Path()
        self._keys = _Keys(self._series, rows, lambda cells: ())

    def begin(self, path: Path, read_labels: LabelReader) -> None:
        """Start a file; `read_labels` understands the label cells of its rows."""
        self._path = path
        self._keys = _Keys(self._series, self._rows, read_labels)

    def take(self, chunk: Chunk) -> Block | None:
        """The readable rows of a chunk as numbers; what is wrong with the others is noted."""
        count = len(chunk.lines)
        keys = zip(chunk.signal, chunk.kind, chunk.resource, *chunk.labels, strict=True)
        series, sets = self._keys.take(keys, count)
        times = np.fromiter(map(self._times.__getitem__, chunk.time), np.float64, count)
        if self._naive is not None and not self.notes:
            place = self._place(chunk, chunk.time.index(self._naive))
            zone = self._zone.key
            self.notes = (
                f"times without an offset are read in {zone} (first in {place.file}, line {place.line})",
            )
        unreadable, refused = np.isnan(times), series < 0
        if unreadable.any() or refused.any():
            self._tell_refused(chunk, series)
            self._tell_times(chunk, unreadable)
            keep = ~(unreadable | refused)
            chunk = chunk.chosen(keep.tolist())
            times, series, sets = times[keep], series[keep], sets[keep]
        if not len(times):
            return None
        values, states = self._readings.take(chunk.value, series)
        return Block(times, series, values, states, sets, self._intervals(chunk))

    def _series(self, signal_name: str, kind: str, resource: str) -> int:
        """The number of a series, or a negative one that stands for why it is refused."""
        signal_name, kind, resource = signal_name.strip(), kind.strip(), resource.strip()
        signal = self._catalogue.get(signal_name)
        if signal is None:
            fix = suggestion(signal_name, self._catalogue)
            return self._refuse(
                "recorded-unknown-signal", signal_name, f"unknown signal {signal_name!r}", fix
            )
        if kind not in KINDS:
            return self._refuse(
                "recorded-unknown-kind", kind, f"unknown kind {kind!r}", suggestion(kind, KINDS)
            )
        if kind not in signal.resources and signal_name != PRESENT:
            fix = f"{signal_name} belongs to {', '.join(signal.resources)}"
            message = f"{signal_name} is no signal of kind {kind}"
            return self._refuse("recorded-wrong-kind", f"{signal_name} {kind}", message, fix)
        if not resource:
            return self._refuse("recorded-bad-row", "resource", "a row without a resource", None)
        return self._rows.series(signal, ResourceId(kind, resource))

    def _refuse(self, code: str, subject: str, message: str, fix: str | None) -> int:
        key = (code, subject)
        if key not in self._refusal_of:
            self._refusal_of[key] = len(self._refusals)
            self._refusals.append((key, message, fix))
        return -1 - self._refusal_of[key]

    def _tell_refused(self, chunk: Chunk, series: Ints) -> None:
        refused = np.flatnonzero(series < 0)
        numbers, firsts, counts = np.unique(-1 - series[refused], return_index=True, return_counts=True)
        for number, first, rows in zip(numbers, firsts, counts, strict=True):
            key, message, fix = self._refusals[number]
            self._problems.count(key, message, self._place(chunk, refused[first]), int(rows), fix)

    def _tell_times(self, chunk: Chunk, unreadable: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        rows = np.flatnonzero(unreadable)
        if len(rows):
            cell = chunk.time[rows[0]]
            number = cell if isinstance(cell, float | int) else _number(str(cell))
            fix = "write ISO 8601, such as 2026-12-01T14:00:00Z, or seconds since 1970"
            if _MILLISECONDS <= number < math.inf:
                fix = "numbers are seconds since 1970; this one looks like milliseconds"
            key = ("recorded-bad-time", str(self._path))
            message = f"time {str(cell)[:80]!r} cannot be read"
            self._problems.count(key, message, self._place(chunk, rows[0]), len(rows), fix)

    def _intervals(self, chunk: Chunk) -> Floats | None:
        if chunk.every is None:
            return None
        seconds = np.fromiter(map(self._every.__getitem__, chunk.every), np.float64, len(chunk.every))
        wrong = np.flatnonzero(seconds < 0)
        if len(wrong):
            cell = str(chunk.every[wrong[0]])[:80]
            self._problems.tell_once(
                ("recorded-bad-every", str(self._path)),
                f"every {cell!r} is no duration; the median gap is used",
                self._place(chunk, wrong[0]),
                "write a duration such as 30s",
            )
            seconds[wrong] = np.nan
        return seconds

    def _place(self, chunk: Chunk, row: int) -> Position:
        return Position(str(self._path), int(chunk.lines[row]))

    def _time(self, cell: Cell) -> float:
        """Seconds since the epoch; NaN when unreadable."""
        if not isinstance(cell, str):
            return _instant(_number(cell))
        number = _number(cell)
        if not math.isnan(number):
            return _instant(number)
        try:
            moment = datetime.fromisoformat(cell.strip())
        except ValueError:
            return math.nan
        if moment.tzinfo is None:
            self._naive = self._naive or cell
            moment = moment.replace(tzinfo=self._zone)
        return _instant((moment - _EPOCH).total_seconds())


class _Keys:
    """Numbers for (signal, kind, resource, labels…): a series and a label set each."""

    def __init__(self, series: Callable[[str, str, str], int], rows: Rows, read_labels: LabelReader) -> None:
        self._work_out, self._rows, self._read_labels = series, rows, read_labels
        self._series, self._sets = array("i"), array("i")
        self._memo = _Memo(self._add)

    def take(self, keys: Iterable[tuple[Hashable, ...]], count: int) -> tuple[Ints, Ints]:
        numbers = np.fromiter(map(self._memo.__getitem__, keys), np.int32, count)
        return np.frombuffer(self._series, np.int32)[numbers], np.frombuffer(self._sets, np.int32)[numbers]

    def _add(self, key: tuple[Any, ...]) -> int:
        series = self._work_out(*key[:3])
        self._series.append(series)
        self._sets.append(-1 if series < 0 else self._rows.label_set(self._read_labels(key[3:])))
        return len(self._series) - 1


class _Readings:
    """Values and states of value cells."""

    def __init__(self, rows: Rows, catalogue: Catalogue) -> None:
        self._rows, self._catalogue = rows, catalogue
        self._texts = array("b")
        self._values, self._states = array("d"), array("i")
        self._memo = _Memo(self._add)

    def take(self, cells: Sequence[Cell], series: Ints) -> tuple[Floats, Ints]:
        """Plain numbers go through in one step; each other distinct cell is understood once."""
        known = self._rows.signal_of
        self._texts.extend(signal.is_text for signal in known[len(self._texts) :])
        text = np.frombuffer(self._texts, np.int8)[series] != 0
        values, states = np.full(len(cells), np.nan), np.full(len(cells), VALID, np.int32)
        if not text.any():
            values = _numbers(cells)
        elif not text.all():
            values[~text] = _numbers(list(compress(cells, (~text).tolist())))
        odd = np.flatnonzero(~np.isfinite(values))
        if len(odd):
            keys = ((known[series[row]].name, cells[row]) for row in odd.tolist())
            numbers = np.fromiter(map(self._memo.__getitem__, keys), np.int64, len(odd))
            values[odd] = np.frombuffer(self._values, np.float64)[numbers]
            states[odd] = np.frombuffer(self._states, np.int32)[numbers]
        return values, states

    def _add(self, key: tuple[str, Cell]) -> int:
        name, cell = key
        value, state = self._rows.encode(self._catalogue[name], "" if cell is None else cell)
        self._values.append(value)
        self._states.append(state)
        return len(self._values) - 1


def _numbers(cells: Sequence[Cell]) -> Floats:
    """Cells as numbers, NaN where they are none."""
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        return np.fromiter(map(_number, cells), np.float64, len(cells))


def _number(cell: Cell) -> float:
    try:
        return float(cell)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        return math.nan


def _instant(seconds: float) -> float:
    return seconds if 0 <= seconds < _LAST_INSTANT else math.nan


def _interval(cell: Cell) -> float:
    """Seconds; NaN when blank, -1 when unreadable."""
    if cell is None or cell == "":
        return math.nan
    seconds = _number(cell)
    if math.isnan(seconds):
        try:
            seconds = parse_duration(str(cell))
        except QuantityError:
            return -1.0
    return seconds if 0 < seconds < math.inf else -1.0
