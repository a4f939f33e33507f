"""Incidents and advice of an audit: as lines of a table, and as texts for a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace

import click

from stoploss.engine.advice import Advice
from stoploss.engine.audit import Audit
from stoploss.engine.costs.model import Totals
from stoploss.engine.costs.money import money
from stoploss.engine.incidents import Incident
from stoploss.engine.promises import Promise

SHOWN = 5
"""Incidents, and pieces of advice, that a person at a terminal is shown."""


@dataclass(frozen=True, slots=True)
class Told:
    """One incident or advice for people.

    Attributes:
        about: what it is about: `job 4412`.
        amount: what it loses or would save; empty where nothing has a price.
        name: the correlation, or the change.
        text: why.
        notes: what else there is to know.
    """

    about: str
    amount: str
    name: str
    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Causes:
    """All incidents and all advice of an audit, the dearest first, and the advice that was taken."""

    incidents: tuple[Told, ...]
    advice: tuple[Told, ...]
    promises: tuple[Told, ...]


def causes(audit: Audit) -> Causes:
    """What a person is told of the causes of an audit's findings, and of what to change."""
    # What is undecided comes after what is known.
    incidents = sorted(audit.incidents, key=lambda item: (item.undecided, -_now(item.totals)))
    advice = sorted(_advice(audit), key=lambda item: -(item.saves_per_hour or 0.0))
    return Causes(
        tuple(map(_incident, incidents)), tuple(map(_told, advice)), tuple(map(_promise, audit.promises))
    )


def lines(audit: Audit, width: int) -> list[str]:
    """The sections of a table of `width` columns; none where there is nothing to say."""
    found = causes(audit)
    saving = tuple(
        replace(item, amount=f"saves {item.amount}") if item.amount else item for item in found.advice
    )
    return [
        *_section("INCIDENTS", found.incidents, width),
        *_section("ADVICE", saving, width),
        *_section("ADVICE TAKEN", found.promises, width),
    ]


def _section(title: str, rows: tuple[Told, ...], width: int) -> Iterator[str]:
    if not rows:
        return
    yield click.style(title, bold=True)
    for row in rows[:SHOWN]:
        yield from textwrap.wrap(
            " · ".join(part for part in (row.about, row.name, row.amount) if part),
            width,
            subsequent_indent="  ",
        )
        yield from textwrap.wrap(row.text, width, initial_indent="  ", subsequent_indent="  ")
    if len(rows) > SHOWN:
        yield f"… and {len(rows) - SHOWN} more; all of them: --format json"
    yield ""


def _incident(item: Incident) -> Told:
    kinds, currency = item.totals.by_kind.values(), item.totals.currency
    # Kinds of price never add up, so each has its own amount.
    amounts = [
        f"{money(amount.per_hour, currency)}/h, {money(amount.so_far, currency)} so far" for amount in kinds
    ]
    return Told(f"{item.label} {item.value}", " and ".join(amounts), item.name, item.why)


def _told(item: Advice) -> Told:
    saves = item.saves_per_hour
    amount = "" if saves is None else f"{money(saves, item.currency)}/h"
    notes = (f"risk: {item.risk}", f"check: {item.check}")
    _, _, about = item.id.partition(":")
    return Told(about.replace("/", " ", 1), amount, item.change, item.why, notes)


def _promise(item: Promise) -> Told:
    promised, got = (
        "unknown" if amount is None else f"{money(amount, item.currency)}/h"
        for amount in (item.promised, item.got)
    )
    about = f"experiment {item.experiment}, job {item.after} after {item.before}"
    return Told(about, f"promised {promised}, got {got}", item.change, item.why)


def _advice(audit: Audit) -> tuple[Advice, ...]:
    """Each advice once, though every finding of its job carries it."""
    return tuple({item.id: item for finding in audit.findings for item in finding.advice}.values())


def _now(totals: Totals) -> float:
    return max((amount.per_hour for amount in totals.by_kind.values()), default=0.0)
