"""One spelling for all equal conditions: the key under which lifecycle state is kept.

Spacing, quotes, redundant parentheses and the choice of unit do not change it; a changed
threshold always does. The result is a condition of the language that means the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, lru_cache

from stoploss.rules.catalogue import IDENTITY_LABELS
from stoploss.rules.conditions import ast
from stoploss.rules.conditions.functions import quantile_name, quantile_of
from stoploss.rules.units import CURRENCIES, PER_UNITS, UNITS, Dimension, QuantityError, parse_quantity

BARE_LABELS = ("kind", "id", *IDENTITY_LABELS)
"""Labels that are written without `label.`."""

_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _UNARY, _ATOM = range(8)


def canonical(node: ast.Expr) -> str:
    """The canonical spelling of a parsed condition."""
    return _spell(node)[0]


def label_name(node: ast.Name | ast.Subscript) -> str | None:
    """The label that a name means, or None when it means something else."""
    if isinstance(node, ast.Subscript):
        return node.key if node.name == "label" else None
    if node.name in BARE_LABELS:
        return node.name
    prefix, _, rest = node.name.partition(".")
    return rest if prefix == "label" and rest else None


def _spell(node: ast.Expr) -> tuple[str, int]:
    """The spelling with how tightly it binds."""
    match node:
        case ast.Junction(op=op):
            level = _OR if op == "or" else _AND
            # `and` within `and` needs no parentheses, so an equal level is let through.
            return f" {op} ".join(_within(item, level) for item in node.items), level
        case ast.Negation(inner=inner):
            return f"not {_within(inner, _NOT)}", _NOT
        case ast.Comparison(op=op, left=left, right=right):
            return f"{_within(left, _SUM)} {op} {_within(right, _SUM)}", _COMPARE
        case ast.Arithmetic(op=op, left=left, right=right):
            level = _SUM if op in "+-" else _PRODUCT
            # On the right an equal level keeps its parentheses: a - (b - c) is not a - b - c.
            return f"{_within(left, level)} {op} {_within(right, level + 1)}", level
        case ast.Minus(inner=inner):
            return f"-{_within(inner, _UNARY)}", _UNARY
        case _:
            return _spell_atom(node), _ATOM


def _spell_atom(node: ast.Expr) -> str:
    match node:
        case ast.Quantity(value=value):
            return spell_quantity(value.value, value.dimension)
        case ast.String(value=text):
            return _quoted(text)
        case ast.Call(name=name, arguments=arguments):
            thousandths = quantile_of(name)
            spelled = name if thousandths is None else quantile_name(thousandths)
            return f"{spelled}({', '.join(canonical(item) for item in arguments)})"
        case ast.Words(items=items):
            return f"[{', '.join(canonical(item) for item in items)}]"
        case ast.Name() | ast.Subscript():
            return _spell_name(node)
        case _:
            raise AssertionError(f"{type(node).__name__} is not an atom")


def _within(node: ast.Expr, level: int) -> str:
    text, own = _spell(node)
    return text if own >= level else f"({text})"


def _spell_name(node: ast.Name | ast.Subscript) -> str:
    label = label_name(node)
    if label is None:
        return node.name if isinstance(node, ast.Name) else f"{node.name}[{_quoted(node.key)}]"
    return label if label in BARE_LABELS else f"label[{_quoted(label)}]"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@lru_cache(maxsize=4096)
def spell_quantity(value: float, dimension: Dimension) -> str:
    """The shortest-unit spelling that is read back as exactly this value and dimension.

    Raises:
        AssertionError: no literal has that value and dimension.
    """
    for before, after in _units_of(dimension):
        factor = parse_quantity(f"{before}1{after}").value
        for number in _near(value / factor):
            text = f"{before}{number}{after}"
            if _means(text, value, dimension):
                return text
    raise AssertionError(f"no literal has the value {value!r} and the dimension {dimension}")


def _means(text: str, value: float, dimension: Dimension) -> bool:
    try:
        read = parse_quantity(text)
    except QuantityError:
        return False  # too large in this unit
    return read.value == value and read.dimension == dimension


def _near(number: float) -> Iterator[str]:
    """Spellings of numbers at and right beside `number`, the shortest first.

    A division by the unit's factor may miss the number that was written by one step.
    """
    below, above = math.nextafter(number, -math.inf), math.nextafter(number, math.inf)
    for text in (f"{number:.15g}", repr(number), repr(below), repr(above)):
        yield text.removesuffix(".0")


@cache
def _units_of(dimension: Dimension) -> tuple[tuple[str, str], ...]:
    """(before, after) texts around a number that give the dimension, base units first."""
    tops = [(symbol, "", 1.0, Dimension.of(**{code: 1})) for symbol, code in CURRENCIES.items()]
    tops += [("", "", 1.0, Dimension())]
    # A price list's month is a unit only below the line.
    tops += [("", name, factor, unit) for name, (factor, unit) in UNITS.items() if name != "month"]
    found: list[tuple[bool, int, str, str]] = []
    for before, name, factor, top in tops:
        if top == dimension:
            found.append((factor != 1.0, len(name), before, name))
        for per in PER_UNITS:
            below_factor, below = UNITS[per]
            if top / below == dimension:
                after = f"{name}/{per}"
                found.append((factor / below_factor != 1.0, len(after), before, after))
    return tuple((before, after) for _, _, before, after in sorted(found))
