"""Checks the values of a condition: numbers with their dimensions, texts, and functions."""

from __future__ import annotations

import re
from typing import TypeAlias

from stoploss.rules.catalogue import Signal
from stoploss.rules.conditions import ast
from stoploss.rules.conditions.check_scope import Scope, is_condition, lowest_kind, resolve_label
from stoploss.rules.conditions.functions import (
    FUNCTIONS,
    NUMBER_FOLDS,
    Function,
    find_function,
    functions_for,
    quantile_of,
)
from stoploss.rules.conditions.typed import (
    Age,
    Arith,
    Bare,
    Const,
    FoldNumber,
    Label,
    Number,
    Share,
    Text,
    TextSignal,
    Window,
)
from stoploss.rules.diagnostics import suggestion
from stoploss.rules.units import (
    ANY_MONEY,
    DATA,
    DATA_RATE,
    ENERGY,
    FREQUENCY,
    GPU_TIME,
    NUMBER,
    POWER,
    RATE,
    SHARE,
    TEMPERATURE,
    TIME,
    Dimension,
)

Value: TypeAlias = "Number | Text | ast.String"

_EXAMPLES = {
    NUMBER: "100",
    SHARE: "5%",
    TIME: "30m",
    DATA: "10GB",
    DATA_RATE: "10MB/s",
    POWER: "100W",
    ENERGY: "2kWh",
    FREQUENCY: "1400MHz",
    TEMPERATURE: "80C",
    GPU_TIME: "100 GPU-hours",
    RATE: "5/s",
    Dimension.of(money=1): "$100",
    Dimension.of(money=1, time=-1): "$5/h",
    Dimension.of(gpu=-1, money=1, time=-1): "$2/GPU-hour",
    Dimension.of(data=-1, money=1, time=-1): "$0.02/GB-month",
}


def value(scope: Scope, node: ast.Expr) -> Value | None:
    """The checked value of a node, or None when a mistake in it has been noted."""
    match node:
        case ast.Quantity(value=quantity):
            if quantity.dimension.money:
                scope.note_currency(quantity.dimension.money, node)
            return Const(quantity.value, quantity.dimension, scope.slice(node))
        case ast.String():
            return node
        case ast.Name() | ast.Subscript():
            return _named(scope, node)
        case ast.Minus():
            return _minus(scope, node)
        case ast.Arithmetic():
            return _arithmetic(scope, node)
        case ast.Call() if not is_condition(node):
            return _call(scope, node)
        case _:
            message = f"{scope.slice(node)} is true or false, not a value"
            scope.problem("type-mismatch", message, "join conditions with and, or, not", node)
            return None


def number(scope: Scope, node: ast.Expr) -> Number | None:
    """The checked number of a node; a text is noted as a mistake."""
    found = value(scope, node)
    if isinstance(found, ast.String | Label | TextSignal):
        message = f"{scope.slice(node)} is a text, not a number"
        scope.problem("type-mismatch", message, "a text is compared with ==, !=, in or =~", node)
        return None
    return found


def _named(scope: Scope, node: ast.Name | ast.Subscript) -> Value | None:
    label = resolve_label(scope, node)
    if label is not None:
        if scope.inside == "share":
            _refuse_in_share(scope, node)
            return None
        return Label(label, scope.at)
    if isinstance(node, ast.Subscript):
        return None
    signal = scope.signal(node)
    level = None if signal is None else scope.level_of(signal, node)
    if signal is None or level is None:
        return None
    return TextSignal(signal, level) if signal.is_text else Bare(signal, level)


def _refuse_in_share(scope: Scope, node: ast.Expr) -> None:
    message = f"{scope.slice(node)} cannot be judged slot by slot within share(…)"
    scope.problem(
        "wrong-argument", message, "use bare signals within share(…), and the rest outside with and", node
    )


def _minus(scope: Scope, node: ast.Minus) -> Number | None:
    inner = number(scope, node.inner)
    if inner is None:
        return None
    if isinstance(inner, Const):
        return Const(-inner.value, inner.dimension, scope.slice(node))
    return Arith("*", Const(-1.0, NUMBER, "-1"), inner, inner.dimension, inner.level)


def _arithmetic(scope: Scope, node: ast.Arithmetic) -> Number | None:
    if _is_hyphenated_label(scope, node):
        return None
    left, right = number(scope, node.left), number(scope, node.right)
    if left is None or right is None:
        return None
    dimension = _combined(node.op, left, right)
    if dimension is None:
        report_mismatch(scope, node, left, right)
        return None
    kinds = {level for level in (left.level, right.level) if level is not None}
    # Two kinds above the policy's that do not lie on one chain meet on the policy's own.
    level = lowest_kind(kinds) or lowest_kind([*kinds, scope.at])
    if kinds and level is None:
        scope.strangers(kinds, node)
        return None
    return Arith(node.op, left, right, dimension, level if kinds else None)


