"""Checks comparisons of texts: closed lists, lists after `in`, and regular expressions."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from re import _constants as codes
from re import _parser as regex_parser
from typing import Any

from stoploss.rules.catalogue import KINDS
from stoploss.rules.conditions import ast
from stoploss.rules.conditions.check_scope import Scope
from stoploss.rules.conditions.typed import Label, Text
from stoploss.rules.diagnostics import suggestion

STAGES = ("preprocess", "train", "tune", "validate", "serve", "interactive")
"""The values that the label `stage` can take."""
MAX_REGEX = 500
"""Characters in one regular expression."""


def words_of(scope: Scope, node: ast.Comparison, operand: Text) -> tuple[str, ...] | None:
    """The words that a text is compared with, or None when a mistake in them has been noted."""
    listed = node.right.items if isinstance(node.right, ast.Words) else (node.right,)
    if not listed:
        scope.problem("wrong-argument", "the list after in is empty", 'write in ["a", "b"]', node.right)
        return None
    strings = [item for item in listed if isinstance(item, ast.String)]
    for item in listed:
        if not isinstance(item, ast.String):
            shown = scope.slice(item)
            scope.problem("wrong-argument", f"in takes texts, {shown} is none", f'write "{shown}"', item)
    if len(strings) < len(listed):
        return None
    if not _words_fit(scope, node, operand, strings):
        return None
    return tuple(string.value for string in strings)


def _words_fit(scope: Scope, node: ast.Comparison, operand: Text, strings: list[ast.String]) -> bool:
    if node.op == "=~":
        return all(_regex_fits(scope, string) for string in strings)
    allowed = _closed_list(operand)
    if node.op not in ("==", "!=", "in") or not allowed:
        return True
    wrong = [string for string in strings if string.value not in allowed]
    for string in wrong:
        message = f"{scope.slice(node.left)} never is {scope.slice(string)}"
        scope.problem("unknown-value", message, suggestion(string.value, allowed), string)
    return not wrong


def _closed_list(operand: Text) -> tuple[str, ...]:
    if isinstance(operand, Label):
        return {"kind": KINDS, "stage": STAGES}.get(operand.name, ())
    return operand.signal.values


def _regex_fits(scope: Scope, node: ast.String) -> bool:
    pattern = node.value
    if len(pattern) > MAX_REGEX:
        message = f"the regular expression has {len(pattern)} characters, more than {MAX_REGEX}"
        scope.problem("bad-regex", message, "shorten it, or use in with a list", node)
        return False
    try:
        # Python warns about a pattern whose meaning may change one day; it is refused as well.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
            explodes = _explodes(regex_parser.parse(pattern))
    except re.error as error:
        _bad_place(scope, node, error)
        return False
    except (RecursionError, OverflowError, Warning) as error:
        scope.problem(
            "bad-regex", f"the regular expression cannot be used: {error}", "write it more simply", node
        )
        return False
    if explodes:
        message = "a repetition within a repetition can take for ever on some texts"
        scope.problem("bad-regex", message, "repeat only once: a+ rather than (a+)+", node)
    return not explodes


def _bad_place(scope: Scope, node: ast.String, error: re.error) -> None:
    place: ast.Expr = node
    # Escaped quotes and backslashes shift the places; then the whole text is shown.
    if error.pos is not None and node.end - node.start == len(node.value) + 2:
        start = node.start + 1 + min(error.pos, max(0, len(node.value) - 1))
        place = ast.Name("", start, start + 1)
    fix = "escape a sign that is meant literally with \\"
    scope.problem("bad-regex", f"the regular expression cannot be read: {error.msg}", fix, place)


def _explodes(tree: Iterable[tuple[Any, Any]], repeated: bool = False) -> bool:
    """Whether an unbounded repetition holds what can match one text in several ways.

    That is a repetition of variable length, or alternatives that do not begin with
    different characters.
    """
    for code, argument in tree:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, body = argument
            if repeated and least != most:
                return True
            if _explodes(body, repeated or most == codes.MAXREPEAT):
                return True
        if code == codes.BRANCH and repeated and not _told_apart(argument[1]):
            return True
        if any(_explodes(part, repeated) for part in _parts(code, argument)):
            return True
    return False


def _told_apart(branches: list[Any]) -> bool:
    firsts = [branch[0] if len(branch) else None for branch in branches]
    letters = [first[1] for first in firsts if first is not None and first[0] == codes.LITERAL]
    return len(letters) == len(branches) == len(set(letters))


def _parts(code: Any, argument: Any) -> list[Any]:
    """The expressions within a group, a look-around, a conditional or alternatives."""
    if code == codes.BRANCH:
        return list(argument[1])
    if code == codes.SUBPATTERN:
        return [argument[3]]
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return [argument[1]]
    if code == codes.GROUPREF_EXISTS:
        return [part for part in argument[1:] if part is not None]
    return []
