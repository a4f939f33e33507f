"""The table of formats in which diagnostics are told, and how they are counted."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Sequence

from stoploss.rules.diagnostics import Diagnostic, Severity

FORMATS: dict[str, str] = {
    "text": "stoploss.reports.diagnostics_text",
    "json": "stoploss.reports.diagnostics_json",
    "github": "stoploss.reports.diagnostics_github",
    "sarif": "stoploss.reports.diagnostics_sarif",
}
"""Format -> module with `render(diagnostics) -> str`."""


def renderer(name: str) -> Callable[[Sequence[Diagnostic]], str]:
    """The function that renders diagnostics in a format, which ends in a newline unless it is empty."""
    function: Callable[[Sequence[Diagnostic]], str] = importlib.import_module(FORMATS[name]).render
    return function


def counts(diagnostics: Sequence[Diagnostic]) -> tuple[int, int, int]:
    """Errors, warnings and infos."""
    by_severity = Counter(item.severity for item in diagnostics)
    return by_severity[Severity.ERROR], by_severity[Severity.WARNING], by_severity[Severity.INFO]
