"""`${NAME}`, `${NAME:-default}` and `$$` in texts.

Expanded where a text is used, never when it is loaded: what a variable holds is not parsed
again and never printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REFERENCE = re.compile(
    r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<bad>\{))"
)


class VariableError(ValueError):
    """A text cannot be expanded; the message names variables, never values."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One `${NAME}` in a text: `offset` counts characters, `default` is None where none is given."""

    name: str
    offset: int
    length: int
    default: str | None = None


def references(text: str) -> tuple[Reference, ...]:
    """The variables that a text names.

    Raises:
        VariableError: a `${` that is not closed or holds no name.
    """
    found: list[Reference] = []
    for match in _REFERENCE.finditer(text):
        if match["bad"]:
            raise VariableError(f"the ${{ at character {match.start() + 1} is not of the form ${{NAME}}")
        if match["name"]:
            found.append(Reference(match["name"], match.start(), len(match[0]), match["default"]))
    return tuple(found)


def unset(text: str, environ: Mapping[str, str]) -> tuple[Reference, ...]:
    """The variables of a text that are not set and have no default.

    Raises:
        VariableError: as `references`.
    """
    return tuple(item for item in references(text) if item.default is None and item.name not in environ)


def expand(text: str, environ: Mapping[str, str]) -> str:
    """The text with its variables filled in, once: a value that holds `${X}` is left as it is.

    Raises:
        VariableError: a variable is not set and has no default, or a `${` is malformed.
    """
    missing = unset(text, environ)
    if missing:
        raise VariableError(f"not set: {', '.join(sorted({item.name for item in missing}))}")

    def value(match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        # `:-` also replaces an empty value, as shells do.
        given = environ.get(match["name"], "")
        return given or (match["default"] or "")

    return _REFERENCE.sub(value, text)
