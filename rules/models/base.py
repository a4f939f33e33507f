"""The base of every model of a policy file."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A closed list of keys; keys are written with dashes.

    `placeholders` fill required keys that are missing or wrong, so that the rest of the
    section is still checked; nothing made with one of them leaves the loader.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.rstrip("_").replace("_", "-"),
        arbitrary_types_allowed=True,
    )

    placeholders: ClassVar[dict[str, str]] = {}
