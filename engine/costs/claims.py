"""Claims of findings on what is billed, settled so that nothing is counted twice.

A leaf is what a bill names: a GPU, an instance, a volume. Leaves nest: a MIG slice lies in
its GPU, a GPU in its instance. At every instant a leaf is granted to the largest claim on it,
and a leaf that holds others to the larger of its own claim and what its parts come to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from stoploss.engine.model import ResourceId

Floats = npt.NDArray[np.float64]
Parents = Mapping[ResourceId, ResourceId]
"""Leaf -> the leaf whose bill holds it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one finding says is lost of one leaf.

    Attributes:
        leaf: what is billed.
        per_hour: money per hour during `spans`.
        spans: (from, to) in seconds since the epoch, not overlapping.
        now: money per hour at the newest instant; 0 where it is over.
        kind: price kind.
    """

    leaf: ResourceId
    per_hour: float
    spans: tuple[tuple[float, float], ...]
    now: float
    kind: str = "on-demand"


@dataclass(frozen=True, slots=True)
class Granted:
    """What a claim is granted: money per hour now, and money so far."""

    now: float = 0.0
    so_far: float = 0.0


def settle(claims: Sequence[Claim], parents: Parents) -> list[Granted]:
    """What each claim is granted; of equal claims the first one wins."""
    roots: dict[ResourceId, list[int]] = {}
    for number, claim in enumerate(claims):
        roots.setdefault(_root(claim.leaf, parents), []).append(number)
    granted = [Granted()] * len(claims)
    for numbers in roots.values():
        mine = [claims[number] for number in numbers]
        now = _now(mine, parents)
        so_far = _so_far(mine, parents)
        for at, number in enumerate(numbers):
            granted[number] = Granted(float(now[at]), float(so_far[at]))
    return granted


def joined(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """The same claims in order; those on one leaf at one price are one, and so are stretches that meet."""
    spans: dict[Claim, list[tuple[float, float]]] = {}
    for claim in claims:
        spans.setdefault(replace(claim, spans=(), now=0.0), []).extend(claim.spans)
    return tuple(replace(claim, spans=tuple(_met(sorted(mine)))) for claim, mine in spans.items())


def _met(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    out: list[tuple[float, float]] = []
    for begin, end in spans:
        if out and begin <= out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((begin, end))
    return out


def total(granted: Iterable[Granted]) -> Granted:
    """The sum of what was granted."""
    items = list(granted)
    return Granted(sum(item.now for item in items), sum(item.so_far for item in items))


def _root(leaf: ResourceId, parents: Parents) -> ResourceId:
    return _line(leaf, parents)[-1]


def _line(leaf: ResourceId, parents: Parents) -> list[ResourceId]:
    """A leaf and all that hold it; a circle in the labels ends where it began."""
    line = [leaf]
    while line[-1] in parents and parents[line[-1]] not in line:
        line.append(parents[line[-1]])
    return line


def _now(claims: Sequence[Claim], parents: Parents) -> Floats:
    tree = _Tree(claims, parents, 1)
    for number, claim in enumerate(claims):
        tree.claim(number, slice(0, 1), claim.now)
    return tree.granted(np.ones(1))


def _so_far(claims: Sequence[Claim], parents: Parents) -> Floats:
    edges = np.unique([edge for claim in claims for span in claim.spans for edge in span])
    if len(edges) < 2:
        return np.zeros(len(claims))
    tree = _Tree(claims, parents, len(edges) - 1)
    for number, claim in enumerate(claims):
        for start, end in claim.spans:
            low, high = np.searchsorted(edges, (start, end))
            tree.claim(number, slice(int(low), int(high)), claim.per_hour)
    return tree.granted(np.diff(edges) / 3600.0)


class _Tree:
    """The leaves under one root, and who claims most of each in every interval."""

    def __init__(self, claims: Sequence[Claim], parents: Parents, intervals: int) -> None:
        self.claims, self.intervals = claims, intervals
        self.parts: dict[ResourceId, set[ResourceId]] = {}
        self.best: dict[ResourceId, Floats] = {}
        self.winner: dict[ResourceId, npt.NDArray[np.intp]] = {}
        for claim in claims:
            line = _line(claim.leaf, parents)
            for leaf in line:
                self.best.setdefault(leaf, np.zeros(intervals))
                self.winner.setdefault(leaf, np.zeros(intervals, dtype=np.intp))
            for part, whole in pairwise(line):
                self.parts.setdefault(whole, set()).add(part)
            self.root = line[-1]

    def claim(self, number: int, where: slice, per_hour: float) -> None:
        """Raise the best claim on a leaf in some intervals."""
        leaf = self.claims[number].leaf
        better = self.best[leaf][where] < per_hour
        self.best[leaf][where][better] = per_hour
        self.winner[leaf][where][better] = number

    def granted(self, hours: Floats) -> Floats:
        """Money per claim, over intervals of so many hours."""
        out = np.zeros(len(self.claims))
        self._grant(self.root, np.ones(self.intervals, dtype=np.bool_), hours, out)
        return out

    def _worth(self, leaf: ResourceId) -> Floats:
        return np.maximum(self.best[leaf], self._worth_of_parts(leaf))

    def _worth_of_parts(self, leaf: ResourceId) -> Floats:
        worth = np.zeros(self.intervals)
        for part in sorted(self.parts.get(leaf, ())):
            worth += self._worth(part)
        return worth

    def _grant(self, leaf: ResourceId, open_: npt.NDArray[np.bool_], hours: Floats, out: Floats) -> None:
        own = open_ & (self.best[leaf] >= self._worth_of_parts(leaf))
        money = np.where(own, self.best[leaf] * hours, 0.0)
        out += np.bincount(self.winner[leaf], weights=money, minlength=len(out))
        for part in sorted(self.parts.get(leaf, ())):
            self._grant(part, open_ & ~own, hours, out)
