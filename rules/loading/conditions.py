"""Reads conditions from nodes: single ones, and the tree of a `when:`."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingType
from dataclasses import dataclass

from stoploss.rules.catalogue import Catalogue
from stoploss.rules.conditions.check import check_condition
from stoploss.rules.conditions.typed import CheckedCondition, Condition, Junction, Not
from stoploss.rules.diagnostics import Diagnostics, Position, suggestion
from stoploss.rules.loading.structure import width
from stoploss.rules.models.fields import shown
from stoploss.rules.yaml import Broken, Document, Mapping, Node, Scalar, Sequence, plain
from stoploss.rules.yaml_errors import PLACEHOLDER_FIX, quoted

_JUNCTIONS = ("all", "any", "none")
_ESCAPES = {"x": 4, "u": 6, "U": 10}
_WORD = re.compile(r"[\w-]+\Z")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One condition as written, and where."""

    condition: CheckedCondition
    scalar: Scalar


@dataclass(frozen=True, slots=True)
class When:
    """The tree of a `when:`.

    Attributes:
        root: the tree; None for no condition, or where none could be read.
        canonical: one spelling for equal trees.
        leaves: the conditions that could be read.
        damaged: whether some condition could not.
    """

    root: Condition | None = None
    canonical: str = ""
    leaves: tuple[Leaf, ...] = ()
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """A subtree: `op` is and, or, or empty for anything that cannot be flattened further."""

    op: str
    roots: tuple[Condition, ...]
    texts: tuple[str, ...]


class ConditionReader:
    """Reads conditions and says their problems at their exact places."""

    def __init__(
        self, catalogue: Catalogue, documents: MappingType[str, Document], diagnostics: Diagnostics
    ) -> None:
        self._catalogue = catalogue
        self._documents = documents
        self._diagnostics = diagnostics

    def condition(self, node: Node, *, each: str | None, labels_only: bool = False) -> Leaf | None:
        """One condition; None where it cannot be read, and a diagnostic says why."""
        scalar = self._scalar(node)
        if scalar is None:
            return None
        text = re.sub(r"\s", " ", scalar.text.rstrip("\n"))
        if self._is_cut(scalar):
            self._diagnostics.add(
                "unquoted-condition",
                f"YAML takes what follows {shown(text)} for a comment",
                scalar.position,
                fix="put the whole condition in single quotes",
                length=width(scalar),
            )
            return None
        checked, problems = check_condition(
            text, each=each, catalogue=self._catalogue, labels_only=labels_only
        )
        for problem in problems:
            place = self.place(scalar, problem.offset)
            end = self.place(scalar, problem.offset + problem.length)
            length = end.column - place.column if end.line == place.line else 1
            self._diagnostics.add(
                problem.code, problem.message, place, fix=problem.fix, length=max(1, length)
            )
        return Leaf(checked, scalar) if checked is not None and not problems else None

    def when(self, node: Node | None, each: str) -> When:
        """The tree of a `when:`; a list means all of its entries."""
        if node is None or (isinstance(node, Scalar) and node.value is None):
            return When()
        leaves: list[Leaf] = []
        part, damaged = self._part(node, each, leaves)
        if part is None:
            return When(leaves=tuple(leaves), damaged=damaged)
        return When(_root(part, each), _text(part), tuple(leaves), damaged)

    def _part(self, node: Node, each: str, leaves: list[Leaf]) -> tuple[_Part | None, bool]:
        if isinstance(node, Sequence):
            return self._several("and", node.items, each, leaves)
        if isinstance(node, Mapping) and _is_junction(node):
            return self._junctions(node, each, leaves)
        leaf = self.condition(node, each=each)
        if leaf is None:
            return None, True
        leaves.append(leaf)
        return _Part("", (leaf.condition.root,), (leaf.condition.canonical,)), False

    def _several(
        self, op: str, nodes: tuple[Node, ...], each: str, leaves: list[Leaf]
    ) -> tuple[_Part | None, bool]:
        read = [self._part(node, each, leaves) for node in nodes]
        return _join(op, [part for part, _ in read if part is not None], each), any(bad for _, bad in read)

    def _junctions(self, node: Mapping, each: str, leaves: list[Leaf]) -> tuple[_Part | None, bool]:
        parts: list[_Part] = []
        damaged = False
        for key, value in node.pairs:
            if key.text not in _JUNCTIONS:
                self._diagnostics.add(
                    "unknown-key",
                    f"the key {key.text!r} does not exist here",
                    key.position,
                    fix=suggestion(key.text, _JUNCTIONS),
                    length=max(1, len(key.text)),
                )
                damaged = True
                continue
            if isinstance(value, Broken) or not self._has_entries(key, value):
                damaged = True
                continue
            items = value.items if isinstance(value, Sequence) else (value,)
            part, bad = self._several("and" if key.text == "all" else "or", items, each, leaves)
            damaged |= bad
            if part is not None:
                parts.append(_negated(part, each) if key.text == "none" else part)
        return _join("and", parts, each), damaged

    def _has_entries(self, key: Scalar, value: Node) -> bool:
        if isinstance(value, Sequence) and value.items:
            return True
        if isinstance(value, Mapping) or (isinstance(value, Scalar) and value.value is not None):
            return True
        self._diagnostics.add(
            "bad-value",
            f"{key.text}: holds no condition",
            key.position,
            fix="add a condition, or remove the key",
            length=len(key.text),
        )
        return False

    def _scalar(self, node: Node) -> Scalar | None:
        if isinstance(node, Scalar) and isinstance(node.value, str) and node.value.strip():
            return node
        if isinstance(node, Mapping):
            self._mapping(node)
        elif not isinstance(node, Broken):
            self._diagnostics.add(
                "wrong-type",
                f"{shown(plain(node))} stands where a condition is expected",
                node.position,
                fix="write a condition such as max(gpu.utilization, 30m) < 5%",
                length=width(node),
            )
        return None

    def _mapping(self, node: Mapping) -> None:
        if node.placeholder is not None and _WORD.match(node.placeholder):
            text = f"{{{node.placeholder}}}"
            message = f"the placeholder {text} was not filled in"
            self._diagnostics.add(
                "unexpanded-template", message, node.position, fix=PLACEHOLDER_FIX, length=len(text)
            )
            return
        if not node.pairs:
            self._diagnostics.add("wrong-type", "{} stands where a condition is expected", node.position)
            return
        key, value = node.pairs[0]
        rest = value.text if isinstance(value, Scalar) else "..."
        if isinstance(value, Scalar) and value.style in ("single", "double"):
            rest = f'"{rest}"' if value.style == "double" else f"'{rest}'"
        text = f"{key.text}: {rest}"
        self._diagnostics.add(
            "unquoted-condition",
            f"YAML cuts this condition at its `: ` ({shown(text)})",
            key.position,
            fix=f"quote it as a whole: {quoted(text)}",
            length=max(1, len(key.text)),
        )

    def _is_cut(self, scalar: Scalar) -> bool:
        """Whether a ` #` inside of quotes has ended this condition."""
        if scalar.style != "plain" or scalar.text.count('"') % 2 == 0:
            return False
        lines = self._lines(scalar.end)
        line = lines[scalar.end.line - 1] if scalar.end.line <= len(lines) else ""
        return line[scalar.end.column - 1 :].lstrip().startswith("#")

    def _lines(self, place: Position) -> tuple[str, ...]:
        document = self._documents.get(place.file)
        return document.lines if document else ()

    def place(self, scalar: Scalar, offset: int) -> Position:
        """Where a character of a scalar's text stands in the file; its start where that is not plain."""
        start = scalar.position
        lines = self._lines(start)
        if start.line > len(lines):
            return start
        if scalar.style == "block":
            body = lines[start.line] if start.line < len(lines) else ""
            text = body.strip()
            if offset > len(text):
                return start
            return Position(start.file, start.line + 1, body.find(text) + 1 + offset)
        if start.line != scalar.end.line:
            return start
        if scalar.style == "plain":
            return start.shifted(offset)
        return start.shifted(_behind_quotes(lines[start.line - 1][start.column - 1 :], offset))


