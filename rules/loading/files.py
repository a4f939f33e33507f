"""Reads policy files, follows their includes, and merges the sections that all files share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from stoploss.rules.diagnostics import Diagnostics, Position, Related, suggestion
from stoploss.rules.models.fields import shown
from stoploss.rules.yaml import Broken, Document, Mapping, Node, Scalar, parse, plain
from stoploss.rules.yaml import Sequence as ListNode

MAX_BYTES = 5_000_000
"""Size of the largest policy file."""

PACK = "pack:"
_PACK_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\Z")


@dataclass(slots=True)
class Files:
    """What was read: every document once, and whether anything could not be read."""

    documents: dict[str, Document] = field(default_factory=dict)
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class _Include:
    target: str
    place: Position
    length: int


def read_files(paths: Sequence[str | Path], diagnostics: Diagnostics) -> Files:
    """Read the files and all they include; each file is read once."""
    files = Files()
    reader = _Reader(files, diagnostics)
    for path in paths:
        reader.walk(str(path))
    return files


class _Reader:
    def __init__(self, files: Files, diagnostics: Diagnostics) -> None:
        self._files = files
        self._diagnostics = diagnostics
        self._seen: set[str] = set()

    def walk(self, path: str) -> None:
        """Depth first with a stack of our own, so that a chain of includes may be of any length."""
        name = _identity(path)
        if name in self._seen:
            return
        stack = [(name, self._open(path, None))]
        while stack:
            include = next(stack[-1][1], None)
            if include is None:
                stack.pop()
                continue
            name = _identity(include.target)
            if any(name == open_name for open_name, _ in stack):
                self._diagnostics.add(
                    "include-cycle",
                    f"{include.target} includes this file again",
                    include.place,
                    fix="remove one of the includes",
                    length=include.length,
                )
            elif name not in self._seen:
                stack.append((name, self._open(include.target, include)))

    def _open(self, path: str, include: _Include | None) -> Iterator[_Include]:
        self._seen.add(_identity(path))
        text = self._pack(path, include) if path.startswith(PACK) else self._text(path, include)
        if text is None:
            self._files.incomplete = True
            return iter(())
        document = parse(text, path, self._diagnostics)
        self._files.documents[path] = document
        if document.root is None:
            self._files.incomplete = True
        return self._includes(document)

    def _fail(self, message: str, path: str, include: _Include | None, fix: str) -> None:
        place = include.place if include else Position(path)
        length = include.length if include else 1
        self._diagnostics.add("file-unreadable", message, place, fix=fix, length=length)

    def _text(self, path: str, include: _Include | None) -> str | None:
        try:
            with open(path, "rb") as file:
                content = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason, fix = _reason(error)
            self._fail(f"{path} {reason}", path, include, fix)
            return None
        if len(content) > MAX_BYTES:
            self._fail(
                f"{path} is larger than 5 MB", path, include, "a policy file is small; split it with include:"
            )
            return None
        if content.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
            self._fail(f"{path} begins with a byte-order mark", path, include, "save it as UTF-8 without one")
            return None
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self._fail(f"{path} is not UTF-8 text (line {line})", path, include, "save it as UTF-8")
            return None

    def _pack(self, path: str, include: _Include | None) -> str | None:
        name = path.removeprefix(PACK)
        folder = resources.files("stoploss.rules.packs")
        packs = sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".yaml"))
        if _PACK_NAME.match(name) and name in packs:
            return folder.joinpath(f"{name}.yaml").read_text(encoding="utf-8")
        place = include.place if include else Position(path)
        fix = suggestion(name, packs) if packs else "this version has no packs; include a path to a file"
        self._diagnostics.add(
            "unknown-pack",
            f"there is no pack {name!r}",
            place,
            fix=fix,
            length=include.length if include else 1,
        )
        return None

    def _includes(self, document: Document) -> Iterator[_Include]:
        node = document.root.get("include") if isinstance(document.root, Mapping) else None
        if node is None or isinstance(node, Broken):
            return
        if not isinstance(node, ListNode):
            self._diagnostics.add(
                "wrong-type",
                f"{shown(plain(node))} stands where a list is expected",
                node.position,
                fix="write include: [pack:NAME, path]",
            )
            return
        for item in node.items:
            if isinstance(item, Scalar) and isinstance(item.value, str) and item.value.strip():
                target = item.text
                if document.file.startswith(PACK) and not target.startswith(PACK):
                    self._diagnostics.add(
                        "bad-value", "a pack includes packs only", item.position, fix="write pack:NAME"
                    )
                    continue
                if not target.startswith(PACK):
                    target = str(Path(document.file).parent / target)
                yield _Include(target, item.position, max(1, len(item.text)))
            elif not isinstance(item, Broken):
                message = f"{shown(plain(item))} stands where a path is expected"
                self._diagnostics.add("wrong-type", message, item.position, fix="write pack:NAME or a path")


def _identity(path: str) -> str:
    if path.startswith(PACK):
        return path
    try:
        return str(Path(path).resolve())
    except (OSError, ValueError, RuntimeError):
        return path


def _reason(error: Exception) -> tuple[str, str]:
    if isinstance(error, FileNotFoundError):
        return "does not exist", "check the path"
    if isinstance(error, IsADirectoryError):
        return "is a folder", "name the files in it"
    if isinstance(error, PermissionError):
        return "may not be read (permission denied)", "check its permissions"
    return f"cannot be read ({getattr(error, 'strerror', None) or 'bad path'})", "check the path"


def merge(sections: Sequence[Node], name: str, diagnostics: Diagnostics) -> Mapping | None:
    """One mapping of the same section of all files; a key given two values is a problem.

    Args:
        sections: the section's node in each file that has it.
        name: the section, for messages.
        diagnostics: where problems go.
    """
    merged: Mapping | None = None
    for node in sections:
        if isinstance(node, Mapping):
            merged = node if merged is None else _merged(merged, node, name, diagnostics)
        elif not (isinstance(node, Broken) or (isinstance(node, Scalar) and node.value is None)):
            message = f"{shown(plain(node))} stands where the keys of {name} are expected"
            diagnostics.add("wrong-type", message, node.position, fix=f"write {name}: with keys below it")
    return merged


def _merged(first: Mapping, second: Mapping, name: str, diagnostics: Diagnostics) -> Mapping:
    pairs = {key.text: (key, value) for key, value in first.pairs}
    for key, value in second.pairs:
        if key.text not in pairs:
            pairs[key.text] = (key, value)
            continue
        known_key, known = pairs[key.text]
        path = f"{name}.{key.text}"
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            pairs[key.text] = (known_key, _merged(known, value, path, diagnostics))
        elif not isinstance(known, Broken) and not isinstance(value, Broken) and plain(known) != plain(value):
            diagnostics.add(
                "bad-value",
                f"{path} is {shown(plain(value))} here, {shown(plain(known))} in {known_key.position.file}",
                value.position,
                fix="say it in one file only",
                related=(Related("the other value", known.position),),
            )
    return Mapping(tuple(pairs.values()), first.position)
