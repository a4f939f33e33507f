"""The ledger of use: what was used and paid, slot by slot, kept over restarts.

A slot is written as a whole, in one transaction, in place of what was there: writing it twice, or
from two programs, or after a crash in the middle, comes to the same. A hole in the data that closes
is written again with the use that lies in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
)

from stoploss.engine.costs.goodput import Row
from stoploss.engine.history.store_errors import StoreError, parsed, shown, told
from stoploss.engine.state_database import WRITES, engine_of

BUSY_SECONDS = 30.0
"""How long to wait for another program that writes."""

METADATA = MetaData()
META = Table(
    "use_meta",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)
LINES = Table(
    "use_lines",
    METADATA,
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("job", Text),
    Column("team", Text),
    Column("experiment", Text),
    Column("category", String(32), nullable=False),
    Column("elasticity", String(32), nullable=False),
    Column("basis", String(32), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("goodput", String(32), nullable=False),
    Column("name", Text, nullable=False),
    Column("gpu_hours", Float(53), nullable=False),
    Column("money", Float(53)),
)


@dataclass(frozen=True, slots=True)
class Line:
    """Use in one slot: GPU-hours, and money in the policy set's currency (None: no price is known)."""

    slot: int
    job: str | None
    team: str | None
    experiment: str | None
    category: str
    elasticity: str
    basis: str
    kind: str
    goodput: str
    name: str
    gpu_hours: float
    money: float | None


def lines_of(rows: Iterable[Row], first: int) -> Iterator[Line]:
    """The lines of rows whose arrays begin with the slot `first`."""
    for row in rows:
        key = row.key
        for at in np.flatnonzero((row.gpu_hours != 0) | (row.money != 0)).tolist():
            yield Line(
                first + at,
                key.job,
                key.team,
                key.experiment,
                row.category,
                key.elasticity,
                key.basis,
                key.kind,
                row.goodput,
                key.name,
                float(row.gpu_hours[at]),
                None if key.missing else float(row.money[at]),
            )


class LedgerOfUse:
    """Accrual lines by slot in a database; several programs may write to it."""

    def __init__(self, url: str, resolution: float) -> None:
        """Open the ledger, and create it where it is not there.

        Args:
            url: database URL, such as sqlite:///stoploss.db; the sample store may lie in the same.
            resolution: seconds per slot.

        Raises:
            StoreError: it cannot be used, or holds slots of another length.
        """
        self._url = parsed(url)
        engine = engine_of(self._url, busy=BUSY_SECONDS, durable=False)
        self._engine = engine.execution_options(**WRITES)
        with told(self._url), self._engine.begin() as connection:
            METADATA.create_all(connection)
            query = select(META.c.value).where(META.c.name == "resolution")
            stored = connection.execute(query).scalar()
            if stored is None:
                connection.execute(insert(META), {"name": "resolution", "value": repr(float(resolution))})
        if stored is not None and float(stored) != resolution:
            self.close()
            raise StoreError(
                f"{shown(self._url)}: its use is kept in slots of {float(stored):g} s, "
                f"not of {resolution:g} s; set `resolution` back, or point `state` elsewhere"
            )

    def record(self, first: int, last: int, lines: Iterable[Line]) -> None:
        """Write the slots `first` to `last`, both included, in place of what was there.

        Raises:
            ValueError: a line lies outside these slots.
            StoreError: the ledger cannot be written; nothing has changed then.
        """
        rows: list[dict[str, Any]] = []
        positions: dict[int, int] = {}
        for line in lines:
            if not first <= line.slot <= last:
                raise ValueError(f"slot {line.slot} lies outside {first}..{last}")
            position = positions[line.slot] = positions.get(line.slot, -1) + 1
            rows.append({name: getattr(line, name) for name in Line.__slots__} | {"position": position})
        with told(self._url), self._engine.begin() as connection:
            connection.execute(delete(LINES).where(LINES.c.slot.between(first, last)))
            if rows:
                connection.execute(insert(LINES), rows)
            newest = self._newest(connection)
            if newest is None or newest < last:
                connection.execute(delete(META).where(META.c.name == "last"))
                connection.execute(insert(META), {"name": "last", "value": str(last)})

    @property
    def last_slot(self) -> int | None:
        """The newest slot that was recorded, also where nothing was used in it; None when empty."""
        with told(self._url), self._engine.begin() as connection:
            return self._newest(connection)

    def lines(self, first: int, last: int) -> tuple[Line, ...]:
        """The lines of the slots `first` to `last`, both included, in order."""
        columns = [LINES.c[name] for name in Line.__slots__]
        query = select(*columns).where(LINES.c.slot.between(first, last))
        query = query.order_by(LINES.c.slot, LINES.c.position)
        with told(self._url), self._engine.begin() as connection:
            return tuple(Line(*row) for row in connection.execute(query))

    def totals(
        self, first: int, last: int, by: Sequence[str]
    ) -> dict[tuple[str | None, ...], tuple[float, float]]:
        """GPU-hours and money of some slots, by columns such as job, team, category or goodput."""
        columns = [LINES.c[name] for name in by]
        sums = (func.sum(LINES.c.gpu_hours), func.coalesce(func.sum(LINES.c.money), 0.0))
        query = select(*columns, *sums).where(LINES.c.slot.between(first, last)).group_by(*columns)
        with told(self._url), self._engine.begin() as connection:
            rows = [tuple(row) for row in connection.execute(query)]
        return {row[:-2]: (float(row[-2]), float(row[-1])) for row in rows if row[-2] is not None}

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def _newest(self, connection: Connection) -> int | None:
        value = connection.execute(select(META.c.value).where(META.c.name == "last")).scalar()
        return None if value is None else int(value)
