"""The statement of costs for a person at a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np

from stoploss.engine.costs.budgets import Standing
from stoploss.engine.costs.derived import amount_told
from stoploss.engine.costs.money import figure, money
from stoploss.engine.costs.statement import Statement, Sums
from stoploss.rules.units import format_duration, format_value

WIDTH = 80
_NAME = 26


def render(statement: Statement, zone: str, by: str | None = None) -> str:
    """The statement as text: all of it, or one table by team, job, category or goodput."""
    lines = list(_head(statement, ZoneInfo(zone)))
    for name in [by] if by is not None else ["category", "goodput"]:
        lines += ["", *_table(statement, name)]
    if by is None and statement.budgets:
        lines += ["", *_budgets(statement, ZoneInfo(zone))]
    if statement.missing:
        lines += ["", "WITHOUT A PRICE"]
        for (category, reason), hours in statement.missing.items():
            what = f"{figure(hours)} GPU-hours" if hours else category
            lines += textwrap.wrap(f"{what}: {reason}", WIDTH, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _head(statement: Statement, zone: ZoneInfo) -> Iterator[str]:
    since, until = (datetime.fromtimestamp(at, zone) for at in (statement.since, statement.until))
    total = statement.total
    yield f"stoploss costs · {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} {until.tzname()}"
    yield ""
    parts = [f"{figure(total.gpu_hours)} GPU-hours"]
    for kind, amount in total.money.items():
        hidden = total.hidden.get(kind, 0.0)
        bought = f", {money(hidden, statement.currency)} of it hidden" if hidden else ""
        parts.append(f"{money(amount, statement.currency)} {kind}{bought}")
    if not total.money:
        parts.append("money unknown" if total.gpu_hours else "nothing was used")
    if total.unpriced_hours:
        parts.append(f"{figure(total.unpriced_hours)} GPU-hours without a price")
    yield from textwrap.wrap("PAID  " + " · ".join(parts), WIDTH, subsequent_indent="      ")


def _table(statement: Statement, by: str) -> list[str]:
    groups = statement.grouped(by)
    kinds = tuple(statement.total.money)
    head = [by.upper(), "GPU-HOURS", "SHARE", *(kind.upper() for kind in kinds)]
    rows = [head, *_rows(groups, kinds, statement.total.gpu_hours, by)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    return [
        "  ".join(
            f"{cell:<{width}}" if at == 0 else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _rows(groups: Mapping[str, Sums], kinds: Sequence[str], paid: float, by: str) -> Iterator[list[str]]:
    if by in ("team", "job"):
        groups = dict(sorted(groups.items(), key=lambda item: -sum(item[1].money.values())))
    for name, sums in groups.items():
        share = f"{sums.gpu_hours / paid:.0%}" if paid and sums.gpu_hours else "-"
        hours = figure(sums.gpu_hours) if sums.gpu_hours else "-"
        unknown = "unknown" if sums.unpriced_hours else "-"
        amounts = [figure(sums.money[kind]) if kind in sums.money else unknown for kind in kinds]
        shown = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        yield [shown, hours, share, *amounts]


def _budgets(statement: Statement, zone: ZoneInfo) -> Iterator[str]:
    yield "BUDGETS"
    order = sorted(statement.budgets, key=lambda item: -float(np.nan_to_num(item.used[-1], nan=-1.0)))
    for item in order:
        text = f"{item.budget.name}  {item.resource}: {_standing(item, statement.currency, zone)}"
        yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def _standing(item: Standing, currency: str, zone: ZoneInfo) -> str:
    since = f"since {datetime.fromtimestamp(item.since, zone):%Y-%m-%d %H:%M}"
    if item.missing is not None:
        return f"unknown, {item.missing}"
    if not item.known[-1]:
        return f"unknown, not all that it holds was seen; {amount_told(item, currency)} at least {since}"
    parts = [f"{format_value(float(item.used[-1]), 'share')} used, {amount_told(item, currency)} {since}"]
    if item.reported is not None:
        share, age = item.reported
        parts.append(f"{format_value(share, 'share')} reported {format_duration(age)} ago")
    projected = float(item.share_projected[-1])
    if np.isfinite(projected):
        ends = (
            "its planned end"
            if item.until is None
            else f"{datetime.fromtimestamp(item.until, zone):%Y-%m-%d}"
        )
        parts.append(f"{format_value(projected, 'share')} projected by {ends}")
    return " · ".join(parts)
