"""Why something was done, from what the ledger keeps, as JSON."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from stoploss.engine.execution.history_of import Act
from stoploss.reports import ledger_json
from stoploss.reports.audit_json import instant
from stoploss.reports.deed_view import View, command_of, offers


def as_json(view: View) -> str:
    """All of it as one JSON object and a newline."""
    history = view.history
    resource = history.resource
    data = {
        "version": 1,
        "line": history.line.seq,
        "finding": history.line.episode,
        "resource": None if resource is None else {"kind": resource.kind, "id": resource.id},
        "job": history.job,
        "policy": {
            "name": history.policy,
            "hash": history.policy_hash,
            "summary": history.summary or view.hand.summary,
            "now": view.hand.state,
            "now_words": view.hand.words,
        },
        "since": _iso(history.since),
        "conditions": [dict(item) for item in history.conditions],
        "told": [
            {
                "line": item.intent.seq,
                "at": instant((item.result or item.intent).at),
                "to": item.intent.target,
                "arrived": item.arrived,
                "words": item.words or None,
            }
            for item in history.told
        ],
        "told_over": [{"line": e.seq, "at": instant(e.at), "to": e.target} for e in history.over],
        "saved": [
            {"line": item.line, "path": item.path, "step": item.step, "verified_at": instant(item.at)}
            for item in history.saved
        ],
        "about": None if history.about is None else history.about.intent.seq,
        "done": [_act_json(act) for act in history.acts],
        "decided": [ledger_json.as_dict(entry) for entry in history.decided],
        "people": [ledger_json.as_dict(entry) for entry in history.people],
        "now": [{"words": item.words, "command": command_of(view, item) or None} for item in offers(view)],
        "lines": [entry.seq for entry in history.lines],
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _act_json(act: Act) -> dict[str, Any]:
    intent, result = act.intent, act.result
    return {
        "line": intent.seq,
        "order": act.order,
        "action": intent.action,
        "target": intent.target,
        "parameters": dict(intent.parameters),
        "who": intent.who,
        "begun": instant(intent.at),
        "would": act.words,
        "ended": None if result is None else instant(result.at),
        "state": act.state,
        "words": None if result is None else result.why,
        "relied_on": act.relied_on,
        "promised_per_hour": intent.promised,
        "got_per_hour": act.got,
        "currency": intent.currency,
        "judged": None if act.judged is None else act.judged.why,
        "undoable": act.undoable,
        "undoings": [
            {
                "line": item.intent.seq,
                "at": instant(item.intent.at),
                "who": item.intent.who,
                "why": item.intent.why,
                "verdict": None if item.result is None else item.result.verdict,
                "words": None if item.result is None else item.result.why,
            }
            for item in act.undoings
        ],
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else instant(at)
