"""The one spelling of a JSON value, and short names made of it."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical(value: Any) -> str:
    """The one spelling of a JSON value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def named(letter: str, *parts: str) -> str:
    """A name that the same parts always give, such as `a-3f09c1d2e4b5`."""
    return f"{letter}-{hashlib.sha256(canonical(parts).encode()).hexdigest()[:12]}"


def request_id(episode: str, action: str, target: str, parameters: str) -> str:
    """The id of the question whether this may be done; `parameters` as canonical JSON without secrets."""
    return named("a", episode, action, target, parameters)
