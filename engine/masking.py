"""Keeps secrets out of what is written down."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Set
from datetime import date, datetime
from typing import Any

MASK = "***"

SHORTEST = 4
"""Values of fewer characters are no secrets: masking `1` or `yes` would blot out everything."""

_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_FIELD = re.compile(r"secret|token|passw|[a-z0-9_-]key$", re.IGNORECASE)
# Neither begins with what precedes: a run of letters would be tried from each of them.
_ASSIGNED = re.compile(r"((?:KEY|TOKEN|SECRET|PASSWORD)[\w-]*=)[^\s&;,]+", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=[\w+.-])(://[^\s:/@]*:)[^\s@/]+@")


class Masker:
    """Turns values into plain JSON values without secrets.

    A secret is the value of an environment variable whose name holds KEY, TOKEN, SECRET or PASSWORD,
    wherever it stands; a text under such a name (a bare `key` is a name of an object, and stays); what
    follows such a name and `=`; and the password in a URL.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        secrets = {value for name, value in environ.items() if _VARIABLE.search(name)}
        # The longest first, so that no secret's tail is left where another is its beginning.
        self._secrets = sorted((s for s in secrets if len(s) >= SHORTEST), key=lambda s: (-len(s), s))

    def text(self, text: str) -> str:
        """A text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return _IN_URL.sub(rf"\g<1>{MASK}@", _ASSIGNED.sub(rf"\g<1>{MASK}", text))

    def plain(self, value: Any) -> Any:
        """A value as JSON can hold it; a number that is not finite becomes a word."""
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self._field(str(name), item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        if isinstance(value, Set):
            return sorted((self.plain(item) for item in value), key=str)
        if isinstance(value, datetime | date):
            return value.isoformat()
        return self.text(str(value))

    def _field(self, name: str, value: Any) -> Any:
        return MASK if isinstance(value, str) and _FIELD.search(name) else self.plain(value)
