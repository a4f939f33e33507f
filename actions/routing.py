"""Which target carries out an action: by what the order is about, and where that lives."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace

from stoploss.actions.contract import Action, Means, Refused
from stoploss.engine.model import Found, Order, Outcome, ResourceId

SCHEDULER = "scheduler"
"""The label that says who runs a job: slurm, kubernetes, sagemaker, or process for processes of a host."""

STORED = ("volume", "bucket", "log")
"""Kinds that lie on a machine or in a cloud: a label tells which."""
CLOUDS = {"region": "aws", "namespace": "kubernetes"}


def place_of(resource: ResourceId, labels: Mapping[str, str]) -> str:
    """The name of a resource's place: its kind, and for a job who runs it, such as `job/slurm`.

    Raises:
        Refused: nothing says who runs it.
    """
    if resource.kind in STORED:
        cloud = next((name for label, name in CLOUDS.items() if labels.get(label)), None)
        return resource.kind if cloud is None else f"{resource.kind}/{cloud}"
    if resource.kind != "job":
        return resource.kind
    scheduler = labels.get(SCHEDULER, "")
    if not scheduler or scheduler == "?":
        raise Refused(f"nothing says who runs {resource}: it has no readable label {SCHEDULER!r}")
    return f"{resource.kind}/{scheduler}"


class Routed:
    """An action that hands each order to the target of its place; targets are made when first needed."""

    def __init__(self, name: str, targets: Mapping[str, str], means: Means) -> None:
        """Take over what is needed.

        Args:
            name: of the action.
            targets: place -> `module:Class`; the class is made with `means` and is an `Action`. A place may
                end in `?PARAMETER` or `?PARAMETER=VALUE`: it serves orders with that parameter, first.
            means: what targets are made with.
        """
        self._name, self._targets, self._means = name, targets, means
        self._made: dict[str, Action] = {}

    def find(self, order: Order) -> Found:
        """Let the target of the order's place look.

        Raises:
            Refused: there is none, or it refuses.
        """
        place = self._place(order)
        return replace(self._target(place).find(order), place=place)

    def act(self, order: Order, found: Found) -> Outcome:
        """Let the target that found it act."""
        return self._target(found.place).act(order, found)

    def look(self, order: Order, found: Found) -> Outcome:
        """Let the target that found it look what came of it."""
        return self._target(found.place).look(order, found)

    def undo(self, order: Order, found: Found) -> Outcome:
        """Let the target that found it bring it back."""
        return self._target(found.place).undo(order, found)

    def _place(self, order: Order) -> str:
        place = place_of(order.resource, order.labels)
        for name in self._targets:
            plain, mark, wanted = name.partition("?")
            parameter, equals, value = wanted.partition("=")
            given = order.parameters.get(parameter)
            if plain == place and mark and given is not None and (not equals or str(given) == value):
                return name
        if place not in self._targets:
            known = ", ".join(sorted({name.partition("?")[0] for name in self._targets}))
            raise Refused(f"{self._name} cannot act on {place}; it can on {known}")
        return place

    def _target(self, place: str) -> Action:
        if place not in self._made:
            module, _, name = self._targets[place].partition(":")
            made: Action = getattr(importlib.import_module(module), name)(self._means)
            self._made[place] = made
        return self._made[place]
