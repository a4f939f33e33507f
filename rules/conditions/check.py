"""Checks what a condition means and turns it into the typed tree that the engine evaluates.

What the evaluation may rely on:

- The root is judged on the policy's own kind, `each`. A constant comparison has level None;
  `absent` keeps the kind of its series, which may lie above (see below).
- The operands of Compare, Arith, TextTest, Not, Junction and Share have the node's own
  level, or a kind above it (the value is broadcast down to the node's level), or None
  (a constant). They never lie below: where members meet the policy's kind there is a Fold
  or a FoldNumber.
- Compare.level is the lowest kind among its operands and the kind it stands on; where that
  lies below `each`, the comparison is wrapped in Fold("all", …, level=each).
- Within all(…), any(…) and most(…) everything is judged on the members: labels are the
  member's, values of upper kinds are broadcast. Such folds do not nest.
- FoldNumber.level is `each`, its members are those of kind `inner.level`; within any(…) the
  folded number is broadcast back to the members.
- Share.condition is judged slot by slot on resources of Share.level, and holds only bare
  signals, attributes and constants. Share.level may be any kind that has a path to `each`.
- A leading minus is a negative Const, or a product with Const(-1.0).
- Without a kind (`protect`) every level is "any".
"""

from __future__ import annotations

from stoploss.rules.catalogue import Catalogue
from stoploss.rules.conditions import ast
from stoploss.rules.conditions.canonical import BARE_LABELS, canonical
from stoploss.rules.conditions.check_scope import (
    ANYWHERE,
    Notes,
    Scope,
    is_condition,
    lowest_kind,
    resolve_label,
)
from stoploss.rules.conditions.check_texts import words_of
from stoploss.rules.conditions.check_values import (
    Value,
    example_of,
    known_function,
    refuse_function,
    report_mismatch,
    signal_argument,
    value,
    window_argument,
)
from stoploss.rules.conditions.functions import FOLDS
from stoploss.rules.conditions.parse import ConditionError, Problem, parse
from stoploss.rules.conditions.typed import (
    Absent,
    CheckedCondition,
    Compare,
    Condition,
    Const,
    Fold,
    Has,
    Junction,
    Label,
    Not,
    Number,
    TextSignal,
    TextTest,
)
from stoploss.rules.diagnostics import did_you_mean
from stoploss.rules.units import SHARE, QuantityError, parse_quantity

__all__ = ["Problem", "check_condition"]

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def check_condition(
    text: str, *, each: str | None, catalogue: Catalogue, labels_only: bool = False
) -> tuple[CheckedCondition | None, tuple[Problem, ...]]:
    """Parse and check one condition.

    `each` is the policy's kind; None stands for resources of every kind, which are selected
    by labels and attributes only. Returns the condition, or None with every problem in the
    order of the text: one for a syntax error, one for each other mistake.
    """
    try:
        tree = parse(text)
    except ConditionError as error:
        return None, (error.problem,)
    kind, notes = each or ANYWHERE, Notes()
    root = _condition(
        Scope(text, kind, kind, catalogue, labels_only or each is None, notes, _condition), tree
    )
    if root is None or notes.problems:
        return None, tuple(sorted(notes.problems, key=lambda problem: (problem.offset, problem.length)))
    signals = tuple(notes.signals.values())
    return CheckedCondition(text, canonical(tree), root, signals, frozenset(notes.currencies)), ()


def _condition(scope: Scope, node: ast.Expr) -> Condition | None:
    match node:
        case ast.Junction():
            return _junction(scope, node)
        case ast.Negation(inner=inner):
            checked = _condition(scope, inner)
            return None if checked is None else Not(checked, None if checked.level is None else scope.at)
        case ast.Comparison():
            return _comparison(scope, node)
        case ast.Call() if is_condition(node):
            return _call(scope, node)
        case _:
            _not_a_condition(scope, node)
            return None


