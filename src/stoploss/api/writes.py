"""What people decide through the API, and samples that nodes send."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

from stoploss.api import reads
from stoploss.api.calls import Call
from stoploss.api.contract import BusyError
from stoploss.api.errors import Problem, bad, missing
from stoploss.engine.people_exemptions import selection
from stoploss.engine.people_schema import DecisionError
from stoploss.rules.catalogue import catalogue
from stoploss.rules.diagnostics import suggestion
from stoploss.rules.units import QuantityError, parse_duration


def approve(call: Call) -> dict[str, Any]:
    """Let one step be done."""
    _visible(call)
    try:
        answered = call.people.approve(
            call.path["id"], who=call.caller.name, now=call.now, reason=call.body.get("reason")
        )
    except DecisionError as error:
        _refused(error, "look at /v1/approvals for what waits")
    return {"version": 1, "approval": reads.request(answered, call.now)}


def reject(call: Call) -> dict[str, Any]:
    """Do not let one step be done."""
    _visible(call)
    reason = _words(call, "reason")
    try:
        answered = call.people.reject(call.path["id"], who=call.caller.name, now=call.now, reason=reason)
    except DecisionError as error:
        _refused(error, "look at /v1/approvals for what waits")
    return {"version": 1, "approval": reads.request(answered, call.now)}


def _visible(call: Call) -> None:
    """Whether there is such a request that the caller may see; others are as if they were not there."""
    if not any(item.id == call.path["id"] for item in reads.requests(call)):
        raise missing(f"request {call.path['id']}")


def keep(call: Call) -> dict[str, Any]:
    """Keep a job from being ended or shrunk for a while."""
    job, reason = _words(call, "job"), _words(call, "reason")
    if not call.seen.mine(call.seen.whose.job(job)):
        raise missing(f"job {job} of team {call.team}")
    try:
        span = timedelta(seconds=parse_duration(call.body["for"]))
    except (QuantityError, OverflowError) as error:
        raise bad(f"for: {error}", "write a duration such as 4h") from None
    price = _promised(call, job)
    per_hour, currency = price or (None, None)
    try:
        kept = call.people.keep(
            job, span, who=call.caller.name, now=call.now, reason=reason, per_hour=per_hour, currency=currency
        )
    except DecisionError as error:
        _refused(error, "give a shorter time; it may be said again")
    cost = None if per_hour is None else round(kept.cost(per_hour), 6)
    return {"version": 1, "keep": reads.kept(kept), "cost": cost, "per_hour": per_hour, "currency": currency}


def _promised(call: Call, job: str) -> tuple[float, str] | None:
    """What the newest decision on a job would have saved per hour; None where none says."""
    for entry in reversed(call.service.ledger.entries(kinds=("decision",), resource=f"job {job}", last=100)):
        if entry.promised is not None and entry.currency is not None:
            return entry.promised, entry.currency
    return None


def exempt(call: Call) -> dict[str, Any]:
    """Exempt resources from a policy through a day."""
    policy, where = _words(call, "policy"), _words(call, "where")
    day, policies = _day(call), call.service.policies
    try:
        # By itself first: what only fits into a larger condition could reach out of it.
        known = selection(where, policy, policies, catalogue()) is not None
        if call.team is not None:
            where = reads.scoped(where, call.team)
            selection(where, policy, policies, catalogue())
    except DecisionError as error:
        raise bad(f"where: {error}", 'write a condition over labels, such as job == "eval-svc"') from None
    if not known:
        raise bad(
            f"there is no policy {policy}", suggestion(policy, [item.name for item in policies.policies])
        )
    try:
        made = call.people.exempt(
            policy,
            where,
            expires=day,
            reason=_words(call, "reason"),
            owner=_words(call, "owner"),
            who=call.caller.name,
            now=call.now,
        )
    except DecisionError as error:
        _refused(error, "see docs/approvals.md")
    return {"version": 1, "exemption": reads.exempted(made)}


def _day(call: Call) -> str:
    until: str = call.body["until"]
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", until, re.ASCII):
        raise bad(f"until: {until!r} is no day", "write one such as 2027-01-31")
    try:
        day = date.fromisoformat(until)
    except ValueError:
        raise bad(f"until: {until!r} is no day", "write one such as 2027-01-31") from None
    zone = ZoneInfo(call.service.policies.settings.timezone)
    if day < call.now.astimezone(zone).date():
        raise bad(f"until: {until} is over", "an exemption holds through its last day; give a later one")
    return until


def pause(call: Call) -> dict[str, Any]:
    """Carry out nothing from now on."""
    made = call.people.pause(who=call.caller.name, now=call.now, reason=_words(call, "reason"))
    return reads.paused(made)


def resume(call: Call) -> dict[str, Any]:
    """Take a pause back; a pause by its file stays, and the answer says so."""
    call.people.resume(who=call.caller.name, now=call.now, reason=call.body.get("reason"))
    return reads.paused(call.people.paused())


def samples(call: Call) -> dict[str, Any]:
    """Take the samples of a node."""
    try:
        taken = call.service.take(_words(call, "node"), call.body)
    except ValueError as error:
        raise bad(str(error), "see docs/api.md for the form of a batch") from None
    except BusyError as error:
        raise Problem(
            503,
            "busy",
            str(error) or "too many samples wait already",
            "send the same batch again later",
            headers={"Retry-After": "30"},
        ) from None
    return {"version": 1, "taken": taken}


def _words(call: Call, name: str) -> str:
    """A text that says something.

    Raises:
        Problem: it is blank, or holds characters that cannot be seen.
    """
    text: str = call.body[name]
    if not text.strip() or any(ord(character) < 32 and character not in "\t\n" for character in text):
        raise bad(f"{name} says nothing, or holds control characters", f"write {name} in plain words")
    return text


def _refused(error: DecisionError, fix: str) -> NoReturn:
    raise Problem(409, "refused", str(error), fix) from None
