"""Kinds meet: folds over the members of a lower kind, and values handed down from an upper one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stoploss.engine.evaluation.base import Judgement, Numbers
from stoploss.engine.evaluation.columns import Entries
from stoploss.engine.evaluation.context import Context
from stoploss.engine.evaluation.implied import OPEN
from stoploss.engine.evaluation.kleene import FALSE, TRUE, UNKNOWN, Bools, Floats, Truths
from stoploss.rules.conditions import typed


class MemberNumbers(Numbers):
    """mean, total, lowest or highest over members; one unknown member makes it unknown."""

    def __init__(self, context: Context, function: str, inner: Numbers, lower: str, upper: str) -> None:
        self.context, self.function, self.inner = context, function, inner
        self.lower, self.upper = lower, upper

    def evaluate(self) -> tuple[Floats, Bools]:
        """Fold along the relation."""
        context = self.context
        entries = context.world.entries(self.lower, self.upper)
        rows = len(context.world.tables[self.upper])
        slots = context.last - context.first + 1
        out, known = np.full((slots, rows), np.nan), np.zeros((slots, rows), dtype=np.bool_)
        if not len(entries.lower):
            return out, known
        values, inner_known = self.inner.evaluate()
        columns = len(context.world.tables[self.lower])
        values = np.broadcast_to(values, (slots, columns))[:, entries.lower]
        inner_known = np.broadcast_to(inner_known, (slots, columns))[:, entries.lower]
        active = active_slots(context, entries)
        neutral = {"lowest": np.inf, "highest": -np.inf}.get(self.function, 0.0)
        starts, uppers = segments(entries)
        reduce = {"lowest": np.minimum, "highest": np.maximum}.get(self.function, np.add)
        with np.errstate(invalid="ignore"):
            folded = reduce.reduceat(np.where(active & inner_known, values, neutral), starts, axis=1)
        members = np.add.reduceat(active, starts, axis=1, dtype=np.int64)
        unknown = np.add.reduceat(active & ~inner_known, starts, axis=1, dtype=np.int64)
        if self.function == "mean":
            folded = folded / np.maximum(members, 1)
        out[:, uppers] = folded
        known[:, uppers] = (members > 0) & (unknown == 0) & ~np.isnan(folded)
        return out, known


class UpperNumbers(Numbers):
    """A number of an upper kind, handed down to the columns that belong to it."""

    def __init__(self, context: Context, inner: Numbers, lower: str, upper: str) -> None:
        self.context, self.inner, self.lower, self.upper = context, inner, lower, upper

    def evaluate(self) -> tuple[Floats, Bools]:
        """Hand down along the relation; two owners at once are unknown."""
        context = self.context
        values, known = self.inner.evaluate()
        shape = (context.last - context.first + 1, len(context.world.tables[self.upper]))
        values, known = np.broadcast_to(values, shape), np.broadcast_to(known, shape)
        rows = len(context.world.tables[self.lower])
        out, out_known = np.full((shape[0], rows), np.nan), np.zeros((shape[0], rows), dtype=np.bool_)
        for lower, upper, active in owners(context, self.lower, self.upper):
            out[:, lower] = np.where(active, values[:, upper], out[:, lower])
            out_known[:, lower] = np.where(active, known[:, upper], out_known[:, lower])
        return out, out_known


class MemberTest(Judgement):
    """all, any or most over the members of a lower kind; over none it is unknown."""

    def __init__(self, context: Context, node: typed.Fold, inner: Judgement, lower: str) -> None:
        self.context, self.node, self.inner = context, node, inner
        self.lower, self.upper = lower, node.level

    def evaluate(self) -> Truths:
        """Fold along the relation."""
        context, node = self.context, self.node
        entries = context.world.entries(self.lower, self.upper)
        slots, rows = context.last - context.first + 1, len(context.world.tables[self.upper])
        out = np.full((slots, rows), UNKNOWN, dtype=np.int8)
        inner = self.inner.evaluate()
        if not len(entries.lower):
            return out
        inner = np.broadcast_to(inner, (slots, len(context.world.tables[self.lower])))[:, entries.lower]
        active = active_slots(context, entries)
        starts, uppers = segments(entries)
        members = np.add.reduceat(active, starts, axis=1, dtype=np.int64)
        if node.function == "most":
            trues = np.add.reduceat(active & (inner == TRUE), starts, axis=1, dtype=np.int64)
            maybe = np.add.reduceat(active & (inner != FALSE), starts, axis=1, dtype=np.int64)
            enough = np.ceil(node.share * members - 1e-9)
            folded = np.where(trues >= enough, TRUE, np.where(maybe >= enough, UNKNOWN, FALSE)).astype(
                np.int8
            )
        else:
            every = node.function == "all"
            neutral = np.int8(TRUE if every else FALSE)
            reduce = np.minimum if every else np.maximum
            folded = reduce.reduceat(np.where(active, inner, neutral), starts, axis=1)
        out[:, uppers] = np.where(members > 0, folded, np.int8(UNKNOWN))
        return out


class UpperTest(Judgement):
    """A truth of an upper kind, handed down to the columns that belong to it."""

    def __init__(self, context: Context, inner: Judgement, lower: str, upper: str) -> None:
        self.context, self.inner, self.lower, self.upper = context, inner, lower, upper

    def evaluate(self) -> Truths:
        """Hand down along the relation."""
        context = self.context
        slots = context.last - context.first + 1
        inner = np.broadcast_to(self.inner.evaluate(), (slots, len(context.world.tables[self.upper])))
        out = np.full((slots, len(context.world.tables[self.lower])), UNKNOWN, dtype=np.int8)
        for lower, upper, active in owners(context, self.lower, self.upper):
            out[:, lower] = np.where(active, inner[:, upper], out[:, lower])
        return out


def active_slots(context: Context, entries: Entries) -> Bools:
    """In which slots of the block each entry holds (one row when all do, throughout)."""
    if not len(entries.start):
        return np.ones((1, 0), dtype=np.bool_)
    if entries.start.max() <= context.first and entries.end.min() == OPEN:
        return np.ones((context.last - context.first + 1, len(entries.start)), dtype=np.bool_)
    index = context.index()
    return (index >= entries.start) & (index < entries.end)


def segments(entries: Entries) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Where each upper column's entries begin, and which upper columns have any."""
    starts = np.flatnonzero(np.concatenate([[True], entries.upper[1:] != entries.upper[:-1]]))
    return starts, entries.upper[starts]


def owners(
    context: Context, lower: str, upper: str
) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Bools]]:
    """Layers of (lower, upper, active) in which each lower column stands at most once.

    Slots in which a column has two owners at once are active in no layer.
    """
    entries = context.world.entries(lower, upper)
    if not len(entries.lower):
        return []
    active = active_slots(context, entries)
    order = np.argsort(entries.lower, kind="stable")
    sorted_lower = entries.lower[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_lower[1:] != sorted_lower[:-1]]))
    number = np.arange(len(order)) - np.repeat(starts, np.diff(np.concatenate([starts, [len(order)]])))
    layers = []
    if number.max() > 0:
        owned = np.zeros((active.shape[0], len(context.world.tables[lower])), dtype=np.int64)
        for entry, column in enumerate(entries.lower):
            owned[:, column] += active[:, entry]
        active = active & (owned[:, entries.lower] <= 1)
    for layer in range(int(number.max()) + 1):
        chosen = order[number == layer]
        layers.append((entries.lower[chosen], entries.upper[chosen], active[:, chosen]))
    return layers
