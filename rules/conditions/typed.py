"""The checked tree of a condition: what the engine evaluates.

Every node carries `level`, the kind of resource it is judged on; None stands for a
constant, which is the same everywhere. The checker has already put a fold wherever a value
of a lower kind meets the policy's own kind, so that evaluation needs no further rule.
Values are in base units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from stoploss.rules.catalogue import Signal
from stoploss.rules.units import Dimension


@dataclass(frozen=True, slots=True)
class Const:
    """A number in base units; `text` is how it was written."""

    value: float
    dimension: Dimension
    text: str
    level: None = None


@dataclass(frozen=True, slots=True)
class Bare:
    """The newest fresh sample of a signal; for an attribute, its value."""

    signal: Signal
    level: str

    @property
    def dimension(self) -> Dimension:
        """Dimension of the value."""
        return self.signal.dimension


@dataclass(frozen=True, slots=True)
class Window:
    """A function over the last `seconds` of one series.

    `function` is one of avg, min, max, quantile, count, last, increase, rate, sum.
    `quantile` is in thousandths (p99 is 990) and only set for `quantile`.
    """

    function: str
    signal: Signal
    seconds: float
    dimension: Dimension
    level: str
    quantile: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """The share of known slots of the last `seconds` in which `condition` is true."""

    condition: Condition
    seconds: float
    dimension: Dimension
    level: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Age:
    """Seconds since the newest valid sample of a signal."""

    signal: Signal
    dimension: Dimension
    level: str


@dataclass(frozen=True, slots=True)
class Arith:
    """`left op right` with op one of + - * /."""

    op: str
    left: Number
    right: Number
    dimension: Dimension
    level: str | None


@dataclass(frozen=True, slots=True)
class FoldNumber:
    """mean, total, lowest or highest of a number over the members of `level`."""

    function: str
    inner: Number
    dimension: Dimension
    level: str


Number: TypeAlias = "Const | Bare | Window | Share | Age | Arith | FoldNumber"


@dataclass(frozen=True, slots=True)
class Label:
    """A label of the resource under judgement; `kind` and `id` are labels too."""

    name: str
    level: str


@dataclass(frozen=True, slots=True)
class TextSignal:
    """The newest fresh text of a signal, or its last within a window (`seconds` set)."""

    signal: Signal
    level: str
    seconds: float | None = None


Text: TypeAlias = "Label | TextSignal"


@dataclass(frozen=True, slots=True)
class Compare:
    """Two numbers compared: op is one of < <= > >= == !=."""

    op: str
    left: Number
    right: Number
    level: str | None
    text: str


@dataclass(frozen=True, slots=True)
class TextTest:
    """A text compared with words.

    op is == or != (one word), `in` (any of the words), =~ (one regular expression, an
    unanchored search), < <= > >= (one word, by code point), and `words` holds them.
    """

    op: str
    operand: Text
    words: tuple[str, ...]
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Absent:
    """No valid sample of the signal within the window, although the collector looked."""

    signal: Signal
    seconds: float
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Has:
    """Whether a label is present."""

    label: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Not:
    """Kleene negation."""

    inner: Condition
    level: str | None


@dataclass(frozen=True, slots=True)
class Junction:
    """Kleene `and` / `or` of two or more conditions."""

    op: str
    items: tuple[Condition, ...]
    level: str | None


@dataclass(frozen=True, slots=True)
class Fold:
    """A condition judged on each member of a lower kind, folded up to `level`.

    function is all, any or most; `share` is the part that `most` needs (0.75). The members
    are those of kind `inner.level`; over no member the fold is unknown.
    """

    function: str
    inner: Condition
    level: str
    share: float = 1.0
    text: str = ""


Condition: TypeAlias = "Compare | TextTest | Absent | Has | Not | Junction | Fold"
Node: TypeAlias = "Number | Text | Condition"


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below one."""
    match node:
        case Compare() | Arith():
            return (node.left, node.right)
        case Junction():
            return node.items
        case Not() | Fold() | FoldNumber():
            return (node.inner,)
        case TextTest():
            return (node.operand,)
        case Share():
            return (node.condition,)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class CheckedCondition:
    """One condition of a policy.

    Attributes:
        text: the condition as written.
        canonical: one spelling for all equal conditions (the key of lifecycle state).
        root: the checked tree, at the level of the policy's `each`.
        signals: every signal it names.
        currencies: currency codes it names.
    """

    text: str
    canonical: str
    root: Condition
    signals: tuple[Signal, ...]
    currencies: frozenset[str] = frozenset()
