"""Why something was done, from what the ledger keeps, for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import datetime, tzinfo
from itertools import groupby
from typing import Any

from stoploss.engine.costs.money import money
from stoploss.engine.execution.history_of import Act, History, Told
from stoploss.engine.planning.model import WATCHED
from stoploss.reports import ledger_table
from stoploss.reports.deed_view import View, command_of, offers
from stoploss.reports.pasted import WIDTH, commands, joined
from stoploss.rules.units import format_value

SHOWN = 10
"""Decisions that are shown, the newest; all of them are in json and in the ledger."""


def as_text(view: View) -> str:
    """All of it, in the order in which it is asked for."""
    history = view.history
    if history.line.episode is None:
        return ledger_table.lines(history.lines, view.zone)
    told: list[str] = [*_wrapped(_title(view), ""), *_wrapped(_summary(view), "  ")]
    sections = {
        "why": _why(view),
        "told": _told(view),
        "saved": _saved(view),
        "done": _done(view),
        "decided": _decided(view),
        "people": _people(view),
        "now": _now(view),
    }
    for name, lines in sections.items():
        found = list(lines)
        if found:
            told += ["", name, *found]
    return "\n".join(told) + "\n"


def _title(view: View) -> str:
    history, act = view.history, view.history.about
    about = str(history.resource) if history.resource else f"finding {history.line.episode}"
    if act is None:
        return f"{about} · nothing was done · policy {history.policy or 'unknown'}"
    state = "taken back" if act.undone else "begun" if act.state == "open" else act.state
    at = ((act.undone and act.undone.result) or act.result or act.intent).at
    parts = [about, f"{act.intent.action} {state} {_full(at, view.zone)} {_zone(at, view.zone)}"]
    return " · ".join([*parts, *_amounts(act, history)])


def _amounts(act: Act, history: History) -> Iterator[str]:
    """What it was to save, and what it did."""
    currency = act.intent.currency or history.currency
    if act.intent.promised is None or currency is None:
        return
    yield f"promised {money(act.intent.promised, currency)}/h"
    if act.got is not None:
        yield f"got {money(act.got, (act.judged and act.judged.currency) or currency)}/h"
    elif act.intent.action in WATCHED and act.state == "done":
        yield "got not known" if act.judged else "got not known yet"


def _summary(view: View) -> str:
    return view.history.summary or view.hand.summary or "the ledger keeps no summary, as nothing was begun"


def _why(view: View) -> Iterator[str]:
    history = view.history
    digest = history.policy_hash or "not kept"
    yield from _wrapped(f"policy {history.policy or 'unknown'}, hash {digest}: {view.hand.words}", "  ")
    since = history.since
    when = "since when is not kept" if since is None else f"true since {_full(since, view.zone)}"
    yield from _wrapped(f"finding {history.line.episode}, {when}", "  ")
    if not history.conditions:
        yield "  the values of its conditions are not kept, as nothing was begun"
    for item in history.conditions:
        yield from _wrapped(f"{item.get('condition')}: {_value(item)}", "  ")


def _value(item: Any) -> str:
    value, note = item.get("value"), item.get("note")
    if value is None:
        shown = "no value"
    elif isinstance(value, str):
        shown = value
    else:
        shown = format_value(value, item.get("unit") or "1")
    return shown + (f" ({note})" if note else "")


def _told(view: View) -> Iterator[str]:
    history = view.history
    if not history.told:
        yield "  nobody was told"
    for _, group in groupby(history.told, key=lambda item: (item.intent.target, item.arrived, item.words)):
        items = list(group)
        words = f"{items[0].intent.target}: {_arrival(items[0])}"
        if len(items) > 1:
            words += f"; {len(items)} times, the last {_time(view, items[-1].intent.at)}"
        yield from _dated(view, (items[0].result or items[0].intent).at, words)
    for entry in history.over:
        yield from _dated(view, entry.at, f"{entry.target}: {entry.why}")


def _arrival(item: Told) -> str:
    if item.arrived is None:
        return "sent; whether it arrived is not known"
    return "arrived" if item.arrived else f"did not arrive: {item.words or 'no reason is kept'}"


def _saved(view: View) -> Iterator[str]:
    for item in view.history.saved:
        step = "" if item.step is None else f", step {item.step}"
        yield from _dated(view, item.at, f"{item.path}{step}: verified (line {item.line})")
    if not view.history.saved:
        yield "  nothing was saved"


def _done(view: View) -> Iterator[str]:
    history = view.history
    for act in history.acts:
        intent, result = act.intent, act.result
        by = "" if intent.who in (None, "stoploss") else f" by {intent.who}"
        yield from _dated(
            view, intent.at, f"{intent.action}{by}: {act.words or 'not begun'} (line {intent.seq})"
        )
        if result is None:
            yield from _dated(view, None, "open: it is being done, or was interrupted")
        else:
            yield from _dated(view, result.at, f"{act.state}: {result.why} (line {result.seq})")
        if act.relied_on is not None:
            yield from _dated(view, None, f"relied on {act.relied_on}")
        amounts = ", ".join(_amounts(act, history))
        if act.judged is not None:
            yield from _dated(view, act.judged.at, f"{act.judged.why} (line {act.judged.seq})")
        elif amounts:
            yield from _dated(view, None, amounts)
        for item in act.undoings:
            why = f": {item.intent.why}" if item.intent.why else ""
            yield from _dated(
                view, item.intent.at, f"undo by {item.intent.who}{why} (line {item.intent.seq})"
            )
            if item.result is None:
                yield from _dated(view, None, "open: it is being taken back, or that was interrupted")
            else:
                yield from _dated(view, item.result.at, f"{item.result.verdict}: {item.result.why}")
    if not history.acts:
        yield "  nothing was done"


def _decided(view: View) -> Iterator[str]:
    entries = view.history.decided
    if len(entries) > SHOWN:
        yield f"  … {len(entries) - SHOWN} older: stoploss ledger list --kind decision"
    for entry in entries[-SHOWN:]:
        why = f": {entry.why}" if entry.why and entry.why != "ok" else ""
        verdict = "would be done" if entry.verdict == "would" else entry.verdict
        yield from _dated(view, entry.at, f"{entry.action} {verdict}{why}")


def _people(view: View) -> Iterator[str]:
    verbs = {"approval": "approved", "rejection": "rejected"}
    for entry in view.history.people:
        why = f": {entry.why}" if entry.why else ""
        if entry.kind == "keep":
            until = _time(view, datetime.fromisoformat(str(entry.parameters["until"])))
            words = f"{entry.who} kept {entry.resource} until {until}{why}"
        elif entry.kind in verbs:
            words = f"{entry.who} {verbs[entry.kind]} {entry.action}{why}"
        else:
            words = f"{entry.action} {entry.why or 'was asked'}"
        yield from _dated(view, entry.at, f"{words} (line {entry.seq})")


def _now(view: View) -> Iterator[str]:
    for item in offers(view):
        yield from _wrapped(item.words + (":" if item.command else ""), "  ")
        if item.command:
            yield from commands(command_of(view, item), "    ")
    episode = view.history.line.episode or ""
    yield "  every line of it:"
    yield from commands(joined(("ledger", "list", "--episode", episode), view.options), "    ")


def _dated(view: View, at: datetime | None, text: str) -> Iterator[str]:
    when = "" if at is None else _time(view, at)
    start = f"  {when:<8}  "
    yield from _wrapped(text, start, " " * 12)


def _time(view: View, at: datetime) -> str:
    """The time of day, with its date where that is another than that of the title."""
    act = view.history.about
    base = (act.result or act.intent).at if act else view.history.line.at
    same = at.astimezone(view.zone).date() == base.astimezone(view.zone).date()
    return f"{at.astimezone(view.zone):%H:%M:%S}" if same else _full(at, view.zone)


def _full(at: datetime, zone: tzinfo) -> str:
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def _zone(at: datetime, zone: tzinfo) -> str:
    return at.astimezone(zone).tzname() or str(zone)


def _wrapped(text: str, indent: str, further: str | None = None) -> list[str]:
    # What others wrote must not steer the terminal.
    plain = "".join(c if c.isprintable() else "�" for c in text)
    after = f"{indent}  " if further is None else further
    # A path is not broken at a hyphen, where that can be helped.
    return textwrap.wrap(plain, WIDTH, initial_indent=indent, subsequent_indent=after, break_on_hyphens=False)
