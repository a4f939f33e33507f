"""What conditions mean: functions, names and types, and every mistake with its code and fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from stoploss.rules.conditions.functions import FUNCTIONS, find_function
from stoploss.rules.conditions.syntax import Problem
from stoploss.rules.conditions.typed import (
    CheckedCondition,
    Compare,
    Condition,
    Window,
)
from stoploss.rules.units import NUMBER, Dimension

Check = Callable[..., tuple[CheckedCondition | None, tuple[Problem, ...]]]
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


# windows and functions


@pytest.mark.parametrize(
    ("call", "function", "seconds", "dimension"),
    [
        ("avg(gpu.power, 30m)", "avg", 1800, Dimension.of(power=1)),
        ("min(gpu.power, 1h30m)", "min", 5400, Dimension.of(power=1)),
        ("max(gpu.power, 90s)", "max", 90, Dimension.of(power=1)),
        ("last(gpu.power, 1d)", "last", 86400, Dimension.of(power=1)),
        ("count(gpu.power, 30m)", "count", 1800, NUMBER),
        ("last(train.step, 30m)", "last", 1800, NUMBER),
        ("increase(train.step, 30m)", "increase", 1800, NUMBER),
        ("rate(train.step, 30m)", "rate", 1800, Dimension.of(time=-1)),
        ("rate(network.bytes, 30m)", "rate", 1800, Dimension.of(data=1, time=-1)),
        ("sum(data.errors, 30m)", "sum", 1800, NUMBER),
        ("count(data.errors, 30m)", "count", 1800, NUMBER),
        ("rate(data.errors, 30m)", "rate", 1800, Dimension.of(time=-1)),
        ("avg(train.loss, 30m)", "avg", 1800, NUMBER),
        ("last(train.loss, 30m)", "last", 1800, NUMBER),
    ],
)
def test_a_window_function_has_seconds_and_a_dimension(
    root: Root, call: str, function: str, seconds: float, dimension: Dimension
) -> None:
    """A window is in seconds, and a function keeps or changes its signal's dimension as documented."""
    window = as_a(Window, left_of(root, f"{call} > 0"))

    assert (window.function, window.seconds, window.dimension, window.text) == (
        function,
        seconds,
        dimension,
        call,
    )


@pytest.mark.parametrize(("name", "thousandths"), [("p95", 950), ("p99.9", 999), ("p5", 50), ("p0.1", 1)])
def test_a_quantile_is_held_in_thousandths(root: Root, name: str, thousandths: int) -> None:
    """pNN and pNN.N become integers, so that ranks need no floating point."""
    window = as_a(Window, left_of(root, f"{name}(gpu.power, 1h) > 5W"))

    assert (window.function, window.quantile) == ("quantile", thousandths)


@pytest.mark.parametrize("name", ["p0", "p100", "p99.99", "p0.0"])
def test_a_quantile_lies_between_0_and_100(told: Told, name: str) -> None:
    """Quantiles outside ]0, 100[ or with two decimals are refused."""
    assert told(f"{name}(gpu.power, 1h) > 5W") == [("unknown-function", name)]


@pytest.mark.parametrize(
    ("call", "fitting"),
    [
        ("avg(train.step, 30m)", "use last or increase or rate"),
        ("increase(gpu.power, 30m)", "use avg or min or max or pNN or count or last"),
        ("max(data.errors, 30m)", "use count or rate or sum"),
        ("p95(train.loss, 30m)", "use avg or min or max or last"),
        ("max(loss.verdict, 30m)", "use last"),
        ("avg(job.exit_reason, 30m)", "use last"),
        ("max(gpu.power_limit, 30m)", "an attribute has no age and no windows: write gpu.power_limit alone"),
        ("age(gpu.model)", "an attribute has no age and no windows: write gpu.model alone"),
    ],
)
def test_a_function_that_does_not_fit_names_those_that_do(check: Check, call: str, fitting: str) -> None:
    """A function on the wrong kind of signal is refused with the functions that fit."""
    _, problems = check(f"{call} > 0")

    assert [(problem.code, problem.fix) for problem in problems] == [("wrong-function", fitting)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("avg(gpu.power) > 5W", "avg(gpu.power)"),
        ("avg(gpu.power, 30m, 5) > 5W", "avg(gpu.power, 30m, 5)"),
        ("avg(gpu.power, 30) > 5W", "30"),
        ("avg(gpu.power, 0s) > 5W", "0s"),
        ("avg(gpu.power, 5%) > 5W", "5%"),
        ("avg(gpu.power * 2, 30m) > 5W", "gpu.power * 2"),
        ("avg(team, 30m) > 5W", "team"),
        ("avg('gpu.power', 30m) > 5W", "'gpu.power'"),
        ("absent(train.step, train.loss)", "train.loss"),
        ("age(5m) > 1h", "5m"),
        ("has(gpu.power)", "gpu.power"),
        ("has('team')", "'team'"),
        ("has(tea)", "tea"),
        ("most(gpu.power < 5W, 0.75)", "0.75"),
        ("most(gpu.power < 5W, 101%)", "101%"),
        ("most(gpu.power < 5W)", "most(gpu.power < 5W)"),
        ("share(gpu.power, 1h) > 5%", "gpu.power"),
        ("share(gpu.power_limit > 5W, 1h) > 5%", "gpu.power_limit > 5W"),
        ("share(1 < 2, 1h) > 5%", "1 < 2"),
        ("env in []", "[]"),
        ("env in [5]", "5"),
        ("env == team", "env == team"),
        ("'a' == 'b'", "'a' == 'b'"),
        ("'a' =~ env", "'a' =~ env"),
        ("mean(budget.used) > 5%", "mean(budget.used)"),
        ("mean(5) > 5", "mean(5)"),
        ("any(env == 'x')", "any(env == 'x')"),
        ("all(train.step > 5)", "all(train.step > 5)"),
        ("any(any(gpu.power < 5W))", "any(gpu.power < 5W)"),
    ],
)
def test_an_argument_that_does_not_fit_is_shown(told: Told, text: str, shown: str) -> None:
    """A wrong argument gives one problem at the argument."""
    assert told(text) == [("wrong-argument", shown)]