def _behind_quotes(source: str, offset: int) -> int:
    """Columns from the opening quote to a character of the quoted text."""
    column = 1
    for _ in range(offset):
        here = source[column : column + 2]
        if source[0] == "'" and here == "''":
            column += 2
        elif source[0] == '"' and here[:1] == "\\":
            column += _ESCAPES.get(here[1:], 2)
        else:
            column += 1
    return column


def _is_junction(node: Mapping) -> bool:
    """Whether a mapping is all:, any: or none:, perhaps misspelt, rather than a cut condition."""
    return (
        bool(node.pairs)
        and node.placeholder is None
        and any(
            key.text in _JUNCTIONS or (_WORD.match(key.text) and isinstance(value, Sequence | Mapping))
            for key, value in node.pairs
        )
    )


def _join(op: str, parts: list[_Part], each: str) -> _Part | None:
    if len(parts) <= 1:
        return parts[0] if parts else None
    roots: list[Condition] = []
    texts: list[str] = []
    for part in parts:
        if part.op == op:
            roots += part.roots
            texts += part.texts
        else:
            roots.append(_root(part, each))
            texts.append(_text(part))
    return _Part(op, tuple(roots), tuple(texts))


def _negated(part: _Part, each: str) -> _Part:
    root = _root(part, each)
    return _Part("", (Not(root, root.level),), (f"not ({_text(part)})",))


def _root(part: _Part, each: str) -> Condition:
    if len(part.roots) == 1:
        return part.roots[0]
    level = each if any(root.level is not None for root in part.roots) else None
    return Junction(part.op, part.roots, level)


def _text(part: _Part) -> str:
    texts = sorted(set(part.texts))
    return texts[0] if len(texts) == 1 else f" {part.op} ".join(f"({text})" for text in texts)
