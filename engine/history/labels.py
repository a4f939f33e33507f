"""Folds what was said about labels into label changes by slot.

Within a slot, a text beats `unreadable`, which beats `absent`; of several texts the latest
wins. From slot to slot, a label that is not mentioned stays as it was.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from stoploss.engine.history.frame import Floats, Ints, LabelChange
from stoploss.engine.history.slots import Longs, slots_of
from stoploss.engine.model import LabelValue, Unreadable

LabelSet: TypeAlias = tuple[tuple[str, LabelValue], ...]
"""What one row said: (name, value) pairs, sorted by name, each name once."""


@dataclass(frozen=True, slots=True)
class Statements:
    """What was said about labels, in order of resource, time and arrival.

    Attributes:
        times: seconds since the epoch.
        resources: index of the resource.
        sets: index into `table`.
        table: every distinct thing that was said.
    """

    times: Floats
    resources: Ints
    sets: Ints
    table: tuple[LabelSet, ...]


def label_changes(statements: Statements, resolution: float, last: int) -> dict[int, list[LabelChange]]:
    """The label changes of each resource index in the slots up to `last`, ascending."""
    slots = slots_of(statements.times, resolution)
    # Most rows repeat what the row before them said; only the others can matter.
    news = np.diff(statements.resources, prepend=-1) != 0
    news |= (np.diff(slots, prepend=-1) != 0) | (np.diff(statements.sets, prepend=-1) != 0)
    keep = np.flatnonzero(news & (slots <= last))
    if not len(keep):
        return {}
    resources, slots, sets = statements.resources[keep], slots[keep], statements.sets[keep]
    found: list[tuple[int, int, str, LabelValue]] = []
    for name in sorted({name for labels in statements.table for name, _ in labels}):
        found += _changes_of(name, statements.table, (resources, slots, sets))
    found.sort(key=lambda change: change[:2])
    return _joined(found)


def _changes_of(
    name: str, table: tuple[LabelSet, ...], rows: tuple[Ints, Longs, Ints]
) -> list[tuple[int, int, str, LabelValue]]:
    """Where the value of one label changes: (resource, slot, name, value)."""
    resources, slots, sets = rows
    said = [dict(labels) for labels in table]
    values: dict[LabelValue, int] = {}
    codes = np.array([values.setdefault(s[name], len(values)) if name in s else -1 for s in said])
    ranks = np.array([_rank(s[name]) if name in s else -1 for s in said])

    starts = np.flatnonzero((np.diff(resources, prepend=-1) != 0) | (np.diff(slots, prepend=-1) != 0))
    count = len(sets)
    order = np.where(ranks[sets] < 0, -1, ranks[sets] * count + np.arange(count))
    best = np.maximum.reduceat(order, starts)
    rows_won = best[best >= 0] % count
    won, owner = codes[sets[rows_won]], resources[rows_won]
    changed = (np.diff(owner, prepend=-1) != 0) | (np.diff(won, prepend=-1) != 0)
    listed = list(values)
    return [
        (int(resources[row]), int(slots[row]), name, listed[code])
        for row, code in zip(rows_won[changed], won[changed], strict=True)
    ]


def _rank(value: LabelValue) -> int:
    if value is None:
        return 0
    return 1 if isinstance(value, Unreadable) else 2


def _joined(found: list[tuple[int, int, str, LabelValue]]) -> dict[int, list[LabelChange]]:
    changes: dict[int, list[LabelChange]] = defaultdict(list)
    for resource, slot, name, value in found:
        of_resource = changes[resource]
        if of_resource and of_resource[-1].slot == slot:
            of_resource[-1] = LabelChange(slot, {**of_resource[-1].labels, name: value})
        else:
            before = of_resource[-1].labels if of_resource else {}
            of_resource.append(LabelChange(slot, {**before, name: value}))
    return dict(changes)
