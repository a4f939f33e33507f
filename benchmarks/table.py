"""One table of one run: ratios first, seconds beside, and the same as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Attributes:
        name: the benchmark it belongs to, as `--only` takes it.
        what: the work, in words.
        ratio: times slower or faster, as `meaning` says; None where it was not measured.
        meaning: what the ratio is a ratio of, such as `x nansum` or `x faster than promtool`.
        target: what we aim for, in words; empty where there is no aim.
        met: whether the aim was reached and the verdicts agree; None where there is no aim or no number.
        seconds: our best time.
        reference: the best time of what we are compared with.
        note: why there is no number, or what a reader must know about it.
    """

    name: str
    what: str
    ratio: float | None = None
    meaning: str = ""
    target: str = ""
    met: bool | None = None
    seconds: float | None = None
    reference: float | None = None
    note: str = ""


def machine() -> dict[str, str]:
    """What the numbers were measured on: processor, cores, load and versions."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("numpy", "bottleneck")},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return "-"
    digits = 0 if row.ratio >= 100 else 1 if row.ratio >= 10 else 2
    return f"{row.ratio:,.{digits}f}"


def _target(row: Row) -> str:
    return row.target if row.met is None else f"{row.target} {'met' if row.met else 'missed'}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.3g} ms"


def text(head: dict[str, str], rows: Sequence[Row]) -> str:
    """The table for people."""
    lines = [" · ".join(f"{key} {value}" for key, value in head.items()), ""]
    cells = [("RATIO", "OF", "TARGET", "OURS", "OTHER", "WHAT")]
    cells += [
        (
            _ratio(row),
            row.meaning,
            _target(row),
            _seconds(row.seconds),
            _seconds(row.reference),
            f"{row.name}: {row.what}",
        )
        for row in rows
    ]
    widths = [max(len(cell[i]) for cell in cells) for i in range(6)]
    notes = ["", *(row.note for row in rows)]
    for (ratio, meaning, target, ours, other, what), note in zip(cells, notes, strict=True):
        lines.append(
            f"{ratio:>{widths[0]}}  {meaning:<{widths[1]}}  {target:<{widths[2]}}  "
            f"{ours:>{widths[3]}}  {other:>{widths[4]}}  {what}"
        )
        if note:
            lines.append(f"{'':>{widths[0]}}  {note}")
    return "\n".join(lines) + "\n"


def as_json(head: dict[str, str], rows: Sequence[Row]) -> str:
    """The table for programs; seconds and ratios are unrounded."""
    return json.dumps({"version": 1, "machine": head, "rows": [asdict(row) for row in rows]}, indent=2) + "\n"
