"""Why a policy is true, false or unknown on one row in one slot: the tree with its numbers.

This reads a frame directly, row by row, and says the same as the evaluator does for many
rows at once; a property test holds the two together.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stoploss.engine.evaluation.columns import Column
from stoploss.engine.evaluation.explain_numbers import Explained, NumberExplainer, Value
from stoploss.engine.evaluation.judgements import text_test
from stoploss.engine.evaluation.kleene import FALSE, TRUE, UNKNOWN, compare
from stoploss.engine.evaluation.readings import Unknown, Why
from stoploss.engine.history.frame import BAD
from stoploss.engine.model import UNREADABLE
from stoploss.rules.conditions import typed


class Explainer(NumberExplainer):
    """Explains conditions over one frame."""

    def explain(self, node: typed.Condition, column: Column, slot: int) -> Explained:
        """The tree of a condition on a row in a slot."""
        at = self.level(node.level, column, slot)
        if isinstance(at, Unknown):
            return Explained(_text(node), UNKNOWN, unknown=at)
        match node:
            case typed.Compare():
                return self._compare(node, at, slot)
            case typed.TextTest():
                return self._text_test(node, at, slot)
            case typed.Absent():
                return self._absent(node, at, slot)
            case typed.Has(label, _, text):
                value = self.world.label_at(at.resource, label, slot)
                if value is UNREADABLE:
                    return Explained(text, UNKNOWN, unknown=_unreadable(label))
                return Explained(text, FALSE if value is None else TRUE)
            case typed.Not(inner):
                child = self.explain(inner, at, slot)
                return Explained("not", TRUE - child.truth, unknown=child.unknown, children=(child,))
            case typed.Junction(op, items):
                return _joined(op, tuple(self.explain(item, at, slot) for item in items))
            case typed.Fold():
                return self._fold(node, at, slot)
        raise AssertionError(node)

    def _fold(self, node: typed.Fold, column: Column, slot: int) -> Explained:
        kind = node.inner.level
        assert kind is not None
        children = tuple(
            replace(self.explain(node.inner, member, slot), resource=member.resource)
            for member in self.members(kind, column, slot)
        )
        text = node.text or _text(node.inner)
        if not children:
            none = Unknown(Why.UNRELATED, f"no {kind} of this {column.resource.kind} was seen")
            return Explained(text, UNKNOWN, unknown=none)
        truths = [child.truth for child in children]
        if node.function == "most":
            enough = math.ceil(node.share * len(truths) - 1e-9)
            maybe = truths.count(TRUE) + truths.count(UNKNOWN)
            truth = TRUE if truths.count(TRUE) >= enough else UNKNOWN if maybe >= enough else FALSE
        else:
            truth = min(truths) if node.function == "all" else max(truths)
        unknown = _first_unknown(children) if truth == UNKNOWN else None
        return Explained(
            text, truth, _telling(node.function, node.inner, children), unknown, children=children
        )

    # ---- leaves ------------------------------------------------------------------------

    def _compare(self, node: typed.Compare, column: Column, slot: int) -> Explained:
        left, right = self.number(node.left, column, slot), self.number(node.right, column, slot)
        shown = left if not isinstance(node.left, typed.Const) else right
        unknown = left.unknown or right.unknown
        if unknown is not None or left.number is None or right.number is None:
            return Explained(node.text, UNKNOWN, shown, unknown)
        holds = compare(node.op, np.array([left.number]), np.array([right.number]))[0]
        return Explained(node.text, TRUE if holds else FALSE, shown)

    def _text_test(self, node: typed.TextTest, column: Column, slot: int) -> Explained:
        operand = node.operand
        owner = self.level(operand.level, column, slot)
        if isinstance(owner, Unknown):
            return Explained(node.text, UNKNOWN, unknown=owner)
        column = owner
        if isinstance(operand, typed.Label):
            value = self.world.label_at(column.resource, operand.name, slot)
            unknown = _unreadable(operand.name) if value is UNREADABLE else None
            word = value if isinstance(value, str) else None
            return Explained(
                node.text, text_test(node.op, node.words, value), Value(None, word=word), unknown
            )
        read = (
            self.bare(operand.signal, column, slot)
            if operand.seconds is None
            else self.window(_last(operand), column, slot)
        )
        if read.number is None:
            return Explained(node.text, UNKNOWN, read, read.unknown)
        word = self.frame.planes[operand.signal.name].words[int(read.number)]
        return Explained(
            node.text, text_test(node.op, node.words, word), replace(read, number=None, word=word)
        )

    def _absent(self, node: typed.Absent, column: Column, slot: int) -> Explained:
        window, signal = self.slots(node.seconds), node.signal
        low, high = max(self.frame.first, slot - window + 1), slot + 1
        found = self.readings.place(signal, column.resource)
        status = np.zeros(0, dtype=np.uint8)
        if found is not None:
            plane, at = found
            status = plane.status[low - self.frame.first : high - self.frame.first, at]
        if ((status > 0) & (status < BAD)).any():
            return Explained(node.text, FALSE)
        if (status >= BAD).any():
            reason = self.frame.reasons[int(status[status >= BAD][-1]) - BAD]
            return Explained(node.text, UNKNOWN, unknown=Unknown(Why.BAD, f"{signal.name}: {reason}"))
        looked = sum(self.readings.looked(signal, column.resource, at) for at in range(low, high))
        unknown = self.not_looked(signal, column.resource, slot, (looked, window))
        if unknown is None and slot - column.start + 1 < window:
            age = slot - column.start + 1
            unknown = Unknown(Why.YOUNG, f"{signal.name}: young, {age} of {window} slots", age, window)
        return Explained(node.text, TRUE if unknown is None else UNKNOWN, unknown=unknown)


def _last(operand: typed.TextSignal) -> typed.Window:
    assert operand.seconds is not None
    dimension = operand.signal.dimension
    return typed.Window("last", operand.signal, operand.seconds, dimension, operand.level)


def _unreadable(label: str) -> Unknown:
    return Unknown(Why.UNREADABLE, f"label {label} cannot be read")


def _text(node: typed.Condition) -> str:
    return getattr(node, "text", "") or {"Not": "not", "Junction": getattr(node, "op", "")}.get(
        type(node).__name__, ""
    )


def _joined(op: str, children: tuple[Explained, ...]) -> Explained:
    truths = [child.truth for child in children]
    truth = min(truths) if op == "and" else max(truths)
    text = "all of" if op == "and" else "any of"
    return Explained(
        text, truth, None, _first_unknown(children) if truth == UNKNOWN else None, children=children
    )


def _first_unknown(children: tuple[Explained, ...]) -> Unknown | None:
    for child in children:
        if child.truth == UNKNOWN and child.unknown is not None:
            if child.resource is None:
                return child.unknown
            return replace(child.unknown, text=f"{child.unknown.text} ({child.resource})")
    return None


def _telling(function: str, inner: typed.Condition, children: tuple[Explained, ...]) -> Value | None:
    """The member's value that tells most: nearest to failing under all and most, the best under any."""
    values = [child.value for child in children if child.value is not None and child.value.number is not None]
    if not values:
        return next((child.value for child in children if child.value is not None), None)
    above = isinstance(inner, typed.Compare) and inner.op in (">", ">=")
    pick = min if above == (function != "any") else max
    return pick(values, key=lambda value: value.number or 0.0)
