"""The statement of costs as CSV, for a spreadsheet: a row per line, or per group."""

from __future__ import annotations

import csv
import io

from stoploss.engine.costs.statement import Statement

_COLUMNS = (
    "team",
    "job",
    "experiment",
    "category",
    "goodput",
    "elasticity",
    "basis",
    "price_kind",
    "name",
    "gpu_hours",
    "money",
    "currency",
    "missing",
)


def render(statement: Statement, by: str | None = None) -> str:
    """The statement as CSV; an empty amount is unknown."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if by is not None:
        writer.writerow((by, "gpu_hours", "useful_gpu_hours", "price_kind", "money", "currency"))
        for name, sums in statement.grouped(by).items():
            hours = f"{sums.gpu_hours:.6f}", f"{sums.useful_hours:.6f}"
            for kind, amount in sums.money.items() or [("", None)]:
                shown = "" if amount is None else f"{amount:.6f}"
                writer.writerow((_safe(name), *hours, kind, shown, statement.currency))
        return out.getvalue()
    writer.writerow(_COLUMNS)
    for entry in statement.entries:
        key = entry.key
        writer.writerow(
            (
                _safe(key.team),
                _safe(key.job),
                _safe(key.experiment),
                entry.category,
                entry.goodput,
                key.elasticity,
                key.basis,
                key.kind,
                _safe(key.name),
                f"{entry.gpu_hours:.6f}",
                "" if entry.money is None else f"{entry.money:.6f}",
                statement.currency,
                _safe(key.missing),
            )
        )
    return out.getvalue()


def _safe(text: str | None) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text and text[0] in "=+-@\t\r" else text or ""
