"""What has come from nodes: how far each one's numbers go, and since when looks wait for their slots.

A node numbers its looks. What was written down of them stands beside the looks themselves, written with them,
so that a look whose answer was lost on the way is not taken twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from sqlalchemy import BigInteger, Column, Connection, Float, String, Table, delete, insert, select, update

from stoploss.engine.history.looks import METADATA
from stoploss.engine.state_database import writing

ARRIVALS = Table(
    "arrivals",
    METADATA,
    Column("node", String(128), primary_key=True),
    Column("spool", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("every", Float(53), nullable=False),
    Column("heard", Float(53), nullable=False),
    Column("late", Float(53)),
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """How far a node's looks have come; times in seconds since the epoch.

    Attributes:
        node, spool: whose, and by which of its spools they are numbered.
        number: of the newest look that was taken.
        at: the newest instant of a look.
        every: the longest time between two looks of one of its collectors.
        heard: when a batch was taken last.
        late: the oldest instant of a look that came after its slot was sealed, and is not in it yet;
            None where there is none.
    """

    node: str
    spool: str
    number: int
    at: float
    every: float
    heard: float
    late: float | None = None


def load(url: str) -> dict[tuple[str, str], Arrival]:
    """All arrivals by node and spool.

    Raises:
        StoreError: they cannot be read.
    """
    with writing(url) as connection:
        METADATA.create_all(connection)
        found = [
            Arrival(**{item.name: getattr(row, item.name) for item in fields(Arrival)})
            for row in connection.execute(select(ARRIVALS))
        ]
    return {(item.node, item.spool): item for item in found}


def write(connection: Connection, arrival: Arrival) -> None:
    """Write an arrival in place of what was known of this spool."""
    same = (ARRIVALS.c.node == arrival.node) & (ARRIVALS.c.spool == arrival.spool)
    connection.execute(delete(ARRIVALS).where(same))
    connection.execute(insert(ARRIVALS), asdict(arrival))


def settle(url: str, node: str) -> None:
    """Note that no look of a node waits any more.

    Raises:
        StoreError: that cannot be written.
    """
    with writing(url) as connection:
        connection.execute(update(ARRIVALS).where(ARRIVALS.c.node == node).values(late=None))


def forget(url: str, before: float) -> None:
    """Forget spools of which nothing was heard since an instant: nothing that old is taken again.

    Raises:
        StoreError: that cannot be written.
    """
    with writing(url) as connection:
        connection.execute(delete(ARRIVALS).where(ARRIVALS.c.heard < before))


def newest(arrivals: Mapping[tuple[str, str], Arrival]) -> dict[str, Arrival]:
    """Node -> its arrival that was heard last."""
    found: dict[str, Arrival] = {}
    for item in arrivals.values():
        if item.node not in found or found[item.node].heard <= item.heard:
            found[item.node] = item
    return found
