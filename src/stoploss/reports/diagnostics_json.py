"""Diagnostics as one JSON object, version 1."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stoploss.reports.diagnostics import counts
from stoploss.rules.diagnostics import Diagnostic, Position


def render(diagnostics: Sequence[Diagnostic]) -> str:
    """`{"version", "errors", "warnings", "infos", "diagnostics"}`."""
    errors, warnings, infos = counts(diagnostics)
    document = {
        "version": 1,
        "errors": errors,
        "warnings": warnings,
        "infos": infos,
        "diagnostics": [_entry(item) for item in diagnostics],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _entry(item: Diagnostic) -> dict[str, Any]:
    return {
        "severity": item.severity.value,
        "code": item.code,
        "message": item.message,
        **_place(item.position),
        "length": item.length,
        "fix": item.fix,
        "source": item.source_line,
        "related": [{"message": other.message, **_place(other.position)} for other in item.related],
    }


def _place(position: Position) -> dict[str, Any]:
    return {"file": position.file, "line": position.line, "column": position.column}
