"""How many resources a policy fired on lately, so that many more than ever are told from the usual."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stoploss.engine.evaluation.evaluator import Episode, RowStatus
from stoploss.engine.history.frame import Frame

DAY = 86400.0
CHANGES = ("fired", "resolved", "left", "lost")


def recent(episodes: Sequence[Episode], rows: Iterable[RowStatus], frame: Frame) -> dict[str, int]:
    """Policy -> the most resources on which it fired at once, in the day before those that fire now began.

    What began more than a day ago is the usual by now. Nothing is said where the frame holds less than
    a day, as nobody knows what was usual then.
    """
    day = round(DAY / frame.resolution)
    if frame.slots < day:
        return {}
    begun: dict[str, int] = {}
    for row in rows:
        name = row.policy.name
        begun.setdefault(name, frame.last + 1)
        if row.state in ("firing", "holding") and row.fired is not None and row.fired > frame.last - day:
            begun[name] = min(begun[name], row.fired)
    changes: dict[str, list[tuple[int, int]]] = {name: [] for name in begun}
    for episode in episodes:
        if episode.policy.name in changes and episode.event in CHANGES:
            changes[episode.policy.name].append((episode.slot, 1 if episode.event == "fired" else -1))
    return {name: _most(sorted(changes[name]), first - day, first) for name, first in begun.items()}


def _most(changes: Iterable[tuple[int, int]], low: int, high: int) -> int:
    """The largest sum so far at any slot from `low` up to but not with `high`."""
    count = most = 0
    for slot, change in changes:
        if slot >= high:
            break
        if slot >= low:
            most = max(most, count)
        count += change
    return max(most, count)
