"""Tables of the sample store, and how a slot of a signal becomes bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import cast

import numpy as np
from sqlalchemy import BigInteger, Column, Integer, LargeBinary, MetaData, String, Table, Text

from stoploss.engine.history.frame import NONE, Bytes, Floats
from stoploss.engine.model import UNREADABLE, LabelValue, Unreadable

SCHEMA = 2
"""Version of these tables; a store with a greater one is left alone. Since 2 columns are given anew."""

METADATA = MetaData()

META = Table(
    "history_meta",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)
SERIES = Table(
    "history_series",
    METADATA,
    Column("signal", String(200), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(64), nullable=False),
    Column("resource", Text, nullable=False),
    Column("cadence", Integer, nullable=False),
)
SLOTS = Table(
    "history_slots",
    METADATA,
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("signal", String(200), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
WORDS = Table(
    "history_words",
    METADATA,
    Column("signal", String(200), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("word", Text, nullable=False),
)
REASONS = Table(
    "history_reasons",
    METADATA,
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("reason", Text, nullable=False),
)
COLLECTORS = Table(
    "history_collectors",
    METADATA,
    Column("collector", String(200), primary_key=True),
    Column("cadence", Integer, nullable=False),
    Column("failure", Text),
)
LOOKS = Table(
    "history_looks",
    METADATA,
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("collector", String(200), primary_key=True),
    Column("status", Integer, nullable=False),
)
RESOURCES = Table(
    "history_resources",
    METADATA,
    Column("kind", String(64), primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("first", BigInteger, nullable=False),
)
LABELS = Table(
    "history_labels",
    METADATA,
    Column("kind", String(64), primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("labels", Text, nullable=False),
)
ABSENCES = Table(
    "history_absences",
    METADATA,
    Column("kind", String(64), primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("stop", BigInteger),
)
NODES = Table(
    "history_nodes",
    METADATA,
    Column("kind", String(64), primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("node", String(200), primary_key=True),
)
"""Which machines told of a resource; of one without a row only this one did."""
SEEN = Table(
    "history_seen",
    METADATA,
    Column("kind", String(64), primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("slot", BigInteger, nullable=False),
)
"""About when a resource was read last: within `SEEN_EVERY` after this slot. A collector is of kind `look`."""
LATER = (NODES, SEEN)
"""Tables that stores of earlier versions have not."""


def pack(values: Floats, status: Bytes, increase: Floats | None) -> bytes:
    """One slot of a signal, in the order of its series."""
    parts = [values.astype("<f8").tobytes(), status.tobytes()]
    if increase is not None:
        parts.append(increase.astype("<f8").tobytes())
    return zlib.compress(b"".join(parts), 1)


def unpack(data: bytes, *, counter: bool) -> tuple[Floats, Bytes, Floats | None]:
    """What `pack` made.

    Raises:
        ValueError: the bytes are damaged.
    """
    try:
        raw = zlib.decompress(data)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    width, rest = divmod(len(raw), 17 if counter else 9)
    if rest:
        raise ValueError("the length does not fit")
    values = np.frombuffer(raw, "<f8", width)
    status = np.frombuffer(raw, np.uint8, width, 8 * width)
    increase = np.frombuffer(raw, "<f8", width, 9 * width) if counter else None
    return values, status, increase


def is_blank(status: Bytes) -> bool:
    """Whether nobody read anything: such a slot takes no row."""
    return not (status != NONE).any()


def labels_text(labels: Mapping[str, LabelValue]) -> str:
    """Labels as JSON; `true` stands for unreadable, which no text can be mistaken for."""
    return json.dumps(
        {name: True if isinstance(value, Unreadable) else value for name, value in labels.items()}
    )


def labels_from(text: str) -> dict[str, LabelValue]:
    """What `labels_text` made."""
    said = cast("dict[str, str | bool | None]", json.loads(text))
    return {name: UNREADABLE if isinstance(value, bool) else value for name, value in said.items()}
