"""The plan of an audit: as rows for people, as lines of a table, and as JSON values."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from zoneinfo import ZoneInfo

import click

from stoploss.engine.audit import Audit
from stoploss.engine.costs.money import money
from stoploss.engine.planning.model import ALERT, Decision

GUARD = 16
"""Columns of the last column of the table."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What would be done with one resource.

    Attributes:
        about: the resource.
        policies: those that want it.
        steps: each step with its target and time.
        guard: `ok`, or what stops the strongest of them in two words.
        reasons: what stops each step, in full.
        saves: money per hour of what would be done or waits; empty where it is unknown.
    """

    about: str
    policies: tuple[str, ...]
    steps: str
    guard: str
    reasons: tuple[str, ...]
    saves: str


def planned(audit: Audit) -> tuple[Planned, ...]:
    """One row per resource, in the order of the findings: the dearest first."""
    rank = {finding.resource: at for at, finding in reversed(list(enumerate(audit.findings)))}
    rows = []
    for resource, group in groupby(audit.decisions, key=lambda item: item.resource):
        decisions = list(group)
        rows.append((rank.get(resource, len(rank)), _planned(audit, decisions)))
    return tuple(row for _, row in sorted(rows, key=lambda item: item[0]))


def _planned(audit: Audit, decisions: Sequence[Decision]) -> Planned:
    zone = ZoneInfo(audit.timezone)
    acting = [item for item in decisions if item.verdict != "skipped"]
    saves = max((item.saves_per_hour or 0.0 for item in acting), default=0.0)
    return Planned(
        str(decisions[0].resource),
        decisions[0].policies,
        ", ".join(dict.fromkeys(_step(item, audit.at, zone) for item in acting)),
        _guard(acting),
        tuple(dict.fromkeys(_reasons(decisions))),
        f"{money(saves, audit.totals.currency)}/h" if saves else "",
    )


def lines(audit: Audit, width: int, shown: int) -> list[str]:
    """The section of a table of `width` columns; none where no policy that fires names a step."""
    rows = planned(audit)
    if not rows:
        return []
    about = min(max(len(row.about) for row in rows), 24)
    steps = width - about - GUARD - 4
    out = [click.style(f"{'WOULD DO':<{width - GUARD}}GUARD", bold=True)]
    for row in rows[:shown]:
        folded = textwrap.wrap(row.steps, steps) or [""]
        name = row.about if len(row.about) <= about else row.about[: about - 1] + "…"
        out.append(f"{name:<{about}}  {folded[0]:<{steps}}  {row.guard}")
        out += [f"{'':<{about}}  {line}" for line in folded[1:]]
        indent = " " * (about + 2)
        for reason in row.reasons:
            out += [
                click.style(line, dim=True)
                for line in textwrap.wrap(reason, width, initial_indent=indent, subsequent_indent=indent)
            ]
    if len(rows) > shown:
        out.append(f"… and {len(rows) - shown} more; all of them: --format json")
    return [*out, ""]


def as_json(item: Decision, currency: str) -> dict[str, Any]:
    """A decision as JSON values."""
    request = item.request
    return {
        "id": item.id,
        "finding": item.finding,
        "policy": item.policy,
        "policies": list(item.policies),
        "resource": {"kind": item.resource.kind, "id": item.resource.id},
        "step": item.step,
        "action": item.action,
        "target": item.target,
        "parameters": dict(item.parameters),
        "due": _instant(item.due) if item.due is not None else None,
        "verdict": item.verdict,
        "why": item.why,
        "saves_per_hour": None if item.saves_per_hour is None else round(item.saves_per_hour, 6),
        "currency": currency,
        "request": None
        if request is None
        else {
            "id": request.id,
            "finding": request.finding,
            "action": request.action,
            "target": request.target,
            "parameters": dict(request.parameters),
            "valid_until": _instant(request.valid_until),
        },
    }


def _instant(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")


def _step(item: Decision, at: datetime, zone: ZoneInfo) -> str:
    """A step with its time: `alert owner now`, `snapshot scene 14:20`."""
    word = item.target if item.action == ALERT else item.parameters.get("what")
    said = f"{item.action} {word}" if word and word != "job" else item.action
    if item.verdict == "done":
        return f"{said} done"
    if item.due is None:
        return f"{said} later"
    if item.due <= at:
        return f"{said} now"
    here, local = at.astimezone(zone), item.due.astimezone(zone)
    return f"{said} {local:%H:%M}" if local.date() == here.date() else f"{said} {local:%Y-%m-%d %H:%M}"


def _guard(decisions: Sequence[Decision]) -> str:
    """The guard of the strongest step: what a person can do first, else its verdict."""
    if any(item.request is not None for item in decisions):
        return "needs approval"
    verdicts = {item.verdict for item in decisions}
    return next((word for word in ("blocked", "held") if word in verdicts), "ok")


def _reasons(decisions: Sequence[Decision]) -> Iterator[str]:
    """Each reason once, with the steps that it is about."""
    actions: dict[str, dict[str, None]] = {}
    for item in decisions:
        for why in item.whys:
            actions.setdefault(why, {})[item.action] = None
    for why, named in actions.items():
        if why != "needs approval":
            yield f"{', '.join(named)}: {why}"
    policies = decisions[0].policies
    if len(policies) > 1:
        yield f"wanted by {', '.join(policies)}"
