"""Exit statuses and the error that ends a command with one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_Value = TypeVar("_Value")

CLEAN, FINDINGS, USAGE, INTERNAL, DEGRADED = 0, 1, 2, 3, 4
"""0 clean, 1 firing findings, 2 bad input or usage, 3 internal error, 4 something could not be read."""


class UserError(Exception):
    """Something the user can mend; its text is the whole message, `status` the exit status."""

    def __init__(self, message: str, status: int = USAGE) -> None:
        super().__init__(message)
        self.status = status


def read_option(option: str, text: str, read: Callable[[str], _Value]) -> _Value:
    """What a quantity of an option comes to.

    Raises:
        UserError: it is none; the text names the option, what is wrong and the fix.
    """
    from stoploss.rules.units import QuantityError

    try:
        return read(text)
    except QuantityError as error:
        raise UserError(f"{option}: {error.message}; {error.fix}") from None
