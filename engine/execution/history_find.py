"""Which line of the ledger a name means: a number, a finding, an order, a request, or a resource."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import select

from stoploss.engine.execution.deeds import UNDO
from stoploss.engine.execution.history_of import acts_in, labels_in, order_id, request_in
from stoploss.engine.history.store_errors import StoreError
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import LINES, Entry, entry_of
from stoploss.rules.diagnostics import did_you_mean, suggestion

NEAR = 5000
"""Lines among which a name is looked for that resembles one that is not there."""


class NotKeptError(LookupError):
    """The ledger holds nothing of that name; the text says what to do."""


def meant(ledger: Ledger, name: str) -> Entry:
    """The line that a name means: its number, a finding, an order, or a request.

    Of a finding or a request it is the newest line.

    Raises:
        NotKeptError: there is none.
        StoreError: the ledger cannot be read.
    """
    if name.isdecimal():
        found = _rows(ledger, LINES.c.seq == int(name))
        if not found:
            count = next((entry.seq for entry in ledger.entries(last=1)), 0)
            raise NotKeptError(
                f"there is no line {name}; the ledger holds lines 1 to {count}"
                if count
                else f"there is no line {name}; nothing was written into the ledger yet"
            )
        return found[0]
    if name.startswith("f-"):
        lines: Sequence[Entry] = ledger.entries(episode=name, last=1)
    elif name.startswith("o-"):
        lines = [e for e in _rows(ledger, LINES.c.body.contains(f'"{name}"')) if order_id(e) == name]
        # A try to take it back bears the same id, and comes later.
        lines = [e for e in lines if e.action != UNDO] or lines
    else:
        lines = [e for e in _rows(ledger, LINES.c.body.contains(f'"{name}"')) if request_in(e) == name]
    if not lines:
        near = did_you_mean(name, _names(ledger.entries(last=NEAR), name[:2]))
        hint = f"did you mean {near}?" if near else "stoploss ledger list shows what there is"
        raise NotKeptError(f"nothing in the ledger goes by {name}; {hint}")
    return lines[-1]


def newest_of(ledger: Ledger, resource: str) -> Entry:
    """The newest line by which something was done to a resource, else was tried, else the newest about it.

    Args:
        ledger: to be read.
        resource: `job 4412`, `job/4412`, or the id alone where one kind only has it. A job is also what ran
            on the resource that was acted on.

    Raises:
        NotKeptError: there is none; the text names what resembles it.
        StoreError: the ledger cannot be read.
    """
    wanted = resource if " " in resource else resource.replace("/", " ", 1)
    kind, _, name = wanted.partition(" ")
    done = [entry for entry in ledger.entries(kinds=("intent",), resource=wanted) if acts_in(entry)]
    if not done:
        acted = [entry for entry in ledger.entries(kinds=("intent",)) if acts_in(entry)]
        alone = [entry for entry in acted if entry.resource and entry.resource.id == resource]
        if len({entry.resource for entry in alone}) == 1:
            done = alone
        elif kind == "job" and name:
            done = [entry for entry in acted if labels_in(entry).get("job") == name]
    if done:
        return _best(ledger, done)
    about = [entry for entry in ledger.entries(resource=wanted, last=NEAR) if entry.episode]
    if about:
        return about[-1]
    known = {str(entry.resource) for entry in ledger.entries(last=NEAR) if entry.resource is not None}
    hint = suggestion(wanted, known) if known else "it is about no resource yet"
    raise NotKeptError(f"nothing in the ledger is about {resource!r}; {hint}")


def _best(ledger: Ledger, intents: Sequence[Entry]) -> Entry:
    """The newest that was done, else the newest."""
    episodes = sorted({entry.episode for entry in intents if entry.episode})
    results = ledger.entries(kinds=("result",), episodes=episodes)
    done = {entry.intent for entry in results if entry.verdict == "done"}
    return next((entry for entry in reversed(intents) if entry.seq in done), intents[-1])


def _rows(ledger: Ledger, condition: Any) -> list[Entry]:
    """The lines for which a condition on their table holds."""
    with ledger.reading() as connection:
        rows = list(connection.execute(select(LINES).where(condition).order_by(LINES.c.seq)))
    found = []
    for row in rows:
        try:
            found.append(entry_of(row))
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(
                f"{ledger.name}: line {row.seq} of the ledger is damaged; run stoploss ledger verify"
            ) from error
    return found


def _names(entries: Iterable[Entry], start: str) -> set[str]:
    """The names of some lines that begin alike."""
    found: set[str] = set()
    for entry in entries:
        found |= {name for name in (entry.episode, order_id(entry), request_in(entry)) if name}
    return {name for name in found if name.startswith(start)}
