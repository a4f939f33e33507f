"""From a checked condition to the nodes that evaluate it.

Children of a node stand at its level, or above it (then they are handed down), or are
constants; the checker has put a fold wherever a lower kind meets a higher one.
"""

from __future__ import annotations

from stoploss.engine.evaluation.base import Judgement, Numbers
from stoploss.engine.evaluation.context import Context
from stoploss.engine.evaluation.judgements import (
    AbsentTest,
    Comparison,
    Conjunction,
    LabelTest,
    Negation,
    RankTest,
    WordTest,
)
from stoploss.engine.evaluation.members import MemberNumbers, MemberTest, UpperNumbers, UpperTest
from stoploss.engine.evaluation.numbers import (
    AgeNumbers,
    Arithmetic,
    BareNumbers,
    Constant,
    ShareNumbers,
    WindowNumbers,
)
from stoploss.rules.conditions import typed

FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
RANKED = ("min", "max", "quantile")


def judgement(context: Context, node: typed.Condition, level: str | None = None) -> Judgement:
    """The node for a condition, handed down to `level` where it stands above it."""
    made = _judgement(context, node)
    if level is None or node.level is None or node.level == level:
        return made
    return UpperTest(context, made, lower=level, upper=node.level)


def numbers(context: Context, node: typed.Number, level: str | None = None) -> Numbers:
    """The node for a number, handed down to `level` where it stands above it."""
    made = _numbers(context, node)
    if level is None or node.level is None or node.level == level:
        return made
    return UpperNumbers(context, made, lower=level, upper=node.level)


def _judgement(context: Context, node: typed.Condition) -> Judgement:
    match node:
        case typed.Compare():
            return _compare(context, node)
        case typed.TextTest(operand=typed.Label(name, level)):
            return LabelTest(context, level, name, (node.op, node.words))
        case typed.TextTest(operand=typed.TextSignal(level=upper), level=level):
            made = WordTest(context, node)
            return made if upper == level else UpperTest(context, made, lower=level, upper=upper)
        case typed.Absent():
            return AbsentTest(context, node)
        case typed.Has(label, level):
            return LabelTest(context, level, label, None)
        case typed.Not(inner, level):
            return Negation(judgement(context, inner, level))
        case typed.Junction(op, items, level):
            return Conjunction(op, [judgement(context, item, level) for item in items])
        case typed.Fold(inner=inner):
            assert inner.level is not None
            return MemberTest(context, node, _judgement(context, inner), inner.level)
    raise AssertionError(node)


def _compare(context: Context, node: typed.Compare) -> Judgement:
    for window, constant, op in (
        (node.left, node.right, node.op),
        (node.right, node.left, FLIPPED[node.op]),
    ):
        if (
            isinstance(window, typed.Window)
            and isinstance(constant, typed.Const)
            and window.function in RANKED
        ):
            made = RankTest(context, op, window, constant.value)
            if node.level is None or window.level == node.level:
                return made
            return UpperTest(context, made, lower=node.level, upper=window.level)
    left, right = (numbers(context, side, node.level) for side in (node.left, node.right))
    return Comparison(node.op, left, right)


def _numbers(context: Context, node: typed.Number) -> Numbers:
    match node:
        case typed.Const(value):
            return Constant(value)
        case typed.Bare(signal, level):
            return BareNumbers(context, signal, level)
        case typed.Window():
            return WindowNumbers(context, node)
        case typed.Share(condition, _, _, level):
            return ShareNumbers(context, node, judgement(context, condition, level))
        case typed.Age():
            return AgeNumbers(context, node)
        case typed.Arith(op, left, right, _, level):
            return Arithmetic(op, numbers(context, left, level), numbers(context, right, level))
        case typed.FoldNumber(function, inner, _, level):
            assert inner.level is not None
            return MemberNumbers(context, function, _numbers(context, inner), inner.level, level)
    raise AssertionError(node)


def longest_window(node: typed.Node) -> float:
    """The longest window, in seconds, in a tree; 0 without any."""
    own = getattr(node, "seconds", None) or 0.0
    return max([own, *(longest_window(child) for child in typed.children(node))])
