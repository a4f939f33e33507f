"""Pages of the collectors: there, and made from the code."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from stoploss.collectors.registry import COLLECTORS, option_models

DOCS = Path(__file__).parents[2] / "docs"
BUILD: dict[str, Any] = runpy.run_path(str(DOCS / "build.py"))


@pytest.mark.parametrize("name", COLLECTORS)
def test_the_page_is_what_the_generator_makes(name: str) -> None:
    """Every collector has its page, and the page is up to date (else: make docs)."""
    assert (DOCS / "collectors" / f"{name}.md").read_text("utf-8") == BUILD["page"](name)


@pytest.mark.parametrize("name", COLLECTORS)
def test_the_overview_links_every_page(name: str) -> None:
    """The overview of collectors links each collector's page."""
    assert f"({name}.md)" in (DOCS / "collectors" / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", COLLECTORS)
def test_examples_pass_and_fail_as_the_page_says(name: str) -> None:
    """Of the examples on a page the first is accepted and the second is refused."""
    right, wrong = re.findall(r"```yaml\n(.*?)```", BUILD["page"](name), re.DOTALL)
    model = option_models()[name]

    model.model_validate(yaml.safe_load(right)["collectors"][name])
    with pytest.raises(ValidationError):
        model.model_validate(yaml.safe_load(wrong)["collectors"][name])
