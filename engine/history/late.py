"""Puts what came late into slots that are stored already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stoploss.engine.history.frame import BAD, MAX_REASONS, NONE, Bytes, Frame, Plane
from stoploss.engine.history.rows import OTHER
from stoploss.engine.model import ResourceId

N = TypeVar("N", bound=np.generic)


def filled(stored: Frame, late: Frame, alone: Callable[[ResourceId], bool]) -> Frame:
    """The stored slots with those of a frame that was made later, of the same slots.

    Where the later one holds a reading it stands, if its machine alone tells of the resource: it was made of
    all that this machine saw. Else what is stored stands, and only what is blank is filled.

    Args:
        stored: slots as they are.
        late: the same slots, made of the looks of one machine.
        alone: whether only this machine tells of a resource.
    """
    reasons, states = _reasons(stored.reasons, late.reasons)
    planes = dict(stored.planes)
    for name, plane in late.planes.items():
        planes[name] = _filled(planes.get(name) or _blank(plane), plane, states[plane.status], alone)
    looks = dict(stored.looks)
    for key, row in late.looks.items():
        before = looks.get(key, np.zeros(stored.slots, np.uint8))
        looks[key] = np.where(row > 0, row, before).astype(np.uint8)
    return replace(
        stored,
        planes=planes,
        resources=late.resources,
        looks=looks,
        look_cadence={**late.look_cadence, **stored.look_cadence},
        look_reasons={**late.look_reasons, **stored.look_reasons},
        reasons=reasons,
    )


def _filled(base: Plane, late: Plane, status: Bytes, alone: Callable[[ResourceId], bool]) -> Plane:
    places = {resource: at for at, resource in enumerate(base.series)}
    fresh = [resource for resource in late.series if resource not in places]
    places |= {resource: len(base.series) + at for at, resource in enumerate(fresh)}
    columns = np.array([places[resource] for resource in late.series], np.intp)
    mine = np.array([alone(resource) for resource in late.series], bool)

    width = len(places)
    values, old = _wide(base.values, width, np.nan), _wide(base.status, width, NONE)
    taken = (status != NONE) & (mine | (old[:, columns] == NONE))
    words, numbers = _words(base.words, late)
    values[:, columns] = np.where(taken, numbers, values[:, columns])
    old[:, columns] = np.where(taken, status, old[:, columns])
    increase = None
    if base.increase is not None and late.increase is not None:
        increase = _wide(base.increase, width, 0.0)
        increase[:, columns] = np.where(taken, late.increase, increase[:, columns])
    given = {resource: int(slots) for resource, slots in zip(late.series, late.cadence, strict=True)}
    cadence = np.array([*base.cadence.tolist(), *(given[resource] for resource in fresh)], np.int32)
    series = (*base.series, *fresh)
    return replace(
        base, series=series, values=values, status=old, cadence=cadence, increase=increase, words=words
    )


def _blank(plane: Plane) -> Plane:
    """A plane of as many slots without any series."""
    rows = len(plane.status)
    return replace(
        plane,
        series=(),
        values=np.zeros((rows, 0)),
        status=np.zeros((rows, 0), np.uint8),
        cadence=np.zeros(0, np.int32),
        increase=None if plane.increase is None else np.zeros((rows, 0)),
        words=(),
    )


def _wide(array: npt.NDArray[N], width: int, fill: float) -> npt.NDArray[N]:
    """A copy with columns added at its end."""
    out = np.full((array.shape[0], width), fill, dtype=array.dtype)
    out[:, : array.shape[1]] = array
    return out


def _words(known: tuple[str, ...], late: Plane) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
    """All words, and the later values as indexes into them; numbers stay as they are."""
    if not late.words:
        return known, late.values
    numbers = {word: at for at, word in enumerate(known)}
    for word in late.words:
        numbers.setdefault(word, len(numbers))
    target = np.array([numbers[word] for word in late.words], np.float64)
    values = late.values.copy()
    valid = ~np.isnan(values)
    values[valid] = target[values[valid].astype(np.intp)]
    return tuple(numbers), values


def _reasons(known: tuple[str, ...], more: tuple[str, ...]) -> tuple[tuple[str, ...], Bytes]:
    """All reasons, and for each status byte of the later frame what it is then."""
    numbers = {reason: at for at, reason in enumerate(known)}
    states = np.arange(256, dtype=np.uint8)
    for at, reason in enumerate(more):
        if reason not in numbers and len(numbers) >= MAX_REASONS - (OTHER not in numbers):
            reason = OTHER
        states[BAD + at] = BAD + numbers.setdefault(reason, len(numbers))
    return tuple(numbers), states
