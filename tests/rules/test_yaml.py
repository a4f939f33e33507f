"""The strict YAML reader."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoploss.rules.diagnostics import Diagnostic, Diagnostics
from stoploss.rules.yaml import Mapping, Scalar, parse, plain


def read(text: str) -> tuple[object, tuple[Diagnostic, ...]]:
    """The core values of a text, and what is wrong with it."""
    diagnostics = Diagnostics()
    root = parse(text, "f.yaml", diagnostics).root
    return (None if root is None else plain(root)), diagnostics.sorted()


def only(text: str) -> Diagnostic:
    """The one diagnostic of a text."""
    _, found = read(text)
    assert len(found) == 1, [str(item) for item in found]
    return found[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("2027-01-31", "2027-01-31"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        ("'5'", "5"),
        ('"true"', "true"),
        ("5%", "5%"),
        ("a:b", "a:b"),
        ("10", 10),
        ("0", 0),
        ("0.5", 0.5),
    ],
)
def test_P_C1_core_scalars(text: str, value: object) -> None:
    """Only null, true, false and decimal numbers are more than text; a date stays text."""
    assert read(f"a: {text}")[0] == {"a": value}
    assert read(f"a: {text}")[1] == ()


@pytest.mark.parametrize(
    "bare", ["on", "off", "yes", "no", "y", "n", "NO", "On", "22:30", "1:30:00", "010", "0o10", "-07"]
)
def test_P_C1_bare_words_of_two_meanings_are_refused(bare: str) -> None:
    """A bare word that YAML readers disagree about is refused as a value and as a key, quoted it is text."""
    as_value, as_key = only(f"a: {bare}"), only(f"b: 1\n{bare}: 2")

    assert (as_value.code, as_value.position.column, as_value.length) == ("yaml-scalar", 4, len(bare))
    assert as_value.fix == f'write "{bare}"'
    assert (as_key.code, as_key.position.line, as_key.position.column) == ("yaml-scalar", 2, 1)
    assert read(f'"{bare}": "{bare}"') == ({bare: bare}, ())


def test_P_C2_duplicate_key_names_both_lines() -> None:
    """A key given twice is one error that shows both places."""
    found = only("a: 1\nb: 2\na: 3\n")

    assert (found.code, found.position.line) == ("duplicate-key", 3)
    assert "line 1" in found.message
    assert found.related[0].position.line == 1


@pytest.mark.parametrize(
    ("text", "line", "column", "codes"),
    [
        ("a: !foo 1", 1, 4, ["yaml-feature"]),
        ("- ! gpu.mig", 1, 3, ["yaml-feature"]),
        ("a: &x 1", 1, 4, ["yaml-feature"]),
        ("a: &x 1\nb: *x", 1, 4, ["yaml-feature", "yaml-feature"]),
        ("a: {<<: {b: 1}}", 1, 5, ["yaml-feature"]),
        ("a: 1\n---\nb: 1\n", 2, 1, ["yaml-feature"]),
        ("? [a]\n: b", 1, 3, ["yaml-feature"]),
        ("[" * 65, 1, 65, ["yaml-feature"]),
        ("a: {{ team }}", 1, 4, ["unexpanded-template"]),
        ("a: {{ team }}-x", 1, 4, ["unexpanded-template"]),
        ("{% if a %}\na: 1", 1, 1, ["unexpanded-template"]),
        ('when:\n  - "train" == class\n', 2, 5, ["unquoted-condition"]),
        ('where: job == "a: b"\n', 1, 8, ["unquoted-condition"]),
        ("when: [max(gpu.power, 30m) < 5%, b == 1]\n", 1, 8, ["unquoted-condition"]),
        ("e: {where: max(a, 3m) > 5, reason: r}\n", 1, 12, ["unquoted-condition"]),
        ('when: [job in ["a", "b"]]\n', 1, 8, ["unquoted-condition"]),
        ("a: b: c", 1, 5, ["yaml-syntax"]),
        ("a:\n\t- b", 2, 1, ["yaml-syntax"]),
        ('a: "x', 1, 4, ["yaml-syntax"]),
        ("a: \x00", 1, 4, ["yaml-syntax"]),
        ("ü: é\n\x07", 2, 1, ["yaml-syntax"]),
        ("a: @foo", 1, 4, ["yaml-syntax"]),
        ("a: ${X", 1, 1, []),
        ("", 1, 1, ["file-empty"]),
        ("# nothing\n---\n~\n", 1, 1, ["file-empty"]),
        ('a: "\\0"', 1, 4, ["bad-value"]),
    ],
)
def test_refused_with_one_diagnostic_each(text: str, line: int, column: int, codes: list[str]) -> None:
    """Each feature, placeholder, cut condition and syntax error is told once, at its place."""
    _, found = read(text)

    assert [item.code for item in found] == codes
    if found:
        assert (found[0].position.line, found[0].position.column) == (line, column)
        assert found[0].fix


def test_a_huge_file_is_one_error() -> None:
    """More values than people write end the reading with one error, soon."""
    found = only("[" + "a," * 200_000 + "]")

    assert (found.code, found.position.column) == ("yaml-feature", 400_000)


def test_a_cut_condition_is_given_back_quoted() -> None:
    """The fix of an unquoted condition is the condition in single quotes."""
    assert only('where: job == "a: b"\n').fix == "quote it as a whole: 'job == \"a: b\"'"
    assert only("when: [max(a, 3m) < 1]").fix == "quote it as a whole: 'max(a, 3m) < 1'"


def test_places_count_characters_from_one() -> None:
    """Every node knows its line and column, counted in characters also behind wide ones."""
    root = parse("ä: {é: 'x'}\nb:\n  - c\n", "f.yaml", Diagnostics()).root

    assert isinstance(root, Mapping)
    inner = root.get("ä")
    assert isinstance(inner, Mapping)
    value = inner.get("é")
    assert isinstance(value, Scalar)
    assert (value.position.line, value.position.column, value.end.column) == (1, 8, 11)
    assert root.place("b").line == 2


def test_a_comment_behind_a_value_is_no_part_of_it() -> None:
    """Comments are dropped."""
    assert read("a: b  # c\n") == ({"a": "b"}, ())


@settings(max_examples=1500, deadline=None)
@given(st.text(alphabet="ab:-?[]{},#&*!|>'\"%@` \n\t.0159\\<=()$\x00\ufeff\u2028é", max_size=60))
def test_any_text_gives_a_tree_or_a_diagnostic(text: str) -> None:
    """No text raises, and a text without a tree has a diagnostic."""
    value, found = read(text)

    assert value is not None or found
    assert all(item.position.line >= 1 and item.position.column >= 1 for item in found)
