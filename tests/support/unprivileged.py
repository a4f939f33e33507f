"""Being somebody whom permissions stop, also where the tests run as root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Without root's rights, in all threads, for as long as this lasts."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if before == 0:
            os.seteuid(before)
