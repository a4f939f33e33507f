"""Goes along the ledger's chain and names what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from stoploss.engine.ledger_schema import SEARCHED, START, Fault, Head, digest, searched


def faults_of(rows: Iterable[Any], head: Head | None, kept: Head | None = None) -> Iterator[Fault]:
    """What is wrong with lines that come in the order of their numbers.

    Args:
        rows: rows of the table of lines.
        head: the head record; None when it is gone.
        kept: a head that was kept elsewhere.
    """
    count, last, sound = 0, START, True
    for row in rows:
        if row.seq != count + 1:
            yield _gap(count + 1, row.seq)
            sound = False
        fault = _line(row)
        if fault is not None:
            yield fault
        elif sound and row.previous != last:
            text = "it does not follow from the line before it: that line, or this one, was replaced"
            yield Fault("bad-previous", row.seq, text)
        # After a line that is out of its place nothing is known of where the next belongs.
        sound = fault is None or fault.kind == "tampered"
        count, last = row.seq, row.hash
        if kept is not None and kept.count == count and kept.hash != last:
            yield Fault("tampered", count, "it is not the line that the kept head was taken from")
    yield from _end(Head(count, last), head, kept)


def _gap(expected: int, found: int) -> Fault:
    if found <= 0:
        return Fault("reordered", found, "line numbers begin with 1")
    missing = f"line {expected} is" if found == expected + 1 else f"lines {expected} to {found - 1} are"
    return Fault("missing", expected, f"{missing} missing")


def _line(row: Any) -> Fault | None:
    """What is wrong with a line by itself."""
    if digest(row.previous, row.body) != row.hash:
        return Fault("tampered", row.seq, "its text was changed after it was written")
    try:
        values = json.loads(row.body)
        columns = searched(values)
        seq = values["seq"]
    except (ValueError, TypeError, KeyError):
        return Fault("tampered", row.seq, "it cannot be read")
    if seq != row.seq:
        return Fault("reordered", row.seq, f"it was written as line {seq}")
    wrong = [name for name in SEARCHED if getattr(row, name) != columns[name]]
    if wrong:
        return Fault("tampered", row.seq, f"what it is found by was changed: {', '.join(wrong)}")
    return None


def _end(end: Head, head: Head | None, kept: Head | None) -> Iterator[Fault]:
    """What is wrong with the end of the chain."""
    if head is None:
        yield Fault("bad-head", None, "the head record is gone, so that lines may have been cut off the end")
    elif head.count > end.count:
        yield Fault("truncated", end.count + 1, f"cut off here: there were {head.count} lines")
    elif head.count < end.count:
        yield Fault("bad-head", None, f"the head record knows {head.count} lines, and there are {end.count}")
    elif head.hash != end.hash:
        yield Fault("bad-head", end.count or None, "the head record is not that of the last line")
    if kept is not None and kept.count > end.count and (head is None or head.count < kept.count):
        text = f"cut off here: there were {kept.count} lines when the head was kept"
        yield Fault("truncated", end.count + 1, text)
