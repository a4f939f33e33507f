"""Resources that exist because a label names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from stoploss.engine.history.frame import LabelChange, Presence
from stoploss.engine.history.nodes import together
from stoploss.engine.history.presences import adopted
from stoploss.engine.model import UNREADABLE, LabelValue, ResourceId
from stoploss.rules.catalogue import KINDS, path

OPEN = 2**60
"""The end of what has not ended."""


def with_implied(resources: Mapping[ResourceId, Presence]) -> dict[ResourceId, Presence]:
    """The resources, and those that exist because a label names them.

    A job that no log was read of still exists when a GPU says that it works for it; it is there
    from the first such word on, and gone while nothing that is there says so. It takes team, user, env,
    class, stage and experiment from those that name it, as far as its own readings say nothing of them: where
    they say different things, what was said newly last; what is only said again is no news.
    """
    for source, found in _NEWEST:
        if source is resources:
            return found
    found = _reckoned(resources)
    _NEWEST[:] = [(resources, found)]
    return found


_NEWEST: list[tuple[Mapping[ResourceId, Presence], dict[ResourceId, Presence]]] = []
"""What was reckoned last: several parts of a tick ask for the resources of one frame, which never change."""


def _reckoned(resources: Mapping[ResourceId, Presence]) -> dict[ResourceId, Presence]:
    said: dict[ResourceId, dict[int, dict[str, LabelValue]]] = {}
    nodes: dict[ResourceId, tuple[str, ...]] = {}
    spans: dict[ResourceId, list[tuple[int, int]]] = {}
    for resource in sorted(resources):
        owners = [kind for kind in KINDS if kind != resource.kind and path(resource.kind, kind)]
        for kind in owners:
            for name, low, high in _named(resources[resource], kind):
                spans.setdefault(ResourceId(kind, name), []).append((low, high))
        for change in resources[resource].changes:
            for kind in owners:
                value = change.labels.get(kind)
                if isinstance(value, str) and value:
                    named = ResourceId(kind, value)
                    told = resources[resource].nodes
                    nodes[named] = together(nodes.get(named, told), told)
                    said.setdefault(named, {}).setdefault(change.slot, {})
        for slot, job, name, value in adopted(resources[resource]) if "job" in owners else ():
            said[ResourceId("job", job)][slot].setdefault(name, value)
    merged = dict(resources)
    for named, mentions in said.items():
        own = resources.get(named)
        # Until it is seen itself it is there as long as somebody says so.
        end = OPEN if own is None else own.first
        absences = _gaps(min(mentions), end, spans.get(named, ()))
        absences += () if own is None else own.absences
        merged[named] = replace(_adopted(own, mentions, nodes[named]), absences=absences)
    return merged


def _named(presence: Presence, label: str) -> Iterator[tuple[str, int, int]]:
    """Value of a label, and the slots [from, to) in which a resource that is there bears it.

    While it cannot be read, what was read last goes on: silence does not end a membership.
    """
    bounds = [change.slot for change in presence.changes[1:]] + [OPEN]
    value: str | None = None
    for change, end in zip(presence.changes, bounds, strict=True):
        given = change.labels.get(label)
        if given is not UNREADABLE:
            value = given if isinstance(given, str) and given else None
        low = change.slot
        for start, stop in presence.absences if value is not None else ():
            if start >= end or (OPEN if stop is None else stop) <= low:
                continue
            if low < start:
                yield str(value), low, start
            low = OPEN if stop is None else stop
        if value is not None and low < end:
            yield value, low, end


def _gaps(first: int, end: int, spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int | None], ...]:
    """What of [first, end) no span covers."""
    gaps: list[tuple[int, int | None]] = []
    reached = first
    for low, high in sorted(spans):
        if reached < min(low, end):
            gaps.append((reached, min(low, end)))
        reached = max(reached, high)
    if reached < end:
        gaps.append((reached, None if end == OPEN else end))
    return tuple(gaps)


def _adopted(
    own: Presence | None, mentions: Mapping[int, Mapping[str, LabelValue]], nodes: tuple[str, ...]
) -> Presence:
    """A resource's presence with what those that name it say."""
    changes = {change.slot: change.labels for change in own.changes} if own else {}
    adopted: dict[str, LabelValue] = {}
    stated: Mapping[str, LabelValue] = {}
    merged: list[LabelChange] = []
    for slot in sorted({*changes, *mentions}):
        adopted.update(mentions.get(slot, {}))
        stated = changes.get(slot, stated)
        merged.append(LabelChange(slot, {**adopted, **stated}))
    if own is not None:
        nodes = together(own.nodes, nodes)
    return Presence(merged[0].slot, tuple(merged), own.absences if own else (), nodes)
