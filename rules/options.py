"""What the rules know of collectors and actions: their option models, never the plug-ins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import BaseModel

from stoploss.rules.models.steps import StepOptions

ActionClass: TypeAlias = Literal["notify", "changing", "destructive"]

DEFAULT_COLLECTORS = ("host", "network", "gpu", "process")
"""Collectors that look without being named, because they need no path and no credentials."""


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """An action as the policy language sees it.

    Attributes:
        name: the word in `then:`.
        kind: notify, changing or destructive; decides which guards apply.
        options: the model of its options, the common keys of a step among them.
        summary: one line for people.
        harmless: options that make a destructive step a changing one when no other option
            of its own stands beside them.
    """

    name: str
    kind: ActionClass
    options: type[StepOptions]
    summary: str = ""
    harmless: frozenset[str] = frozenset()

    def kind_of(self, given: frozenset[str]) -> ActionClass:
        """The class of a step with these options of its own."""
        if self.kind == "destructive" and given and given <= self.harmless:
            return "changing"
        return self.kind


CollectorOptions: TypeAlias = Mapping[str, type[BaseModel]]
"""Collector name -> option model; `default_every` on the class is the seconds between looks."""

ActionOptions: TypeAlias = Mapping[str, ActionSpec]


def default_every(model: type[BaseModel] | None) -> float | None:
    """Seconds between the looks of a collector that does not say; None where nobody knows."""
    value = getattr(model, "default_every", None)
    return float(value) if isinstance(value, int | float) and value > 0 else None
