"""Reads `collectors:` and `notify:`: names with options or addresses."""

from __future__ import annotations

from collections.abc import Collection

from pydantic_core import PydanticCustomError

from stoploss.rules.catalogue import Catalogue
from stoploss.rules.diagnostics import Diagnostics, suggestion
from stoploss.rules.loading.draft import is_empty
from stoploss.rules.loading.structure import check, expect_mapping, width
from stoploss.rules.models.fields import read_expandable, read_interval
from stoploss.rules.options import DEFAULT_COLLECTORS, CollectorOptions, default_every
from stoploss.rules.policy import CollectorSetting
from stoploss.rules.yaml import Broken, Mapping, Node, Scalar, plain

DERIVED = "derived"
"""The `collector` of signals that the engine works out itself."""


def known_collectors(catalogue: Catalogue, built: CollectorOptions) -> frozenset[str]:
    """Names that `collectors:` may hold: what is built, and what the catalogue's signals come from."""
    planned = {signal.collector for signal in catalogue.values()} - {DERIVED}
    return frozenset({*planned, *built, *DEFAULT_COLLECTORS})


def read_collectors(
    node: Mapping | None,
    built: CollectorOptions,
    known: Collection[str],
    resolution: float,
    diagnostics: Diagnostics,
) -> tuple[CollectorSetting, ...]:
    """The collectors that are named; options of those that are not built are not checked.

    `resolution` (seconds) is the interval of a collector that says none.
    """
    settings: list[CollectorSetting] = []
    for key, value in node.pairs if node is not None else ():
        if key.text not in known:
            diagnostics.add(
                "unknown-collector",
                f"there is no collector {key.text!r}",
                key.position,
                fix=suggestion(key.text, known, listing=30),
                length=max(1, len(key.text)),
            )
            continue
        body: Node = Mapping((), key.position) if is_empty(value) else value
        options = expect_mapping(body, f"the options of {key.text}", diagnostics)
        if options is None:
            continue
        every = _every(key, options, built, resolution, diagnostics)
        settings.append(CollectorSetting(key.text, every, plain(options), key.position))
    return tuple(settings)


def _every(
    key: Scalar, options: Mapping, built: CollectorOptions, resolution: float, diagnostics: Diagnostics
) -> float:
    model = built.get(key.text)
    fallback = default_every(model) or resolution
    value = options.get("every")
    every = fallback
    if value is not None and not isinstance(value, Broken):
        try:
            every = read_interval(plain(value))
        except PydanticCustomError as error:
            context = error.context or {}
            diagnostics.add(
                error.type, context["message"], value.position, fix=context["fix"], length=width(value)
            )
    if model is not None:
        # `every` has been read; a model that has no such field must not refuse it.
        pairs = tuple(pair for pair in options.pairs if pair[0].text != "every")
        check(model, Mapping(pairs, options.position), diagnostics, unknown="unknown-option")
    return every


def read_notify(node: Mapping | None, diagnostics: Diagnostics) -> dict[str, str]:
    """Receivers with their addresses, in which `${NAME}` is not expanded yet."""
    receivers: dict[str, str] = {}
    for key, value in node.pairs if node is not None else ():
        receivers[key.text] = ""
        placeholder = value.placeholder if isinstance(value, Mapping) else None
        if placeholder is not None:
            expect_mapping(value, "an address", diagnostics)
        elif not isinstance(value, Broken):
            try:
                receivers[key.text] = read_expandable(plain(value))
            except PydanticCustomError as error:
                context = error.context or {}
                diagnostics.add(
                    error.type, context["message"], value.position, fix=context["fix"], length=width(value)
                )
    return receivers
