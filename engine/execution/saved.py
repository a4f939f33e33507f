"""Money that steps have saved so far, by price kind; what nobody can know is not counted."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from stoploss.engine.execution.deeds import UNDO
from stoploss.engine.ledger_schema import Entry

AT_MOST = timedelta(hours=24)
"""How long a step counts: nobody knows for how much longer it would have gone on."""
ENDS = ("terminate", "release", "downscale")
"""Actions by which something stops costing."""
UNKNOWN = "unknown"


def saved(lines: Iterable[Entry], now: datetime) -> dict[str, float]:
    """Price kind -> money, of the intents, results and notes of a ledger.

    A step counts what it promised per hour, or what it was found to bring, from its end on for a day at
    most, and until it was taken back.

    Args:
        lines: of kinds intent, result and note.
        now: the present instant.
    """
    intents: dict[int, Entry] = {}
    done: dict[int, datetime] = {}
    over: dict[int, datetime] = {}
    got: dict[int, float] = {}
    for line in lines:
        said = line.evidence or {}
        if line.kind == "intent":
            intents[line.seq or 0] = line
        elif line.kind == "note" and line.got is not None and isinstance(said.get("line"), int):
            got[said["line"]] = line.got
        elif line.kind == "result" and line.verdict == "done" and line.intent in intents:
            intent = intents[line.intent]
            if intent.action == UNDO:
                over[(intent.evidence or {}).get("line", 0)] = line.at
            elif intent.action in ENDS:
                done[line.intent] = line.at
    out: dict[str, float] = {}
    for seq, at in done.items():
        per_hour = got.get(seq, intents[seq].promised)
        if per_hour is None:
            continue
        until = min(now, at + AT_MOST, over.get(seq, now))
        kind = (intents[seq].evidence or {}).get("price_kind", UNKNOWN)
        hours = max(0.0, (until - at).total_seconds() / 3600.0)
        out[kind] = out.get(kind, 0.0) + per_hour * hours
    return out
