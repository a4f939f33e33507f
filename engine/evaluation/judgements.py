"""Truths of one level: ranks against constants, comparisons, texts, absence, connectives."""

from __future__ import annotations

import re

import numpy as np

from stoploss.engine.evaluation import windows
from stoploss.engine.evaluation.base import Judgement, Numbers, grown_up
from stoploss.engine.evaluation.context import Context
from stoploss.engine.evaluation.kleene import (
    FALSE,
    TOLERANCE,
    TRUE,
    UNKNOWN,
    Bools,
    Floats,
    Truths,
    compare,
    needed,
    truth,
)
from stoploss.engine.evaluation.numbers import BareNumbers, SignalNumbers, WindowNumbers
from stoploss.engine.model import UNREADABLE, LabelValue
from stoploss.rules.conditions import typed


def text_test(op: str, words: tuple[str, ...], value: LabelValue) -> int:
    """The truth of a test on one text; absent fails all but !=, unreadable is unknown."""
    if not isinstance(value, str):
        return UNKNOWN if value is UNREADABLE else TRUE if op == "!=" else FALSE
    match op:
        case "==":
            result = value == words[0]
        case "!=":
            result = value != words[0]
        case "in":
            result = value in words
        case "=~":
            result = re.search(words[0], value) is not None
        case "<":
            result = value < words[0]
        case "<=":
            result = value <= words[0]
        case ">":
            result = value > words[0]
        case _:
            result = value >= words[0]
    return TRUE if result else FALSE


class RankTest(Judgement):
    """min, max or a quantile of a window against a constant, as a count of samples beyond it.

    The k-th smallest of n values is below c exactly when at least k values are: k is 1 for the
    minimum, n for the maximum, and the nearest rank for a quantile.
    """

    def __init__(self, context: Context, op: str, node: typed.Window, constant: float) -> None:
        self.context, self.node, self.op = context, node, op
        self.window = context.slots(node.seconds)
        self.mapper = context.mapper(node.signal, node.level)
        self.known = context.known(node.signal, self.window)
        self.valid = context.valid(node.signal, self.window)
        threshold = constant / node.signal.factor
        below = op in ("<", ">=", "==", "!=")
        up_to = op in ("<=", ">", "==", "!=")
        self.below = context.passing(node.signal, self.window, "<", threshold) if below else None
        self.up_to = context.passing(node.signal, self.window, "<=", threshold) if up_to else None

    def _rank(self) -> windows.Counts:
        match self.node.function:
            case "min":
                return np.ones((1, 1), dtype=np.int32)
            case "max":
                return self.valid.out
        return windows.rank(self.valid.out, self.node.quantile)

    def evaluate(self) -> Truths:
        """Compare counts with the rank."""
        rank = self._rank()
        below = self.below.out >= rank if self.below else None
        up_to = self.up_to.out >= rank if self.up_to else None
        match self.op:
            case "<":
                holds = below
            case ">=":
                holds = None if below is None else ~below
            case "<=":
                holds = up_to
            case ">":
                holds = None if up_to is None else ~up_to
            case _:
                assert up_to is not None
                assert below is not None
                holds = up_to & ~below
                holds = ~holds if self.op == "!=" else holds
        assert holds is not None
        result = holds.view(np.int8) * np.int8(TRUE)
        np.copyto(result, np.int8(UNKNOWN), where=~self.known.out)
        return grown_up(
            self.context, self.mapper.take(result, np.int8(UNKNOWN)), self.node.level, self.window
        )


class Comparison(Judgement):
    """Two numbers compared."""

    def __init__(self, op: str, left: Numbers, right: Numbers) -> None:
        self.op, self.left, self.right = op, left, right

    def evaluate(self) -> Truths:
        """Compare where both sides are known."""
        (left, left_known), (right, right_known) = self.left.evaluate(), self.right.evaluate()
        if right.shape == (1, 1):
            holds = _against_constant(self.op, left, float(right[0, 0]))
        else:
            holds = compare(self.op, left, right)
        return truth(holds, left_known & right_known)


def _against_constant(op: str, left: Floats, constant: float) -> Bools:
    if op in ("==", "!="):
        slack = 0.0 if np.isinf(constant) else TOLERANCE * abs(constant)
        equal = (left >= constant - slack) & (left <= constant + slack)
        return equal if op == "==" else ~equal
    return windows.beyond(op, constant)(left)


