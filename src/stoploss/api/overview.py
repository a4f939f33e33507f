"""What the page shows, as texts: what burns, why, what will happen, what is not known, how it came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from stoploss import __version__
from stoploss.api import curves, metrics, probes, reads
from stoploss.api.calls import Call
from stoploss.api.contract import Health
from stoploss.engine.audit import Audit
from stoploss.engine.costs.money import money
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.people_schema import VALID, Request
from stoploss.engine.planning.model import ALERT
from stoploss.reports import audit_causes, audit_heat, audit_view, plan
from stoploss.reports.audit_json import instant
from stoploss.rules.units import format_duration

SHOWN = 50
"""Findings, and rows of the plan, on the page."""
LINES = 20
"""Lines of the ledger on the page."""
GROUPS = 40
"""Groups of unknowns on the page."""


def overview(call: Call) -> dict[str, Any]:
    """Everything on the page but the pictures."""
    health, pause = call.service.health(), call.people.paused()
    head = {
        "version": 1,
        "program": __version__,
        "you": {"name": call.caller.name, "team": call.team, "scopes": sorted(call.caller.scopes)},
        "interval_seconds": health.interval_seconds,
        "late": probes.late(health),
        "standby": health.standby,
        "paused": None if pause is None else pause.reason,
    }
    if call.service.latest() is None:
        return {**head, "ready": False}
    audit = call.seen.audit
    waiting = {item.id: item for item in reads.requests(call) if item.state(call.now) == "waiting"}
    return {
        **head,
        "ready": True,
        **call.seen.once("overview", lambda: _told(call, audit)),
        "plan": _plan(call, audit, waiting),
        "waiting": len(waiting),
        "ledger": _ledger(call, audit),
        "unread": _unread(call, health, audit),
    }


def _told(call: Call, audit: Audit) -> dict[str, Any]:
    """What changes with a tick only."""
    view = audit_view.view(audit)
    causes = audit_causes.causes(audit)
    firing = len(audit.firing)
    return {
        "at": instant(audit.at),
        "when": view.when,
        "scope": view.scope if audit.resources else f"team {call.team}",
        "mode": audit.mode,
        "timezone": audit.timezone,
        "freeze": audit.freeze,
        "figures": _figures(call, view),
        "firing": firing,
        "states": view.states,
        "findings": [_finding(row) for row in view.rows[:SHOWN]],
        "more_findings": max(0, len(audit.findings) - SHOWN),
        "incidents": [asdict(item) for item in causes.incidents[:SHOWN]],
        "advice": [asdict(item) for item in causes.advice[:SHOWN]],
        "unknown": [asdict(item) for item in view.unknown[:GROUPS]],
        "unknown_count": len(audit.unknown),
        "more_unknown": max(0, len(view.unknown) - GROUPS) + view.more_unknown,
        "unpriced": [{"reason": reason, "count": number} for reason, number in view.unpriced],
        "how": _how(call, audit, view),
        "policies": [
            {
                "name": item.name,
                "severity": item.severity,
                "summary": item.summary,
                "conditions": [condition.text for condition in item.conditions],
            }
            for item in view.policies
        ],
    }


def _figures(call: Call, view: audit_view.View) -> list[dict[str, Any]]:
    """Three: what burns, what it came to, and what use is made of what is paid."""
    told: list[dict[str, Any]] = [
        {"label": item.label, "value": item.value, "notes": list(item.notes)} for item in view.figures[:2]
    ]
    currency = view.audit.totals.currency
    if call.team is None:
        told[1]["notes"] += [
            f"{money(amount, currency)} saved so far ({kind})"
            for kind, amount in call.service.saved().items()
        ]
    ratio = metrics.goodput(call.seen.costs)
    if ratio is None:
        return [*told, {"label": "goodput", "value": "unknown", "notes": ["no statement of costs yet"]}]
    note = "of the paid GPU-hours were useful"
    return [*told, {"label": "goodput", "value": f"{ratio:.0%}", "notes": [note]}]


def _finding(row: audit_view.Row) -> dict[str, Any]:
    item = row.finding
    facts = [f"since {row.since}"]
    facts += [f"job {item.owner}"] if item.owner else []
    facts += [f"{name} {item.labels[name]}" for name in ("team", "user") if item.labels.get(name)]
    facts += [f"cause: {item.cause}"] if item.cause else []
    return {
        "id": item.id,
        "word": row.word,
        "policy": item.policy.name,
        "kind": item.resource.kind,
        "resource": item.resource.id,
        "per_hour": row.per_hour,
        "so_far": row.so_far,
        "age": row.age,
        "about": " · ".join(facts),
        "notes": list(row.notes),
        "facts": [asdict(fact) for fact in row.facts],
        "cost": row.cost,
    }


def _plan(call: Call, audit: Audit, waiting: Mapping[str, Request]) -> list[dict[str, Any]]:
    """A row per resource, with the questions that wait for an answer; those nobody plans any more last."""
    zone = ZoneInfo(audit.timezone)
    asked: dict[str, dict[str, Request]] = {}
    for item in waiting.values():
        asked.setdefault(str(item.wanted.resource), {})[item.id] = item
    acting = {str(item.resource) for item in audit.decisions if item.action != ALERT}
    rows = [
        {
            "about": row.about,
            "steps": row.steps,
            "guard": row.guard,
            "reasons": list(row.reasons),
            # To tell somebody saves nothing by itself.
            "saves": row.saves if row.about in acting else "–",
            "asks": [_ask(item, zone) for item in asked.pop(row.about, {}).values()],
        }
        for row in plan.planned(audit)
    ]
    rows += [
        {
            "about": about,
            "steps": "asked earlier",
            "guard": "needs approval",
            "reasons": [],
            "saves": "",
            "asks": [_ask(item, zone) for item in items.values()],
        }
        for about, items in asked.items()
    ]
    # What waits for a person comes first; the others stay in the order of their money.
    return sorted(rows, key=lambda row: not row["asks"])[:SHOWN]


def _ask(item: Request, zone: ZoneInfo) -> dict[str, str]:
    wanted = item.wanted
    parameters = ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in wanted.parameters.items()
        if value != wanted.action
    )
    where = "" if wanted.target == str(wanted.resource) else f" on {wanted.target}"
    return {
        "id": item.id,
        "step": f"{wanted.action} {wanted.resource}{where}" + (f" ({parameters})" if parameters else ""),
        "policy": wanted.policy,
        "until": _time(item.asked + VALID, zone),
    }


def _ledger(call: Call, audit: Audit) -> list[dict[str, Any]]:
    zone = ZoneInfo(audit.timezone)
    return [_line(entry, zone) for entry in reads.lines(call, LINES)[0]]


def _line(entry: Entry, zone: ZoneInfo) -> dict[str, Any]:
    what = (entry.kind, entry.action, entry.resource, entry.target and f"on {entry.target}", entry.verdict)
    if entry.target == str(entry.resource):
        what = (entry.kind, entry.action, entry.resource, None, entry.verdict)
    return {
        "seq": entry.seq,
        "at": _time(entry.at, zone),
        "what": " ".join(str(part) for part in what if part),
        "about": " · ".join(part for part in (entry.policy, entry.who and f"by {entry.who}") if part),
        "why": entry.why or "",
    }


def _unread(call: Call, health: Health, audit: Audit) -> list[str]:
    """What could not be read, each thing once."""
    failed = {item.name: item.reason for item in audit.collectors if not item.ok}
    for name, item in health.collectors.items():
        if not item.ok:
            failed.setdefault(name, item.reason if call.team is None else "it could not look")
    told = [f"{name}: {reason or 'no reason given'}" for name, reason in failed.items()]
    return [*told, *(health.problems if call.team is None else ())]


def _how(call: Call, audit: Audit, view: audit_view.View) -> list[dict[str, Any]]:
    samples = f", {audit.samples:,} samples" if audit.samples else ""
    policies = f"{len(audit.policies)} {'policy' if len(audit.policies) == 1 else 'policies'}"
    prices = f"Taken from {'; '.join(view.prices)}." if view.prices else "No price was used."
    team = " For one team, of findings on one job the dearest counts." if call.team is not None else ""
    every = format_duration(call.service.health().interval_seconds)
    told = [
        (
            "Looked at",
            f"{view.scope if audit.resources else f'team {call.team}'}{samples}, up to {view.when}, "
            f"by {policies} in mode {audit.mode}, every {every}; stoploss {__version__}",
        ),
        (
            "Known and unknown",
            "A window counts when at least 80% of it was seen and its newest slot too; otherwise the "
            "condition is unknown, which is never taken for idle, for zero, or for false.",
        ),
        (
            "Money",
            "Each finding says how its amount came about. In sums a GPU and a minute count once, with the "
            f"largest claim on them, and amounts of different price kinds are not added up.{team} {prices}",
        ),
    ]
    notes = [("Note", note) for note in audit.notes]
    return [{"term": term, "text": text} for term, text in (*told, *notes)]


def heat(call: Call) -> dict[str, Any]:
    """The use of every GPU over time, as numbers and as a picture per job."""
    audit = call.seen.audit
    return call.seen.once("heat", lambda: _heat(audit))


def _heat(audit: Audit) -> dict[str, Any]:
    if audit.heat is None:
        return {"version": 1, "at": instant(audit.at), "groups": [], "rows": []}
    picture = audit_heat.picture(audit.heat, audit.timezone)
    cells = {row.gpu: row.cells for row in audit.heat.rows}
    return {
        "version": 1,
        "at": instant(audit.at),
        "begin": picture.begin,
        "end": picture.end,
        "column": picture.span,
        "column_seconds": audit.heat.span,
        "seen": round(picture.seen, 6),
        "left_out": picture.left_out,
        "axis": str(picture.axis),
        "groups": [
            {
                "job": group.use.job,
                "gpus": group.gpus,
                "where": group.use.where,
                "mean": group.use.mean,
                "idle": group.use.idle,
                "seen": group.use.seen_text,
                "picture": str(group.picture),
            }
            for group in picture.groups
        ],
        "rows": [
            {
                "gpu": row.name,
                "job": row.job,
                "host": row.where,
                "mean": row.mean,
                "idle": row.idle,
                "seen": row.seen_text,
                "cells": [None if cell is None else round(cell, 3) for cell in cells[row.name]],
            }
            for row in picture.rows
        ],
    }


def jobs(call: Call) -> dict[str, Any]:
    """The jobs that cost most, with their curves."""
    audit = call.seen.audit
    told = call.seen.once("jobs", lambda: curves.jobs(call))
    return {
        "version": 1,
        "at": instant(audit.at),
        "now": audit.at.timestamp(),
        "timezone": audit.timezone,
        "currency": audit.totals.currency,
        "jobs": told,
    }


def _time(at: datetime, zone: ZoneInfo) -> str:
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"
