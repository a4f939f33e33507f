"""What is told of taking a step back, for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from typing import Any

from stoploss.engine.execution.deeds import order_of
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import Outcome

WIDTH = 80
LONGEST = 60
"""Characters of a remembered value that is shown."""

CAME = {
    "done": "put back",
    "skipped": "left alone",
    "failed": "not put back",
    "undone": "not put back",
    "unknown": "not known whether it was put back",
}


def about(ledger: Ledger, intent: Entry, zone: tzinfo) -> str:
    """What was done, when, by whose wish, and what is remembered of how it was.

    Raises:
        StoreError: the ledger cannot be read.
    """
    results = ledger.entries(kinds=("result",), episode=intent.episode)
    result = next((entry for entry in results if entry.intent == intent.seq), None)
    told = [f"undo {intent.action} of {intent.resource} (line {intent.seq}, policy {intent.policy})"]
    if result is not None:
        when = result.at.astimezone(zone)
        told.append(f"{result.verdict} {when:%Y-%m-%d %H:%M:%S %Z}: {result.why}")
    known = order_of(intent)
    remembered = " · ".join(_plain(known[1].before)) if known is not None else ""
    if remembered:
        told.append(f"before it: {remembered}")
    return _lines(*told)


def busy(entry: Entry, zone: tzinfo) -> str:
    """That something else is being done to it."""
    begun = f"was begun by {entry.who} {entry.at.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"
    return _lines(
        f"not put back: line {entry.seq}, {entry.action} of {entry.resource}, {begun}, and nothing says yet "
        "what came of it; try again when something does",
        indent="  ",
    )


def would(outcome: Outcome) -> str:
    """What would be done, by how it stands now."""
    if outcome.state in ("done", "failed"):
        words = f"would put it back; now: {outcome.words}"
    elif outcome.state == "undone":
        words = f"it is as it was already: {outcome.words}"
    elif outcome.state == "skipped":
        words = f"would leave it alone: {outcome.words}"
    else:
        words = f"not known whether it can be put back: {outcome.words}"
    return _lines(words, "nothing was touched", indent="  ")


def came(outcome: Outcome) -> str:
    """What came of it."""
    again = "another try may help" if outcome.retry and outcome.state != "done" else ""
    return _lines(f"{CAME[outcome.state]}: {outcome.words}", again, indent="  ")


def _plain(before: Mapping[str, Any]) -> Iterator[str]:
    """What is remembered, where it is short enough to be read."""
    for name, value in before.items():
        if isinstance(value, str | int | float) and value != "" and len(str(value)) <= LONGEST:
            yield f"{name} {value}"


def _lines(*texts: str, indent: str = "") -> str:
    """Texts, wrapped; all but the first are set in where there is no `indent`."""
    out: list[str] = []
    for text in filter(None, texts):
        # What others wrote must not steer the terminal.
        plain = "".join(c if c.isprintable() else "�" for c in text)
        start = indent or ("  " if out else "")
        further = f"{indent}  "
        out += textwrap.wrap(
            plain, WIDTH, initial_indent=start, subsequent_indent=further, break_on_hyphens=False
        )
    return "\n".join(out) + "\n"
