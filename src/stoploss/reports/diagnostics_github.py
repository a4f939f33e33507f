"""Diagnostics as annotations of a GitHub workflow."""

from __future__ import annotations

from collections.abc import Sequence

from stoploss.rules.diagnostics import Diagnostic, Severity

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(diagnostics: Sequence[Diagnostic]) -> str:
    """One workflow command per line."""
    return "".join(_line(item) + "\n" for item in diagnostics)


def _line(item: Diagnostic) -> str:
    place = item.position
    text = item.message + (f" (fix: {item.fix})" if item.fix else "")
    properties = {
        "file": place.file,
        "line": str(place.line),
        "col": str(place.column),
        "endColumn": str(place.column + item.length),
        "title": item.code,
    }
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{_COMMANDS[item.severity]} {listed}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
