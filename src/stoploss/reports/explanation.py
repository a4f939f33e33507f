"""The tree that says why a policy fires or does not, as text and as JSON."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import click

from stoploss.engine.evaluation.explain_numbers import Explained, Value
from stoploss.engine.evaluation.kleene import FALSE, TRUE, WORDS
from stoploss.engine.explanation import Explanation
from stoploss.reports.audit_json import instant
from stoploss.rules.units import format_duration, format_value

WIDTH = 80
MEMBERS = 8
"""Members of a fold that are shown; those that decide come first."""
COLOURS = {"true": "green", "false": "red", "unknown": "yellow"}


def as_text(told: Explanation, timezone: str) -> str:
    """The explanation for a terminal of 80 columns."""
    zone = ZoneInfo(timezone)
    at = told.at.astimezone(zone)
    lines = [
        click.style(f"{told.policy.name} on {told.column.resource}", bold=True)
        + f" at {at:%Y-%m-%d %H:%M} {at.tzname()}: {_state(told)}"
    ]
    if told.policy.summary:
        lines += textwrap.wrap(told.policy.summary, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")
    if told.column.owner:
        began = told.time_of(told.column.start).astimezone(zone)
        lines.append(f"  under job {told.column.owner} since {began:%Y-%m-%d %H:%M}")
    for name, tree in (("where", told.where), ("when", told.when)):
        if tree is not None:
            lines += ["", name, *_tree(tree, 1)]
    lines += ["", *_lifecycle(told)]
    if told.episodes:
        lines.append("")
        lines += ["history", *_history(told, zone)]
    return "\n".join(lines) + "\n"


def _state(told: Explanation) -> str:
    if told.status is None:
        return "not selected by where"
    if told.status.since is None:
        return told.status.state if told.status.truth != 1 else "unknown"
    since = (told.at - told.time_of(told.status.since)).total_seconds()
    return f"{told.status.state} for {format_duration(since)}"


def _tree(node: Explained, depth: int) -> Iterator[str]:
    word = WORDS[node.truth]
    indent = "  " * depth
    start = f"{indent}{word:<8}"
    text = node.text if node.resource is None else str(node.resource)
    if node.children and node.resource is None and node.value is not None:
        text = f"{text}   of every member"
    tail = _value(node)
    body = f"{text}   {tail}" if tail else text
    wrapped = textwrap.wrap(body, WIDTH - len(start)) or [""]
    yield indent + click.style(f"{word:<8}", fg=COLOURS[word]) + wrapped[0]
    for line in wrapped[1:]:
        yield " " * len(start) + line
    members = [child for child in node.children if child.resource is not None]
    others = [child for child in node.children if child.resource is None]
    for child in others:
        yield from _tree(child, depth + 1)
    # What keeps the fold from being true is what a reader looks for.
    members.sort(key=lambda child: (child.truth == TRUE, str(child.resource)))
    for child in members[:MEMBERS]:
        yield from _tree(child, depth + 1)
    if len(members) > MEMBERS:
        rest = members[MEMBERS:]
        yield f"{indent}  … and {len(rest)} more, {sum(c.truth == TRUE for c in rest)} of them true"


def _value(node: Explained) -> str:
    if node.unknown is not None and node.truth not in (TRUE, FALSE):
        return f"because {node.unknown.text}"
    value = node.value
    if value is None:
        return ""
    parts = [f"is {_shown(value)}"]
    if value.of is not None:
        parts.append(f"from {value.samples} of {value.of} samples")
    return ", ".join(parts)


def _shown(value: Value) -> str:
    if value.word is not None:
        return value.word
    if value.number is None:
        return "absent"
    return format_value(value.number / value.factor, value.unit)


def _lifecycle(told: Explanation) -> list[str]:
    policy = told.policy
    lines = []
    if policy.for_seconds:
        lines.append(
            f"for {format_duration(policy.for_seconds)}: fires once it was true for longer than that"
        )
    if policy.hold_seconds:
        lines.append(f"hold {format_duration(policy.hold_seconds)}: keeps firing so long after it cleared")
    if policy.min_age:
        age = (told.at - told.time_of(told.column.start)).total_seconds()
        lines.append(f"min-age {format_duration(policy.min_age)}: the resource is {format_duration(age)} old")
    return lines or ["fires as soon as it is true"]


def _history(told: Explanation, zone: ZoneInfo) -> Iterator[str]:
    for episode in told.episodes[-10:]:
        when = told.time_of(episode.slot).astimezone(zone)
        since = told.time_of(episode.since).astimezone(zone)
        yield f"  {when:%Y-%m-%d %H:%M}  {episode.event:<9} true since {since:%Y-%m-%d %H:%M}"


def as_json(told: Explanation) -> str:
    """The explanation as one JSON object and a newline."""
    status = told.status
    data = {
        "version": 1,
        "policy": told.policy.name,
        "resource": {"kind": told.column.resource.kind, "id": told.column.resource.id},
        "owner": told.column.owner,
        "at": instant(told.at),
        "selected": status is not None,
        "state": status.state if status else None,
        "truth": WORDS[status.truth] if status else None,
        "since": instant(told.time_of(status.since)) if status and status.since is not None else None,
        "where": _node(told.where),
        "when": _node(told.when),
        "episodes": [
            {
                "event": episode.event,
                "at": instant(told.time_of(episode.slot)),
                "since": instant(told.time_of(episode.since)),
            }
            for episode in told.episodes
        ],
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _node(node: Explained | None) -> dict[str, Any] | None:
    if node is None:
        return None
    value = node.value
    number = None
    if value is not None and value.number is not None and math.isfinite(value.number):
        number = value.number / value.factor
    return {
        "condition": node.text,
        "resource": str(node.resource) if node.resource else None,
        "truth": WORDS[node.truth],
        "value": value.word if value is not None and value.word is not None else number,
        "unit": value.unit if value is not None and number is not None else None,
        "samples": value.samples if value is not None else None,
        "of": value.of if value is not None else None,
        "reason": node.unknown.text if node.unknown is not None else None,
        "children": [_node(child) for child in node.children],
    }
