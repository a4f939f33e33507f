"""The keys of policy files, read off the models that check them."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stoploss.actions.registry import action_options
from stoploss.rules.models.fields import Reads
from stoploss.rules.models.sections import PolicyFile
from stoploss.rules.models.steps import DestructiveOptions, RepeatableOptions

EXAMPLES = {
    "actions-per-run": "10",
    "active": "{from: 2027-01-01, until: 2027-03-31}",
    "all": "[comm-stall, packet-loss]",
    "approve": "required",
    "budget": "one-job",
    "budgets": "[{name: one-job, each: job, limit: 100 GPU-hours}]",
    "collectors": "{host: {every: 1m}}",
    "command": "[/usr/local/bin/on-idle, now]",
    "contact": "ml-platform",
    "correlate": "[{name: stall, cause: infrastructure, join: job, all: [comm-stall, packet-loss]}]",
    "cost": "$500/month",
    "each": "job",
    "except-phase": "[setup, loading, evaluating, checkpointing]",
    "exemptions": "[{policy: idle-gpu, where: 'job == \"eval-svc\"', "
    "reason: bursty, owner: ml-infra, expires: 2027-01-31}]",
    "expires": "2027-01-31",
    "fixed-costs": "[{name: feature-store, cost: $500/month}]",
    "from": "2027-01-01",
    "gpu-hour": "{H100: $4.10/GPU-hour, default: $2.00/GPU-hour}",
    "gpus": "4",
    "gpus-per-run": "64",
    "grace": "2m",
    "heartbeat": '"${HEARTBEAT_URL}"',
    "include": "[pack:gpu, team/policies.yaml]",
    "instance-type": "m7i.4xlarge",
    "jobs-per-team": "2",
    "join": "job",
    "keep": "3",
    "limit": "100 GPU-hours",
    "limits": "{actions-per-run: 10, share-of-population: 20%}",
    "maintenance": "[{from: 2027-01-01, until: 2027-01-02, reason: new switches}]",
    "min-population": "10",
    "name": "idle-gpu",
    "none": "[checkpoint-in-progress]",
    "notify": '{ml-platform: "${SLACK_URL}", owner: "mailto:{user}@example.org"}',
    "older-than": "30d",
    "owner": "ml-infra",
    "path": "/mnt/cold",
    "policies": "[{name: idle-gpu, each: job, when: ['max(gpu.utilization, 30m) < 5%']}]",
    "policy": "idle-gpu",
    "prices": "{gpu-hour: {default: $2.00/GPU-hour}, kind: on-demand}",
    "protect": "['label.keep == \"true\"']",
    "quiet": "22:00-07:00",
    "reason": "bursty service",
    "repeat": "6h",
    "replicas": "1",
    "require-ack": "{within: 2h, then: [{alert: {to: ml-platform}}]}",
    "retention": "14d",
    "runbook": "docs/runbooks/idle-gpu.md",
    "schedule": "0 8-18 * * mon-fri",
    "settings": "{mode: audit, timezone: UTC}",
    "share-by": "team",
    "snapshot": "required",
    "state": "sqlite:///stoploss.db",
    "storage-class": "GLACIER_IR",
    "summary": "A training job none of whose GPUs has worked for half an hour.",
    "then": "[{alert: {to: owner}}]",
    "timezone": "Europe/Berlin",
    "to": "owner",
    "until": "2027-03-31",
    "version": "1",
    "waste": "100%",
    "when": '["max(gpu.utilization, 30m) < 5%"]',
    "where": "'env == \"research\"'",
}
"""Key -> its value in an example, where the model gives none."""

_STEPS = {"alert": "{to: owner}", "exec": "{command: [/usr/local/bin/on-idle, now], approve: required}"}


@dataclass(frozen=True, slots=True)
class Key:
    """One key: where it stands, what it takes, and what is assumed when it is not there."""

    name: str
    sections: tuple[str, ...]
    type: str
    default: str
    text: str
    example: str | None


def all_keys() -> tuple[Key, ...]:
    """Every key of every section; a key that means the same in two sections stands once."""
    found: dict[tuple[str, str, str], Key] = {}
    for key in _every_key():
        same = (key.name, key.text, key.type)
        sections = found[same].sections if same in found else ()
        found[same] = replace(key, sections=tuple(dict.fromkeys(sections + key.sections)))
    return tuple(found.values())


def _every_key() -> Iterator[Key]:
    yield from _keys("", PolicyFile)
    for common in (DestructiveOptions, RepeatableOptions):
        yield from _keys("then", common)
    shared = {field.alias for field in DestructiveOptions.model_fields.values()} | {"repeat"}
    for action in action_options().values():
        step = _STEPS.get(action.name, "{after: 30m, approve: required}")
        yield Key(action.name, ("then",), "mapping", "", action.summary, f"{action.name}: {step}")
        for key in _keys(f"then.{action.name}", action.options):
            if key.name not in shared and key.sections == (f"then.{action.name}",):
                yield key


def _keys(section: str, model: type[BaseModel]) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        below = list(_models(field.annotation))
        schema = next((item.schema for item in field.metadata if isinstance(item, Reads)), {})
        yield Key(
            key,
            (section or "top level",),
            _type(field, schema),
            _default(field),
            field.description or "",
            _example(key, schema),
        )
        for inner in below:
            yield from _keys(f"{section}.{key}" if section else key, inner)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)


def _type(field: FieldInfo, schema: dict[str, Any]) -> str:
    if not schema:
        return _plain_type(field.annotation)
    words = schema.get("enum") or schema.get("items", {}).get("enum")
    if words:
        return ("list of: " if "items" in schema else "one of: ") + ", ".join(words)
    if "$ref" in schema:
        return "list of conditions"
    if schema.get("type") == "array":
        return "list"
    if "anyOf" in schema:
        return "text or list"
    examples = schema.get("examples")
    if examples:
        return f"text such as {_typical(examples)}"
    return "number" if schema.get("type") == "integer" else "text"


def _plain_type(annotation: Any) -> str:
    options = [option for option in typing.get_args(annotation) if option is not type(None)]
    origin = typing.get_origin(annotation)
    if origin is list:
        return f"list of {'mappings' if any(_models(annotation)) else 'texts'}"
    if origin is dict or any(_models(annotation)):
        return "mapping"
    return "number" if int in (annotation, *options) else "text"


def _typical(values: Sequence[str]) -> str:
    # The first example is often the shortest and least usual value.
    return values[min(1, len(values) - 1)]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "none: the key is required"
    value = field.default
    # The description of a field with a default in base units says it in the unit people write.
    if value in (None, "", [], (), {}) or isinstance(value, float):
        return ""
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _example(key: str, schema: dict[str, Any]) -> str | None:
    values = schema.get("examples") or schema.get("enum")
    value = EXAMPLES.get(key) or (_typical(values) if values else None)
    return f"{key}: {value}" if value is not None else None
