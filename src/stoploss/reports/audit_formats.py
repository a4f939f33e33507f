"""The table of formats in which an audit is handed around."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoploss.engine.audit import Audit


@dataclass(frozen=True, slots=True)
class Format:
    """A module with `render(audit) -> str`, and the suffix of the files it is written to."""

    module: str
    suffix: str


FORMATS: dict[str, Format] = {
    "table": Format("stoploss.reports.audit_table", ".txt"),
    "json": Format("stoploss.reports.audit_json", ".json"),
    "html": Format("stoploss.reports.audit_html", ".html"),
    "csv": Format("stoploss.reports.audit_csv", ".csv"),
    "sarif": Format("stoploss.reports.audit_sarif", ".sarif"),
    "junit": Format("stoploss.reports.audit_junit", ".xml"),
}


def renderer(name: str) -> Callable[[Audit], str]:
    """The function that renders an audit in a format of the table."""
    function: Callable[[Audit], str] = importlib.import_module(FORMATS[name].module).render
    return function


def format_of(path: Path) -> str | None:
    """The format that a file's suffix picks, or None."""
    return next((name for name, item in FORMATS.items() if item.suffix == path.suffix.lower()), None)
