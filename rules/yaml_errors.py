"""What a YAML syntax error means for the person who wrote a policy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from stoploss.rules.diagnostics import Position

PLACEHOLDER_FIX = "fill the placeholder in before loading; stoploss itself expands only ${NAME}"

_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%|(?<![$\w\"'(])\{[A-Za-z_]\w*\}")
_OPERATOR = re.compile(r"[=!<>]=|=~|[<>]|\bin\s*\[|\b(?:absent|has|age|share)\(")
_VALUE = re.compile(r"\s*(?:-\s+)*(?:[\w-]+\s*:\s+)?(?=\S)")
_INDICATORS = "@`%&*|>?"
_KNOWN = {
    "mapping values are not allowed in this context": (
        "`: ` begins a value here, where none may stand",
        "quote a value that holds `: `, or check the indentation",
    ),
    "found character that cannot start any token": (
        "this character cannot begin a value",
        "indent with spaces, never tabs; quote a value that begins with @, ` or %",
    ),
    "did not find expected key": (
        "a key was expected here",
        "check the indentation and the quotes of the lines above",
    ),
    "did not find expected '-' indicator": (
        "the next entry of a list was expected here",
        "check the indentation and the quotes of the lines above",
    ),
    "did not find expected ',' or ']'": (
        "a list in [ ] is not closed here",
        "close it, or quote the text in it",
    ),
    "did not find expected ',' or '}'": (
        "a mapping in { } is not closed here",
        "close it, or quote the text in it",
    ),
    "found unexpected end of stream": ("the file ends inside a quoted text", "close the quotes"),
}


def quoted(text: str) -> str:
    """A text in single quotes, as YAML writes it."""
    return "'" + text.replace("'", "''") + "'"


def explain_syntax(error: Any, lines: Sequence[str], file: str) -> tuple[str, str, Position, str | None]:
    """Code, message, place and fix for an error of the YAML parser."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or "the text is not YAML")
    if mark is None:
        return "yaml-syntax", problem, Position(file), None
    context = getattr(error, "context_mark", None)
    in_quotes = "quoted scalar" in str(getattr(error, "context", ""))
    if in_quotes and context is not None:
        mark = context
    row = min(mark.line, len(lines) - 1)
    line = lines[row]
    place = Position(file, row + 1, min(mark.column, len(line)) + 1)
    template = _TEMPLATE.search(line)
    if template is not None and not line.lstrip().startswith("#"):
        found = Position(file, row + 1, template.start() + 1)
        return (
            "unexpanded-template",
            f"the placeholder {template[0]} was not filled in",
            found,
            PLACEHOLDER_FIX,
        )
    start = _broken_condition(line)
    if start is not None:
        text = line[start:].rstrip()
        fix = (
            f"quote it as a whole: {quoted(text)}"
            if line[:start].count("[") + line[:start].count("{") == 0
            else ("put the whole condition in single quotes")
        )
        return "unquoted-condition", "YAML cuts this condition", Position(file, row + 1, start + 1), fix
    message, advice = _KNOWN.get(problem, (problem, "check the indentation and the quotes around here"))
    return "yaml-syntax", message, place, advice


def _broken_condition(line: str) -> int | None:
    """Where a condition begins in this line that YAML cannot hold unquoted; None if there is none."""
    match = _VALUE.match(line)
    start = match.end() if match else 0
    value = line[start:]
    operator = _OPERATOR.search(value)
    if operator is None or not value:
        return None
    if value[0] in "\"'":
        closing = value.find(value[0], 1)
        return start if closing >= 0 and _OPERATOR.search(value[closing + 1 :]) else None
    if value[0] in "[{":
        inner = re.search(r"(?:where\s*:\s*|[\[{,]\s*)(?=[\w.]+\s*(?:\(|[=!<>]|in\b))", value)
        return start + (inner.end() if inner else 0)
    cut = ": " in value or value[0] in _INDICATORS or "! " in value[:2]
    return start if cut else None
