"""The text of conditions: what is read, and what each mistake is told."""

from __future__ import annotations

import time

import pytest

from stoploss.rules.conditions import ast
from stoploss.rules.conditions.parse import MAX_DEPTH, MAX_LENGTH, ConditionError, parse
from stoploss.rules.conditions.syntax import Problem
from stoploss.rules.units import parse_quantity


def mistake(text: str) -> Problem:
    """The problem of a text that cannot be parsed."""
    with pytest.raises(ConditionError) as caught:
        parse(text)
    return caught.value.problem


def shape(node: ast.Expr) -> object:
    """The structure of a tree as nested tuples, without places."""
    match node:
        case ast.Name(name=name):
            return name
        case ast.Quantity(value=value):
            return value.text
        case ast.String(value=text):
            return repr(text)
        case ast.Subscript(name=name, key=key):
            return (name, key)
        case ast.Call(name=name):
            head = name
        case ast.Minus():
            head = "-"
        case ast.Negation():
            head = "not"
        case ast.Words():
            head = "list"
        case ast.Arithmetic(op=op) | ast.Comparison(op=op) | ast.Junction(op=op):
            head = op
    return (head, *(shape(child) for child in ast.children(node)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a or b and not c", ("or", "a", ("and", "b", ("not", "c")))),
        ("a and b and c", ("and", "a", "b", "c")),
        ("not a == b", ("not", ("==", "a", "b"))),
        ("a < b + c * -d", ("<", "a", ("+", "b", ("*", "c", ("-", "d"))))),
        ("a - b - c", ("-", ("-", "a", "b"), "c")),
        ("a / b * c", ("*", ("/", "a", "b"), "c")),
        ("(a or b) and c", ("and", ("or", "a", "b"), "c")),
        ("(a - (b - c)) < d", ("<", ("-", "a", ("-", "b", "c")), "d")),
        ("a in [\"x\", 'y']", ("in", "a", ("list", "'x'", "'y'"))),
        ("a in []", ("in", "a", ("list",))),
        ('label["aws:x"] =~ "^a"', ("=~", ("label", "aws:x"), "'^a'")),
        ("max(gpu.power, 30m) < 5W", ("<", ("max", "gpu.power", "30m"), "5W")),
        ("p99.9(gpu.power,1h) < 5W", ("<", ("p99.9", "gpu.power", "1h"), "5W")),
        ("android < notable", ("<", "android", "notable")),
        ("f()", ("f",)),
    ],
)
def test_operators_bind_as_documented(text: str, expected: object) -> None:
    """Each operator binds as tightly as the grammar says."""
    assert shape(parse(text)) == expected


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!=", "=~"])
def test_every_comparison_is_read_with_and_without_spaces(op: str) -> None:
    """A comparison needs no spaces around its operator."""
    assert shape(parse(f"a{op}b")) == shape(parse(f"a {op} b")) == (op, "a", "b")


@pytest.mark.parametrize(
    "literal",
    [
        *("0", "5", "0.05", "1,000,000", "1e-5", "5%", "5 %", "250ms", "30s", "30m", "1h30m", "2d", "1.5w"),
        *("10B", "10 kB", "10GiB", "8bit", "10 GB/s", "5W", "1.5 kW", "2kWh", "1400MHz", "80C"),
        *("100 GPU-hours", "1 GPU-hour", "$500", "€5", "£4.10", "$500/h", "$4.10/GPU-hour", "$0.02/GB-month"),
        *("$100/month", "5/s", "10 GB-month"),
    ],
)
def test_every_literal_is_read_as_one_quantity(literal: str) -> None:
    """A literal of the units table is one token with its value in base units."""
    tree = parse(f"x < {literal}")

    assert isinstance(tree, ast.Comparison)
    assert isinstance(tree.right, ast.Quantity)
    assert tree.right.value == parse_quantity(literal)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\"b"', 'a"b'),
        (r"'a\'b'", "a'b"),
        (r'"a\\b"', r"a\b"),
        (r'"\d+\.\w"', r"\d+\.\w"),
        ("'a\"b'", 'a"b'),
        ('""', ""),
        ('"größe"', "größe"),
    ],
)
def test_only_quotes_and_backslashes_are_escaped(text: str, value: str) -> None:
    """A backslash before any other character stays, so that regular expressions need no doubling."""
    tree = parse(f"x == {text}")

    assert isinstance(tree, ast.Comparison)
    assert isinstance(tree.right, ast.String)
    assert tree.right.value == value


