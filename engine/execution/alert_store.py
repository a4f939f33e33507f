"""Who has been told what, kept beside the ledger: written in the transaction of the line that says so."""

from __future__ import annotations

import json
from dataclasses import asdict

from sqlalchemy import Column, Connection, Table, Text, delete, insert, inspect, select

from stoploss.engine.alert_memory import Memory
from stoploss.engine.history.store_errors import StoreError
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import METADATA
from stoploss.engine.masking import Masker

TOLD = Table(
    "alerts_told",
    METADATA,
    Column("finding", Text, primary_key=True),
    Column("recipient", Text, primary_key=True),
    Column("body", Text, nullable=False),
)


def load(ledger: Ledger) -> Memory:
    """The memory that was kept; an empty one, and a place for it, where none was.

    Raises:
        StoreError: it cannot be read, or is damaged: nothing is guessed, as all would be told again.
    """
    with ledger.reading() as connection:
        there = inspect(connection).has_table(TOLD.name)
        query = select(TOLD.c.body).order_by(TOLD.c.finding, TOLD.c.recipient)
        rows = connection.execute(query).scalars().all() if there else ()
    if not there:
        # A state that was begun by somebody's word, as by `stoploss keep`, has no place for it yet.
        with ledger.writing() as connection:
            TOLD.create(connection, checkfirst=True)
    try:
        return Memory.from_json([json.loads(body) for body in rows])
    except ValueError as error:
        raise StoreError(f"{ledger.name}: who was told what is damaged: {error}") from None


def save(connection: Connection, masker: Masker, before: Memory, after: Memory) -> None:
    """Write what has changed, without secrets, within a transaction of the ledger."""
    for key in before.entries.keys() - after.entries.keys():
        connection.execute(delete(TOLD).where(TOLD.c.finding == key[0], TOLD.c.recipient == key[1]))
    for key, entry in after.entries.items():
        if before.entries.get(key) == entry:
            continue
        connection.execute(delete(TOLD).where(TOLD.c.finding == key[0], TOLD.c.recipient == key[1]))
        row = {
            "finding": key[0],
            "recipient": key[1],
            "body": json.dumps(masker.plain(asdict(entry)), allow_nan=False),
        }
        connection.execute(insert(TOLD), row)
