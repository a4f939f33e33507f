"""Numbers: constants, bare signals, windows, ages, shares, arithmetic."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from stoploss.engine.evaluation import windows
from stoploss.engine.evaluation.base import Judgement, Numbers
from stoploss.engine.evaluation.context import Context, Mapper
from stoploss.engine.evaluation.kleene import TRUE, UNKNOWN, Bools, Floats, needed
from stoploss.engine.evaluation.series import NEVER, Ring
from stoploss.rules.catalogue import Signal
from stoploss.rules.conditions import typed


class Constant(Numbers):
    """The same number everywhere."""

    def __init__(self, value: float) -> None:
        self.value = np.array([[value]])
        self.known: Bools = np.array([[True]])

    def evaluate(self) -> tuple[Floats, Bools]:
        """The constant."""
        return self.value, self.known


class SignalNumbers(Numbers):
    """Common part of numbers read from one signal: to columns, to base units, old enough."""

    def __init__(self, context: Context, signal: Signal, level: str, window: int) -> None:
        self.context, self.signal, self.level, self.window = context, signal, level, window
        self.series = context.series_of(signal)
        self.mapper: Mapper = context.mapper(signal, level)
        self.factor = signal.factor

    @abstractmethod
    def read(self) -> tuple[Floats, Bools]:
        """Values and known per series, in the signal's unit."""

    def evaluate(self) -> tuple[Floats, Bools]:
        """Values and known per column, in base units."""
        values, known = self.read()
        values, known = self.mapper.take(values, np.nan), self.mapper.take(known, False)
        mature = self.context.mature(self.level, self.window)
        if mature is not None and not self.signal.is_attribute:
            known = known & mature
        return (values if self.factor == 1.0 else values * self.factor), known


class BareNumbers(SignalNumbers):
    """The newest fresh sample; an attribute's value however old."""

    def __init__(self, context: Context, signal: Signal, level: str) -> None:
        super().__init__(context, signal, level, 1)

    def read(self) -> tuple[Floats, Bools]:
        """The filled values, known where fresh."""
        if self.series.sees_slot is None:
            return self.series.values, self.series.covered
        return self.series.fill()[0], self.series.covered

    def evaluate(self) -> tuple[Floats, Bools]:
        """As others; and nothing from before the column began."""
        values, known = super().evaluate()
        seen = self.series.sees_slot
        if seen is not None and not self.signal.is_attribute:
            born = self.context.world.tables[self.level].start
            known = known & (self.mapper.take(seen, np.int64(NEVER)) >= born)
        return values, known


class WindowNumbers(SignalNumbers):
    """A function over a window."""

    def __init__(self, context: Context, node: typed.Window) -> None:
        window = context.slots(node.seconds)
        super().__init__(context, node.signal, node.level, window)
        self.node = node
        self.known = context.known(node.signal, window)
        self.valid = context.valid(node.signal, window)
        self.state: windows.SumWindow | windows.ExtremeWindow | windows.QuantileWindow | None = None
        match node.function:
            case "avg" | "sum":
                self.state = context.total(node.signal, window, increase=False)
            case "increase":
                self.state = context.total(node.signal, window, increase=True)
            case "rate":
                counter = node.signal.kind.value == "counter"
                self.state = context.total(node.signal, window, increase=counter)
            case "min" | "max":
                self.state = context.extreme(node.signal, window, largest=node.function == "max")
            case "quantile":
                self.state = context.quantile(node.signal, window, node.quantile)
        if node.function == "count":
            self.factor = 1.0

    def read(self) -> tuple[Floats, Bools]:
        """The window's values."""
        known = self.known.out
        if self.node.function == "last":
            return self.series.fill()[0], known
        if self.node.function == "count":
            return self.valid.out.astype(np.float64), known
        assert self.state is not None
        values = self.state.out
        if self.node.function == "avg":
            with np.errstate(invalid="ignore", divide="ignore"):
                values = values / self.valid.out
        elif self.node.function == "rate":
            values = values / (self.window * self.context.resolution)
        return values, known & ~np.isnan(values)


class AgeNumbers(SignalNumbers):
    """Seconds since the newest valid sample; known while the collector looks."""

    def __init__(self, context: Context, node: typed.Age) -> None:
        super().__init__(context, node.signal, node.level, 1)
        self.factor = 1.0
        self.lookout = context.lookout(node.signal)

    def read(self) -> tuple[Floats, Bools]:
        """Ages per series."""
        at = self.series.fill()[1]
        age = (self.context.index() - at) * self.context.resolution
        looked = self.lookout.spread(self.lookout.out, self.context.tellers_of(self.signal))
        return age.astype(np.float64), (at > NEVER) & looked

    def evaluate(self) -> tuple[Floats, Bools]:
        """As others; and nothing from before the column began."""
        values, known = super().evaluate()
        born = self.context.world.tables[self.level].start
        at = self.mapper.take(self.series.fill()[1], np.int64(NEVER))
        return values, known & (at >= born)


class ShareNumbers(Numbers):
    """The share of a window's known slots in which a condition holds."""

    def __init__(self, context: Context, node: typed.Share, inner: Judgement) -> None:
        self.context, self.level, self.inner = context, node.level, inner
        self.window = context.slots(node.seconds)
        self.need = needed(self.window)
        self.ring: Ring[np.int8] = Ring(context.capacity, 0, np.int8(UNKNOWN))
        context.own_rings.append(self.ring)
        self.counts = np.zeros((2, 0), dtype=np.int32)

    def evaluate(self) -> tuple[Floats, Bools]:
        """Count true and known slots; called once per block."""
        context, table = self.context, self.context.world.tables[self.level]
        first, last = context.first, context.last
        shape = (last - first + 1, len(table))
        block = np.broadcast_to(self.inner.evaluate(), shape)
        block = np.where(context.index() >= table.start, block, np.int8(UNKNOWN))
        self.ring.widen(len(table))
        extra = np.zeros((2, len(table) - self.counts.shape[1]), dtype=np.int32)
        self.counts = np.concatenate([self.counts, extra], axis=1)
        self.ring.push(first, block)
        leaving = self.ring.read(first - self.window, last - self.window)
        totals = []
        for number, counted in enumerate((block == TRUE, block != UNKNOWN)):
            gone = leaving == TRUE if number == 0 else leaving != UNKNOWN
            change = counted.astype(np.int32) - gone
            change[0] += self.counts[number]
            totals.append(np.cumsum(change, axis=0, dtype=np.int32))
            self.counts[number] = totals[number][-1]
        trues, known_slots = totals
        known = (known_slots >= self.need) & (block != UNKNOWN)
        mature = context.mature(self.level, self.window)
        if mature is not None:
            known &= mature
        return trues / np.maximum(known_slots, 1), known


class Arithmetic(Numbers):
    """One of + - * /; a result that is not finite is unknown."""

    def __init__(self, op: str, left: Numbers, right: Numbers) -> None:
        self.op, self.left, self.right = op, left, right

    def evaluate(self) -> tuple[Floats, Bools]:
        """Apply the operator."""
        (left, left_known), (right, right_known) = self.left.evaluate(), self.right.evaluate()
        operator = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[self.op]
        with np.errstate(all="ignore"):
            values = operator(left, right)
        return values, left_known & right_known & np.isfinite(values)