def _is_hyphenated_label(scope: Scope, node: ast.Arithmetic) -> bool:
    if node.op not in "-/" or not isinstance(node.left, ast.Name):
        return False
    match = re.match(r"label\.([A-Za-z0-9_.]+[-/][A-Za-z0-9_./-]*)", scope.text[node.start :])
    if match is None:
        return False
    scope.problem("type-mismatch", f"{match[0]} is read as arithmetic", f'write label["{match[1]}"]', node)
    return True


def _combined(op: str, left: Number, right: Number) -> Dimension | None:
    """The dimension of the result, or None where the two do not fit."""
    one, other = _one_currency(left.dimension, right.dimension)
    if op == "*":
        return one * other
    if op == "/":
        quotient = one / other
        counts = one == other == NUMBER and not isinstance(left, Const) and not isinstance(right, Const)
        # A part of a count is a ratio too, although both are plain numbers.
        return Dimension((), ratio=True) if counts else quotient
    if not one.fits(other):
        return None
    if one.share or other.share:
        return SHARE
    return one if one.powers else Dimension((), ratio=one.ratio or other.ratio)


def _one_currency(left: Dimension, right: Dimension) -> tuple[Dimension, Dimension]:
    """Both dimensions with the catalogue's money taken for the currency of the other side."""

    def taken(dimension: Dimension, currency: str | None) -> Dimension:
        if dimension.money != ANY_MONEY or currency is None:
            return dimension
        return Dimension(
            tuple(
                sorted((currency if base == ANY_MONEY else base, power) for base, power in dimension.powers)
            )
        )

    return taken(left, right.money), taken(right, left.money)


def report_mismatch(scope: Scope, node: ast.Arithmetic | ast.Comparison, left: Number, right: Number) -> None:
    """Note that two numbers measure different things."""
    one, other = left.dimension, right.dimension
    if not one.powers and not other.powers:
        plain, plain_node = (right, node.right) if one.share else (left, node.left)
        share_text = scope.slice(node.left if one.share else node.right)
        shown = scope.slice(plain_node)
        message = f"{share_text} is a share (%), {shown} is a plain number"
        scope.problem("share-needs-percent", message, _percent_fix(plain), plain_node)
        return
    message = f"{scope.slice(node.left)} is {one}, {scope.slice(node.right)} is {other}"
    measured = other if isinstance(left, Const) and not isinstance(right, Const) else one
    example = example_of(measured)
    fix = f"write {measured}, such as {example}" if example else "both sides must measure the same thing"
    scope.problem("type-mismatch", message, fix, node)


def _percent_fix(plain: Number) -> str:
    if not isinstance(plain, Const):
        return "write a share with %, or divide by a number of the same kind"
    if 0 < abs(plain.value) < 1:
        return f"write {plain.value * 100:.6g}%, or {plain.value:.6g}% if you mean that"
    return f"write {plain.value:.15g}%"


def example_of(dimension: Dimension) -> str | None:
    """A literal of the dimension, for messages."""
    money = dimension.money
    if money is not None:
        dimension = Dimension(
            tuple(sorted((ANY_MONEY if base == money else base, power) for base, power in dimension.powers))
        )
    return _EXAMPLES.get(dimension)


def _call(scope: Scope, node: ast.Call) -> Value | None:
    function = known_function(scope, node)
    if function is None:
        return None
    if scope.inside == "share":
        _refuse_in_share(scope, node)
        return None
    if function.kinds:
        return _window(scope, node, function)
    if function.name in NUMBER_FOLDS:
        return _fold_number(scope, node)
    return _share(scope, node) if function.name == "share" else _age(scope, node)


def known_function(scope: Scope, node: ast.Call) -> Function | None:
    """The function that is called, with as many arguments as it takes; mistakes are noted."""
    function = find_function(node.name)
    if function is None:
        name_only = ast.Name(node.name, node.start, node.name_end)
        scope.problem(
            "unknown-function", f"there is no function {node.name}", _function_fix(scope, node), name_only
        )
        return None
    if len(node.arguments) != function.arity:
        takes = "one argument" if function.arity == 1 else f"{function.arity} arguments"
        glued = any(isinstance(item, ast.Quantity) and "," in item.value.text for item in ast.walk(node))
        fix = "write a space after the comma" if glued else f"write {function.usage}"
        scope.problem("wrong-argument", f"{node.name} takes {takes}, not {len(node.arguments)}", fix, node)
        return None
    return function


