"""Exit statuses and the error that ends a command with one line."""

from __future__ import annotations

CLEAN, FINDINGS, USAGE, INTERNAL, DEGRADED = 0, 1, 2, 3, 4
"""0 clean, 1 firing findings, 2 bad input or usage, 3 internal error, 4 something could not be read."""


class UserError(Exception):
    """Something the user can mend; its text is the whole message, `status` the exit status."""

    def __init__(self, message: str, status: int = USAGE) -> None:
        super().__init__(message)
        self.status = status
