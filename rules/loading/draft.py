"""What the loader knows of a policy beside the policy: places, and which parts are wrong."""

from __future__ import annotations

from dataclasses import dataclass

from stoploss.rules.diagnostics import Position
from stoploss.rules.loading.conditions import ConditionReader, Leaf
from stoploss.rules.options import ActionClass
from stoploss.rules.policy import Policy
from stoploss.rules.yaml import Mapping, Node, Scalar, Sequence


@dataclass(frozen=True, slots=True)
class Draft:
    """A policy as far as it could be read.

    Attributes:
        policy: the policy; parts that are wrong have stand-ins.
        damaged: keys that are missing or wrong, about which nothing more is to be said.
        node: where it stands in its file.
        leaves: the conditions of `when` that could be read.
        kinds: the class of each step of `then`.
        where: the condition of `where` with its place.
    """

    policy: Policy
    damaged: frozenset[str]
    node: Mapping
    leaves: tuple[Leaf, ...] = ()
    kinds: tuple[ActionClass, ...] = ()
    where: Leaf | None = None

    @property
    def destructive(self) -> bool:
        """Whether some step ends or deletes something, those that follow a missing answer included."""
        return "destructive" in self.kinds or any(step.destructive for _, step in self.policy.numbered)

    def place(self, key: str) -> Position:
        """Where the value of a key stands; the name, or the policy itself, for lack of it."""
        for wanted in (key, "name"):
            value = self.node.get(wanted)
            if value is not None:
                return value.position
        return self.node.position


@dataclass(frozen=True, slots=True)
class Found:
    """A place within a condition with the width of what stands there."""

    position: Position
    length: int


def find(leaf: Leaf, text: str, reader: ConditionReader) -> Found:
    """Where a piece of a condition stands; the whole condition if the piece is written otherwise."""
    offset = leaf.condition.text.find(text) if text else -1
    if offset < 0:
        return Found(leaf.scalar.position, max(1, len(leaf.condition.text)))
    return Found(reader.place(leaf.scalar, offset), len(text))


def items(node: Node | None) -> tuple[Node, ...]:
    """The entries of a list; nothing for anything else."""
    return node.items if isinstance(node, Sequence) else ()


def is_empty(node: Node | None) -> bool:
    """Whether a key has no value."""
    return node is None or (isinstance(node, Scalar) and node.value is None)
