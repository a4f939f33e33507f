"""Labels from the names of folders: `{team}/{job}` says which folder names what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from stoploss.rules.units import QuantityError

NAMES = ("job", "team", "user", "class", "stage", "env", "experiment", "trial")
"""Labels that a folder can name."""

_PIECE = re.compile(r"\{([^{}/]*)\}|(\*)|([^{}*]+)|(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Named:
    """Labels of a path, and how much of it (characters) gave them."""

    labels: Mapping[str, str]
    length: int


def pattern_of(template: str) -> re.Pattern[str]:
    """What finds the labels in a path that begins as the template does.

    Raises:
        ValueError: the template is none; the text says why.
    """
    parts: list[str] = []
    used: list[str] = []
    for name, star, text, odd in _PIECE.findall(template.strip("/")):
        if odd:
            raise ValueError(f"a brace without its other half in {template!r}")
        if star:
            parts.append("[^/]*")
        elif text:
            parts.append(re.escape(text))
        elif name in used or name not in NAMES:
            raise ValueError(
                f"{{{name}}} in {template!r} is not one of {', '.join(NAMES)}, each at most once"
            )
        else:
            used.append(name)
            parts.append(f"(?P<{name}>[^/]+)")
    if "job" not in used:
        raise ValueError(f"no {{job}} in {template!r}")
    lead = "/" if template.startswith("/") else ""
    return re.compile(f"{lead}{''.join(parts)}(?=/|$)", re.DOTALL)


def labels_in(pattern: re.Pattern[str], path: str) -> Named | None:
    """The labels in a path, or None where it is not made like that."""
    match = pattern.match(path)
    return None if match is None else Named(match.groupdict(), match.end())


def _checked(template: str) -> str:
    try:
        pattern_of(template)
    except ValueError as error:
        raise QuantityError(str(error), "write such as {team}/{job}", "bad-value") from error
    return template


Template = Annotated[str, Field(min_length=1), AfterValidator(_checked)]
"""An option that says which folders of a path name labels."""
