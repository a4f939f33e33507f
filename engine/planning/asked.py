"""Conditions asked in another way: of every member, or of a resource of any kind."""

from __future__ import annotations

from dataclasses import replace

from stoploss.rules.conditions import typed


def at_level(node: typed.Condition, kind: str) -> typed.Condition:
    """A condition on labels of any kind of resource, as one on a resource of this kind."""
    match node:
        case typed.TextTest():
            return replace(node, level=kind, operand=replace(node.operand, level=kind))
        case typed.Not(inner):
            return replace(node, level=kind, inner=at_level(inner, kind))
        case typed.Junction(_, items):
            return replace(node, level=kind, items=tuple(at_level(item, kind) for item in items))
        case typed.Has():
            return replace(node, level=kind)
    return node


def some(node: typed.Condition, *, negated: bool) -> bool:
    """Whether some members are enough anywhere in a condition."""
    match node:
        case typed.Fold(function, inner):
            existential = function == ("all" if negated else "any")
            return existential or some(inner, negated=negated)
        case typed.Not(inner):
            return some(inner, negated=not negated)
        case typed.Junction(_, items):
            return any(some(item, negated=negated) for item in items)
    return False


def whole(node: typed.Condition, *, negated: bool) -> typed.Condition:
    """The same condition, asked of every member where some were enough."""
    match node:
        case typed.Fold(function, inner):
            swap = {"any": "all"} if not negated else {"all": "any"}
            return replace(node, function=swap.get(function, function), inner=whole(inner, negated=negated))
        case typed.Not(inner):
            return replace(node, inner=whole(inner, negated=not negated))
        case typed.Junction(_, items):
            return replace(node, items=tuple(whole(item, negated=negated) for item in items))
    return node
