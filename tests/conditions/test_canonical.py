"""The canonical spelling: equal conditions share it, different ones never do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoploss.rules.conditions.canonical import canonical, spell_quantity
from stoploss.rules.conditions.parse import parse
from stoploss.rules.units import PER_UNITS, UNITS, parse_quantity


def spelled(text: str) -> str:
    """The canonical spelling of a text."""
    return canonical(parse(text))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x<30m", "x  <  0.5h"),
        ("x < 5 %", "x < 5%"),
        ("x < 1000MB", "x < 1 GB"),
        ("x < 1,000", "x < 1e3"),
        ("x < 8bit", "x < 1B"),
        ("x < 3600 GPU-seconds", "x < 1 GPU-hour"),
        ("x < $24/d", "x < $1/h"),
        ("x == 'a'", 'x == "a"'),
        ("x == 'a\"b'", r'x == "a\"b"'),
        ("((x)) < (5)", "x < 5"),
        ("(a and b) and (c)", "a and b and c"),
        ("a or (b and c)", "a or b and c"),
        ("not (a < b)", "not a < b"),
        ("(a + b) - c < d", "a + b - c < d"),
        ("label.team == 'x'", "team == 'x'"),
        (
            "label['cost-centre'] == 'x' or label.a == 'b'",
            "label[\"cost-centre\"] == 'x' or label['a'] == 'b'",
        ),
        ("p95.0(x.y, 60s) < 1", "p95(x.y, 1m) < 1"),
        ("x in [ 'a','b' ]", 'x in ["a", "b"]'),
    ],
)
def test_equal_conditions_share_one_spelling(first: str, second: str) -> None:
    """Spacing, quotes, units and redundant parentheses do not change the spelling."""
    assert spelled(first) == spelled(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x < 5%", "x < 5.000000000000001%"),
        ("x < 5", "x < 5%"),
        ("x < 0", "x < 0%"),
        ("x < $5", "x < €5"),
        ("x < 5W", "x < 5C"),
        ("a - (b - c) < 1", "a - b - c < 1"),
        ("a / (b * c) < 1", "a / b * c < 1"),
        ("(a or b) and c", "a or b and c"),
        ("not (a and b)", "not a and b"),
        ("x == 'a\\\\'", "x == 'a'"),
        ("max(x.y, 30m) < 1", "max(x.y, 31m) < 1"),
        ("p99(x.y, 30m) < 1", "p99.9(x.y, 30m) < 1"),
        ("a and b", "b and a"),
        ("x <= 1", "x < 1"),
        ("-(a + b) < 1", "-a + b < 1"),
    ],
)
def test_different_conditions_never_share_a_spelling(first: str, second: str) -> None:
    """A changed threshold, unit, order or grouping changes the spelling."""
    assert spelled(first) != spelled(second)


NUMBERS = st.floats(min_value=0, max_value=1e270, allow_nan=False) | st.integers(0, 10**6).map(float)
UNIT_TEXTS = st.sampled_from([name for name in UNITS if name != "month"] + [""])
PERS = st.sampled_from(["", *(f"/{per}" for per in PER_UNITS)])


@given(number=NUMBERS, unit=UNIT_TEXTS, per=PERS)
def test_a_quantity_is_read_back_from_its_spelling_exactly(number: float, unit: str, per: str) -> None:
    """The spelling of any literal means the same float in base units and the same dimension."""
    written = parse_quantity(f"{number!r}{unit}{per}")

    read = parse_quantity(spell_quantity(written.value, written.dimension))

    assert (read.value, read.dimension) == (written.value, written.dimension)


@given(number=NUMBERS, symbol=st.sampled_from("$€£"), per=PERS)
def test_money_is_read_back_from_its_spelling_exactly(number: float, symbol: str, per: str) -> None:
    """Money keeps its currency and its exact amount."""
    written = parse_quantity(f"{symbol}{number!r}{per}")

    read = parse_quantity(spell_quantity(written.value, written.dimension))

    assert (read.value, read.dimension) == (written.value, written.dimension)


LITERALS = st.sampled_from(
    ["5%", "0.5h", "1h30m", "10 GB/s", "$4.10/GPU-hour", "100 GPU-hours", "0", "7", "80C", "0.07%"]
)
ATOMS = (
    st.sampled_from(["x", "gpu.power", "team", "label.a", "label['b:c']", "max(a.b, 30m)", "f()"]) | LITERALS
)
STRINGS = st.text(max_size=6).map(lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'")
NUMERIC = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        inner.map(lambda text: f"- {text}"),
        inner.map(lambda text: f"mean( {text} )"),
    ),
    max_leaves=5,
)
COMPARISONS = st.one_of(
    st.tuples(NUMERIC, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMERIC).map(" ".join),
    st.tuples(ATOMS, st.just("=~"), STRINGS).map(" ".join),
    st.lists(STRINGS, min_size=1, max_size=3).map(lambda items: f"x in [{','.join(items)}]"),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda text: f"not ({text})"),
        inner.map(lambda text: f"any({text})"),
    ),
    max_leaves=5,
)


@given(CONDITIONS)
def test_the_spelling_is_a_fixed_point(text: str) -> None:
    """The canonical spelling of a canonical spelling is itself."""
    once = spelled(text)

    assert spelled(once) == once
