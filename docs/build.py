"""Writes the pages of the collectors from their module docstrings, options and signals.

Run by `make docs`; a test fails when a page differs from what this makes.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

from stoploss.collectors.contract import CollectorOptions
from stoploss.collectors.registry import COLLECTORS, DEFAULT_ON, option_models
from stoploss.rules.catalogue import catalogue
from stoploss.rules.units import format_duration

FOLDER = Path(__file__).parent / "collectors"


def page(name: str) -> str:
    """The page of one collector, in Markdown."""
    module = importlib.import_module(COLLECTORS[name].module)
    switched = "Looks by default." if name in DEFAULT_ON else "Looks only where a policy file names it."
    sections = [f"# {name}", inspect.getdoc(module) or "", f"{switched}", _options(option_models()[name])]
    signals = catalogue().of_collector(name)
    if signals:
        rows = [
            f"| `{s.name}` | {', '.join(s.resources)} | {s.kind} | {s.unit} | {s.meaning} |" for s in signals
        ]
        sections.append(
            "\n".join(["## Signals", "", *_table("signal", "of", "kind", "unit", "meaning"), *rows])
        )
    return "\n\n".join(sections) + "\n"


def _options(model: type[CollectorOptions]) -> str:
    rows = []
    for key, field in model.model_fields.items():
        default = None if field.is_required() else field.default
        shown = _default(model.default_every if key == "every" else default)
        rows.append(f"| `{field.alias or key}` | {shown} | {field.description or ''} |")
    return "\n".join(["## Options", "", *_table("option", "default", "meaning"), *rows])


def _default(value: object) -> str:
    """A default as a policy file would hold it."""
    if value is None or value == ():
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    # Floats are seconds: no collector has another number with a fraction.
    return f"`{format_duration(value) if isinstance(value, float) else value}`"


def _table(*heads: str) -> tuple[str, str]:
    return "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)


def main() -> None:
    """Write every page."""
    for name in COLLECTORS:
        (FOLDER / f"{name}.md").write_text(page(name), "utf-8")


if __name__ == "__main__":
    main()
