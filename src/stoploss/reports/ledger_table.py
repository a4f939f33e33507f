"""The ledger and people's decisions for a person at a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, tzinfo

from stoploss.engine.costs.money import money
from stoploss.engine.ledger_schema import Entry, Fault, Head
from stoploss.engine.people_schema import VALID, Keep, Request, RuntimeExemption

WIDTH = 80


def lines(entries: Sequence[Entry], zone: tzinfo) -> str:
    """Lines of the ledger, the newest last; each with what it is about and why."""
    if not entries:
        return "no line fits\n"
    told = [f"stoploss ledger · {len(entries)} {'line' if len(entries) == 1 else 'lines'} · times in {zone}"]
    for entry in entries:
        told += ["", *_entry(entry, zone)]
    return "\n".join(told) + "\n"


def verdict(name: str, faults: Sequence[Fault], head: Head | None) -> str:
    """What is wrong with a ledger, and its head."""
    told = [f"stoploss ledger verify · {name}"]
    for fault in faults:
        where = "" if fault.line is None else f"line {fault.line}: "
        told += textwrap.wrap(f"{where}{fault.text} [{fault.kind}]", WIDTH, subsequent_indent="  ")
    if not faults and head is not None:
        told.append(f"whole: {head.count:,} {'line' if head.count == 1 else 'lines'}")
    if head is not None:
        told += [f"head {head}", "keep the head elsewhere; later: stoploss ledger verify --head HEAD"]
    return "\n".join(told) + "\n"


def answer(request: Request, zone: tzinfo) -> str:
    """What was approved or rejected."""
    wanted = request.wanted
    step = f"{wanted.action} {wanted.resource} ({wanted.target}) of {wanted.policy}"
    if request.answer == "rejected":
        return f"rejected: {step}; it is not asked again in episode {wanted.episode}\n"
    assert request.answered is not None, "what is approved was answered"
    return (
        f"approved: {step}, until {_time(request.answered + VALID, zone, '%Z')}; all is checked again first\n"
    )


def kept(keep: Keep, per_hour: tuple[float, str] | None, zone: tzinfo) -> str:
    """How long a job is kept, and what that costs; an unknown price is said to be unknown."""
    hours = (keep.until - keep.since) / timedelta(hours=1)
    told = f"job {keep.job} is kept until {_time(keep.until, zone, '%Z')} ({hours:g} h)"
    if per_hour is None:
        return f"{told}; its price is unknown, give --per-hour to see the cost\n"
    price, currency = per_hour
    return f"{told}; that costs {money(keep.cost(price), currency)} at {money(price, currency)}/h\n"


def exempted(made: RuntimeExemption) -> str:
    """Which resources a policy leaves alone, and through which day."""
    return f"{made.policy} does not apply where {made.where}, through {made.expires} ({made.id})\n"


def _entry(entry: Entry, zone: tzinfo) -> Iterable[str]:
    about = [entry.kind, entry.action, entry.resource, entry.target and f"on {entry.target}", entry.verdict]
    facts = [entry.policy, entry.episode, entry.who and f"by {entry.who}"]
    if entry.intent is not None:
        facts.append(f"of line {entry.intent}")
    facts += [f"{name} {value}" for name, value in entry.parameters.items()]
    if entry.currency is not None:
        for name, amount in (("promised", entry.promised), ("got", entry.got)):
            if amount is not None:
                facts.append(f"{name} {money(amount, entry.currency)}/h")
    first = " ".join(str(part) for part in about if part)
    yield from _wrapped(f"{entry.seq:>5}  {_time(entry.at, zone)}  {first}")
    for text in (" · ".join(fact for fact in facts if fact), entry.why or ""):
        if text:
            yield from _wrapped(f"       {text}")


def _wrapped(text: str) -> list[str]:
    # What others wrote must not steer the terminal.
    plain = "".join(c if c.isprintable() else "�" for c in text)
    return textwrap.wrap(plain, WIDTH, subsequent_indent="       ", drop_whitespace=True)


def _time(at: datetime, zone: tzinfo, name: str = "") -> str:
    return at.astimezone(zone).strftime(f"%Y-%m-%d %H:%M:%S {name}").rstrip()
