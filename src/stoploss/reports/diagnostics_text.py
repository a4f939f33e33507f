"""Diagnostics for people: the place, the line, a caret, the fix."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import click

from stoploss.rules.diagnostics import Diagnostic, Severity

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}
_WIDEST = 160
"""Characters of a source line that are shown."""


def render(diagnostics: Sequence[Diagnostic], *, colour: bool = False) -> str:
    """One block per diagnostic, with an empty line between two."""
    return "\n".join(_block(item, colour) for item in diagnostics)


def _block(item: Diagnostic, colour: bool) -> str:
    place = item.position
    word = "" if item.severity is Severity.ERROR else f"{item.severity}: "
    if colour:
        word = click.style(word or "error: ", fg=_COLOURS[item.severity])
    lines = [f"{place.file}:{place.line}:{place.column}: {word}{item.message} [{item.code}]"]
    if item.source_line is not None:
        lines += _source(item.source_line, place.column, item.length)
    lines += [f"  {other.message}: {_short(other.position)}" for other in item.related]
    if item.fix is not None:
        lines.append(f"  fix: {item.fix}")
    return "\n".join(lines) + "\n"


def _short(place: object) -> str:
    return f"{getattr(place, 'file', '')}:{getattr(place, 'line', 1)}:{getattr(place, 'column', 1)}"


def _source(line: str, column: int, length: int) -> list[str]:
    """The line and the caret below it; tabs stay tabs in both, wide characters get two columns."""
    shown = line.rstrip()
    start = max(0, column - 1 - _WIDEST // 2) if len(shown) > _WIDEST else 0
    shown = "".join(
        char if char.isprintable() or char == "\t" else "?" for char in shown[start : start + _WIDEST]
    )
    before = shown[: column - 1 - start]
    indent = "".join(_blank(char) for char in before) + " " * (column - 1 - start - len(before))
    under = shown[column - 1 - start : column - 1 - start + max(1, length)]
    carets = sum(len(_blank(char)) for char in under) or 1
    return [f"    {shown}", f"    {indent}{'^' * carets}"]


def _blank(char: str) -> str:
    if char == "\t":
        return "\t"
    return "  " if unicodedata.east_asian_width(char) in "WF" else " "
