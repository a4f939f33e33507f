"""What is wrong with recorded files, counted so that each mistake is told once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stoploss.rules.diagnostics import Diagnostic, Diagnostics, Position, did_you_mean

REQUIRED = ("time", "resource", "kind", "signal", "value")
"""Columns without which a row means nothing."""


class Unreadable(Exception):
    """Nothing of a file can be used; `code` is the diagnostic's."""

    def __init__(self, code: str, message: str, line: int = 1, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.line, self.fix = code, message, line, fix


@dataclass(slots=True)
class _Counted:
    code: str
    message: str
    position: Position
    fix: str | None
    rows: int


class Problems:
    """Collects problems; the same problem on many rows becomes one, with the first place and a count."""

    def __init__(self) -> None:
        self._single = Diagnostics()
        self._told: set[tuple[str, str]] = set()
        self._counted: dict[tuple[str, str], _Counted] = {}

    def tell(self, code: str, message: str, path: Path, line: int = 1, fix: str | None = None) -> None:
        """Note a problem of a file."""
        self._single.add(code, message, Position(str(path), line), fix=fix)

    def tell_unreadable(self, path: Path, error: Unreadable) -> None:
        """Note that a file cannot be used."""
        self.tell(error.code, error.message, path, error.line, error.fix)

    def tell_once(
        self, key: tuple[str, str], message: str, position: Position, fix: str | None = None
    ) -> None:
        """Note a problem unless `key` (its code and what makes it the same) was noted before."""
        if key not in self._told:
            self._told.add(key)
            self._single.add(key[0], message, position, fix=fix)

    def count(
        self, key: tuple[str, str], message: str, position: Position, rows: int, fix: str | None = None
    ) -> None:
        """Note that `rows` rows are skipped; `key` is the code and what makes the problem the same."""
        known = self._counted.get(key)
        if known is None:
            self._counted[key] = _Counted(key[0], message, position, fix, rows)
        else:
            known.rows += rows

    def speaks_of(self, path: Path) -> bool:
        """Whether any problem lies in this file."""
        places = [item.position for item in self._single.items]
        places += [problem.position for problem in self._counted.values()]
        return any(place.file == str(path) for place in places)

    @property
    def has_errors(self) -> bool:
        """Whether any problem is an error; what is counted never is."""
        return self._single.has_errors

    def listed(self) -> tuple[Diagnostic, ...]:
        """All problems in order of their places."""
        every = Diagnostics(list(self._single.items))
        for problem in self._counted.values():
            count = "1 row" if problem.rows == 1 else f"{problem.rows:,} rows"
            every.add(problem.code, f"{problem.message}; {count} skipped", problem.position, fix=problem.fix)
        return every.sorted()


def check_columns(path: Path, header: Sequence[str], problems: Problems, line: int = 1) -> None:
    """Check the columns of a file; those that are not known are told once.

    Raises:
        Unreadable: a required column is missing, or a column stands twice.
    """
    known = (*REQUIRED, "every")
    others = [name for name in header if name and name not in known and not name.startswith("label.")]
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        hint = next((mark for mark in (";", "\t", "|") if len(header) == 1 and mark in header[0]), None)
        pairs = [f"{near} for {name}" for name in missing if (near := did_you_mean(name, others))]
        fix = f"a recording needs the columns {', '.join(REQUIRED)}"
        if hint:
            fix = f"cells are separated by commas, not by {hint!r}"
        elif pairs:
            fix = f"did you write {', '.join(pairs)}?"
        raise Unreadable("recorded-missing-column", f"no column {', '.join(missing)}", line, fix=fix)
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise Unreadable("recorded-missing-column", f"column {twice[0]} stands twice", line)
    if others:
        message = f"columns that are not read: {', '.join(sorted(set(others)))}"
        fix = "labels are columns named label.NAME"
        problems.tell_once(("recorded-extra-column", str(path)), message, Position(str(path), line), fix)
