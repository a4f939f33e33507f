"""The signal catalogue for a terminal of 80 columns, and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from stoploss.rules.catalogue import KINDS, Signal
from stoploss.rules.signals import FAMILIES

WIDTH = 80
_ROW = "  {:<30} {:<14} {:<9} {}"


def as_text(signals: Sequence[Signal]) -> str:
    """Two lines or more a signal, under the title of its family."""
    lines = [_ROW.format("SIGNAL", "UNIT", "KIND", "COLLECTOR")]
    for title, family in FAMILIES.items():
        chosen = [signal for signal in signals if signal in family]
        if chosen:
            lines += ["", title]
        for signal in chosen:
            unit = "" if signal.is_text else {"1": "number"}.get(signal.unit, signal.unit)
            lines.append(_ROW.format(signal.name, unit, signal.kind.value, signal.collector).rstrip())
            text = f"{signal.meaning} Of {_resources(signal)}."
            if signal.values:
                text += f" One of {', '.join(signal.values)}."
            lines += textwrap.wrap(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    count = f"{len(signals)} signal{'' if len(signals) == 1 else 's'}"
    return "\n".join([*lines, "", f"{count}; stoploss explain NAME says how a condition uses one"]) + "\n"


def _resources(signal: Signal) -> str:
    return "any resource" if signal.resources == KINDS else ", ".join(signal.resources)


def as_json(signals: Sequence[Signal]) -> str:
    """The same for programs."""
    titles = {signal.name: title for title, family in FAMILIES.items() for signal in family}
    listed = [
        {
            "name": signal.name,
            "family": titles[signal.name],
            "unit": signal.unit,
            "kind": signal.kind.value,
            "resources": list(signal.resources),
            "collector": signal.collector,
            "meaning": signal.meaning,
            "values": list(signal.values),
        }
        for signal in signals
    ]
    return json.dumps({"version": 1, "signals": listed}, ensure_ascii=False, indent=2) + "\n"
