"""Problems as values: what is wrong, where, and how to mend it.

A diagnostic is data. Rendering (text, json, GitHub annotations, SARIF) lives in the
reports, once per format.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from stoploss.rules.codes import CODES


class Severity(StrEnum):
    """How bad a problem is: only errors stop a command."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a file; line and column count from 1, a column is a character."""

    file: str
    line: int = 1
    column: int = 1

    def shifted(self, columns: int) -> Position:
        """The place `columns` characters to the right on the same line."""
        return Position(self.file, self.line, self.column + columns)


@dataclass(frozen=True, slots=True)
class Related:
    """A second place that belongs to the problem, such as the first of two duplicates."""

    message: str
    position: Position


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem in a user's file.

    `length` is the width of the caret in characters. `message` names the value seen;
    `fix` says what to write instead, as one sentence or a replacement.
    """

    severity: Severity
    code: str
    message: str
    position: Position
    length: int = 1
    fix: str | None = None
    source_line: str | None = None
    related: tuple[Related, ...] = ()

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise AssertionError(f"diagnostic code {self.code!r} has no entry in rules/codes.py")

    def __str__(self) -> str:
        place = f"{self.position.file}:{self.position.line}:{self.position.column}"
        return f"{place}: {self.message} [{self.code}]"


@dataclass(slots=True)
class Diagnostics:
    """Collects every problem of a load, so that all are told at once."""

    items: list[Diagnostic] = field(default_factory=list)

    def add(
        self,
        code: str,
        message: str,
        position: Position,
        *,
        fix: str | None = None,
        length: int = 1,
        related: tuple[Related, ...] = (),
    ) -> None:
        """Note one problem; its severity is the one that `rules/codes.py` gives the code."""
        severity = Severity(CODES[code].severity)
        self.items.append(Diagnostic(severity, code, message, position, length, fix, None, related))

    def extend(self, others: Iterable[Diagnostic]) -> None:
        """Take over problems found elsewhere."""
        self.items.extend(others)

    @property
    def has_errors(self) -> bool:
        """Whether any problem is an error."""
        return any(item.severity is Severity.ERROR for item in self.items)

    def sorted(self) -> tuple[Diagnostic, ...]:
        """All problems in the order of their places."""
        return tuple(sorted(self.items, key=lambda item: (item.position, item.code, item.message)))


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate nearest to `word`, or None when nothing is near."""
    near = difflib.get_close_matches(word.lower(), sorted(set(candidates)), n=1, cutoff=0.6)
    return near[0] if near else None


def suggestion(word: str, candidates: Iterable[str], *, listing: int = 12) -> str:
    """A fix for an unknown word: the nearest one, else the list of what is allowed."""
    names = sorted(set(candidates))
    near = did_you_mean(word, names)
    if near is not None:
        return f"did you mean {near}?"
    if len(names) <= listing:
        return f"one of: {', '.join(names)}"
    return f"one of: {', '.join(names[:listing])} and {len(names) - listing} more"
