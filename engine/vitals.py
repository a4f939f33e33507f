"""How the daemon is, and where it writes that down for `stoploss status`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Integer, MetaData, Table, Text, delete, insert, inspect, select

from stoploss.engine.history.store_errors import StoreError, shown, told
from stoploss.engine.state_database import open_database, writing

BUSY_SECONDS = 2.0
METADATA = MetaData()
VITALS = Table(
    "vitals",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """How the newest look of a collector went; times in seconds."""

    ok: bool
    reason: str | None
    at: float
    seconds: float


@dataclass(slots=True)
class Vitals:
    """How the service is.

    Attributes:
        started: when it began.
        last_tick: when it ticked last; None before the first.
        tick_seconds: how long that took.
        interval: seconds from one tick to the next.
        ticks, missed: how many there were, and how many instants passed without one.
        findings, unknown: how many fire, and how many could not be decided.
        collectors: how each collector's newest look went.
        problems: what is wrong, in words, by what it is about.
        sealed: resolution in seconds -> the newest slot that gains nothing any more.
    """

    started: datetime
    last_tick: datetime | None = None
    tick_seconds: float = 0.0
    interval: float = 60.0
    ticks: int = 0
    missed: int = 0
    findings: int = 0
    unknown: int = 0
    collectors: dict[str, Seen] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    sealed: dict[float, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The vitals as JSON values."""
        return {
            **asdict(self),
            "started": self.started.isoformat(),
            "last_tick": None if self.last_tick is None else self.last_tick.isoformat(),
        }

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Vitals:
        """What `as_json` gave.

        Raises:
            ValueError, TypeError, KeyError: it is none.
        """
        last = said["last_tick"]
        times = {
            "started": datetime.fromisoformat(said["started"]),
            "last_tick": None if last is None else datetime.fromisoformat(last),
        }
        seen = {name: Seen(**item) for name, item in said["collectors"].items()}
        sealed = {float(resolution): int(slot) for resolution, slot in said.get("sealed", {}).items()}
        return cls(**{**said, **times, "collectors": seen, "sealed": sealed})


def save_vitals(url: str, vitals: Vitals) -> None:
    """Write them down in place of those before.

    Raises:
        StoreError: they cannot be written.
    """
    with writing(url, busy=BUSY_SECONDS, durable=False) as connection:
        METADATA.create_all(connection)
        connection.execute(delete(VITALS))
        connection.execute(insert(VITALS), {"id": 1, "body": json.dumps(vitals.as_json())})


def load_vitals(url: str) -> Vitals | None:
    """What was written down last; None where nothing was. Changes nothing.

    Raises:
        StoreError: it cannot be read, or is damaged.
    """
    address, engine = open_database(url, read_only=True)
    try:
        with told(address), engine.begin() as connection:
            if not inspect(connection).has_table(VITALS.name):
                return None
            body = connection.execute(select(VITALS.c.body)).scalar()
    finally:
        engine.dispose()
    if body is None:
        return None
    try:
        return Vitals.from_json(json.loads(body))
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{shown(address)}: how the daemon is cannot be read ({error})") from None
