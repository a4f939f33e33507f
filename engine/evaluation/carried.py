"""Lifecycle state as data, so that a restart or a reload forgets nothing.

State is keyed by each + where + canonical condition, and per row by resource and start of its
column; a policy keeps its state when anything else about it is edited.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from stoploss.engine.evaluation.columns import Column
from stoploss.engine.evaluation.kleene import OUTSIDE
from stoploss.engine.evaluation.lifecycle import Lifecycle

VERSION = 1
FIELDS = ("true_run", "false_run", "since", "firing", "fired", "known", "truth")

RowKey: TypeAlias = tuple[str, str, int]
"""Kind, id and first slot of a column."""
RowState: TypeAlias = tuple[int, ...]
"""The values of FIELDS."""


def rows(life: Lifecycle, columns: list[Column], last: int) -> dict[RowKey, RowState]:
    """The state of every row that is there in the newest slot, or was judged in it; no other matters."""
    judged = life.firing | (life.truth != OUTSIDE)
    table = np.stack([np.asarray(getattr(life, name), dtype=np.int64) for name in FIELDS], axis=1)
    return {
        (columns[at].resource.kind, columns[at].resource.id, columns[at].start): tuple(
            int(v) for v in table[at]
        )
        for at in range(len(table))
        if judged[at] or columns[at].start <= last < columns[at].end
    }


def attach(
    life: Lifecycle, columns: list[Column], waiting: Mapping[RowKey, RowState], slot: int | None
) -> None:
    """Give rows the state that was carried for them after `slot`.

    Where what was known of long ago is forgotten a row may seem to begin at another slot: it is the one that
    was there.
    """
    places = {
        (column.resource.kind, column.resource.id, column.start): at for at, column in enumerate(columns)
    }
    moved = {
        (kind, name): state
        for (kind, name, start), state in sorted(waiting.items())
        if (kind, name, start) not in places
    }
    for at in range(len(life.truth)):
        column = columns[at]
        resource = column.resource.kind, column.resource.id
        state = waiting.get((*resource, column.start))
        if state is None and slot is not None and column.start <= slot < column.end:
            state = moved.get(resource)
        if state is not None:
            for name, value in zip(FIELDS, state, strict=True):
                getattr(life, name)[at] = value


def to_json(
    resolution: float, last: int | None, states: Mapping[str, Mapping[RowKey, RowState]]
) -> dict[str, Any]:
    """JSON-ready data."""
    policies = {key: [[*row, *state] for row, state in rows.items()] for key, rows in states.items()}
    return {
        "version": VERSION,
        "resolution": resolution,
        "slot": last,
        "fields": list(FIELDS),
        "policies": policies,
    }


def from_json(data: Mapping[str, Any], resolution: float) -> dict[str, dict[RowKey, RowState]]:
    """The reverse of `to_json`.

    Raises:
        ValueError: another version or resolution.
    """
    if data.get("version") != VERSION or tuple(data.get("fields", ())) != FIELDS:
        raise ValueError(f"carried state of version {data.get('version')!r}; this program reads {VERSION}")
    if data.get("resolution") != resolution:
        raise ValueError(f"carried state at {data.get('resolution')} s cannot continue at {resolution} s")
    return {
        key: {(row[0], row[1], int(row[2])): tuple(int(value) for value in row[3:]) for row in rows}
        for key, rows in data["policies"].items()
    }
