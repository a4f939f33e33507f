"""Diagnostics as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from stoploss import __version__
from stoploss.rules.codes import CODES
from stoploss.rules.diagnostics import Diagnostic, Position

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def render(diagnostics: Sequence[Diagnostic]) -> str:
    """One run with every code as a rule."""
    order = {name: index for index, name in enumerate(CODES)}
    driver = {
        "name": "stoploss",
        "version": __version__,
        "rules": [
            {
                "id": name,
                "shortDescription": {"text": code.title},
                "fullDescription": {"text": code.help},
                "help": {"text": code.help},
                "defaultConfiguration": {"level": _LEVELS[code.severity]},
            }
            for name, code in CODES.items()
        ],
    }
    run = {
        "tool": {"driver": driver},
        # Columns of this program count characters; SARIF's default is UTF-16 units.
        "columnKind": "unicodeCodePoints",
        "results": [_result(item, order) for item in diagnostics],
    }
    return (
        json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)
        + "\n"
    )


def _result(item: Diagnostic, order: dict[str, int]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": item.code,
        "ruleIndex": order[item.code],
        "level": _LEVELS[item.severity.value],
        "message": {"text": item.message + (f" (fix: {item.fix})" if item.fix else "")},
        "locations": [{"physicalLocation": _location(item.position, item.length, item.source_line)}],
    }
    if item.related:
        result["relatedLocations"] = [
            {
                "id": number,
                "message": {"text": other.message},
                "physicalLocation": _location(other.position, 1, None),
            }
            for number, other in enumerate(item.related, 1)
        ]
    return result


def _location(place: Position, length: int, source: str | None) -> dict[str, Any]:
    region: dict[str, Any] = {
        "startLine": place.line,
        "startColumn": place.column,
        "endColumn": place.column + length,
    }
    if source is not None:
        region["snippet"] = {"text": source}
    return {"artifactLocation": {"uri": uri(place.file)}, "region": region}


def uri(file: str) -> str:
    """A file name as a URI: relative ones stay relative."""
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(os.fsencode(path))
