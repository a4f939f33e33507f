"""Pages of the actions."""

from __future__ import annotations

from pathlib import Path

import pytest

import stoploss.actions
from stoploss.actions.registry import ACTIONS
from stoploss.actions.targets import TARGETS

DOCS = Path(__file__).parents[2] / "docs" / "actions"
FOLDER = Path(next(iter(stoploss.actions.__path__)))
BUILT = sorted(name for name in ACTIONS if (FOLDER / f"{name}.py").exists())


@pytest.mark.parametrize("name", BUILT)
def test_every_action_that_can_be_carried_out_has_its_page(name: str) -> None:
    """An action with code has a page, and the overview links it."""
    assert f"({name}.md)" in (DOCS / "README.md").read_text("utf-8")
    assert (DOCS / f"{name}.md").read_text("utf-8").startswith(f"# {name}\n")


@pytest.mark.parametrize("scheme", TARGETS)
def test_every_kind_of_address_is_told(scheme: str) -> None:
    """The page of the alert names each scheme that an address may have."""
    schemes = {"http": "https"}
    assert f"{schemes.get(scheme, scheme)}:" in (DOCS / "alert.md").read_text("utf-8")
