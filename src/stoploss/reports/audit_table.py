"""An audit for a person at a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import timedelta
from zoneinfo import ZoneInfo

import click

from stoploss.engine.audit import Audit
from stoploss.engine.costs.money import figure, money
from stoploss.engine.evaluation.kleene import TRUE
from stoploss.engine.findings import Evidence, Finding
from stoploss.engine.model import ResourceId
from stoploss.reports import audit_causes, plan
from stoploss.reports.counts import count
from stoploss.rules.units import SYMBOLS, format_duration, format_value

WIDTH = 80
SHOWN = 20
"""Rows of findings that a person is shown; all of them are in the json."""
_POLICY, _RESOURCE = 21, 15
_INDENT = 9
"""Where the evidence begins, below the money."""
COLOURS = {"critical": "red", "high": "red", "medium": "yellow", "low": "cyan"}


def render(audit: Audit, *, follow_up: str | None = None, shown: int = SHOWN) -> str:
    """The audit as text; colours are styles that a pipe strips.

    `follow_up` is a command that says more about the first finding; `shown` limits the rows.
    """
    causes = audit_causes.lines(audit, WIDTH)
    told = [*_findings(audit, shown), *causes, *plan.lines(audit, WIDTH, shown)]
    body = [*told, *_unknown(audit, shown), *_unpriced(audit, shown)]
    lines = [*_head(audit), "", *body, *_foot(audit)]
    if follow_up:
        lines += [f"next: {follow_up}"]
    return "\n".join(lines) + "\n"


def render_plan(audit: Audit) -> str:
    """The plan alone, whole."""
    rows = plan.lines(audit, WIDTH, len(audit.decisions)) or ["NOTHING WOULD BE DONE", ""]
    return "\n".join([*_head(audit), "", *rows, *_foot(audit)]).rstrip() + "\n"


def _head(audit: Audit) -> list[str]:
    zone = ZoneInfo(audit.timezone)
    when = audit.at.astimezone(zone)
    counted = ", ".join(count(number, kind) for kind, number in audit.resources.items()) or "no resources"
    head = f"stoploss audit · {when:%Y-%m-%d %H:%M} {when.tzname()} · {counted} · nothing was touched"
    return [*textwrap.wrap(head, WIDTH), "", *_burning(audit)]


def _burning(audit: Audit) -> list[str]:
    """Money first where anything has a price, then the counts."""
    firing = len(audit.firing)
    pending = sum(finding.state == "pending" for finding in audit.findings)
    exempt = sum(finding.exemption is not None for finding in audit.findings)
    unknown = [f"{len(audit.unknown)} unknown"] if audit.unknown else []
    amounts = _amounts(audit)
    counts = [count(firing, "finding")] if firing else []
    counts += [f"{pending} pending"] if pending else []
    counts += [f"{exempt} exempt"] if exempt else []
    policies = [count(len(audit.policies), "policy")]
    if not amounts:
        parts = [_bold("BURNING NOW  " + counts[0]) if firing else "NOTHING FIRES", *counts[bool(firing) :]]
        return [" · ".join([*parts, *unknown, *policies])]
    unpriced = audit.totals.without_price
    counts += policies + ([f"{unpriced} without a price"] if unpriced else [])
    money = _fold([*amounts, *unknown], "BURNING NOW  ")
    return [_bold(money[0]), *money[1:], *_fold(counts, " " * 13)]


def _amounts(audit: Audit) -> list[str]:
    """Now, so far, and what steps would save; each price kind by itself, since they never add up."""
    kinds, currency = audit.totals.by_kind, audit.totals.currency
    parts = []
    for kind, amount in kinds.items():
        name = f" {kind}" if len(kinds) > 1 else ""
        parts += [f"{money(amount.per_hour, currency)}/h{name}", f"{money(amount.so_far, currency)} so far"]
        if amount.saves_per_hour:
            parts.append(f"steps would save {money(amount.saves_per_hour, currency)}/h")
    return parts


def _fold(parts: Sequence[str], start: str) -> list[str]:
    """Parts with dots between them, on as many lines as they need."""
    lines = [start]
    for part in parts:
        dot = " · " if lines[-1].strip() and lines[-1] != start else ""
        if len(lines[-1] + dot + part) > WIDTH:
            lines.append(" " * len(start))
            dot = ""
        lines[-1] += dot + part
    return lines


def _findings(audit: Audit, shown: int) -> list[str]:
    """Two lines a finding: what it costs, who and since when; and the evidence."""
    if not audit.findings:
        return []
    rows = sorted(audit.findings, key=lambda f: (f.exemption is not None, f.state == "pending"))
    rate = f"{SYMBOLS.get(audit.totals.currency, audit.totals.currency)}/h"
    lines = [f"{rate:>7} {'SO FAR':>9}  {'SINCE':<7}  {'POLICY':<{_POLICY}} {'RESOURCE':<{_RESOURCE}} CAUSE"]
    for finding in rows[:shown]:
        lines += _row(audit, finding)
    if len(rows) > shown:
        lines.append(f"… and {len(rows) - shown} more; all of them: --format json")
    return [*lines, ""]


def _row(audit: Audit, finding: Finding) -> list[str]:
    waste = finding.waste
    now, so_far = (_cell(waste.per_hour), _cell(waste.so_far)) if waste else ("-", "-")
    policy, resource = _cut(finding.policy.name, _POLICY), _resource(finding.resource)
    first = (
        f"{now:>7} {so_far:>9}  {_age(audit.at - finding.since):<7}  "
        f"{policy:<{_POLICY}} {resource:<{_RESOURCE}} {finding.cause or 'undecided'}"
    )
    word, colour = finding.policy.severity, COLOURS.get(finding.policy.severity)
    if finding.exemption is not None or finding.state == "pending":
        word, colour = ("exempt" if finding.exemption else "pending"), None
    why = _cut(_why(finding), WIDTH - _INDENT - len(word) - 3)
    second = click.style(word, fg=colour) + (click.style(f" · {why}", dim=True) if why else "")
    return [first.rstrip(), " " * _INDENT + second]


def _cell(amount: float | None) -> str:
    return "unknown" if amount is None else figure(amount)


def _resource(resource: ResourceId) -> str:
    """Kind and name; the name alone where both do not fit."""
    whole = str(resource)
    return whole if len(whole) <= _RESOURCE else _cut(resource.id, _RESOURCE)


def _why(finding: Finding) -> str:
    """What decides, in one line."""
    if finding.exemption is not None:
        return f"through {finding.exemption.expires}: {finding.exemption.reason}"
    notes = []
    if finding.expired is not None:
        notes.append(f"exemption expired {finding.expired.expires}")
    if finding.stale_since is not None:
        notes.append(f"stale since {finding.stale_since:%H:%M}")
    if finding.state == "holding":
        notes.append("cleared, held")
    waste = finding.waste
    if finding.resource.kind == "log" and waste is not None and waste.per_hour:
        notes.append(f"{money(waste.per_hour * 24, waste.currency)}/day")
    # What is true says why it fires; the false branches of any() do not.
    told = [item for item in finding.evidence if item.value is not None and item.truth == TRUE]
    told = told or [item for item in finding.evidence if item.value is not None] or list(finding.evidence)
    return " · ".join([*notes, *(evidence(item) for item in told)])


def evidence(item: Evidence) -> str:
    """A condition and what it came to: `max(gpu.utilization, 30m) < 5%: 0%`."""
    if item.value is None:
        return item.condition
    shown = item.value if isinstance(item.value, str) else format_value(item.value, item.unit or "1")
    return f"{item.condition}: {shown}" + (f" ({item.note})" if item.note else "")


def _unknown(audit: Audit, shown: int) -> list[str]:
    rows = [(item.policy.name, item.reason, item.resource) for item in audit.unknown]
    return _grouped("UNKNOWN", rows, shown)


def _unpriced(audit: Audit, shown: int) -> list[str]:
    """Why findings have no price."""
    rows = [
        (finding.policy.name, finding.waste.missing, finding.resource)
        for finding in audit.findings
        if finding.waste is not None and finding.waste.missing is not None
    ]
    return _grouped("WITHOUT A PRICE", rows, shown)


def _grouped(title: str, rows: Sequence[tuple[str, str, ResourceId | None]], shown: int) -> list[str]:
    """One row for all resources of one policy and reason."""
    if not rows:
        return []
    groups: dict[tuple[str, str], list[ResourceId | None]] = {}
    for policy, reason, resource in rows:
        groups.setdefault((policy, reason), []).append(resource)
    policies = min(max(len(name) for name, _ in groups), 24)
    lines = [_bold(title)]
    for (name, reason), resources in list(groups.items())[:shown]:
        who = _who(resources)
        lines += _wrapped(f"{_cut(name, policies):<{policies}}  ", f"{who}{reason}")
    if len(groups) > shown:
        lines.append(f"… and {len(groups) - shown} more reasons; all of them: --format json")
    return [*lines, ""]


def _who(resources: Sequence[ResourceId | None]) -> str:
    named = [resource for resource in resources if resource is not None]
    if not named:
        return ""
    if len(named) == 1:
        return f"{named[0]}: "
    return f"{count(len(named), named[0].kind)}: "


def _foot(audit: Audit) -> list[str]:
    lines: list[str] = []
    failed = [item for item in audit.collectors if not item.ok]
    if failed:
        told = "; ".join(f"{item.name} ({item.reason})" for item in failed)
        lines += textwrap.wrap(f"{count(len(failed), 'collector')} failed: {told}", WIDTH)
    if audit.without_resources and len(audit.without_resources) == len(audit.policies):
        lines.append("no policy found a resource to look at")
    for note in audit.notes:
        lines += textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="  ")
    return lines


def _wrapped(start: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start)) or [start]


def _age(age: timedelta) -> str:
    return format_duration(max(0.0, age.total_seconds()))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _bold(text: str) -> str:
    return click.style(text, bold=True)
