"""The price book as JSON: strict, versioned, complete."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date
from typing import Any

from stoploss.engine.costs.book import BOOK_CURRENCY, OLD_DAYS, Book, age_days


def render(book: Book, today: date) -> str:
    """The book as one JSON object and a newline; null is unknown, amounts of the book are in USD."""
    return json.dumps(as_dict(book, today), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def as_dict(book: Book, today: date) -> dict[str, Any]:
    """The book as JSON values; `own` prices are in the policy set's currency."""
    age = age_days(book.month, today)
    return {
        "version": 1,
        "month": book.month,
        "age_days": age,
        "old": age > OLD_DAYS,
        "currency": BOOK_CURRENCY,
        "own": [
            {"key": key, "per_gpu_hour": round(price, 6), "currency": book.currency, "kind": book.own_kind}
            for key, price in book.own
        ],
        "gpus": [
            {
                **{name: value for name, value in asdict(row).items() if name != "words"},
                "overridden_by": book.own_key(row.name),
            }
            for row in book.gpus
        ],
        "instances": [
            {
                **asdict(row),
                "gpu_memory_gb": book.gpu_memory_gb(row.type),
                "spot_saving": None if row.spot_saving is None else round(row.spot_saving, 4),
            }
            for row in book.instances.values()
        ],
        "storage": [{**asdict(row), "kinds": list(row.kinds)} for row in book.storages],
        "rates": [asdict(row) for row in book.rates.values()],
        "problems": list(book.problems),
    }
