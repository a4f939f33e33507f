"""What waits for a person's answer: for a terminal of 80 columns, and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from stoploss.engine.costs.money import figure, money
from stoploss.engine.people_schema import VALID, Request
from stoploss.reports.audit_json import instant
from stoploss.reports.pasted import WIDTH, commands, joined
from stoploss.rules.units import format_duration

INDENT = " " * 29
"""Before what stands under the columns of figures."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with what else is known of it.

    Attributes:
        state: waiting, approved, rejected or expired, at the instant `now`.
        per_hour: money per hour that the step would save, in `currency`; None is unknown.
        team: whose it is; None is unknown.
    """

    request: Request
    state: str
    now: datetime
    per_hour: float | None = None
    currency: str | None = None
    team: str | None = None

    @property
    def until(self) -> datetime | None:
        """Until when it can be answered, or the approval holds; a rejection holds for the whole episode."""
        if self.state == "rejected":
            return None
        return (self.request.answered or self.request.asked) + VALID


def as_text(asked: Sequence[Asked], zone: tzinfo, options: Sequence[str] = (), *, every: bool = False) -> str:
    """The questions, with the commands that answer them."""
    waiting = [item for item in asked if item.state == "waiting"]
    told = list(textwrap.wrap(_title(waiting, zone), WIDTH, subsequent_indent="  "))
    if asked:
        told += ["", f"{'PER HOUR':>9}{'ASKED':>9}{'LEFT':>9}  STEP"]
    for item in asked:
        told += [*_item(item, zone, options), ""]
    if not waiting and not every:
        told.append("those that were answered: stoploss requests --all")
    return "\n".join(told).rstrip("\n") + "\n"


def as_json(asked: Sequence[Asked]) -> str:
    """The questions as one JSON object and a newline."""
    data = {"version": 1, "requests": [_values(item) for item in asked]}
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _title(waiting: Sequence[Asked], zone: tzinfo) -> str:
    count = len(waiting)
    said = "nothing waits" if not count else "1 waits" if count == 1 else f"{count} wait"
    parts = ["stoploss requests", f"{said} for an answer"]
    known = [item for item in waiting if item.per_hour is not None and item.currency is not None]
    for currency in sorted({item.currency or "" for item in known}):
        # Of one resource one step is done.
        most: dict[object, float] = {}
        for item in known:
            if item.currency == currency:
                about = item.request.wanted.resource
                most[about] = max(most.get(about, 0.0), item.per_hour or 0.0)
        if sum(most.values()):
            parts.append(f"would save {money(sum(most.values()), currency)}/h")
    return " · ".join([*parts, f"times in {zone}"])


def _item(item: Asked, zone: tzinfo, options: Sequence[str]) -> Iterator[str]:
    request, wanted = item.request, item.request.wanted
    left = item.until - item.now if item.until is not None and item.state != "expired" else None
    columns = (
        _price(item),
        format_duration((item.now - request.asked).total_seconds()),
        "-" if left is None else format_duration(left.total_seconds()),
    )
    start = "".join(f"{column:>9}" for column in columns) + "  "
    facts = [f"{wanted.action} {wanted.resource}", wanted.policy]
    facts += [f"on {wanted.target}"] if wanted.target != str(wanted.resource) else []
    facts += [f"{name} {_plain(value)}" for name, value in wanted.parameters.items()]
    facts += [f"team {item.team}"] if item.team else []
    yield from _wrapped(" · ".join(facts), start)
    if item.state == "waiting":
        yield from commands(joined(("approve", request.id), options), INDENT)
        yield from commands(joined(("reject", request.id, "--reason", "…"), options), INDENT)
    else:
        yield from _wrapped(f"{_answered(item, zone)} ({request.id})", INDENT)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _price(item: Asked) -> str:
    if item.per_hour is None:
        return "unknown"
    return figure(item.per_hour) if item.currency is None else money(item.per_hour, item.currency)


def _answered(item: Asked, zone: tzinfo) -> str:
    request = item.request
    if request.answered is None:
        return "nobody answered; it is asked again when its step is due"
    over = ", and has run out" if item.state == "expired" else ""
    why = f": {request.reason}" if request.reason else ""
    when = request.answered.astimezone(zone)
    return f"{request.answer} by {request.who} {when:%Y-%m-%d %H:%M}{over}{why}"


def _values(item: Asked) -> dict[str, Any]:
    request, wanted = item.request, item.request.wanted
    return {
        "id": request.id,
        "state": item.state,
        "policy": wanted.policy,
        "policy_hash": wanted.policy_hash,
        "finding": wanted.episode,
        "resource": {"kind": wanted.resource.kind, "id": wanted.resource.id},
        "team": item.team,
        "action": wanted.action,
        "target": wanted.target,
        "parameters": dict(wanted.parameters),
        "asked": instant(request.asked),
        "until": None if item.until is None else instant(item.until),
        "saves_per_hour": item.per_hour,
        "currency": item.currency,
        "answer": request.answer,
        "answered": None if request.answered is None else instant(request.answered),
        "who": request.who,
        "reason": request.reason,
    }


def _wrapped(text: str, start: str) -> list[str]:
    # What others wrote must not steer the terminal.
    plain = "".join(c if c.isprintable() else "�" for c in text)
    return textwrap.wrap(plain, WIDTH, initial_indent=start, subsequent_indent=INDENT)
