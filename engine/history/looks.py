"""What collectors saw, look by look, on disk: from it the samples are rebuilt after a restart.

Looks are kept for as long as windows and open episodes need them. One look is one row, written in one
transaction, so that a crash leaves whole looks.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    delete,
    insert,
    select,
)

from stoploss.engine.history.store_errors import StoreError, parsed, shown, told
from stoploss.engine.model import UNREADABLE, Bad, LabelValue, Look, Reading, ResourceId, Sample
from stoploss.engine.state_database import BUSY_SECONDS, WRITES, engine_of

METADATA = MetaData()
LOOKS = Table(
    "looks",
    METADATA,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("collector", String(128), nullable=False),
    Column("node", String(255), nullable=False),
    Column("at", Float(53), nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
)
LEVEL = 1
"""How hard a look is compressed: what is written every second must be cheap."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One look of one collector of one node, or why it failed.

    Attributes:
        collector: its name.
        at: the scheduled instant, in seconds since the epoch.
        look: what it saw; None where it failed.
        failure: why, in words.
        node: of another machine that forwards; empty for this one.
        every: seconds between two looks of a node's collector; None for one of this machine.
    """

    collector: str
    at: float
    look: Look | None
    failure: str | None = None
    node: str = ""
    every: float | None = None


class LookStore:
    """Looks in a database, in the order in which they came."""

    def __init__(self, url: str, *, read_only: bool = False, durable: bool = False) -> None:
        """Open the store, and create it where it is not there and may be written.

        Args:
            url: of the database.
            read_only: change nothing.
            durable: what was kept outlives a power cut; else the last looks may be lost.

        Raises:
            StoreError: it cannot be used.
        """
        self._url = parsed(url)
        self._engine = engine_of(self._url, read_only=read_only, busy=BUSY_SECONDS, durable=durable)
        if not read_only:
            with told(self._url), self._engine.execution_options(**WRITES).begin() as connection:
                METADATA.create_all(connection)

    def append(self, looks: Iterable[Kept], also: Callable[[Connection], None] | None = None) -> None:
        """Keep looks, all or none.

        Args:
            looks: what is kept.
            also: writes what is to be on disk with them.

        Raises:
            StoreError: they cannot be written.
        """
        rows = [
            {"collector": item.collector, "node": item.node, "at": item.at, "body": packed(item)}
            for item in looks
        ]
        if rows:
            with told(self._url), self._engine.execution_options(**WRITES).begin() as connection:
                connection.execute(insert(LOOKS), rows)
                if also is not None:
                    also(connection)

    def read(
        self,
        since: float = -math.inf,
        until: float = math.inf,
        *,
        node: str | None = None,
        nodes_since: float | None = None,
    ) -> Iterator[Kept]:
        """The looks from one instant to another, in the order in which they came.

        Args:
            since, until: seconds since the epoch; the looks at `until` are not among them.
            node: whose looks; None for all.
            nodes_since: leave out what nodes saw before this instant; nothing of this machine's own.

        Raises:
            StoreError: they cannot be read, or one is damaged.
        """
        query = select(LOOKS).where(LOOKS.c.at >= since, LOOKS.c.at < until).order_by(LOOKS.c.seq)
        if node is not None:
            query = query.where(LOOKS.c.node == node)
        if nodes_since is not None:
            query = query.where((LOOKS.c.node == "") | (LOOKS.c.at >= nodes_since))
        with told(self._url), self._engine.begin() as connection:
            for row in connection.execute(query.execution_options(yield_per=500)):
                try:
                    said = unpacked(row.body)
                    look, failure = look_of(said, row.at)
                    every = None if said.get("every") is None else float(said["every"])
                except (ValueError, TypeError, LookupError, zlib.error) as error:
                    raise StoreError(
                        f"{shown(self._url)}: a look of {row.collector} is damaged; restore it from a copy"
                    ) from error
                yield Kept(row.collector, row.at, look, failure, row.node, every)

    def forget(self, before: float, held: Mapping[str, float] | None = None) -> int:
        """Forget looks before an instant; returns how many.

        Args:
            before: the instant.
            held: nodes of which more is held, and since when.

        Raises:
            StoreError: the store cannot be written.
        """
        held = {node: since for node, since in (held or {}).items() if since < before}
        with told(self._url), self._engine.execution_options(**WRITES).begin() as connection:
            query = delete(LOOKS).where(LOOKS.c.at < before)
            count = connection.execute(query.where(LOOKS.c.node.not_in(held)) if held else query).rowcount
            for node, since in held.items():
                query = delete(LOOKS).where(LOOKS.c.node == node, LOOKS.c.at < since)
                count += connection.execute(query).rowcount
            return count

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()


def packed(item: Kept) -> bytes:
    """A look as bytes."""
    return zlib.compress(json.dumps(plain(item), separators=(",", ":")).encode(), LEVEL)


def unpacked(body: bytes) -> dict[str, Any]:
    """What `plain` gave.

    Raises:
        ValueError, zlib.error: it is damaged.
    """
    said = json.loads(zlib.decompress(body))
    if not isinstance(said, dict):
        raise ValueError("it is no look")  # noqa: TRY004 - a damaged text, not a mistake of the caller
    return said


def plain(item: Kept) -> dict[str, Any]:
    """A look as JSON values: resources with their labels and readings."""
    more = {} if item.every is None else {"every": item.every}
    if item.look is None:
        return {"failure": item.failure or "failed", **more}
    resources: dict[tuple[ResourceId, int], list[Any]] = {}
    for sample in item.look.samples:
        key = sample.resource, id(sample.labels)
        if key not in resources:
            labels = None if sample.labels is None else {k: _label(v) for k, v in sample.labels.items()}
            resources[key] = [sample.resource.kind, sample.resource.id, labels, []]
        resources[key][3].append([sample.signal, _reading(sample.reading)])
    return {
        "samples": list(resources.values()),
        "inventories": sorted(item.look.inventories),
        "notes": list(item.look.notes),
        **more,
    }


def look_of(said: dict[str, Any], at: float) -> tuple[Look | None, str | None]:
    """The reverse of `plain`.

    Raises:
        ValueError, TypeError, LookupError: it is none.
    """
    if "failure" in said:
        return None, str(said["failure"])
    samples = []
    for kind, name, labels, readings in said["samples"]:
        resource = ResourceId(str(kind), str(name))
        told_ = None if labels is None else {str(key): _label_of(value) for key, value in labels.items()}
        samples += [
            Sample(at, resource, str(signal), _reading_of(value), told_) for signal, value in readings
        ]
    return Look(tuple(samples), frozenset(said["inventories"]), tuple(said["notes"])), None


def _label(value: LabelValue) -> Any:
    return False if value is UNREADABLE else value


def _label_of(value: Any) -> LabelValue:
    if value is False:
        return UNREADABLE
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{value!r} is no label")
    return value


def _reading(value: Reading) -> Any:
    if isinstance(value, Bad):
        return [value.reason]
    if isinstance(value, float) and not math.isfinite(value):
        return {"n": repr(value)}
    return value


def _reading_of(value: Any) -> Reading:
    if isinstance(value, list):
        return Bad(str(value[0]))
    if isinstance(value, dict):
        return float(value["n"])
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"{value!r} is no reading")
    return value
