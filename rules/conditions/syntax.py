"""Says what is wrong with a condition that cannot be parsed, and what to write instead."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from lark import Token

from stoploss.rules.units import QuantityError, parse_quantity


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a condition.

    `code` is one of `rules/codes.py`; `offset` and `length` are in characters of the
    condition's text; `fix` says what to write instead.
    """

    code: str
    message: str
    fix: str | None
    offset: int
    length: int = 1


class ConditionError(ValueError):
    """A condition that cannot be parsed; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


_UNIT_WORDS = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("week", "weeks"), "w"),
    **dict.fromkeys(("percent", "pct"), "%"),
    **dict.fromkeys(("watt", "watts"), "W"),
    **dict.fromkeys(("byte", "bytes"), "B"),
    "millis": "ms",
}
_MONEY_WORDS = {
    "USD": "$",
    "usd": "$",
    "dollars": "$",
    "EUR": "€",
    "eur": "€",
    "euros": "€",
    "GBP": "£",
    "gbp": "£",
}
_FOREIGN_WORDS = {
    **{word: word.lower() for word in ("AND", "OR", "NOT", "IN", "And", "Or", "Not", "In")},
    "is": "==",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "gt": ">",
    "le": "<=",
    "ge": ">=",
    "matches": "=~",
    "like": "=~",
    "contains": "=~",
}
_FOREIGN_SIGNS = (
    ("&&", "and"),
    ("&", "and"),
    ("||", "or"),
    ("|", "or"),
    ("=<", "<="),
    ("=>", ">="),
    ("=", "=="),
    ("!~", "not … =~"),
    ("!", "not"),
    ("~", "=~"),
)
_QUOTES = "“”„‟‘’‚‛«»`´"
_OPERATORS = {"_OR", "_AND", "NOT", "IN", "CMP", "PLUS", "MINUS", "STAR", "SLASH", "_COMMA"}
_OPERANDS = {"QUANTITY", "STRING", "NAME", "RPAR", "RSQB"}
_STARTERS = {"QUANTITY", "STRING", "NAME", "LPAR", "LSQB"}


def bad_character(text: str, offset: int, before: Sequence[Token]) -> Problem:
    """The problem of a character that begins no token; `before` are the tokens up to it."""
    character = text[offset]
    previous = before[-1] if before else None
    if character in "\"'":
        message = f"the text that begins with {character} is not closed"
        return Problem("condition-syntax", message, f"add {character} at its end", offset, len(text) - offset)
    if character in _QUOTES:
        name = unicodedata.name(character, "a quotation mark").lower()
        return Problem(
            "condition-syntax", f"{character} ({name}) does not quote a text", "write \" or '", offset
        )
    if character == "=" and previous is not None and previous.type == "CMP" and previous.end_pos == offset:
        # `===` and `<==`: the extra sign belongs to the operator before it.
        written = f"{previous}="
        return Problem(
            "foreign-operator",
            f"{written} is not an operator",
            f"write {previous}",
            previous.start_pos or 0,
            len(written),
        )
    for sign, ours in _FOREIGN_SIGNS:
        if text.startswith(sign, offset):
            return Problem(
                "foreign-operator", f"{sign} is not an operator", f"write {ours}", offset, len(sign)
            )
    number = re.match(r"\.\d+", text[offset:])
    if number and (previous is None or previous.type not in _OPERANDS):
        return Problem(
            "bad-quantity", f"{number[0]} is not a number", f"write 0{number[0]}", offset, len(number[0])
        )
    if previous is not None and previous.type == "QUANTITY" and character in "%$€£":
        fix = f"write {previous}%" if character == "%" else f"write {character}{previous}"
        start = previous.start_pos or 0
        return Problem(
            "bad-quantity", f"{text[start : offset + 1]} is not a quantity", fix, start, offset + 1 - start
        )
    if character in "$€£":
        return Problem("bad-quantity", f"{character} stands without an amount", f"write {character}5", offset)
    fix = "write a plain space" if character.isspace() else "put words in quotes"
    return Problem("condition-syntax", f"{_shown(character)} has no meaning here", fix, offset)


def _shown(character: str) -> str:
    if character.isprintable() and not character.isspace():
        return character
    name = unicodedata.name(character, f"character U+{ord(character):04X}").lower()
    return f"the invisible character U+{ord(character):04X} ({name})"


def bad_token(text: str, token: Token, before: Sequence[Token]) -> Problem:
    """The problem of a token that cannot stand where it does; `$END` is the end of the text."""
    previous = before[-1] if before else None
    for find in (_bad_unit, _foreign_word, _misplaced_not, _double_comparison, _list_wanted):
        problem = find(text, token, previous)
        if problem is not None:
            return problem
    missing = _missing_operand(text, token, previous)
    if missing is not None:
        return missing
    unbalanced = _unbalanced(text, token, before)
    if unbalanced is not None:
        return unbalanced
    start = token.start_pos or 0
    if previous is not None and previous.type in _OPERANDS and token.type in _STARTERS:
        message = f"{token} follows {previous} without an operator between them"
        return Problem(
            "condition-syntax", message, "join them with an operator, and, or or", start, len(token)
        )
    return Problem("condition-syntax", f"{token} cannot stand here", "remove it", start, max(1, len(token)))


def _bad_unit(text: str, token: Token, previous: Token | None) -> Problem | None:
    if previous is None or previous.type != "QUANTITY" or token.type not in ("NAME", "QUANTITY"):
        return None
    start, end = previous.start_pos or 0, token.end_pos or 0
    written = text[start:end]
    if token.type == "QUANTITY":
        if not (previous[-1].isalpha() and token[-1].isalpha()):
            return None
        return Problem(
            "bad-quantity", f"{written} is not one quantity", f"write {previous}{token}", start, len(written)
        )
    if token in _UNIT_WORDS or token in _MONEY_WORDS:
        fix = (
            f"{_MONEY_WORDS[token]}{previous}" if token in _MONEY_WORDS else f"{previous}{_UNIT_WORDS[token]}"
        )
        return Problem("bad-quantity", f"{token} is not a unit", f"did you mean {fix}?", start, len(written))
    if token in _FOREIGN_WORDS:
        return None
    try:
        parse_quantity(written)
    except QuantityError as error:
        return Problem(error.code, error.message, error.fix, start, len(written))
    # The unit is right, but what follows it without a space is read as part of its name.
    return Problem(
        "bad-quantity",
        f"{written} runs into what follows it",
        "put spaces around - and .",
        start,
        len(written),
    )


def _foreign_word(text: str, token: Token, previous: Token | None) -> Problem | None:
    # `NOT x` is only noticed at x, `x AND y` already at AND.
    for word in (token, previous):
        if word is not None and word.type == "NAME" and word in _FOREIGN_WORDS:
            ours = _FOREIGN_WORDS[word]
            return Problem(
                "foreign-operator",
                f"{word} is not an operator",
                f"write {ours}",
                word.start_pos or 0,
                len(word),
            )
    return None


def _misplaced_not(text: str, token: Token, previous: Token | None) -> Problem | None:
    if token.type != "NOT" or previous is None or previous.type not in _OPERANDS:
        return None
    fix = f'write not {previous} in ["…"], or join two conditions with and'
    return Problem(
        "condition-syntax", "not stands before the whole comparison", fix, token.start_pos or 0, len(token)
    )


def _double_comparison(text: str, token: Token, previous: Token | None) -> Problem | None:
    if token.type != "CMP" or previous is None or previous.type != "CMP":
        return None
    start, end = previous.start_pos or 0, token.end_pos or 0
    written = text[start:end]
    fix = "write !=" if written == "<>" else "write one of < <= > >= == != =~"
    return Problem("foreign-operator", f"{written} is not an operator", fix, start, len(written))


def _list_wanted(text: str, token: Token, previous: Token | None) -> Problem | None:
    if previous is None or previous.type != "IN" or token.type == "$END":
        return None
    fix = f"write in [{token}]" if token.type == "STRING" else 'write in ["a", "b"]'
    return Problem(
        "condition-syntax", "in takes a list of texts in brackets", fix, token.start_pos or 0, len(token)
    )


def _missing_operand(text: str, token: Token, previous: Token | None) -> Problem | None:
    if token.type == "$END" and previous is None:
        return Problem(
            "condition-syntax",
            "the condition is empty",
            "write a comparison, such as gpu.utilization < 5%",
            0,
        )
    wanted = previous is None or previous.type in _OPERATORS or previous.type in ("LPAR", "LSQB")
    if not wanted or token.type in _STARTERS:
        return None
    if previous is not None and previous.type in _OPERATORS:
        message, place = f"{previous} has nothing after it", previous
        fix = "write what belongs after it, or remove it"
    elif token.type == "$END":
        return None
    else:
        message, place = f"{token} has nothing before it", token
        fix = "write what belongs before it, or remove it"
    return Problem("condition-syntax", message, fix, place.start_pos or 0, len(place))


def _unbalanced(text: str, token: Token, before: Sequence[Token]) -> Problem | None:
    opened: list[Token] = []
    for item in before:
        if item.type in ("LPAR", "LSQB"):
            opened.append(item)
        elif item.type in ("RPAR", "RSQB") and opened:
            opened.pop()
    closers = {"LPAR": ")", "LSQB": "]"}
    if token.type == "$END" and opened:
        place = opened[-1]
        fix = f"add {closers[place.type]}"
        return Problem("condition-syntax", f"{place} is not closed", fix, place.start_pos or 0, len(place))
    if token.type in ("RPAR", "RSQB"):
        wanted = closers[opened[-1].type] if opened else None
        if wanted != str(token):
            opening = "(" if token.type == "RPAR" else "["
            fix = f"write {wanted}" if wanted else "remove it"
            return Problem(
                "condition-syntax", f"{token} closes no {opening}", fix, token.start_pos or 0, len(token)
            )
    return None