@pytest.mark.parametrize(
    ("text", "code", "shown", "fix"),
    [
        ("a < b < c", "chained-comparison", "a < b < c", "write a < b and b < c"),
        ("a <b == c>d", "chained-comparison", "a <b == c>d", "write a < b and b == c and c > d"),
        ("a && b", "foreign-operator", "&&", "write and"),
        ("a || b", "foreign-operator", "||", "write or"),
        ("!a", "foreign-operator", "!", "write not"),
        ("a = b", "foreign-operator", "=", "write =="),
        ("a === b", "foreign-operator", "===", "write =="),
        ("a => b", "foreign-operator", "=>", "write >="),
        ("a <> b", "foreign-operator", "<>", "write !="),
        ("a AND b", "foreign-operator", "AND", "write and"),
        ("NOT a", "foreign-operator", "NOT", "write not"),
        ("a is b", "foreign-operator", "is", "write =="),
        ("x < 5k", "ambiguous-suffix", "5k", "write 5kB, 5KiB, or the number times 1000"),
        ("x < 5 M", "ambiguous-suffix", "5 M", "write 5MB, 5m (minutes), or the number times 1000000"),
        ("x < 5G and y", "ambiguous-suffix", "5G", "write 5GB, 5GiB, or the number times 1e9"),
        ("x < 3 gb", "bad-quantity", "3 gb", "did you mean GB?"),
        ("x < 30 min", "bad-quantity", "30 min", "did you mean 30m?"),
        ("x < 30min", "bad-quantity", "30min", "did you mean 30m?"),
        ("x < 5 percent", "bad-quantity", "5 percent", "did you mean 5%?"),
        ("x < 5 USD", "bad-quantity", "5 USD", "did you mean $5?"),
        ("x < 5€", "bad-quantity", "5€", "write €5"),
        ("x < 1h 30m", "bad-quantity", "1h 30m", "write 1h30m"),
        ("x < .5", "bad-quantity", ".5", "write 0.5"),
        ("x < $", "bad-quantity", "$", "write $5"),
        ("x < 1e999", "bad-quantity", "1e999", "write a smaller number"),
        ("x < 10GB-5GB", "bad-quantity", "10GB", "put spaces around - and ."),
        ('x == "abc', "condition-syntax", '"abc', 'add " at its end'),
        ("x == “abc”", "condition-syntax", "“", "write \" or '"),
        ("(a or b", "condition-syntax", "(", "add )"),
        ("a or b)", "condition-syntax", ")", "remove it"),
        ("(a or b]", "condition-syntax", "]", "write )"),
        ('x in ["a"', "condition-syntax", "[", "add ]"),
        ("a and", "condition-syntax", "and", "write what belongs after it, or remove it"),
        ("a < or b", "condition-syntax", "<", "write what belongs after it, or remove it"),
        ("or b", "condition-syntax", "or", "write what belongs before it, or remove it"),
        ('x in "a"', "condition-syntax", '"a"', 'write in ["a"]'),
        (
            'x not in ["a"]',
            "condition-syntax",
            "not",
            'write not x in ["…"], or join two conditions with and',
        ),
        ("a b", "condition-syntax", "b", "join them with an operator, and, or or"),
        ("a\u00a0< b", "condition-syntax", "\u00a0", "write a plain space"),
        ("a # b", "condition-syntax", "#", "put words in quotes"),
    ],
)
def test_a_syntax_error_names_the_place_and_the_fix(text: str, code: str, shown: str, fix: str) -> None:
    """Each mistake is told once, with the offending text and what to write instead."""
    problem = mistake(text)

    assert (problem.code, text[problem.offset :][: problem.length], problem.fix) == (code, shown, fix)


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_condition_is_refused(text: str) -> None:
    """A condition without content says so instead of naming a token."""
    assert mistake(text).message == "the condition is empty"


def test_keywords_are_case_sensitive() -> None:
    """Upper-case keywords are names and therefore no operators."""
    assert mistake("a == b Or c").code == "foreign-operator"


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("(", ")"), ("f(", ")"), ("not ", ""), ("-", "")],
    ids=["group", "call", "not", "minus"],
)
def test_fifty_levels_are_read_and_fifty_one_are_not(opening: str, closing: str) -> None:
    """Whatever nests may nest to 50 levels; one more is told as too deep."""
    parse(opening * MAX_DEPTH + "x" + closing * MAX_DEPTH)

    problem = mistake(opening * (MAX_DEPTH + 1) + "x" + closing * (MAX_DEPTH + 1))

    assert problem.code == "condition-too-long"


def test_a_long_sum_counts_as_nesting() -> None:
    """A sum of hundreds of terms is refused, because each term lies one level deeper."""
    assert mistake("x < " + " + ".join(["1"] * 400)).code == "condition-too-long"


def test_many_operands_of_and_do_not_nest() -> None:
    """A flat list of operands is limited by the length alone."""
    tree = parse(" and ".join(["a < 1"] * 180))

    assert tree.depth == 0


def test_two_thousand_characters_are_read_and_one_more_is_not() -> None:
    """The limit of 2,000 characters is inclusive."""
    text = "x < 1".ljust(MAX_LENGTH)
    parse(text)

    problem = mistake(text + " ")

    assert (problem.code, problem.offset, problem.length) == ("condition-too-long", MAX_LENGTH, 1)


@pytest.mark.parametrize("sign", ["(", "-", "not ", "[", "f("])
def test_deep_unfinished_nesting_is_an_ordinary_error(sign: str) -> None:
    """Two thousand characters of openings end in a problem, not in a stack overflow."""
    assert mistake((sign * MAX_LENGTH)[:MAX_LENGTH]).code in ("condition-syntax", "condition-too-long")


def test_places_cover_parentheses() -> None:
    """A node's text includes the parentheses around it."""
    text = "not (a < (b + c))"
    tree = parse(text)

    assert isinstance(tree, ast.Negation)
    assert isinstance(tree.inner, ast.Comparison)
    right = tree.inner.right
    assert (text[tree.inner.start : tree.inner.end], text[right.start : right.end]) == (
        "(a < (b + c))",
        "(b + c)",
    )


def test_parsing_takes_well_under_a_millisecond() -> None:
    """Once the grammar is built, a usual condition parses in under 1 ms."""
    text = "max(gpu.power, 30m) < 35% * gpu.power_limit and env == 'x'"
    parse(text)
    best = min(_seconds_for(text, 50) for _ in range(5))

    assert best / 50 < 1e-3


def _seconds_for(text: str, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        parse(text)
    return time.perf_counter() - started
