"""A running stoploss for the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `web` is not installed")

from api.stubs import Stub, stub


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Stub]:
    """Two teams, a finding each, and one that is nobody's."""
    made = stub(tmp_path)
    yield made
    made.ledger.close()
