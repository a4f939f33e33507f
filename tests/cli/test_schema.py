"""`stoploss schema`: what an editor needs to know of policy files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoploss.actions.registry import ACTIONS, action_options
from stoploss.cli.main import run
from stoploss.rules.models import sections as sections_module
from stoploss.rules.models.base import Section
from stoploss.rules.models.sections import PolicyFile, PolicySection


@pytest.fixture(name="schema")
def schema_fixture(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The printed schema."""
    assert run(["schema"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def nodes(part: Any) -> Iterator[dict[str, Any]]:
    """Every object of a document."""
    if isinstance(part, dict):
        yield part
        for value in part.values():
            yield from nodes(value)
    elif isinstance(part, list):
        for value in part:
            yield from nodes(value)


def test_the_dialect_is_2020_12(schema: dict[str, Any]) -> None:
    """The schema names its dialect."""
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_keys_are_those_that_the_loader_takes(schema: dict[str, Any]) -> None:
    """Top level and policy are closed lists of the keys that the models have."""
    policy = schema["$defs"]["PolicySection"]

    assert set(schema["properties"]) == {field.alias for field in PolicyFile.model_fields.values()}
    assert set(policy["properties"]) == {field.alias for field in PolicySection.model_fields.values()}
    assert (schema["additionalProperties"], policy["additionalProperties"]) == (False, False)
    assert (schema["required"], policy["required"]) == (["version"], ["name", "each"])
    assert policy["properties"]["severity"]["enum"] == ["low", "medium", "high", "critical"]


def test_every_key_is_described(schema: dict[str, Any]) -> None:
    """An editor has a sentence for each key of each section of ours."""
    sections = [part for name, part in schema["$defs"].items() if name.endswith("Section")]
    keys = [(key, value) for part in (schema, *sections) for key, value in part["properties"].items()]

    assert [key for key, value in keys if not value.get("description")] == []


def test_steps_are_the_actions_with_their_options(schema: dict[str, Any]) -> None:
    """A step is one action; its options are a closed list."""
    step = schema["$defs"]["Step"]

    assert set(ACTIONS) <= set(step["properties"])
    assert step["maxProperties"] == 1
    assert "approve" in step["properties"]["terminate"]["properties"]
    assert step["properties"]["terminate"]["additionalProperties"] is False
    assert step["properties"]["exec"]["required"] == ["command"]


def test_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    """No reference is left open."""
    references = {node["$ref"] for node in nodes(schema) if isinstance(node.get("$ref"), str)}

    assert references
    assert references <= {f"#/$defs/{name}" for name in schema["$defs"]}


def test_it_can_be_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--out writes the same schema."""
    target = tmp_path / "stoploss.schema.json"

    assert run(["schema", "--out", str(target)]) == 0
    assert "PolicySection" in json.loads(target.read_text(encoding="utf-8"))["$defs"]
    assert run(["schema", "--out", str(tmp_path / "no" / "x.json")]) == 2


def test_every_key_is_in_the_manual() -> None:
    """The page about policy files names each key of each section and each option of each action."""
    page = (Path(__file__).parents[2] / "docs" / "language" / "policies.md").read_text(encoding="utf-8")
    sections = [part for part in vars(sections_module).values() if isinstance(part, type)]
    models = [part for part in sections if issubclass(part, Section)]
    models += [spec.options for spec in action_options().values()]
    keys = {field.alias for model in models for field in model.model_fields.values()}

    assert sorted(key for key in keys if f"`{key}`" not in page) == []
