"""The statement of costs as JSON: strict, versioned, complete."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

from stoploss.engine.costs.budgets import Standing
from stoploss.engine.costs.statement import Statement, Sums


def render(statement: Statement) -> str:
    """The statement as one JSON object and a newline; null is unknown."""
    return json.dumps(as_dict(statement), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def as_dict(statement: Statement) -> dict[str, Any]:
    """The statement as JSON values; money by price kind, which are never added up."""
    groups = {
        f"by_{by}": {name: _sums(sums) for name, sums in statement.grouped(by).items()}
        for by in ("category", "goodput", "team", "job")
    }
    return {
        "version": 1,
        "from": _instant(statement.since),
        "to": _instant(statement.until),
        "currency": statement.currency,
        "total": _sums(statement.total),
        **groups,
        "without_price": [
            {"category": category, "reason": reason, "gpu_hours": _round(hours)}
            for (category, reason), hours in statement.missing.items()
        ],
        "budgets": [_budget(item) for item in statement.budgets],
        "lines": [
            {
                "job": entry.key.job,
                "team": entry.key.team,
                "experiment": entry.key.experiment,
                "category": entry.category,
                "goodput": entry.goodput,
                "elasticity": entry.key.elasticity,
                "basis": entry.key.basis,
                "price_kind": entry.key.kind,
                "name": entry.key.name or None,
                "gpu_hours": _round(entry.gpu_hours),
                "money": _round(entry.money),
                "missing": entry.key.missing,
            }
            for entry in statement.entries
        ],
    }


def _sums(sums: Sums) -> dict[str, Any]:
    return {
        "gpu_hours": _round(sums.gpu_hours),
        "useful_gpu_hours": _round(sums.useful_hours),
        "gpu_hours_without_price": _round(sums.unpriced_hours),
        "money": {kind: _round(amount) for kind, amount in sums.money.items()} or None,
        "hidden": {kind: _round(amount) for kind, amount in sums.hidden.items()} or None,
    }


def _budget(item: Standing) -> dict[str, Any]:
    reported, age = item.reported or (None, None)
    return {
        "budget": item.budget.name,
        "resource": {"kind": item.resource.kind, "id": item.resource.id},
        "per": item.budget.per,
        "unit": "money" if item.in_money else "GPU-hours",
        "limit": _round(item.limit),
        "spent": None if item.missing else _round(float(item.spent[-1])),
        "used": _round(float(item.used[-1])),
        "projected": _round(float(item.share_projected[-1])),
        "from": _instant(item.since),
        "until": None if item.until is None else _instant(item.until),
        "reported": _round(reported),
        "reported_age_seconds": age,
        "missing": item.missing,
    }


def _round(number: float | None) -> float | None:
    """Without the digits that only binary fractions have; None for what is no number."""
    return None if number is None or not math.isfinite(number) else round(number, 6)


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
