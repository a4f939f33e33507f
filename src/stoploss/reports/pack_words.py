"""The policies of the packs as words that `stoploss explain` knows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

from stoploss.rules.diagnostics import Diagnostics
from stoploss.rules.yaml import parse, plain


@cache
def pack_policies() -> dict[str, tuple[str, tuple[tuple[str, str], ...]]]:
    """Policy -> its summary, and name and value of what else there is to say."""
    told: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {}
    folder = resources.files("stoploss.rules.packs")
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if not file.name.endswith(".yaml"):
            continue
        document = parse(file.read_text(encoding="utf-8"), file.name, Diagnostics())
        assert document.root is not None
        for policy in plain(document.root)["policies"]:
            facts = _facts(f"pack:{file.name.removesuffix('.yaml')}", policy)
            told[policy["name"]] = (policy["summary"], tuple(facts))
    return told


def _facts(pack: str, policy: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "pack", pack
    yield "each", policy["each"]
    if "where" in policy:
        yield "where", policy["where"]
    yield "when", " and ".join(_condition(item) for item in policy["when"])
    for key in ("for", "severity", "cause"):
        if key in policy:
            yield key, str(policy[key])
    if "then" in policy:
        yield "then", ", ".join(_step(step) for step in policy["then"])
    yield "page", policy["runbook"]


def _condition(item: Any) -> str:
    if isinstance(item, dict):
        [(word, inner)] = item.items()
        return f"{word} of ({'; '.join(_condition(part) for part in inner)})"
    return f"({item})" if " or " in item else str(item)


def _step(step: dict[str, Any]) -> str:
    [(action, options)] = step.items()
    after = f" after {options['after']}" if "after" in options else ""
    return f"{action}{after}{' (once approved)' if options.get('approve') else ''}"
