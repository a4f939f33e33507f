"""Conditions whose truth does not depend on any reading."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from stoploss.rules.conditions.typed import (
    Arith,
    Bare,
    Compare,
    Condition,
    Const,
    Fold,
    FoldNumber,
    Junction,
    Not,
    Number,
    Share,
    Window,
)

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_KEEPS_RANGE = ("avg", "min", "max", "quantile", "last")


def decided(node: Condition) -> bool | None:
    """Whether a condition is true or false whatever is read; None where that depends."""
    match node:
        case Compare():
            return _compare(node)
        case Not():
            inner = decided(node.inner)
            return None if inner is None else not inner
        case Junction():
            truths = [decided(item) for item in node.items]
            absorbing = node.op == "or"
            if absorbing in truths:
                return absorbing
            return None if None in truths else not absorbing
        case Fold():
            return decided(node.inner)
        case _:
            return None


def _compare(node: Compare) -> bool | None:
    left, right = _constant(node.left), _constant(node.right)
    if left is not None and right is not None:
        return _OPERATORS[node.op](left, right)
    if right is not None and _is_part(node.left):
        return _against(node.op, right)
    if left is not None and _is_part(node.right):
        return _against(_MIRRORED[node.op], left)
    return None


def _against(op: str, bound: float) -> bool | None:
    """A value between 0 and 1 compared with a constant."""
    at_ends = {_OPERATORS[op](0.0, bound), _OPERATORS[op](1.0, bound)}
    if len(at_ends) != 1:
        return None
    if op in ("==", "!="):
        return op == "!=" if not 0 <= bound <= 1 else None
    return at_ends.pop()


def _constant(node: Number) -> float | None:
    if isinstance(node, Const):
        return node.value
    if not isinstance(node, Arith):
        return None
    left, right = _constant(node.left), _constant(node.right)
    if left is None or right is None or (node.op == "/" and right == 0):
        return None
    functions = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
    result = float(functions[node.op](left, right))
    return result if math.isfinite(result) else None


def _is_part(node: Number) -> bool:
    """Whether a number is a share that lies within 0% and 100% whatever is read."""
    match node:
        case Share():
            return True
        case Bare(signal=signal):
            return _measured_part(signal.unit, signal.collector)
        case Window():
            return node.function in _KEEPS_RANGE and _measured_part(node.signal.unit, node.signal.collector)
        case FoldNumber():
            return node.function != "total" and _is_part(node.inner)
        case _:
            return False


def _measured_part(unit: str, collector: str) -> bool:
    # What the engine works out, such as budget.used, may well exceed 100%.
    return unit == "share" and collector != "derived"
