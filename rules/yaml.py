"""Strict YAML: text to a tree of nodes that know their places.

Built from parser events rather than from a loader, so that tags, anchors and positions are
seen. Whatever two readers of YAML could take differently is refused with one diagnostic;
what was refused becomes a `Broken` node, so that nobody complains about it twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

from stoploss.rules.diagnostics import Diagnostics, Position, Related
from stoploss.rules.yaml_errors import PLACEHOLDER_FIX, explain_syntax, quoted

MAX_DEPTH = 64
"""Levels of nesting that a file may have."""

MAX_NODES = 200_000
"""Values in a file; more is not written by people, and would take minutes to complain about."""

MAX_HALVES = 20
"""Pieces into which flow style may have cut one condition."""

LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_SWITCH = re.compile(r"(?:on|off|yes|no|y|n)\Z", re.IGNORECASE)
_SEXAGESIMAL = re.compile(r"[-+]?\d+(?::\d{1,2})+(?:\.\d*)?\Z", re.ASCII)
_OCTAL = re.compile(r"[-+]?(?:0\d+|0o[0-7]+)\Z", re.ASCII)
_INTEGER = re.compile(r"[-+]?\d+\Z", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?\Z", re.ASCII)
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_STYLES = {"'": "single", '"': "double", "|": "block", ">": "block"}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts. `style` is plain, single, double (quotes) or block; `end` is behind it."""

    text: str
    style: str
    position: Position
    end: Position

    @property
    def value(self) -> str | int | float | bool | None:
        """The core value: null, true, false and decimal numbers when plain, else the text."""
        if self.style != "plain":
            return self.text
        if self.text in _CONSTANTS:
            return _CONSTANTS[self.text]
        # Python refuses integers of thousands of digits; they are text like any other oddity.
        if _INTEGER.match(self.text) and len(self.text) < 400:
            return int(self.text)
        return float(self.text) if _FLOAT.match(self.text) else self.text


@dataclass(frozen=True, slots=True)
class Broken:
    """A value about which a diagnostic has been made already."""

    position: Position


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of nodes; `flow` is the style with square brackets."""

    items: tuple[Node, ...]
    position: Position
    flow: bool = False


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys with their values, in the order of the file; no key stands twice."""

    pairs: tuple[tuple[Scalar, Node], ...]
    position: Position
    flow: bool = False

    def get(self, key: str) -> Node | None:
        """The value of a key, or None."""
        return next((value for name, value in self.pairs if name.text == key), None)

    def place(self, key: str) -> Position:
        """Where a key stands; where the mapping begins if it has no such key."""
        return next((name.position for name, _ in self.pairs if name.text == key), self.position)

    @property
    def placeholder(self) -> str | None:
        """The name in `{name}`, which YAML reads as a mapping; None for any other mapping."""
        if not self.flow or len(self.pairs) != 1:
            return None
        key, value = self.pairs[0]
        return key.text if isinstance(value, Scalar) and value.style == "plain" and not value.text else None


Node: TypeAlias = "Scalar | Sequence | Mapping | Broken"


@dataclass(frozen=True, slots=True)
class Document:
    """One file: its lines for showing, and its tree (None where nothing could be read)."""

    file: str
    lines: tuple[str, ...]
    root: Node | None