def _function_fix(scope: Scope, node: ast.Call) -> str:
    signal = scope.catalogue.get(node.name)
    if signal is not None:
        fitting = functions_for(signal.kind)
        return f"write {fitting[0]}({node.name}, 30m)" if fitting else f"write {node.name} alone"
    if re.fullmatch(r"p[0-9.]+", node.name):
        return (
            "a quantile is p followed by a number above 0 and below 100 with at most one decimal: p95, p99.9"
        )
    return suggestion(node.name, FUNCTIONS)


def signal_argument(scope: Scope, node: ast.Call, argument: ast.Expr) -> tuple[Signal, str] | None:
    """The signal that a function is called with and its level; mistakes are noted."""
    if not isinstance(argument, ast.Name) or resolve_label(scope, argument) is not None:
        message = f"{node.name} takes the name of one signal, not {scope.slice(argument)}"
        usage = f"{node.name}(gpu.power{', 30m' if len(node.arguments) > 1 else ''})"
        scope.problem("wrong-argument", message, f"write it like {usage}", argument)
        return None
    signal = scope.signal(argument)
    level = None if signal is None else scope.level_of(signal, argument)
    return None if signal is None or level is None else (signal, level)


def window_argument(scope: Scope, node: ast.Call) -> float | None:
    """The window of a function in seconds: its second argument, a literal duration."""
    argument = node.arguments[1]
    if isinstance(argument, ast.Quantity) and argument.value.dimension == TIME and argument.value.value > 0:
        return argument.value.value
    message = f"{scope.slice(argument)} is not a window"
    scope.problem(
        "wrong-argument", message, "a window is a duration above zero, such as 30m or 1h30m", argument
    )
    return None


def _window(scope: Scope, node: ast.Call, function: Function) -> Window | TextSignal | None:
    found, seconds = signal_argument(scope, node, node.arguments[0]), window_argument(scope, node)
    if found is None or seconds is None:
        return None
    signal, level = found
    if signal.kind not in function.kinds:
        refuse_function(scope, node, signal)
        return None
    if signal.is_text:
        return TextSignal(signal, level, seconds)
    quantile = quantile_of(node.name)
    name = function.name if quantile is None else "quantile"
    dimension = signal.dimension
    if name == "count":
        dimension = NUMBER
    elif name == "rate":
        dimension = dimension / TIME
    return Window(name, signal, seconds, dimension, level, quantile or 0, scope.slice(node))


def refuse_function(scope: Scope, node: ast.Call, signal: Signal) -> None:
    """Note that a function does not fit the kind of a signal."""
    fitting = functions_for(signal.kind)
    message = f"{node.name} does not fit {signal.name}, which is of kind {signal.kind}"
    fix = (
        f"use {' or '.join(fitting)}"
        if fitting
        else f"an attribute has no age and no windows: write {signal.name} alone"
    )
    scope.problem("wrong-function", message, fix, node)


def _age(scope: Scope, node: ast.Call) -> Age | None:
    found = signal_argument(scope, node, node.arguments[0])
    if found is None:
        return None
    if found[0].is_attribute:
        refuse_function(scope, node, found[0])
        return None
    return Age(found[0], TIME, found[1])


def _share(scope: Scope, node: ast.Call) -> Share | None:
    argument = node.arguments[0]
    if not is_condition(argument):
        message = f"share takes a condition, not {scope.slice(argument)}"
        scope.problem("wrong-argument", message, "write it like share(gpu.utilization < 5%, 1h)", argument)
        return None
    kinds = scope.kinds_in(argument)
    level = lowest_kind(kinds) or lowest_kind([*kinds, scope.each])
    if level is None:
        scope.strangers(kinds, argument)
        return None
    condition, seconds = scope.condition(scope.within("share", level), argument), window_argument(scope, node)
    if condition is None or seconds is None:
        return None
    if all(signal.is_attribute for signal in scope.signals_in(argument)):
        message = f"{scope.slice(argument)} names no signal that could change from slot to slot"
        scope.problem("wrong-argument", message, "name a signal, or leave out share(…)", argument)
        return None
    return Share(condition, seconds, SHARE, level, scope.slice(node))


def _fold_number(scope: Scope, node: ast.Call) -> FoldNumber | None:
    argument = node.arguments[0]
    inner = number(scope, argument)
    if inner is None:
        return None
    if not scope.below_each(inner.level):
        message = f"{scope.slice(argument)} is no value of a lower kind, so there are no members to fold"
        scope.problem("wrong-argument", message, f"write {scope.slice(argument)} alone", node)
        return None
    return FoldNumber(node.name, inner, inner.dimension, scope.each)
