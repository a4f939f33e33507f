"""Reads the text of a condition into a tree.

The parser is built from `grammar.lark` at first use, which takes some tens of
milliseconds; after that a condition takes a fraction of one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import pairwise

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from stoploss.rules.conditions import ast
from stoploss.rules.conditions.syntax import ConditionError, Problem, bad_character, bad_token
from stoploss.rules.units import QUANTITY_PATTERN, QuantityError, parse_quantity

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "ConditionError", "Problem", "parse"]

MAX_LENGTH = 2000
"""Characters in one condition."""
MAX_DEPTH = 50
"""Levels of nesting in one condition."""


def parse(text: str) -> ast.Expr:
    """The tree of one condition.

    Raises:
        ConditionError: the text is no condition; its problem holds place and fix.
    """
    if len(text) > MAX_LENGTH:
        message = f"the condition has {len(text):,} characters, more than {MAX_LENGTH:,}"
        fix = "split it into several conditions under all: or any:"
        raise ConditionError(Problem("condition-too-long", message, fix, MAX_LENGTH, len(text) - MAX_LENGTH))
    parser = _parser()
    try:
        # The grammar's callbacks make the nodes, so what comes back is no lark Tree.
        tree: ast.Expr = parser.parse(text)  # type: ignore[assignment]
    except UnexpectedCharacters as error:
        place = error.pos_in_stream or 0
        raise ConditionError(bad_character(text, place, _tokens_before(text, place))) from None
    except UnexpectedToken as error:
        ended = error.token.type == "$END"
        place = len(text) if ended else error.token.start_pos or 0
        token = Token("$END", "", len(text), end_pos=len(text)) if ended else error.token
        raise ConditionError(bad_token(text, token, _tokens_before(text, place))) from None
    except _ChainedError as error:
        raise ConditionError(error.problem(text)) from None
    return tree


def _tokens_before(text: str, offset: int) -> list[Token]:
    tokens: list[Token] = []
    try:
        for token in _parser().lex(text):
            if (token.start_pos or 0) >= offset:
                break
            tokens.append(token)
    except UnexpectedCharacters:
        pass  # what precedes the bad character is all there is
    return tokens


@cache
def _parser() -> Lark:
    grammar = files("stoploss.rules.conditions").joinpath("grammar.lark").read_text(encoding="utf-8")
    pattern = QUANTITY_PATTERN.replace("/", r"\/")
    return Lark(grammar.replace("@QUANTITY@", pattern), parser="lalr", lexer="basic", transformer=_Builder())


class _ChainedError(Exception):
    def __init__(self, operands: list[ast.Expr], signs: list[Token]) -> None:
        super().__init__("comparisons cannot be chained")
        self.operands, self.signs = operands, signs

    def problem(self, text: str) -> Problem:
        pairs = (
            f"{text[left.start : left.end]} {sign} {text[right.start : right.end]}"
            for (left, right), sign in zip(pairwise(self.operands), self.signs, strict=True)
        )
        start, end = self.operands[0].start, self.operands[-1].end
        return Problem("chained-comparison", str(self), f"write {' and '.join(pairs)}", start, end - start)


@v_args(inline=True)
class _Builder(Transformer[Token, ast.Expr]):
    """Makes the nodes while lark parses, bottom up, so that depth never costs stack."""

    def quantity(self, token: Token) -> ast.Expr:
        start, end = _span(token)
        try:
            return ast.Quantity(parse_quantity(str(token)), start, end)
        except QuantityError as error:
            raise ConditionError(Problem(error.code, error.message, error.fix, start, end - start)) from None

    def string(self, token: Token) -> ast.Expr:
        return ast.String(_unquoted(token), *_span(token))

    def name(self, token: Token) -> ast.Expr:
        return ast.Name(str(token), *_span(token))

    def subscript(self, name: Token, _open: Token, key: Token, close: Token) -> ast.Expr:
        return ast.Subscript(str(name), _unquoted(key), _span(name)[0], _span(close)[1])

    def call(self, name: Token, _open: Token, *rest: ast.Expr | Token) -> ast.Expr:
        arguments = tuple(item for item in rest if not isinstance(item, Token))
        close = rest[-1]
        assert isinstance(close, Token)  # the grammar ends a call with its parenthesis
        start, name_end = _span(name)
        return _limited(
            ast.Call(str(name), arguments, name_end, start, _span(close)[1], _deepest(arguments) + 1)
        )

    def parentheses(self, opening: Token, inner: ast.Expr, closing: Token) -> ast.Expr:
        return _limited(replace(inner, start=_span(opening)[0], end=_span(closing)[1], depth=inner.depth + 1))

    def minus(self, sign: Token, inner: ast.Expr) -> ast.Expr:
        return _limited(ast.Minus(inner, _span(sign)[0], inner.end, inner.depth + 1))

    def arithmetic(self, left: ast.Expr, sign: Token, right: ast.Expr) -> ast.Expr:
        depth = max(left.depth + isinstance(left, ast.Arithmetic), right.depth)
        return _limited(ast.Arithmetic(str(sign), left, right, left.start, right.end, depth))

    def words(self, *rest: ast.Expr | Token) -> ast.Expr:
        items = tuple(item for item in rest if not isinstance(item, Token))
        opening, closing = rest[0], rest[-1]
        assert isinstance(opening, Token)  # the grammar puts brackets around a list
        assert isinstance(closing, Token)
        return ast.Words(items, _span(opening)[0], _span(closing)[1], _deepest(items))

    def comparison(self, *rest: ast.Expr | Token) -> ast.Expr:
        operands = [item for item in rest if not isinstance(item, Token)]
        signs = [item for item in rest if isinstance(item, Token)]
        if len(signs) > 1:
            raise _ChainedError(operands, signs)
        left, right = operands
        return ast.Comparison(str(signs[0]), left, right, left.start, right.end, _deepest((left, right)))

    def negation(self, sign: Token, inner: ast.Expr) -> ast.Expr:
        return _limited(ast.Negation(inner, _span(sign)[0], inner.end, inner.depth + 1))

    def and_test(self, *items: ast.Expr) -> ast.Expr:
        return _junction("and", items)

    def or_test(self, *items: ast.Expr) -> ast.Expr:
        return _junction("or", items)


def _junction(op: str, items: tuple[ast.Expr, ...]) -> ast.Expr:
    return ast.Junction(op, items, items[0].start, items[-1].end, _deepest(items))


def _span(token: Token) -> tuple[int, int]:
    return token.start_pos or 0, token.end_pos or 0


def _deepest(items: tuple[ast.Expr, ...]) -> int:
    return max((item.depth for item in items), default=0)


def _limited(node: ast.Expr) -> ast.Expr:
    if node.depth > MAX_DEPTH:
        message = f"the condition nests deeper than {MAX_DEPTH} levels"
        fix = "split it into several conditions under all: or any:"
        raise ConditionError(Problem("condition-too-long", message, fix, node.start, node.end - node.start))
    return node


def _unquoted(token: Token) -> str:
    # Only quotes and backslashes are escaped, so that \d of a regular expression stays as it is.
    return re.sub(r"\\([\\\"'])", r"\1", token[1:-1])
