"""Looks of nodes that came after their slots were sealed, put into these slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from stoploss.engine.history.frame import sealed_slot, slot_of
from stoploss.engine.history.looks import Kept
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.history.window import Window
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import catalogue

PIECE = 6 * 3600.0
"""Seconds of a node's looks that are put into their slots at once."""

Read = Callable[[float, float], Iterable[Kept]]


def put(buffer: SampleBuffer, kept: Kept) -> None:
    """Give a look, or why it failed, to a buffer."""
    if kept.look is None:
        why = kept.failure or "failed"
        buffer.add_failure(kept.collector, kept.at, why, node=kept.node, every=kept.every)
    else:
        buffer.add(kept.collector, kept.look, slot_time=kept.at, node=kept.node, every=kept.every)


def fill(
    read: Read,
    node: str,
    span: tuple[float, float],
    windows: Mapping[float, Window],
    most: Mapping[float, int],
) -> None:
    """Make the slots of a node's looks again, and put them where they are stored.

    Args:
        read: the node's looks from one instant to another, and as much before the first as a slot needs.
        node: whose.
        span: the oldest look that is in no slot yet, and the newest look, in seconds since the epoch.
        windows: resolution -> slots.
        most: resolution -> the newest slot that may change; slots of other resolutions stay.

    Raises:
        StoreError: they cannot be read or written.
    """
    begin, end = span
    first = {resolution: slot_of(begin, resolution) for resolution in most}
    while begin <= end:
        buffer = SampleBuffer(catalogue(), {})
        for kept in read(begin, begin + PIECE):
            put(buffer, kept)
        begin += PIECE
        for resolution, last in most.items():
            frame = buffer.frame(resolution, begin if begin <= end else None)
            low, high = max(first[resolution], frame.first), min(frame.last, last)
            if frame.slots and low <= high:
                window = windows[resolution]
                window.fill(frame.cut(low, high), partial(_alone, window, node))
        first = {resolution: sealed_slot(begin, resolution) + 1 for resolution in most}


def _alone(window: Window, node: str, resource: ResourceId) -> bool:
    return window.nodes(resource) in (None, (node,))
