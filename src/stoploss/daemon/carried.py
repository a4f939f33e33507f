"""The carry of audits on disk, so that a restart evaluates only what came since."""

from __future__ import annotations

import json
import zlib

from sqlalchemy import Column, Integer, LargeBinary, MetaData, Table, delete, insert, inspect, select

from stoploss.engine.carry import Carry
from stoploss.engine.history.store_errors import StoreError, parsed, shown, told
from stoploss.engine.state_database import BUSY_SECONDS, WRITES, engine_of

METADATA = MetaData()
CARRY = Table(
    "carry",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)


def load_carry(url: str) -> Carry | None:
    """The carry that was kept; None where none was.

    Raises:
        StoreError: it cannot be read, or is damaged.
    """
    address = parsed(url)
    engine = engine_of(address, busy=BUSY_SECONDS, durable=True)
    try:
        with told(address), engine.begin() as connection:
            if not inspect(connection).has_table(CARRY.name):
                return None
            body = connection.execute(select(CARRY.c.body)).scalar()
    finally:
        engine.dispose()
    if body is None:
        return None
    try:
        return Carry.from_json(json.loads(zlib.decompress(body)))
    except (ValueError, zlib.error) as error:
        raise StoreError(
            f"{shown(address)}: what was carried on is damaged ({error}); restore it from a copy"
        ) from None


def save_carry(url: str, carry: Carry) -> None:
    """Keep a carry in place of the one before.

    Raises:
        StoreError: it cannot be written; the one before is still there then.
    """
    address = parsed(url)
    engine = engine_of(address, busy=BUSY_SECONDS, durable=True)
    body = zlib.compress(json.dumps(carry.as_json(), separators=(",", ":"), allow_nan=False).encode())
    try:
        with told(address), engine.execution_options(**WRITES).begin() as connection:
            METADATA.create_all(connection)
            connection.execute(delete(CARRY))
            connection.execute(insert(CARRY), {"id": 1, "body": body})
    finally:
        engine.dispose()
