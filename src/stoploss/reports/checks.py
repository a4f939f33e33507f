"""The checks of `stoploss doctor` for a terminal of 80 columns, and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import click

WIDTH = 80
COLOURS = {"ok": "green", "check": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        area: collectors, policies, actions, receivers, places or program.
        name: what was looked at.
        state: ok; check (works, with less than everything); off (not in use here); failed.
        told: what was found.
        fix: what to do, as a command or a few words.
        details: more lines.
    """

    area: str
    name: str
    state: str
    told: str
    fix: str | None = None
    details: tuple[str, ...] = field(default=())


def as_text(checks: Sequence[Check]) -> str:
    """One row a check, area by area, and what it comes to."""
    lines: list[str] = []
    for area, group in groupby(checks, key=lambda check: check.area):
        lines.append(click.style(area.upper(), bold=True))
        for check in group:
            lines += _row(check)
        lines.append("")
    failed = [check.name for check in checks if check.state == "failed"]
    lines.append(f"{len(failed)} failed: {', '.join(failed)}" if failed else "nothing failed")
    return "\n".join(lines) + "\n"


def _row(check: Check) -> list[str]:
    start = f"  {check.state:<7} {check.name:<12} "
    told = check.told if check.fix is None else f"{check.told}; {check.fix}"
    indent = " " * len(start)
    lines: list[str] = []
    for number, text in enumerate((told, *check.details)):
        first = start if number == 0 else indent
        lines += textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent) or [first]
    lines[0] = "  " + click.style(check.state, fg=COLOURS.get(check.state)) + lines[0][2 + len(check.state) :]
    return lines


def as_json(checks: Sequence[Check]) -> str:
    """The same for programs."""
    value = {
        "version": 1,
        "ok": all(check.state != "failed" for check in checks),
        "checks": [
            {
                "area": check.area,
                "name": check.name,
                "state": check.state,
                "told": check.told,
                "fix": check.fix,
                "details": list(check.details),
            }
            for check in checks
        ],
    }
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
