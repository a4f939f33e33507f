"""The numbers of a condition on one row in one slot, each with why it is unknown if it is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from stoploss.engine.evaluation.columns import Column, World
from stoploss.engine.evaluation.kleene import TRUE, UNKNOWN, needed
from stoploss.engine.evaluation.readings import Readings, Unknown, Why
from stoploss.engine.history.frame import Frame
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Signal
from stoploss.rules.conditions import typed


@dataclass(frozen=True, slots=True)
class Value:
    """A number in base units with where it came from; `unknown` says why there is none.

    `unit` is the catalogue unit to show it in, `factor` base units per that unit.
    """

    number: float | None
    unknown: Unknown | None = None
    unit: str = "1"
    factor: float = 1.0
    samples: int | None = None
    of: int | None = None
    word: str | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """One node of the tree.

    Attributes:
        text: the condition as written, or what joins the children.
        truth: FALSE, UNKNOWN or TRUE.
        value: what the left side came to, where the node is a comparison.
        unknown: the first reason, where the truth is unknown.
        resource: the member that was judged, under a fold.
        children: the parts.
    """

    text: str
    truth: int
    value: Value | None = None
    unknown: Unknown | None = None
    resource: ResourceId | None = None
    children: tuple[Explained, ...] = ()


class NumberExplainer(ABC):
    """Explains numbers over one frame; conditions, which shares hold, are left to a subclass."""

    def __init__(self, frame: Frame, world: World, *, percent: int = 80) -> None:
        self.frame, self.world = frame, world
        self.readings = Readings(frame, percent, world.nodes)

    @abstractmethod
    def explain(self, node: typed.Condition, column: Column, slot: int) -> Explained:
        """The tree of a condition on a row in a slot."""

    def slots(self, seconds: float) -> int:
        """Whole slots of a duration, at least one."""
        return max(1, math.ceil(seconds / self.frame.resolution - 1e-9))

    # ---- levels and members ------------------------------------------------------------

    def level(self, level: str | None, column: Column, slot: int) -> Column | Unknown:
        """The column that a node of an upper level is read from."""
        kind = column.resource.kind
        if level is None or level == kind:
            return column
        owners = self.owners(level, column, slot)
        if len(owners) == 1:
            return owners[0]
        what = f"no {level} of this {kind} is known" if not owners else f"this {kind} has several {level}s"
        return Unknown(Why.UNRELATED, what)

    def owners(self, kind: str, column: Column, slot: int) -> list[Column]:
        """The columns of an upper kind that a column belongs to in a slot."""
        lower = column.resource.kind
        entries = self.world.entries(lower, kind)
        at = self.world.tables[lower].index[column.resource, column.start]
        active = (entries.start <= slot) & (slot < entries.end) & (entries.lower == at)
        return [self.world.tables[kind].columns[upper] for upper in entries.upper[active]]

    def members(self, kind: str, column: Column, slot: int) -> list[Column]:
        """The columns of a lower kind that belong to a column in a slot."""
        upper = column.resource.kind
        entries = self.world.entries(kind, upper)
        at = self.world.tables[upper].index[column.resource, column.start]
        active = (entries.start <= slot) & (slot < entries.end) & (entries.upper == at)
        return [self.world.tables[kind].columns[lower] for lower in entries.lower[active]]

    # ---- numbers -----------------------------------------------------------------------

    def number(self, node: typed.Number, column: Column, slot: int) -> Value:
        """A number of the tree, or why it is unknown."""
        at = self.level(node.level, column, slot)
        if isinstance(at, Unknown):
            return Value(None, at)
        match node:
            case typed.Const(value):
                return Value(value)
            case typed.Bare(signal):
                return self.bare(signal, at, slot)
            case typed.Window():
                return self.window(node, at, slot)
            case typed.Age(signal):
                return self._age(signal, at, slot)
            case typed.Share():
                return self._share(node, at, slot)
            case typed.Arith():
                return self._arith(node, at, slot)
            case typed.FoldNumber():
                return self._fold_number(node, at, slot)
        raise AssertionError(node)

    def bare(self, signal: Signal, column: Column, slot: int) -> Value:
        """The newest fresh sample; a text's is an index into its words."""
        read = self.readings.bare(signal, column, slot)
        if isinstance(read, Unknown):
            return Value(None, read, signal.unit if not signal.is_text else "1")
        if signal.is_text:
            return Value(read)
        return Value(read * signal.factor, None, signal.unit, signal.factor)

    def window(self, node: typed.Window, column: Column, slot: int) -> Value:
        """A function over a window."""
        signal, window = node.signal, self.slots(node.seconds)
        unit = "1" if node.function == "count" or signal.is_text else signal.unit
        factor = 1.0 if unit == "1" else signal.factor
        if node.function == "rate":
            unit = f"{unit}/s"
        read = self.readings.window(signal, column, slot, window)
        if isinstance(read, Unknown):
            return Value(None, read, unit, factor, read.samples, read.of)
        source = read.values
        if node.function in ("increase", "rate") and read.gained is not None:
            source = read.gained
        number = _FUNCTIONS[node.function](source, node)
        if node.function == "rate":
            number /= window * self.frame.resolution
        if math.isnan(number):
            undefined = Unknown(Why.UNDEFINED, f"{node.text}: not a finite number", read.samples, read.of)
            return Value(None, undefined, unit, factor, read.samples, read.of)
        return Value(number * factor, None, unit, factor, read.samples, read.of)

    def _age(self, signal: Signal, column: Column, slot: int) -> Value:
        found = self.readings.place(signal, column.resource)
        newest = None if found is None else self.readings.newest_valid(*found, slot)
        if newest is None or newest < column.start:
            read = self.readings.bare(signal, column, slot)
            seen = read if isinstance(read, Unknown) else Unknown(Why.YOUNG, f"{signal.name}: not seen yet")
            return Value(None, seen, "s")
        if not self.readings.looked(signal, column.resource, slot):
            return Value(None, self.not_looked(signal, column.resource, slot, (0, 1)), "s")
        return Value((slot - newest) * self.frame.resolution, None, "s")

    def not_looked(
        self, signal: Signal, resource: ResourceId, slot: int, counts: tuple[int, int]
    ) -> Unknown | None:
        """Why a collector cannot be said to have looked, or None where it did.

        Args:
            signal: whose collector.
            resource: at which it looks, or not.
            slot: in which.
            counts: in how many of how many slots it did.
        """
        looked, window = counts
        keys = self.readings.lookers(signal, resource)
        if not keys:
            return Unknown(Why.UNPROVIDED, f"no collector provides {signal.name}", 0, window)
        name = " and ".join(keys)
        if not self.readings.looked(signal, resource, slot):
            return Unknown(Why.STALE, f"{signal.name}: collector {name} did not look", looked, window)
        if looked < needed(window):
            text = f"{signal.name}: collector {name} looked in {looked} of {window} slots"
            return Unknown(Why.THIN, text, looked, window)
        return None

    def _share(self, node: typed.Share, column: Column, slot: int) -> Value:
        window = self.slots(node.seconds)
        age = slot - column.start + 1
        if age < window:
            return Value(
                None, Unknown(Why.YOUNG, f"{node.text}: young, {age} of {window} slots", age, window), "share"
            )
        first = max(self.frame.first, slot - window + 1)
        parts = [self.explain(node.condition, column, at) for at in range(first, slot + 1)]
        known = [part for part in parts if part.truth != UNKNOWN]
        if parts[-1].truth == UNKNOWN:
            return Value(None, parts[-1].unknown, "share", 1.0, len(known), window)
        if len(known) < needed(window):
            thin = Unknown(Why.THIN, f"{node.text}: {len(known)} of {window} slots", len(known), window)
            return Value(None, thin, "share", 1.0, len(known), window)
        return Value(
            sum(part.truth == TRUE for part in known) / len(known), None, "share", 1.0, len(known), window
        )

    def _arith(self, node: typed.Arith, column: Column, slot: int) -> Value:
        left, right = self.number(node.left, column, slot), self.number(node.right, column, slot)
        unknown = left.unknown or right.unknown
        samples = left if left.of is not None else right
        if unknown is None and left.number is not None and right.number is not None:
            with np.errstate(all="ignore"):
                operator = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[node.op]
                number = float(operator(np.float64(left.number), np.float64(right.number)))
            if math.isfinite(number):
                unit, factor = (left.unit, left.factor) if node.op in "+-" else ("1", 1.0)
                return Value(number, None, unit, factor, samples.samples, samples.of)
            unknown = Unknown(
                Why.UNDEFINED, "division by zero" if right.number == 0 else "not a finite number"
            )
        return Value(None, unknown, "1", 1.0, samples.samples, samples.of)

    def _fold_number(self, node: typed.FoldNumber, column: Column, slot: int) -> Value:
        kind = node.inner.level
        assert kind is not None
        members = self.members(kind, column, slot)
        if not members:
            return Value(None, Unknown(Why.UNRELATED, f"no {kind} of this {column.resource.kind} was seen"))
        values = [self.number(node.inner, member, slot) for member in members]
        for member, value in zip(members, values, strict=True):
            if value.unknown is not None:
                told = replace(value.unknown, text=f"{value.unknown.text} ({member.resource})")
                return replace(value, unknown=told)
        numbers = [value.number for value in values if value.number is not None]
        number = _folded(node.function, numbers)
        if math.isnan(number):
            return Value(None, Unknown(Why.UNDEFINED, "not a finite number"))
        return replace(values[0], number=number)


def _folded(function: str, numbers: list[float]) -> float:
    match function:
        case "lowest":
            return min(numbers)
        case "highest":
            return max(numbers)
        case "total":
            return sum(numbers)
    return sum(numbers) / len(numbers)


def _quantile(values: np.ndarray[tuple[int], np.dtype[np.float64]], node: typed.Window) -> float:
    return float(np.sort(values)[-(-node.quantile * len(values) // 1000) - 1])


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64]], node: typed.Window) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.mean(values))


def _sum(values: np.ndarray[tuple[int], np.dtype[np.float64]], node: typed.Window) -> float:
    return float(np.sum(values))


_FUNCTIONS: dict[str, Callable[[np.ndarray[tuple[int], np.dtype[np.float64]], typed.Window], float]] = {
    "avg": _mean,
    "min": lambda values, node: float(values.min()),
    "max": lambda values, node: float(values.max()),
    "quantile": _quantile,
    "count": lambda values, node: float(len(values)),
    "last": lambda values, node: float(values[-1]),
    "increase": _sum,
    "rate": _sum,
    "sum": _sum,
}
