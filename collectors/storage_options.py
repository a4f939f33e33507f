"""The options of the collector `storage`."""

from __future__ import annotations

import os
from typing import Annotated, ClassVar, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from stoploss.collectors.contract import HostOptions, Interval
from stoploss.rules.units import QuantityError

P = TypeVar("P")

Role = Literal[
    "dataset", "checkpoints", "artifacts", "logs", "scratch", "temporary", "cache", "system", "other"
]
Tier = Literal["fast", "standard", "cold", "archive"]


def path_or_settings(value: object) -> object:
    """A path by itself stands for settings with that path."""
    return {"path": value} if isinstance(value, str) else value


def place_schema(**keys: object) -> WithJsonSchema:
    """The JSON schema of a path by itself, or of settings with these keys beside `path`."""
    text = {"type": "string", "pattern": "^/"}
    settings = {
        "type": "object",
        "properties": {"path": text, **keys},
        "required": ["path"],
        "additionalProperties": False,
    }
    return WithJsonSchema({"anyOf": [text, settings]})


def absolute(path: str) -> str:
    """A path, or a pattern for paths, that begins at the root.

    Raises:
        QuantityError: it does not.
    """
    if not path.startswith("/"):
        raise QuantityError(f"{path!r} is no absolute path", "write it from the root, as /data", "bad-value")
    return path


def some(paths: tuple[P, ...]) -> tuple[P, ...]:
    """At least one path.

    Raises:
        QuantityError: there is none.
    """
    if not paths:
        raise QuantityError("no path is named", "name at least one, as [/data]", "bad-value")
    return paths


AbsolutePath = Annotated[str, AfterValidator(absolute), AfterValidator(os.path.normpath)]


class Place(BaseModel):
    """A folder, and what is kept there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: AbsolutePath
    role: Role | None = None
    tier: Tier | None = None


AnyPlace = Annotated[
    Place,
    BeforeValidator(path_or_settings),
    place_schema(role={"enum": list(get_args(Role))}, tier={"enum": list(get_args(Tier))}),
]


class Options(HostOptions):
    """What `collectors: storage:` takes."""

    default_every: ClassVar[float] = 900.0
    every: Interval = Field(default=900.0, description="time between two looks")
    paths: Annotated[tuple[AnyPlace, ...], AfterValidator(some)] = Field(
        description="folders: each a path, or `{path, role, tier}`"
    )
