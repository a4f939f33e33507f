"""Joins what is told about a resource at different times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from stoploss.engine.history.frame import LabelChange, Presence
from stoploss.engine.history.nodes import together
from stoploss.engine.model import UNREADABLE, LabelValue, ResourceId
from stoploss.rules.catalogue import KINDS

ADOPTED = ("team", "user", "env", "class", "stage", "experiment")
"""Labels that a job takes from those that name it, where its own readings say nothing."""


def merged(stored: Presence | None, given: Presence, last: int) -> Presence:
    """What is known of a resource after a frame that ends at slot `last`.

    A frame tells all since the resource's `first` in it. What was stored before that stays (a
    collector that was started again knows less than the store), and so does what was stored of
    later slots.
    """
    if stored is None or stored == given:
        return given
    changes = [change for change in stored.changes if change.slot < given.first]
    before = changes[-1].labels if changes else {}
    for change in given.changes:
        labels = {**before, **change.labels}
        if not changes or labels != changes[-1].labels:
            changes.append(LabelChange(change.slot, labels))
    newest = max(last, given.changes[-1].slot)
    changes += [change for change in stored.changes if change.slot > newest]

    ends = dict(stored.absences)
    absences: dict[int, int | None] = {}
    for start, stop in stored.absences:
        if start < given.first:
            absences[start] = given.first if stop is None else stop
        elif start > last:
            absences[start] = stop
    for start, stop in given.absences:
        absences[start] = ends.get(start) if stop is None else stop
    return Presence(
        min(stored.first, given.first),
        tuple(changes),
        tuple(sorted(absences.items())),
        together(stored.nodes, given.nodes),
    )


def as_of(presence: Presence, last: int) -> Presence:
    """What was known at the end of slot `last`, which is not before the resource was seen."""
    if presence.changes[-1].slot <= last and not presence.absences:
        return presence
    changes = tuple(change for change in presence.changes if change.slot <= last)
    absences = tuple(
        (start, None if stop is not None and stop > last else stop)
        for start, stop in presence.absences
        if start <= last
    )
    return replace(presence, changes=changes, absences=absences)


def without(presence: Presence, before: int) -> Presence:
    """Forget changes and absences that were over when slot `before` began.

    A label that still holds then keeps the slot since which it does: whose a thing is, and since when,
    stays as it was.
    """
    old = [change for change in presence.changes if change.slot <= before]
    kept = _standing(presence.first, old) if len(old) > 1 else old
    absences = tuple((a, b) for a, b in presence.absences if b is None or b > before)
    if kept == old and absences == presence.absences:
        return presence
    return replace(presence, changes=(*kept, *presence.changes[len(old) :]), absences=absences)


def _standing(first: int, old: list[LabelChange]) -> list[LabelChange]:
    """The fewest changes that tell what holds after some, and since when."""
    since: dict[str, list[tuple[int, LabelValue]]] = {}
    for name in old[-1].labels:
        told = [(change.slot, change.labels[name]) for change in old if name in change.labels]
        since[name] = _latest(told)
    slots = sorted({first, *(slot for told in since.values() for slot, _ in told)})
    return [
        LabelChange(slot, {name: told[-1][1] for name, all_ in since.items() if (told := _until(all_, slot))})
        for slot in slots
    ]


def _latest(told: list[tuple[int, LabelValue]]) -> list[tuple[int, LabelValue]]:
    """Since when the last value holds; one that cannot be read ends nothing, and stands behind it."""
    readable = [number for number, (_, value) in enumerate(told) if value is not UNREADABLE]
    if not readable:
        return told[:1]
    last = begun = readable[-1]
    for number in reversed(readable):
        if told[number][1] != told[last][1]:
            break
        begun = number
    return [told[begun], *told[last + 1 : last + 2]]


def _until(told: list[tuple[int, LabelValue]], slot: int) -> list[tuple[int, LabelValue]]:
    return [item for item in told if item[0] <= slot]


def is_over(presence: Presence, before: int) -> bool:
    """Whether a resource was gone before slot `before`, and has not come back."""
    return bool(presence.absences) and presence.absences[-1][1] is None and presence.absences[-1][0] < before


def named_by(presence: Presence) -> Iterator[ResourceId]:
    """Resources that labels name: as long as this one is kept they are."""
    for change in presence.changes:
        for name, value in change.labels.items():
            kind = "gpu" if name == "parent" else name
            if kind in KINDS and isinstance(value, str):
                yield ResourceId(kind, value)


def unnamed(resources: Mapping[ResourceId, Presence], over: set[ResourceId]) -> set[ResourceId]:
    """Those of some resources that no other one names, directly or by another of them."""
    over = set(over)
    asked = [resource for resource in resources if resource not in over] if over else []
    while asked:
        for named in named_by(resources[asked.pop()]):
            if named in over:
                over.discard(named)
                asked += [named] if named in resources else []
    return over


def lasting(
    resources: Mapping[ResourceId, Presence], last: int, since: int | None = None
) -> dict[ResourceId, Presence]:
    """Resources as they were known at the end of slot `last`; with `since` without what was over before."""
    seen = {name: as_of(presence, last) for name, presence in resources.items() if presence.first <= last}
    if since is None:
        return seen
    return shortened(seen, {name for name, presence in seen.items() if is_over(presence, since)}, since)


def shortened(
    resources: Mapping[ResourceId, Presence], over: set[ResourceId], before: int
) -> dict[ResourceId, Presence]:
    """Resources without those that are over and that no other one names, and without what was said of the
    others and held no more when slot `before` began; but for what a job that is there takes from them.
    """
    less = {name: item if name in over else without(item, before) for name, item in resources.items()}
    gone = unnamed(less, over)
    kept = {name: presence for name, presence in less.items() if name not in gone} if gone else less
    cut = [name for name, presence in resources.items() if name in gone or kept[name] is not presence]
    return (
        {**kept, **{name: resources[name] for name in _alone_saying(resources, kept, cut, before)}}
        if cut
        else kept
    )


def _alone_saying(
    seen: Mapping[ResourceId, Presence],
    kept: Mapping[ResourceId, Presence],
    cut: Iterable[ResourceId],
    before: int,
) -> set[ResourceId]:
    """Those that were cut, but said last, up to slot `before`, which label a job that is kept has.

    What was said later is kept; of what is gone it is not.
    """
    jobs = {name.id for name in kept if name.kind == "job"}
    for presence in kept.values():
        jobs |= {job for change in presence.changes if isinstance(job := change.labels.get("job"), str)}
    found = set[ResourceId]()
    said: dict[tuple[str, str], tuple[int, ResourceId]] = {}
    for resource in sorted(seen):
        for slot, job, name, _ in adopted(seen[resource]):
            if job not in jobs:
                continue
            if slot > before:
                found |= set() if resource in kept else {resource}
            elif slot > said.get((job, name), (-1, resource))[0]:
                # Of those who say something in one slot the first is heard.
                said[job, name] = slot, resource
    last: dict[ResourceId, set[tuple[int, str, str]]] = {}
    for (job, name), (slot, resource) in said.items():
        last.setdefault(resource, set()).add((slot, job, name))
    for resource in last.keys() & set(cut):
        left = {told[:3] for told in adopted(kept[resource])} if resource in kept else set()
        found |= set() if last[resource] <= left else {resource}
    return found


def adopted(presence: Presence) -> Iterator[tuple[int, str, str, LabelValue]]:
    """What a resource says of jobs, where that is new: slot, job, label and value."""
    last: Mapping[str, LabelValue] = {}
    for change in presence.changes:
        job = change.labels.get("job")
        if isinstance(job, str) and job:
            for name in ADOPTED:
                value = change.labels.get(name)
                if value is not None and (last.get("job"), last.get(name)) != (job, value):
                    yield change.slot, job, name, value
        last = change.labels