def _not_a_condition(scope: Scope, node: ast.Expr) -> None:
    found = value(scope, node)
    if found is None:
        return  # the mistake in it has been noted already
    shown = scope.slice(node)
    if isinstance(found, ast.String | Label | TextSignal):
        fix = "compare it with ==, !=, in or =~"
    else:
        fix = f"compare it, such as {shown} < {example_of(found.dimension) or '…'}"
    scope.problem("type-mismatch", f"{shown} is a value, not a condition", fix, node)


def _junction(scope: Scope, node: ast.Junction) -> Condition | None:
    items: list[Condition] = []
    checked = [_condition(scope, item) for item in node.items]
    for item in checked:
        if item is None:
            return None
        items += item.items if isinstance(item, Junction) and item.op == node.op else (item,)
    constant = all(item.level is None for item in items)
    return Junction(node.op, tuple(items), None if constant else scope.at)


def _comparison(scope: Scope, node: ast.Comparison) -> Condition | None:
    if node.op == "in":
        left = value(scope, node.left)
        return None if left is None else _text_test(scope, node, left)
    left, right = value(scope, node.left), value(scope, node.right)
    if left is None or right is None:
        return None
    texts = (ast.String, Label, TextSignal)
    if not isinstance(left, texts) and not isinstance(right, texts):
        return _compare(scope, node, left, right)
    if isinstance(left, ast.String) and isinstance(right, Label | TextSignal) and node.op in _MIRRORED:
        mirrored = ast.Comparison(_MIRRORED[node.op], node.right, node.left, node.start, node.end)
        return _text_test(scope, mirrored, right)
    if isinstance(left, Label | TextSignal) and isinstance(right, ast.String):
        return _text_test(scope, node, left)
    _report_texts(scope, node, left, right)
    return None


def _compare(scope: Scope, node: ast.Comparison, left: Number, right: Number) -> Condition | None:
    if node.op == "=~":
        scope.problem("type-mismatch", "=~ searches in texts, not in numbers", "use < <= > >= == or !=", node)
        return None
    if not (left.dimension.fits(right.dimension) or _is_zero(left) or _is_zero(right)):
        report_mismatch(scope, node, left, right)
        return None
    kinds = {level for level in (left.level, right.level) if level is not None}
    level = lowest_kind([*kinds, scope.at]) if kinds else None
    if kinds and level is None:
        scope.strangers(kinds, node)
        return None
    return _folded(scope, Compare(node.op, left, right, level, scope.slice(node)))


def _is_zero(number: Number) -> bool:
    """Whether it is a literal 0 without a unit, which every dimension has."""
    dimension = number.dimension
    return isinstance(number, Const) and number.value == 0 and not dimension.powers and not dimension.share


def _text_test(scope: Scope, node: ast.Comparison, operand: Value) -> Condition | None:
    if not isinstance(operand, Label | TextSignal):
        shown = scope.slice(node.left)
        scope.problem("type-mismatch", f"in compares texts, {shown} is none", "join several == with or", node)
        return None
    words = words_of(scope, node, operand)
    level = lowest_kind([operand.level, scope.at])
    if words is None or level is None:
        return None
    return _folded(scope, TextTest(node.op, operand, words, level, scope.slice(node)))


def _report_texts(scope: Scope, node: ast.Comparison, left: Value, right: Value) -> None:
    """Note a text that is compared with what is no quoted word."""
    numbers = [item for item in (left, right) if not isinstance(item, ast.String | Label | TextSignal)]
    if not numbers:
        _report_two_texts(scope, node)
        return
    sides = ((node.left, left), (node.right, right))
    message = ", ".join(f"{scope.slice(side)} is {_sort_of(item)}" for side, item in sides)
    scope.problem("type-mismatch", message, _text_fix(left, right, numbers[0]), node)


def _report_two_texts(scope: Scope, node: ast.Comparison) -> None:
    left, right = scope.slice(node.left), scope.slice(node.right)
    if isinstance(node.right, ast.String):
        message, fix = f"{left} and {right} are both quoted words", "compare a label or a signal with a word"
    elif isinstance(node.left, ast.String):
        message, fix = "a regular expression stands on the right of =~", f"write {right} =~ {left}"
    else:
        message, fix = (
            f"{left} and {right} both vary",
            'a text is compared with a quoted word: team == "vision"',
        )
    scope.problem("wrong-argument", message, fix, node)


