"""The JSON Schema (draft 2020-12) of policy files, made from the models that validate them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from stoploss.rules.models.sections import PolicyFile
from stoploss.rules.options import ActionOptions, CollectorOptions

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CONDITION = {"type": "string", "maxLength": 2000, "description": "A condition, on one line."}


def json_schema(collectors: CollectorOptions, actions: ActionOptions) -> dict[str, Any]:
    """The schema of a policy file; collectors without an option model take any options."""
    definitions: dict[str, Any] = {}
    root = _model(PolicyFile, definitions)
    steps = {
        name: {**_nullable(_model(spec.options, definitions)), "description": spec.summary}
        for name, spec in actions.items()
    }
    definitions["Step"] = {
        "type": "object",
        "properties": steps,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    definitions["Conditions"] = _conditions()
    options = {name: _nullable(_model(model, definitions)) for name, model in collectors.items()}
    root["properties"]["collectors"]["properties"] = options
    root["properties"]["collectors"]["additionalProperties"] = True
    return {
        "$schema": DIALECT,
        "title": "stoploss policy file",
        **{key: value for key, value in root.items() if key != "title"},
        "$defs": dict(sorted(definitions.items())),
    }


def _conditions() -> dict[str, Any]:
    nested = {"$ref": "#/$defs/Conditions"}
    junction = {
        "type": "object",
        "properties": {
            "all": {**nested, "description": "True when every entry is."},
            "any": {**nested, "description": "True when one entry is."},
            "none": {**nested, "description": "True when no entry is."},
        },
        "additionalProperties": False,
        "minProperties": 1,
    }
    return {"anyOf": [_CONDITION, {"type": "array", "items": nested}, junction]}


def _model(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one model; what it refers to goes to `definitions`."""
    schema = model.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
    definitions.update({name: _tidy(part) for name, part in schema.pop("$defs", {}).items()})
    tidied = _tidy(schema)
    assert isinstance(tidied, dict)
    return tidied


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """`terminate:` with nothing behind it is allowed where no option is required."""
    return schema if schema.get("required") else {**schema, "type": [schema["type"], "null"]}


def _tidy(part: Any, *, names: bool = False) -> Any:
    """Without titles and defaults that only repeat Python; `names` marks a map of keys.

    `x-ref` stands for a reference to a part that pydantic does not know of.
    """
    if isinstance(part, list):
        return [_tidy(item) for item in part]
    if not isinstance(part, dict):
        return part
    tidied = {
        key: _tidy(value, names=key in ("properties", "$defs") and not names)
        for key, value in part.items()
        if names or not _is_noise(key, value)
    }
    if not names and "x-ref" in tidied:
        tidied["$ref"] = f"#/$defs/{tidied.pop('x-ref')}"
    return tidied


def _is_noise(key: str, value: Any) -> bool:
    # A default is kept where it is a word; numbers are in base units that nobody writes.
    return key == "title" or (key == "default" and not (isinstance(value, str) and value))
