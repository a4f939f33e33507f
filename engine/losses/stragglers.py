"""Workers of one job that became slower than the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stoploss.engine.losses.clean import Floats


@dataclass(frozen=True, slots=True)
class Straggler:
    """One worker that fell behind its own past and its peers.

    Attributes:
        worker: its name.
        since: the time from which it is slow, in the unit of the input.
        factor: its step time now against its own median before.
        lasting: whether it is still slow at the end.
    """

    worker: str
    since: float
    factor: float
    lasting: bool


def stragglers(
    workers: Mapping[str, tuple[Floats, Floats]], *, factor: float = 1.5, parts: int = 96
) -> tuple[Straggler, ...]:
    """Workers whose step time rose by `factor` against their own past while their peers' did not.

    Each worker gives times (rising) and step times. A worker that was slow from the beginning
    is no news: groups of unlike GPUs differ throughout. The span of all is cut into `parts`, of
    which two neighbours must agree, so that a single slow batch is none.
    """
    known = {name: pair for name, pair in workers.items() if len(pair[0])}
    if len(known) < 2:
        return ()
    first = min(float(times[0]) for times, _ in known.values())
    last = max(float(times[-1]) for times, _ in known.values())
    edges = np.linspace(first, last, parts + 1)
    table = {name: _medians(times, spent, edges) for name, (times, spent) in known.items()}
    found = [_slow(name, table, factor, edges) for name in table]
    return tuple(item for item in found if item is not None)


def _medians(times: Floats, spent: Floats, edges: Floats) -> Floats:
    cuts = np.searchsorted(times, edges[1:-1])
    parts = np.split(spent, cuts)
    return np.array([np.median(part) if len(part) else np.nan for part in parts])


def _slow(name: str, table: Mapping[str, Floats], factor: float, edges: Floats) -> Straggler | None:
    own = table[name]
    seen = own[np.isfinite(own)]
    quiet = float(np.median(seen[: max(1, len(seen) // 2)]))
    if quiet <= 0:
        return None
    relative = own / quiet
    others = np.array([column / _calm(column) for other, column in table.items() if other != name])
    slow = (relative > factor) & (relative > factor * _across(others))
    # Start-up says nothing: who is slow there has no past yet.
    slow[: len(slow) // 16] = False
    lasting = slow[:-1] & slow[1:]
    if not lasting.any():
        return None
    start = int(lasting.argmax())
    end = start
    while end < len(slow) and (slow[end] or not np.isfinite(own[end])):
        end += 1
    return Straggler(name, float(edges[start]), float(np.nanmax(relative[start:end])), end == len(slow))


def _calm(column: Floats) -> float:
    seen = column[np.isfinite(column)]
    return float(np.median(seen[: max(1, len(seen) // 2)])) or np.nan


def _across(others: Floats) -> Floats:
    """Median of the peers in each part; 1 where none ran."""
    middle = np.ones(others.shape[1])
    for part in range(others.shape[1]):
        seen = others[:, part][np.isfinite(others[:, part])]
        if len(seen):
            middle[part] = np.median(seen)
    return middle
