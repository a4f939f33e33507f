"""Joins what is told about a resource at different times."""

from __future__ import annotations

from dataclasses import replace

from stoploss.engine.history.frame import LabelChange, Presence
from stoploss.engine.history.nodes import together


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
    changes = tuple(change for change in presence.changes if change.slot <= last)
    absences = tuple(
        (start, None if stop is not None and stop > last else stop)
        for start, stop in presence.absences
        if start <= last
    )
    return replace(presence, changes=changes, absences=absences)


def without(presence: Presence, before: int) -> Presence:
    """Forget changes and absences that were over when slot `before` began."""
    old = [change for change in presence.changes if change.slot <= before]
    if len(old) < 2 and not any(stop is not None and stop <= before for _, stop in presence.absences):
        return presence
    changes = presence.changes[len(old) - 1 :] if old else presence.changes
    changes = (LabelChange(presence.first, changes[0].labels), *changes[1:])
    absences = tuple((a, b) for a, b in presence.absences if b is None or b > before)
    return replace(presence, changes=changes, absences=absences)
