"""Literals and texts in the checked tree, and the examples of the page on conditions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from stoploss.rules.catalogue import catalogue
from stoploss.rules.conditions.check import check_condition
from stoploss.rules.conditions.functions import FUNCTIONS, Function
from stoploss.rules.conditions.typed import (
    Arith,
    Compare,
    Condition,
    Const,
    Label,
    TextSignal,
    TextTest,
)
from stoploss.rules.units import Dimension

Root = Callable[..., Condition]
Told = Callable[..., list[tuple[str, str]]]
T = TypeVar("T")


def as_a(kind: type[T], node: object) -> T:
    """The node, which has to be of that class."""
    assert isinstance(node, kind)
    return node


def left_of(root: Root, text: str, each: str = "gpu") -> object:
    """The left side of a comparison judged on the policy's own kind."""
    return as_a(Compare, root(text, each)).left


@pytest.mark.parametrize(("text", "value"), [("30m", 1800.0), ("-5m", -300.0), ("- -5m", 300.0)])
def test_a_literal_is_in_base_units(root: Root, text: str, value: float) -> None:
    """Constants are held in base units with their sign."""
    comparison = as_a(Compare, root(f"age(train.step) > {text}"))

    assert as_a(Const, comparison.right).value == value


def test_a_minus_before_a_signal_is_a_product(root: Root) -> None:
    """A leading minus keeps the dimension of what it negates."""
    product = as_a(Arith, left_of(root, "-gpu.power < -5W"))

    assert (product.op, product.dimension) == ("*", Dimension.of(power=1))
    assert as_a(Const, product.left).value == -1.0


@pytest.mark.parametrize(
    ("text", "op", "words"),
    [
        ('env == "a"', "==", ("a",)),
        ('env != "a"', "!=", ("a",)),
        ('env in ["a", "b"]', "in", ("a", "b")),
        ('env =~ "^a.*b$"', "=~", ("^a.*b$",)),
        ('env < "m"', "<", ("m",)),
        ('"m" < env', ">", ("m",)),
        ('"m" == env', "==", ("m",)),
    ],
)
def test_a_text_is_compared_with_words(root: Root, text: str, op: str, words: tuple[str, ...]) -> None:
    """A label stands on the left of the checked test, whichever side it was written on."""
    test = as_a(TextTest, root(text))

    assert (test.op, test.operand, test.words, test.text) == (op, Label("env", "job"), words, text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("job == 'a'", "job"),
        ("label.keep == 'a'", "keep"),
        ("label['aws:x'] == 'a'", "aws:x"),
        ("id == 'a'", "id"),
    ],
)
def test_labels_are_named_in_three_ways(root: Root, text: str, name: str) -> None:
    """Bare identity labels, label.NAME and label["…"] all name a label."""
    assert as_a(TextTest, root(text)).operand == Label(name, "job")


def test_a_text_signal_may_have_a_window(root: Root) -> None:
    """`last` of a state keeps its window; a bare state has none."""
    windowed = as_a(TextTest, root("last(loss.verdict, 30m) == 'flat'")).operand
    bare = as_a(TextTest, root("loss.verdict == 'flat'")).operand

    assert (as_a(TextSignal, windowed).seconds, as_a(TextSignal, bare).seconds) == (1800.0, None)


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("a(b", "("),
        ("*a", "*"),
        ("(a+)+", '"(a+)+"'),
        ("(a*)*b", '"(a*)*b"'),
        ("(?:(x+)y?)*", '"(?:(x+)y?)*"'),
        ("(a|a)*", '"(a|a)*"'),
        ("(a|ab)+", '"(a|ab)+"'),
        ("[[a]", '"[[a]"'),
        ("x" * 501, '"' + "x" * 501 + '"'),
    ],
)
def test_a_bad_regular_expression_is_refused_at_load(told: Told, pattern: str, shown: str) -> None:
    """What does not compile, could run for ever or is too long is refused."""
    assert told(f'job =~ "{pattern}"') == [("bad-regex", shown)]


@pytest.mark.parametrize(
    "pattern", ["^release-", r"\d+-\d+$", "(foo|bar)+", "(ab){2,5}c*", "(?i)x", "x" * 500, "(a+){3}"]
)
def test_ordinary_regular_expressions_are_taken(root: Root, pattern: str) -> None:
    """A pattern without ambiguous nested repetition passes."""
    root(f"job =~ '{pattern}'")


# the whole


DOCUMENTATION = (Path(__file__).parents[2] / "docs" / "language" / "conditions.md").read_text(
    encoding="utf-8"
)
EXAMPLES = [
    line
    for block in re.findall(r"```condition\n(.*?)```", DOCUMENTATION, re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_documented_example_is_a_condition(text: str) -> None:
    """What the page on conditions shows as right is right with the signals of this version."""
    _, problems = check_condition(text, each="job", catalogue=catalogue())

    assert problems == ()


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_every_function_is_documented(function: Function) -> None:
    """The page on conditions shows the usage of each function."""
    assert f"`{function.usage}`" in DOCUMENTATION
