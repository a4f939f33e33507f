"""The carry of audits on disk, so that a restart evaluates only what came since."""

from __future__ import annotations

import json
import zlib

from sqlalchemy import Column, Integer, LargeBinary, MetaData, Table, delete, insert, inspect, select

from stoploss.engine.carry import Carry
from stoploss.engine.history.store_errors import StoreError, parsed, shown, told
from stoploss.engine.state_database import BUSY_SECONDS, WRITES, engine_of

VERSION = 1
METADATA = MetaData()
CARRY = Table(
    "carry",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)


class Damaged(StoreError):
    """What was carried on is there, and cannot be read."""


def load_carry(url: str) -> Carry | None:
    """The carry that was kept; None where none was.

    Raises:
        Damaged: it is damaged.
        StoreError: it cannot be read, or was written by a newer stoploss.
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
        said = json.loads(zlib.decompress(body))
        version = said["version"]
        if isinstance(version, int) and version > VERSION:
            raise StoreError(
                f"{shown(address)}: what was carried on was written by a newer stoploss ({version}, this one "
                f"knows {VERSION}); upgrade stoploss, or point `state` elsewhere"
            )
        return Carry.from_json(said)
    except (ValueError, TypeError, LookupError, zlib.error) as error:
        raise Damaged(f"{shown(address)}: what was carried on is damaged ({error})") from None


def save_carry(url: str, carry: Carry) -> None:
    """Keep a carry in place of the one before.

    Raises:
        StoreError: it cannot be written; the one before is still there then.
    """
    address = parsed(url)
    engine = engine_of(address, busy=BUSY_SECONDS, durable=True)
    body = zlib.compress(json.dumps(carry.as_json(), separators=(",", ":")).encode())
    try:
        with told(address), engine.execution_options(**WRITES).begin() as connection:
            METADATA.create_all(connection)
            connection.execute(delete(CARRY))
            connection.execute(insert(CARRY), {"id": 1, "body": body})
    finally:
        engine.dispose()
