"""The ledger as JSON: strict, versioned, complete."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from stoploss.engine.ledger_schema import Entry, Fault, Head


def lines(entries: Iterable[Entry]) -> str:
    """Lines as one JSON object and a newline; null is not said."""
    return _dumped({"version": 1, "lines": [as_dict(entry) for entry in entries]})


def as_dict(entry: Entry) -> dict[str, Any]:
    """One line as JSON values."""
    return {**asdict(entry), "at": entry.at.isoformat().replace("+00:00", "Z")}


def verdict(name: str, faults: Iterable[Fault], head: Head | None) -> str:
    """What is wrong with a ledger, and its head to be kept elsewhere."""
    told = [asdict(fault) for fault in faults]
    end = None if head is None else {"count": head.count, "hash": head.hash, "text": str(head)}
    return _dumped({"version": 1, "ledger": name, "whole": not told, "faults": told, "head": end})


def _dumped(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