def test_a_number_glued_to_a_comma_is_explained(check: Check) -> None:
    """`5,300s` reads as one number; the fix says to put a space after the comma."""
    _, problems = check("share(data.errors < 5,300s) > 50%")

    assert [problem.fix for problem in problems] == ["write a space after the comma"]


# names


def test_P_C5_an_unknown_name_is_an_error_with_the_nearest_signal(check: Check) -> None:
    """A field that does not exist is refused at load and the nearest signal offered."""
    _, problems = check("gpu_utl < 5")

    assert [(problem.code, problem.fix) for problem in problems] == [
        ("unknown-name", "did you mean gpu.utilization?")
    ]


@pytest.mark.parametrize(
    ("text", "code", "fix"),
    [
        ("gpu.utilisation < 5%", "unknown-signal", "did you mean gpu.utilization?"),
        ("avg(gpu.pwer, 5m) < 5W", "unknown-signal", "did you mean gpu.power?"),
        ("tem == 'x'", "unknown-name", "did you mean team?"),
        ("env == vision", "unknown-name", 'a label is written label.vision, a text "vision"'),
        ("avg < 5", "unknown-name", "write avg(SIGNAL, WINDOW)"),
        ("labl['x'] == 'y'", "unknown-name", 'write label["x"]'),
        ("maxx(gpu.power, 5m) < 5W", "unknown-function", "did you mean max?"),
        ("gpu.power(5m) < 5W", "unknown-function", "write avg(gpu.power, 30m)"),
        ("loss.verdict == 'convergd'", "unknown-value", "did you mean converged?"),
        ("loss.verdict != 'Flat'", "unknown-value", "did you mean flat?"),
        ("last(loss.verdict, 5m) in ['flat', 'healty']", "unknown-value", "did you mean healthy?"),
        ("kind == 'gpi'", "unknown-value", "did you mean gpu?"),
        ("stage == 'training'", "unknown-value", "did you mean train?"),
        ("label.cost-center == 'x'", "type-mismatch", 'write label["cost-center"]'),
        ("label.app.kubernetes.io/name == 'x'", "type-mismatch", 'write label["app.kubernetes.io/name"]'),
    ],
)
def test_an_unknown_word_is_told_once_with_a_fix(check: Check, text: str, code: str, fix: str) -> None:
    """A misspelt word gives exactly one problem, which says what was meant."""
    _, problems = check(text)

    assert [(problem.code, problem.fix) for problem in problems] == [(code, fix)]


@pytest.mark.parametrize(
    "text",
    ["class == 'anything'", "label.stage2 == 'x'", "loss.verdict =~ '^con'", "job.exit_reason == 'oom'"],
)
def test_open_lists_take_any_word(root: Root, text: str) -> None:
    """Labels without a closed list, free texts and searches are not checked against one."""
    root(text)


# types


def test_P_C6_a_number_compared_with_a_text_is_refused(check: Check) -> None:
    """`gpu.utilization < "5"` is an error at load, which offers 5%."""
    _, problems = check('gpu.utilization < "5"')

    assert [(problem.code, problem.fix) for problem in problems] == [
        ("type-mismatch", "write 5% without quotes")
    ]