def plain(node: Node) -> Any:
    """The tree as dicts, lists and core values; a `Broken` node stays itself."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    if isinstance(node, Mapping):
        return {key.text: plain(value) for key, value in node.pairs}
    return node


def scalars(node: Node) -> Iterator[Scalar]:
    """Every value below a node, keys left out, in the order of the file."""
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from scalars(item)
    elif isinstance(node, Mapping):
        for _, value in node.pairs:
            yield from scalars(value)


def parse(text: str, file: str, diagnostics: Diagnostics) -> Document:
    """Read one YAML file; every problem goes to `diagnostics`, and nothing is raised."""
    lines = tuple(LINE_BREAK.split(text))
    control = _CONTROL.search(text)
    if control is not None:
        before = LINE_BREAK.split(text[: control.start()])
        diagnostics.add(
            "yaml-syntax",
            f"a control character (U+{ord(control[0]):04X}) stands here",
            Position(file, len(before), len(before[-1]) + 1),
            fix="remove it; the file is perhaps damaged or not a text file",
        )
        return Document(file, lines, None)
    builder = _Builder(text, file, diagnostics)
    try:
        root = builder.document()
    except yaml.YAMLError as error:
        code, message, place, fix = explain_syntax(error, lines, file)
        known = {(item.code, item.position.file, item.position.line) for item in diagnostics.items}
        if (code, file, place.line) not in known:
            diagnostics.add(code, message, place, fix=fix)
        root = None
    except _TooLarge:
        root = None
    return Document(file, lines, root)


class _TooLarge(Exception):
    """The tree is deeper or larger than allowed; the diagnostic has been made."""


class _Builder:
    def __init__(self, text: str, file: str, diagnostics: Diagnostics) -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=yaml.CSafeLoader))
        self._file = file
        self._diagnostics = diagnostics
        self._nodes = 0

    def document(self) -> Node | None:
        root: Node | None = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._refuse(event, "a second document begins here", "one file holds one document")
                    break
            elif isinstance(event, yaml.NodeEvent):
                root = self._node(event, 1)
        if root is None or (isinstance(root, Scalar) and root.value is None):
            place = Position(self._file)
            self._diagnostics.add(
                "file-empty",
                "the file is empty",
                place,
                fix="write at least `version: 1` and one entry under `policies:`",
            )
            return None
        return root

    def _place(self, mark: Any) -> Position:
        return Position(self._file, mark.line + 1, mark.column + 1)

    def _refuse(self, event: Any, message: str, fix: str, *, length: int = 1) -> None:
        self._diagnostics.add("yaml-feature", message, self._place(event.start_mark), fix=fix, length=length)

    def _node(self, event: Any, depth: int) -> Node:
        place = self._place(event.start_mark)
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            deep = f"more than {MAX_DEPTH} levels of nesting"
            message = deep if depth > MAX_DEPTH else f"more than {MAX_NODES:,} values in one file"
            self._diagnostics.add("yaml-feature", message, place, fix="flatten the file, or split it")
            raise _TooLarge
        if isinstance(event, yaml.AliasEvent):
            self._refuse(
                event,
                f"the alias *{event.anchor} stands here",
                "write the value out",
                length=len(event.anchor or "") + 1,
            )
            return Broken(place)
        if event.anchor is not None:
            self._refuse(
                event, f"the anchor &{event.anchor} stands here", "remove it", length=len(event.anchor) + 1
            )
        tagged = event.tag is not None
        if tagged:
            self._refuse(
                event, f"the tag {event.tag} stands here", "remove it, or quote a text that begins with !"
            )
        node: Node
        if isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, depth)
        elif isinstance(event, yaml.MappingStartEvent):
            node = self._mapping(event, depth)
        else:
            node = Broken(place) if tagged else self._scalar(event)
        return Broken(place) if tagged else node

    def _scalar(self, event: Any) -> Scalar | Broken:
        style = _STYLES.get(event.style or "", "plain")
        place = self._place(event.start_mark)
        scalar = Scalar(event.value, style, place, self._place(event.end_mark))
        if style == "plain":
            complaint = _ambiguity(event.value)
            if complaint is not None:
                self._diagnostics.add(
                    "yaml-scalar", complaint, place, fix=f'write "{event.value}"', length=len(event.value)
                )
                return Broken(place)
        elif (control := _CONTROL.search(event.value)) is not None:
            message = f"the text holds a control character (U+{ord(control[0]):04X})"
            self._diagnostics.add("bad-value", message, place, fix="remove the escape")
            return Broken(place)
        return scalar

    def _sequence(self, event: Any, depth: int) -> Node:
        items: list[Node] = []
        for inner in self._events:
            if isinstance(inner, yaml.SequenceEndEvent):
                break
            items.append(self._node(inner, depth + 1))
        if event.flow_style:
            items = self._join_items(items)
        return Sequence(tuple(items), self._place(event.start_mark), bool(event.flow_style))

    def _mapping(self, event: Any, depth: int) -> Node:
        pairs: list[tuple[Scalar, Node]] = []
        seen: dict[str, Scalar] = {}
        template = False
        for inner in self._events:
            if isinstance(inner, yaml.MappingEndEvent):
                break
            key = self._key(inner, depth)
            value = self._node(next(self._events), depth + 1)
            if key is None:
                template = True
            elif isinstance(key, Scalar) and self._is_new(key, seen):
                pairs.append((key, value))
        place = self._place(event.start_mark)
        if template:
            self._diagnostics.add(
                "unexpanded-template", "a placeholder was not filled in", place, fix=PLACEHOLDER_FIX, length=2
            )
            return Broken(place)
        if event.flow_style:
            pairs = self._join_pairs(pairs)
        return Mapping(tuple(pairs), place, bool(event.flow_style))

    def _key(self, event: Any, depth: int) -> Scalar | Broken | None:
        """The key; Broken where it was refused; None where it is the inside of `{{ name }}`."""
        if not isinstance(event, yaml.ScalarEvent):
            node = self._node(event, depth + 1)
            if isinstance(node, Mapping) and node.placeholder is not None:
                return None
            if not isinstance(node, Broken):
                self._refuse(event, "a key is a list or a mapping", "a key is a single word")
            return Broken(node.position)
        if event.value == "<<" and not event.style:
            self._refuse(event, "the merge key << stands here", "write the keys out", length=2)
            return Broken(self._place(event.start_mark))
        node = self._node(event, depth + 1)
        return node if isinstance(node, Scalar | Broken) else Broken(node.position)

    def _is_new(self, key: Scalar, seen: dict[str, Scalar]) -> bool:
        first = seen.setdefault(key.text, key)
        if first is key:
            return True
        self._diagnostics.add(
            "duplicate-key",
            f"the key {key.text!r} stands twice; it stood on line {first.position.line} already",
            key.position,
            fix="keep one of the two",
            length=len(key.text),
            related=(Related("first given here", first.position),),
        )
        return False

    def _join_items(self, items: list[Node]) -> list[Node]:
        """Flow style cuts `max(a, 5m) < 1` at its comma: say so once, in place of both halves."""
        joined: list[Node] = []
        index = 0
        while index < len(items):
            halves = _halves(items[index : index + MAX_HALVES])
            joined.append(self._unquoted(halves) if halves else items[index])
            index += len(halves) or 1
        return joined

    def _join_pairs(self, pairs: list[tuple[Scalar, Node]]) -> list[tuple[Scalar, Node]]:
        """The same in a mapping, where the later halves have become keys without values."""
        joined: list[tuple[Scalar, Node]] = []
        index = 0
        while index < len(pairs):
            key, node = pairs[index]
            pieces = [node]
            for name, value in pairs[index + 1 : index + MAX_HALVES]:
                if not (isinstance(value, Scalar) and value.style == "plain" and not value.text):
                    break
                pieces.append(name)
            halves = _halves(pieces)
            joined.append((key, self._unquoted(halves) if halves else node))
            index += len(halves) or 1
        return joined

    def _unquoted(self, halves: list[Scalar]) -> Broken:
        text = ", ".join(half.text for half in halves)
        self._diagnostics.add(
            "unquoted-condition",
            f"flow style cuts {text!r} at its comma",
            halves[0].position,
            fix=f"quote it as a whole: {quoted(text)}",
            length=len(halves[0].text),
        )
        return Broken(halves[0].position)


def _halves(nodes: list[Node]) -> list[Scalar]:
    """The pieces of one text whose parentheses close only in a later piece; empty for a whole text."""
    pieces: list[Scalar] = []
    still_open = 0
    for piece in nodes:
        if not isinstance(piece, Scalar) or piece.style != "plain":
            return []
        pieces.append(piece)
        still_open += piece.text.count("(") - piece.text.count(")")
        if still_open <= 0:
            return pieces if len(pieces) > 1 else []
    return []


def _ambiguity(text: str) -> str | None:
    if _SWITCH.match(text):
        return f"the bare word {text} is true or false to some YAML readers and a text to others"
    if _SEXAGESIMAL.match(text):
        return f"the bare {text} is a time to people and a number in base 60 to some YAML readers"
    if _OCTAL.match(text):
        return f"the bare {text} is an octal number to some YAML readers and a decimal one to others"
    return None
