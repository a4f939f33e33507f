"""The house: imports point one way, one module asks the time, files and functions stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"rules": "rules", "engine": "engine", "collectors": "collectors", "actions": "actions"}
FACES = ("stoploss.cli", "stoploss.api", "stoploss.daemon", "stoploss.reports")
ALLOWED = {
    "rules": ("stoploss.rules",),
    "engine": ("stoploss.engine", "stoploss.rules"),
    "collectors": ("stoploss.collectors", "stoploss.rules", "stoploss.engine.model", "stoploss.aws"),
    "actions": ("stoploss.actions", "stoploss.rules", "stoploss.engine.model", "stoploss.aws"),
}
"""Folder -> what its modules may import of ours; `stoploss.aws` itself imports nothing of ours."""

FILE_LIMIT, FUNCTION_LIMIT, POSITIONAL_LIMIT = 400, 60, 5

CLOCKS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "monotonic"),
    ("time", "monotonic_ns"),
    ("time", "perf_counter"),
    ("time", "perf_counter_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}


def modules() -> Iterator[Path]:
    """Every module of the package, each once, where it really lies."""
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))
    faces = ROOT / "src" / "stoploss"
    yield from sorted(path for path in faces.rglob("*.py") if path.relative_to(faces).parts[0] not in FOLDERS)


MODULES = {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in modules()}


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            # `from stoploss.engine import model` names a module as well as `stoploss.engine`.
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def within(name: str, packages: tuple[str, ...]) -> bool:
    """Whether a dotted name is one of the packages or lies in one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_there_is_something_to_check() -> None:
    """The four folders and the faces are all found."""
    assert {name.split("/")[0] for name in MODULES} == {*FOLDERS, "src"}
    assert len(MODULES) > 20


@pytest.mark.parametrize("name", [name for name in MODULES if name.split("/")[0] in ALLOWED])
def test_imports_point_one_way(name: str) -> None:
    """A module imports only what its folder may import."""
    allowed = ALLOWED[name.split("/")[0]]
    ours = [(line, what) for line, what in imports(MODULES[name]) if within(what, ("stoploss",))]

    assert [f"{name}:{line} imports {what}" for line, what in ours if not within(what, allowed)] == []


def test_what_looking_and_acting_share_stands_alone() -> None:
    """How AWS is reached is known to collectors and actions, and knows nothing of ours."""
    found = imports(MODULES["src/stoploss/aws.py"])

    assert [what for _, what in found if within(what, ("stoploss",))] == []


@pytest.mark.parametrize("name", MODULES)
def test_imports_are_absolute_and_never_bare(name: str) -> None:
    """Every import of ours begins with `stoploss.`."""
    found = imports(MODULES[name])

    assert [
        f"{name}:{line} {what}" for line, what in found if what[0] == "." or within(what, tuple(FOLDERS))
    ] == []


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith(("src/stoploss/reports",))])
def test_reports_know_no_other_face(name: str) -> None:
    """A report format imports no command and no server."""
    others = tuple(face for face in FACES if face != "stoploss.reports")

    assert [what for _, what in imports(MODULES[name]) if within(what, others)] == []


@pytest.mark.parametrize("name", [name for name in MODULES if name != "engine/clock.py"])
def test_only_the_clock_asks_the_time(name: str) -> None:
    """No other module reads a clock; all are told the time."""
    asked = [
        f"{name}:{node.lineno} {node.value.id}.{node.attr}"
        for node in ast.walk(MODULES[name])
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in CLOCKS
    ]
    asked += [
        f"{name}:{line} {what}" for line, what in imports(MODULES[name]) if tuple(what.split(".")) in CLOCKS
    ]

    assert asked == []


@pytest.mark.parametrize("name", MODULES)
def test_files_and_functions_are_small(name: str) -> None:
    """A file has under 400 lines, a function under 60 and at most 5 positional parameters."""
    tree = MODULES[name]
    lines = len((ROOT / name).read_text("utf-8").splitlines())
    problems = [f"{name} has {lines} lines"] if lines >= FILE_LIMIT else []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length >= FUNCTION_LIMIT:
            problems.append(f"{name}:{node.lineno} {node.name} has {length} lines")
        positional = [
            arg.arg for arg in (*node.args.posonlyargs, *node.args.args) if arg.arg not in ("self", "cls")
        ]
        # A command's parameters are given by click, by name.
        if len(positional) > POSITIONAL_LIMIT and not any(
            "option" in ast.dump(d) for d in node.decorator_list
        ):
            problems.append(f"{name}:{node.lineno} {node.name} takes {len(positional)} positional parameters")

    assert problems == []
