"""Lines of the ledger in parts, the newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlalchemy import select

from stoploss.engine.history.store_errors import StoreError
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import LINES, Entry, entry_of

LOOKED = 5000
"""Lines that are looked through for one part; what follows is the next part's."""


def before(
    ledger: Ledger,
    seq: int | None,
    limit: int,
    *,
    wanted: Iterable[tuple[str, str]] = (),
    shown: Callable[[Entry], bool] | None = None,
) -> tuple[list[Entry], int | None]:
    """Lines before a number, the newest first, and the number to go on from (None: there are none).

    Args:
        ledger: where they stand.
        seq: the number that all of them are below; None from the end.
        limit: so many at most.
        wanted: columns and what has to stand in them.
        shown: which of them are given; all where it is left out.

    Raises:
        StoreError: a line is damaged, or the ledger cannot be read.
    """
    query = select(LINES).order_by(LINES.c.seq.desc())
    for name, value in wanted:
        query = query.where(LINES.c[name] == value)
    if seq is not None:
        query = query.where(LINES.c.seq < seq)
    found: list[Entry] = []
    with ledger.reading() as connection:
        most = limit if shown is None else LOOKED
        rows = list(connection.execute(query.limit(most + 1)))
    for looked, row in enumerate(rows):
        if len(found) == limit or looked == most:
            return found, int(rows[looked - 1].seq)
        try:
            entry = entry_of(row)
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"{ledger.name}: line {row.seq} of the ledger is damaged") from error
        if shown is None or shown(entry):
            found.append(entry)
    return found, None
