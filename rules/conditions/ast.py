"""The tree of a condition as it was written, before any meaning is checked.

`start` and `end` are offsets in characters of the condition's text, parentheses included.
`depth` counts what nests: parentheses, calls, `not`, a leading minus, and each further
term of an arithmetic chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from stoploss.rules import units


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit, already read into base units."""

    value: units.Quantity
    start: int
    end: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class String:
    """A quoted text, without its quotes and escapes."""

    value: str
    start: int
    end: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Name:
    """A bare or dotted name: a signal, a label, or a mistake."""

    name: str
    start: int
    end: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Subscript:
    """`label["aws:x"]`: `key` is the text in the brackets."""

    name: str
    key: str
    start: int
    end: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """`name(arguments)`; `name_end` is where the name ends."""

    name: str
    arguments: tuple[Expr, ...]
    name_end: int
    start: int
    end: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Minus:
    """A leading minus."""

    inner: Expr
    start: int
    end: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left op right` with op one of + - * /."""

    op: str
    left: Expr
    right: Expr
    start: int
    end: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Words:
    """The list after `in`."""

    items: tuple[Expr, ...]
    start: int
    end: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left op right` with op one of < <= > >= == != =~ in."""

    op: str
    left: Expr
    right: Expr
    start: int
    end: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Negation:
    """`not inner`."""

    inner: Expr
    start: int
    end: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Junction:
    """Two or more operands of `and` or of `or`."""

    op: str
    items: tuple[Expr, ...]
    start: int
    end: int
    depth: int = 0


Expr: TypeAlias = (
    Quantity
    | String
    | Name
    | Subscript
    | Call
    | Minus
    | Arithmetic
    | Words
    | Comparison
    | Negation
    | Junction
)


def children(node: Expr) -> tuple[Expr, ...]:
    """The direct operands of a node, in order."""
    match node:
        case Call(arguments=items) | Words(items=items) | Junction(items=items):
            return items
        case Minus(inner=inner) | Negation(inner=inner):
            return (inner,)
        case Arithmetic(left=left, right=right) | Comparison(left=left, right=right):
            return (left, right)
        case _:
            return ()


def walk(node: Expr) -> Iterator[Expr]:
    """The node and everything below it, in the order of the text."""
    yield node
    for child in children(node):
        yield from walk(child)
