"""A ledger in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoploss.engine.ledger import Ledger


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a state that is not there yet."""
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """An empty ledger, with no secrets in its environment."""
    opened = Ledger(url, environ={})
    yield opened
    opened.close()