@pytest.mark.parametrize(
    ("text", "shown", "fix"),
    [
        ("gpu.utilization < 5", "5", "write 5%"),
        ("gpu.utilization < 0.05", "0.05", "write 5%, or 0.05% if you mean that"),
        ("90 < gpu.utilization", "90", "write 90%"),
        ("1 - gpu.utilization < 5%", "1", "write 1%"),
        (
            "gpu.utilization < train.loss",
            "train.loss",
            "write a share with %, or divide by a number of the same kind",
        ),
    ],
)
def test_a_share_needs_a_percent_sign(check: Check, text: str, shown: str, fix: str) -> None:
    """A share against a plain number is an error that offers the percentage."""
    _, problems = check(text)

    assert [(p.code, text[p.offset :][: p.length], p.fix) for p in problems] == [
        ("share-needs-percent", shown, fix)
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu.power < 5%", "gpu.power is a power (W), 5% is a share (%)"),
        ("30m > gpu.power", "30m is a duration, gpu.power is a power (W)"),
        ("gpu.power + 5C > 5W", "gpu.power is a power (W), 5C is a temperature (C)"),
        (
            "rate(network.bytes, 5m) > 10MB",
            "rate(network.bytes, 5m) is a data rate (bytes per second), 10MB is a size (bytes)",
        ),
        ("cost.total > 5", "cost.total is money, 5 is a plain number"),
        ("cost.total > $5/h", "cost.total is money, $5/h is money per time"),
        ("env == 5", "env is a text, 5 is a plain number"),
        ("env + 1 > 2", "env is a text, not a number"),
        ("-env > 2", "env is a text, not a number"),
        ("train.step in ['5']", "in compares texts, train.step is none"),
        ("train.step =~ train.step", "=~ searches in texts, not in numbers"),
        ("gpu.utilization", "gpu.utilization is a value, not a condition"),
        ("env and team == 'x'", "env is a value, not a condition"),
        ("has(team) == 5", "has(team) is true or false, not a value"),
    ],
)
def test_a_type_error_names_both_sides(check: Check, text: str, message: str) -> None:
    """A comparison of different things is refused and says what each side is."""
    _, problems = check(text)

    assert [(problem.code, problem.message) for problem in problems] == [("type-mismatch", message)]
    assert problems[0].fix


@pytest.mark.parametrize(
    "text",
    [
        "gpu.power == 0",
        "0 < gpu.utilization",
        "gpu.power > -0",
        "gpu.power / gpu.power_limit < 35%",
        "gpu.power / gpu.power_limit < 0.35",
        "1 - gpu.power / gpu.power_limit > 5%",
        "gpu.power < 35% * gpu.power_limit",
        "sum(data.errors, 1h) / sum(data.records, 1h) > 1%",
        "gpu.utilization * 2 < 5%",
        "100% - gpu.utilization < 5%",
        "cost.total > $5",
        "cost.total / $20000 > 80%",
        "cost.total + $5 < $10",
        "cost.rate * 2h > €5",
        "rate(network.bytes, 5m) * 1h > 5GB",
        "age(train.step) > 10m",
    ],
)
def test_sides_that_measure_the_same_fit(root: Root, text: str) -> None:
    """Equal dimensions, ratios with shares, and 0 with anything may be compared."""
    root(text)


@pytest.mark.parametrize("text", ["train.loss / 2 < 5%", "gpu.power < 0%", "gpu.power + 0 < 5W"])
def test_only_a_bare_zero_in_a_comparison_and_true_ratios_are_exempt(told: Told, text: str) -> None:
    """Half a plain number is no ratio, and 0% or a sum with 0 has a dimension to keep."""
    assert len(told(text)) == 1


def test_currencies_are_gathered(check: Check) -> None:
    """The condition lists the currency it names."""
    condition, _ = check("cost.total > $5 or cost.rate > $3/h")

    assert condition is not None
    assert condition.currencies == {"USD"}


def test_two_currencies_in_one_condition_are_refused(told: Told) -> None:
    """The second currency is the mistake, and it is told once."""
    assert told("cost.total > $5 or cost.total > €3") == [("mixed-currency", "€3")]


def test_all_type_errors_are_told_at_once(told: Told) -> None:
    """Each of several mistakes gives one problem, in the order of the text."""
    text = "gpu.power < 5% and foo == 3 and not (gpu.utilization < 5 or maxx(gpu.power) < nope)"

    assert told(text) == [
        ("type-mismatch", "gpu.power < 5%"),
        ("unknown-name", "foo"),
        ("share-needs-percent", "5"),
        ("unknown-function", "maxx"),
        ("unknown-name", "nope"),
    ]


def test_a_broken_part_causes_no_follow_up(told: Told) -> None:
    """What stands around an unknown signal is not blamed for it."""
    assert told("(gpu.pwer + 5%) * 3 < 'x'") == [("unknown-signal", "gpu.pwer")]


def test_a_checked_condition_lists_its_signals(check: Check) -> None:
    """Every signal is listed once, in the order of the text."""
    condition, _ = check("gpu.power < 5W and (train.step > 5 or gpu.power > 500W)")

    assert condition is not None
    assert [signal.name for signal in condition.signals] == ["gpu.power", "train.step"]


def test_a_syntax_error_is_the_only_problem(told: Told) -> None:
    """A condition that cannot be parsed gives one problem, whatever else is wrong with it."""
    assert told("nope < 5 && gpu.power < 5%") == [("foreign-operator", "&&")]


def test_every_function_has_help() -> None:
    """`explain` finds a paragraph for each function, quantiles included."""
    assert all(
        len(function.help) > 40 and function.usage.startswith(name) for name, function in FUNCTIONS.items()
    )
    assert find_function("p99.9") is FUNCTIONS["pNN"]
