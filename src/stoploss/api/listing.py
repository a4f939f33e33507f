"""Lists in parts: `limit` so many, and a `cursor` for what follows."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from stoploss.api.errors import bad

LIMIT = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100, "description": "So many at most."}
CURSOR = {
    "type": "string",
    "minLength": 1,
    "maxLength": 400,
    "pattern": "^[A-Za-z0-9_-]+$",
    "description": "the `next` of the part before, as it was given",
}

T = TypeVar("T")


def part(
    items: Sequence[T], limit: int, cursor: str | None, name: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """One part of a list, and the cursor of the next; None where this was the last.

    It goes on after the item that was last, wherever that stands by now; where that is gone, at its place.

    Raises:
        Problem: the cursor is none.
    """
    start = 0
    if cursor is not None:
        place, last = _opened(cursor)
        start = next((at + 1 for at, item in enumerate(items) if name(item) == last), place)
    shown = items[start : start + limit]
    end = start + len(shown)
    return shown, None if end >= len(items) or not shown else closed(end, name(shown[-1]))


def closed(place: int, last: str) -> str:
    """A cursor of a place and the name of the last item before it."""
    return base64.urlsafe_b64encode(f"{place}:{last[:200]}".encode()).decode().rstrip("=")


def _opened(cursor: str) -> tuple[int, str]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        place, separator, last = text.partition(":")
    except (ValueError, binascii.Error):
        place, separator, last = "", "", ""
    if not separator or not re.fullmatch(r"[0-9]{1,12}", place, re.ASCII):
        raise bad("the cursor is none", "give the `next` of the part before, or leave it out")
    return int(place), last


def place_of(cursor: str) -> int:
    """The place that a cursor holds.

    Raises:
        Problem: it is none.
    """
    return _opened(cursor)[0]


def listed(key: str, items: Sequence[Any], after: str | None, **more: Any) -> dict[str, Any]:
    """A part of a list as JSON values."""
    return {"version": 1, **more, key: list(items), "next": after}