class LabelTest(Judgement):
    """A test on a label of each column; evaluated where labels change, not per slot."""

    def __init__(
        self, context: Context, level: str, label: str, test: tuple[str, tuple[str, ...]] | None
    ) -> None:
        self.context, self.level, self.label, self.test = context, level, label, test
        self._version = -1
        self._changes: list[tuple[int, int, int]] = []
        self._at = 0
        self._now: Truths = np.zeros(0, dtype=np.int8)

    def _judge(self, value: LabelValue) -> int:
        if self.test is None:
            return UNKNOWN if value is UNREADABLE else FALSE if value is None else TRUE
        return text_test(*self.test, value)

    def _refresh(self) -> None:
        world = self.context.world
        self._version, self._at = world.version, 0
        columns = world.tables[self.level].columns
        self._now = np.full(len(columns), self._judge(None), dtype=np.int8)
        changes: list[tuple[int, int, int]] = []
        for at, column in enumerate(columns):
            track = world.track(column.resource, self.label)
            changes.extend((slot, at, self._judge(value)) for slot, value in track)
        self._changes = sorted(changes)

    def evaluate(self) -> Truths:
        """One row where no label changes within the block."""
        if self._version != self.context.world.version:
            self._refresh()
        first, last = self.context.first, self.context.last
        while self._at < len(self._changes) and self._changes[self._at][0] <= first:
            _, column, value = self._changes[self._at]
            self._now[column] = value
            self._at += 1
        if self._at == len(self._changes) or self._changes[self._at][0] > last:
            return self._now[None, :].copy()
        out = np.repeat(self._now[None, :], last - first + 1, axis=0)
        for slot, column, value in self._changes[self._at :]:
            if slot > last:
                break
            out[slot - first :, column] = value
        return out


class WordTest(Judgement):
    """A test on the newest fresh text of a signal, or on its last within a window."""

    def __init__(self, context: Context, node: typed.TextTest) -> None:
        operand = node.operand
        assert isinstance(operand, typed.TextSignal)
        self.context, self.node, self.signal, self.level = context, node, operand.signal, operand.level
        self.numbers: SignalNumbers = (
            BareNumbers(context, operand.signal, operand.level)
            if operand.seconds is None
            else WindowNumbers(
                context,
                typed.Window(
                    "last", operand.signal, operand.seconds, operand.signal.dimension, operand.level
                ),
            )
        )
        self._table: Truths = np.zeros(0, dtype=np.int8)

    def evaluate(self) -> Truths:
        """Look each word's truth up."""
        words = self.context.series_of(self.signal).words
        if len(words) != len(self._table):
            tests = [text_test(self.node.op, self.node.words, word) for word in words]
            self._table = np.array(tests, dtype=np.int8)
        codes, known = self.numbers.evaluate()
        if not len(self._table):
            return np.full(known.shape, UNKNOWN, dtype=np.int8)
        index = np.where(known, codes, 0).astype(np.intp)
        return np.where(known, self._table[index], np.int8(UNKNOWN))


class AbsentTest(Judgement):
    """No valid sample in the window although the collector looked."""

    def __init__(self, context: Context, node: typed.Absent) -> None:
        self.context, self.node = context, node
        self.window = context.slots(node.seconds)
        self.mapper = context.mapper(node.signal, node.level)
        # Its own count of valid samples: coverage reaches beyond the sample.
        self.valid = context.valid(node.signal, self.window)
        self.bad = context.bad(node.signal, self.window)
        self.lookout = context.lookout(node.signal)

    def evaluate(self) -> Truths:
        """False with a sample, true without one where looked, else unknown."""
        context = self.context
        valid = self.mapper.take(self.valid.out > 0, False)
        bad = self.mapper.take(self.bad.out > 0, False)
        looked = self.lookout.looked(context.first, context.last, self.window, needed(self.window))
        looked = self.lookout.spread(looked, context.tellers(self.node.level))
        result = np.where(looked & ~bad, np.int8(TRUE), np.int8(UNKNOWN))
        result = grown_up(context, result, self.node.level, self.window)
        return np.where(valid, np.int8(FALSE), result)


class Negation(Judgement):
    """Kleene's not."""

    def __init__(self, inner: Judgement) -> None:
        self.inner = inner

    def evaluate(self) -> Truths:
        """Two minus."""
        return np.asarray(np.int8(TRUE) - self.inner.evaluate())


class Conjunction(Judgement):
    """Kleene's and, or."""

    def __init__(self, op: str, items: list[Judgement]) -> None:
        self.items = items
        self.join = np.minimum if op == "and" else np.maximum

    def evaluate(self) -> Truths:
        """Minimum or maximum."""
        result = self.items[0].evaluate()
        for item in self.items[1:]:
            result = self.join(result, item.evaluate())
        return result
