"""Lines of text with `key:value`, `key=value` or `key value` in them, and lines that a user's pattern
describes.

Without a pattern a line counts when it holds a step or an epoch, and a known signal. A pattern is a regular
expression with named groups; the names are those of fields, such as `step`, `train_loss` or `lr`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from stoploss.collectors.training import names
from stoploss.collectors.training.lines import LineReader
from stoploss.collectors.training.records import NAN, clock_of, instant, measured

NAME = "keyvalue"
PATTERN_NAME = "pattern"

LONGEST_MATCHED = 10_000
"""Characters of a line that a user's pattern is tried on."""

_WORDS = "train|training|val|valid|validation|eval|test|dev|learning|grad|gradient|global|loss|step|iter|data"
_PAIR = re.compile(
    rf"(?<![\w./-])((?:(?:{_WORDS})[ \t]++){{0,2}}[A-Za-z_][\w./-]*+)(?:[ \t]*+[:=][ \t]*+|[ \t]++)"
    r"\[?([-+]?(?:\d++\.?\d*+(?:e[-+]?\d++)?|\.\d++(?:e[-+]?\d++)?|nan|inf(?:inity)?))(?:/[ ]?(\d++))?"
    r"\]?(ms|us|s|sec|%)?(?![\w])",
    re.IGNORECASE,
)
_SHORT = {"s": "step"}
"""Names that mean something only in such lines."""


def _pairs(line: str) -> tuple[dict[str, float], float | None]:
    """Fields and values of a line, and how many steps are planned."""
    values: dict[str, float] = {}
    planned = None
    for name, digits, of, unit in _PAIR.findall(line):
        name = _SHORT.get(name, name)
        found = names.meaning(name)
        if found is None:
            continue
        values[name] = _scaled(name, float(digits), unit)
        if of and found.signal == names.STEP:
            planned = float(of)
    return values, planned


def _scaled(name: str, value: float, unit: str) -> float:
    """A value in the unit that the field's name promises."""
    if unit == "%":
        return value / 100
    seconds = names.seconds_per(unit) if unit else None
    found = names.meaning(name)
    # The unit in the text counts, also where the name has one.
    return value * seconds / (found.factor if found is not None else 1.0) if seconds is not None else value


def _says_something(values: Mapping[str, float]) -> bool:
    signals = {found.signal for name in values if (found := names.meaning(name)) is not None}
    return bool(signals & {names.STEP, names.EPOCH} and signals - {names.STEP, names.EPOCH, names.TIME})


def fits(head: bytes, lines: Sequence[str]) -> bool:
    """Whether a file that begins so is of this format."""
    for line in lines:
        values = _pairs(line[:LONGEST_MATCHED])[0]
        signals = {found.signal for name in values if (found := names.meaning(name)) is not None}
        if _says_something(values) and signals & names.CORE:
            return True
    return False


class KeyValueReader(LineReader):
    """Reads lines of keys and values."""

    name = NAME

    def __init__(self, subject: str = "") -> None:
        super().__init__(subject)
        self._elapsed: tuple[float, float] | None = None

    def line(self, text: str) -> None:
        """Read one line; one without a step or an epoch says nothing."""
        values, planned = _pairs(text[:LONGEST_MATCHED])
        if not _says_something(values):
            return
        if planned:
            self.facts[self.run]["total_steps"] = planned
        self._time_step(values)
        self.put_row(values, clock_of(text))

    def _time_step(self, values: dict[str, float]) -> None:
        """Where the line counts the time since the start, the time of its steps is the difference."""
        step = elapsed = NAN
        for name, value in values.items():
            found = names.meaning(name)
            if found is not None and found.signal == names.ELAPSED:
                elapsed = value * found.factor
            elif found is not None and found.signal == names.STEP:
                step = value
        if math.isnan(step) or math.isnan(elapsed):
            return
        # A mean since the start would hide the step that was slow.
        values.pop("step_avg", None)
        if self._elapsed is not None and step > self._elapsed[0] and elapsed > self._elapsed[1]:
            values["step_time"] = (elapsed - self._elapsed[1]) / (step - self._elapsed[0])
        self._elapsed = (step, elapsed)


def compiled(patterns: Iterable[str | re.Pattern[str]]) -> tuple[re.Pattern[str], ...]:
    """Patterns that can be used.

    Raises:
        ValueError: one is no regular expression, or names no signal; the message says which and why.
    """
    made = []
    for pattern in patterns:
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        unknown = [group for group in expression.groupindex if names.meaning(group) is None]
        if unknown:
            raise ValueError(f"{expression.pattern!r}: no signal is named {', '.join(unknown)}")
        if not expression.groupindex:
            raise ValueError(f"{expression.pattern!r} has no named group, such as (?P<train_loss>…)")
        made.append(expression)
    return tuple(made)


def described(patterns: Iterable[re.Pattern[str]], lines: Iterable[str]) -> bool:
    """Whether a pattern finds something in one of the lines."""
    patterns = tuple(patterns)
    return any(pattern.search(line[:LONGEST_MATCHED]) for line in lines for pattern in patterns)


class PatternReader(LineReader):
    """Reads the lines that a user's patterns find."""

    name = PATTERN_NAME

    def __init__(self, subject: str = "", patterns: Sequence[re.Pattern[str]] = ()) -> None:
        super().__init__(subject)
        self._patterns = tuple(patterns)

    def line(self, text: str) -> None:
        """Read one line; all patterns that are found in it count as one row."""
        held: dict[str, str] = {}
        for pattern in self._patterns:
            found = pattern.search(text[:LONGEST_MATCHED])
            if found is not None:
                held.update({name: value for name, value in found.groupdict().items() if value is not None})
        if not held:
            return
        time = clock_of(text)
        values: dict[str, float] = {}
        for name, raw in held.items():
            meaning = names.meaning(name)
            if meaning is not None and meaning.signal == names.TIME:
                time = instant(raw)
            elif (found_number := measured(raw)) is not None:
                values[name] = _scaled(name, *found_number)
            else:
                self.notes.add(f"{name}: what the pattern finds is no number")
        self.put_row(values, time)


READER = KeyValueReader
