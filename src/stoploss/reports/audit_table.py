"""An audit for a person at a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import timedelta
from zoneinfo import ZoneInfo

import click

from stoploss.engine.audit import Audit, Evidence, Finding
from stoploss.engine.model import ResourceId
from stoploss.rules.units import format_duration, format_value

WIDTH = 80
SHOWN = 20
"""Rows of findings that a person is shown; all of them are in the json."""
COLOURS = {"critical": "red", "high": "red", "medium": "yellow", "low": "cyan"}


def render(audit: Audit, *, follow_up: str | None = None, shown: int = SHOWN) -> str:
    """The audit as text; colours are styles that a pipe strips.

    `follow_up` is a command that says more about the first finding; `shown` limits the rows.
    """
    lines = [*_head(audit), "", *_findings(audit, shown), *_unknown(audit, shown), *_foot(audit)]
    if follow_up:
        lines += [f"next: {follow_up}"]
    return "\n".join(lines) + "\n"


def _head(audit: Audit) -> list[str]:
    zone = ZoneInfo(audit.timezone)
    when = audit.at.astimezone(zone)
    counted = ", ".join(_count(number, kind) for kind, number in audit.resources.items()) or "no resources"
    head = f"stoploss audit · {when:%Y-%m-%d %H:%M} {when.tzname()} · {counted} · nothing was touched"
    lines = textwrap.wrap(head, WIDTH)
    firing = len(audit.firing)
    pending = sum(finding.state == "pending" for finding in audit.findings)
    exempt = sum(finding.exemption is not None for finding in audit.findings)
    parts = [_bold("BURNING NOW  " + _count(firing, "finding")) if firing else "NOTHING FIRES"]
    parts += [f"{pending} pending"] if pending else []
    parts += [f"{exempt} exempt"] if exempt else []
    parts += [f"{len(audit.unknown)} unknown"] if audit.unknown else []
    parts += [_count(len(audit.policies), "policy", "policies")]
    return [*lines, "", " · ".join(parts)]


def _findings(audit: Audit, shown: int) -> list[str]:
    """Two lines a finding: who and since when, and the evidence."""
    if not audit.findings:
        return []
    rows = sorted(audit.findings, key=lambda f: (f.exemption is not None, f.state == "pending"))
    policies = min(max(len("POLICY"), *(len(finding.policy.name) for finding in rows)), 26)
    lines = [f"{'SEVERITY':<9} {'SINCE':>7}  {'POLICY':<{policies}}  RESOURCE"]
    for finding in rows[:shown]:
        lines += _row(audit, finding, policies)
    if len(rows) > shown:
        lines.append(f"… and {len(rows) - shown} more; all of them: --format json")
    return [*lines, ""]


def _row(audit: Audit, finding: Finding, policies: int) -> list[str]:
    word, colour = finding.policy.severity, COLOURS.get(finding.policy.severity)
    if finding.exemption is not None or finding.state == "pending":
        word, colour = ("exempt" if finding.exemption else "pending"), None
    since = _age(audit.at - finding.since)
    start = f"{since:>7}  {_cut(finding.policy.name, policies):<{policies}}  "
    room = WIDTH - 10 - len(start)
    first = click.style(f"{word:<9}", fg=colour) + " " + start + _cut(str(finding.resource), room)
    why = _cut(_why(finding), WIDTH - 19)
    return [first, " " * 19 + click.style(why, dim=True)] if why else [first]


def _why(finding: Finding) -> str:
    """What decides, in one line."""
    if finding.exemption is not None:
        return f"exempt through {finding.exemption.expires}: {finding.exemption.reason}"
    notes = []
    if finding.expired is not None:
        notes.append(f"exemption expired {finding.expired.expires}")
    if finding.stale_since is not None:
        notes.append(f"stale since {finding.stale_since:%H:%M}")
    if finding.state == "holding":
        notes.append("cleared, held")
    told = [item for item in finding.evidence if item.value is not None] or list(finding.evidence)
    return " · ".join([*notes, *(evidence(item) for item in told)])


def evidence(item: Evidence) -> str:
    """A condition and what it came to: `max(gpu.utilization, 30m) < 5%: 0%`."""
    if item.value is None:
        return item.condition
    shown = item.value if isinstance(item.value, str) else format_value(item.value, item.unit or "1")
    return f"{item.condition}: {shown}"


def _unknown(audit: Audit, shown: int) -> list[str]:
    """Unknowns, one row for all resources of one policy and reason."""
    if not audit.unknown:
        return []
    groups: dict[tuple[str, str], list[ResourceId | None]] = {}
    for item in audit.unknown:
        groups.setdefault((item.policy.name, item.reason), []).append(item.resource)
    policies = min(max(len(name) for name, _ in groups), 24)
    lines = [_bold("UNKNOWN")]
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
    return f"{_count(len(named), named[0].kind)}: "


def _foot(audit: Audit) -> list[str]:
    lines: list[str] = []
    failed = [item for item in audit.collectors if not item.ok]
    if failed:
        told = "; ".join(f"{item.name} ({item.reason})" for item in failed)
        lines += textwrap.wrap(f"{_count(len(failed), 'collector')} failed: {told}", WIDTH)
    if audit.without_resources and len(audit.without_resources) == len(audit.policies):
        lines.append("no policy found a resource to look at")
    for note in audit.notes:
        lines += textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="  ")
    return lines


def _wrapped(start: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start)) or [start]


def _age(age: timedelta) -> str:
    return format_duration(max(0.0, age.total_seconds()))


def _count(number: int, word: str, plural: str | None = None) -> str:
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _bold(text: str) -> str:
    return click.style(text, bold=True)