def _sort_of(item: Value) -> str:
    return "a text" if isinstance(item, ast.String | Label | TextSignal) else str(item.dimension)


def _text_fix(left: Value, right: Value, number: Number) -> str:
    word = next((item for item in (left, right) if isinstance(item, ast.String)), None)
    if word is None:
        return (
            f'write "{number.text}"' if isinstance(number, Const) else "a text is compared with a quoted word"
        )
    try:
        quantity = parse_quantity(word.value)
    except QuantityError:
        return f"write {number.dimension}, such as {example_of(number.dimension) or '…'}"
    if number.dimension.share and not quantity.dimension.powers:
        return f"write {word.value.strip().removesuffix('%')}% without quotes"
    return f"write {word.value} without quotes"


def _folded(scope: Scope, leaf: Condition) -> Condition:
    """The leaf, or every member's where it is judged below the policy's kind."""
    if scope.at == scope.each and scope.below_each(leaf.level):
        return Fold("all", leaf, scope.each, text=getattr(leaf, "text", ""))
    return leaf


def _call(scope: Scope, node: ast.Call) -> Condition | None:
    if known_function(scope, node) is None:
        return None
    if scope.inside == "share" or (scope.inside is not None and node.name in FOLDS):
        message = f"{node.name}(…) cannot stand within {scope.inside}(…)"
        scope.problem("wrong-argument", message, "put it outside, joined with and", node)
        return None
    if node.name == "has":
        return _has(scope, node)
    return _absent(scope, node) if node.name == "absent" else _fold(scope, node)


def _has(scope: Scope, node: ast.Call) -> Condition | None:
    argument = node.arguments[0]
    label = resolve_label(scope, argument) if isinstance(argument, ast.Name | ast.Subscript) else None
    if label is None:
        shown = scope.slice(argument)
        fix = 'write has(team) or has(label["aws:x"])'
        if isinstance(argument, ast.Name) and "." not in shown:
            near = did_you_mean(shown, BARE_LABELS)
            fix = f"did you mean has({near})?" if near else f"write has(label.{shown})"
        if not isinstance(argument, ast.Subscript):  # whose mistake has been noted
            scope.problem("wrong-argument", f"has takes a label, {shown} is none", fix, argument)
        return None
    return Has(label, scope.at, scope.slice(node))


def _absent(scope: Scope, node: ast.Call) -> Condition | None:
    found, seconds = signal_argument(scope, node, node.arguments[0]), window_argument(scope, node)
    if found is None or seconds is None:
        return None
    signal, level = found
    if signal.is_attribute:
        refuse_function(scope, node, signal)
        return None
    return _folded(scope, Absent(signal, seconds, level, scope.slice(node)))


def _fold(scope: Scope, node: ast.Call) -> Condition | None:
    argument = node.arguments[0]
    needed = _share_of_members(scope, node)
    kinds = scope.kinds_in(argument)
    members = lowest_kind([scope.each, *sorted(kinds)])
    if members is None:
        scope.strangers(kinds, argument)
        return None
    inner = _condition(scope.within(node.name, members), argument)
    if inner is None or needed is None:
        return None
    if not scope.below_each(members):
        message = f"{node.name}(…) names no signal of a lower kind, so there are no members to judge"
        scope.problem("wrong-argument", message, f"write {scope.slice(argument)} alone", node)
        return None
    return Fold(node.name, inner, scope.each, needed, scope.slice(node))


def _share_of_members(scope: Scope, node: ast.Call) -> float | None:
    if node.name != "most":
        return 1.0
    argument = node.arguments[1]
    if (
        isinstance(argument, ast.Quantity)
        and argument.value.dimension == SHARE
        and 0 < argument.value.value <= 1
    ):
        return argument.value.value
    message = f"{scope.slice(argument)} is not a share of the members"
    scope.problem("wrong-argument", message, "write a share above 0% and up to 100%, such as 75%", argument)
    return None
