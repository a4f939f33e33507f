"""Everything that was read, sorted once, ready to be folded for any resolution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stoploss.engine.history.cadence import median_gaps
from stoploss.engine.history.frame import BAD, MAX_REASONS, Bytes, Floats, Ints
from stoploss.engine.history.labels import Statements
from stoploss.engine.history.rows import OTHER, Block, Rows
from stoploss.engine.history.slots import Longs, Readings
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Signal

_SMALL = 1 << 16
"""Up to this many keys numpy sorts in linear time."""


@dataclass(frozen=True, slots=True)
class Material:
    """Readings of all signals.

    Attributes:
        resources: every resource; `members` and `statements` index it.
        readings: per signal, in order of names.
        members: per signal, the resource index of each series.
        statements: what was said about labels.
        reasons: bad-reading reasons, indexed by status - BAD.
        given: signal -> seconds between two looks of each series where they were given, else NaN.
    """

    resources: tuple[ResourceId, ...]
    readings: Mapping[str, Readings]
    members: Mapping[str, Ints]
    statements: Statements
    reasons: tuple[str, ...]
    given: Mapping[str, Floats]

    @property
    def count(self) -> int:
        """How many readings there are."""
        return sum(len(readings.times) for readings in self.readings.values())


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which columns there are: per rank of a series its signal and its resource's index."""

    resources: tuple[ResourceId, ...]
    signals: tuple[Signal, ...]
    signal_of: Longs
    owner_of: Longs
    rank_of: Ints


def build(rows: Rows, blocks: list[Block], *, ordered: bool) -> Material:
    """Sort the rows of all blocks; of two rows of one series and instant the later one stays.

    Args:
        rows: the numbers that the blocks use.
        blocks: the rows in order of arrival; emptied, so that their memory can go.
        ordered: number resources, words and reasons by their names, so that the result does
            not depend on the order of arrival; else by first appearance, so that what is built
            later only adds at the end.
    """
    block = _joined(blocks)
    layout = _layout(rows, np.flatnonzero(np.bincount(block.series)), ordered=ordered)
    ranks = layout.rank_of[block.series]
    statements = _statements(rows, block, layout.owner_of[ranks])
    given = np.full(len(layout.signal_of), np.nan)
    if block.every is not None:
        np.fmax.at(given, ranks, block.every)

    order = _sorting(ranks, block.times, len(layout.signal_of))
    ranks, times = ranks[order], block.times[order]
    newest = (np.diff(ranks, append=-1) != 0) | (np.diff(times, append=np.inf) != 0)
    if not newest.all():
        order, ranks, times = order[newest], ranks[newest], times[newest]
    values, states = block.values[order], block.states[order]
    del block, order
    reasons, status = _reasons(list(rows.reasons), states, ordered=ordered)

    table = _Sorted(times, ranks, values, status)
    return _parted(rows, layout, table, given, (statements, reasons, ordered))


@dataclass(frozen=True, slots=True)
class _Sorted:
    times: Floats
    ranks: Ints
    values: Floats
    status: Bytes


def _parted(
    rows: Rows, layout: _Layout, table: _Sorted, given: Floats, rest: tuple[Statements, tuple[str, ...], bool]
) -> Material:
    """The rows of each signal by themselves."""
    statements, reasons, ordered = rest
    readings: dict[str, Readings] = {}
    members: dict[str, Ints] = {}
    given_of: dict[str, Floats] = {}
    kind_of = np.unique([resource.kind for resource in layout.resources], return_inverse=True)[1]
    bounds = np.searchsorted(layout.signal_of, np.arange(len(layout.signals) + 1)).tolist()
    for signal, low, high in zip(layout.signals, bounds[:-1], bounds[1:], strict=True):
        part = slice(*np.searchsorted(table.ranks, (low, high)))
        owners = layout.owner_of[low:high]
        times, series = table.times[part], (table.ranks[part] - low).astype(np.int32)
        numbers, words = _words(rows, signal, table.values[part], ordered=ordered)
        seconds = median_gaps(times, series, kind_of[owners])
        seconds = np.where(np.isnan(given[low:high]), seconds, given[low:high])
        names = tuple(layout.resources[owner] for owner in owners)
        readings[signal.name] = Readings(
            signal, names, times, series, numbers, table.status[part], words, seconds
        )
        members[signal.name] = owners.astype(np.int32)
        given_of[signal.name] = given[low:high]
    return Material(layout.resources, readings, members, statements, reasons, given_of)


def _joined(blocks: list[Block]) -> Block:
    """One block of all; columns are let go one by one, so that they do not lie in memory twice."""
    times, series = [b.times for b in blocks], [b.series for b in blocks]
    values, states = [b.values for b in blocks], [b.states for b in blocks]
    sets = [b.sets for b in blocks]
    every: list[Floats] = []
    if any(b.every is not None for b in blocks):
        every = [np.full(len(b.times), np.nan) if b.every is None else b.every for b in blocks]
    blocks.clear()
    return Block(
        _floats(times),
        _ints(series),
        _floats(values),
        _ints(states),
        _ints(sets),
        _floats(every) if every else None,
    )


def _floats(parts: list[Floats]) -> Floats:
    joined = np.concatenate([np.empty(0), *parts])
    parts.clear()
    return joined


def _ints(parts: list[Ints]) -> Ints:
    joined = np.concatenate([np.empty(0, np.int32), *parts])
    parts.clear()
    return joined


def _layout(rows: Rows, used: Longs, *, ordered: bool) -> _Layout:
    owners = np.array(rows.resource_of, np.int64)[used]
    names = tuple(rows.resources)
    seen = [(names[owner], int(owner)) for owner in np.unique(owners)]
    if ordered:
        seen.sort()
    index_of = np.empty(len(names), np.int64)
    index_of[[owner for _, owner in seen]] = np.arange(len(seen))
    index = index_of[owners]

    signals = {rows.signal_of[number].name: rows.signal_of[number] for number in used}
    place = {name: number for number, name in enumerate(sorted(signals))}
    signal_of = np.array([place[rows.signal_of[number].name] for number in used], np.int64)
    ranking = np.lexsort((index if ordered else used, signal_of))
    rank_of = np.empty(len(rows.signal_of), np.int32)
    rank_of[used[ranking]] = np.arange(len(used))
    return _Layout(
        tuple(name for name, _ in seen),
        tuple(signals[name] for name in sorted(signals)),
        signal_of[ranking],
        index[ranking],
        rank_of,
    )


def _sorting(keys: Ints | Longs, times: Floats, count: int) -> Longs:
    """The order by key, then time, then arrival."""
    small = keys.astype(np.uint16) if count <= _SMALL else keys
    if len(times) and (times[1:] >= times[:-1]).all():
        return np.argsort(small, kind="stable")
    by_time = np.argsort(times, kind="stable")
    return by_time[np.argsort(small[by_time], kind="stable")]


def _statements(rows: Rows, block: Block, owners: Longs) -> Statements:
    """What was said about labels; a resource of which one thing was said all along needs it once."""
    sets, times = block.sets, block.times
    said = sets >= 0
    if not said.all():
        owners, sets, times = owners[said], sets[said], times[said]
    count = int(owners.max(initial=-1)) + 1
    lowest, highest = np.full(count, len(rows.label_sets), np.int32), np.full(count, -1, np.int32)
    earliest = np.full(count, np.inf)
    np.minimum.at(lowest, owners, sets)
    np.maximum.at(highest, owners, sets)
    np.minimum.at(earliest, owners, times)
    steady = np.flatnonzero(lowest == highest)
    mixed = np.flatnonzero((lowest < highest)[owners])
    owners = np.concatenate((steady, owners[mixed]))
    sets = np.concatenate((lowest[steady], sets[mixed]))
    times = np.concatenate((earliest[steady], times[mixed]))
    order = _sorting(owners, times, count)
    return Statements(times[order], owners[order].astype(np.int32), sets[order], tuple(rows.label_sets))


def _reasons(names: list[str], states: Ints, *, ordered: bool) -> tuple[tuple[str, ...], Bytes]:
    """The reasons that occur, and states as status bytes; beyond the limit reasons share one."""
    bad = states >= BAD
    counts = np.bincount(states[bad] - BAD, minlength=len(names))
    kept = [int(number) for number in np.flatnonzero(counts)]
    overflow = len(kept) > MAX_REASONS
    if overflow:
        if ordered:
            kept.sort(key=lambda number: (-counts[number], names[number]))
        kept = [number for number in kept[: MAX_REASONS - 1] if names[number] != OTHER]
    if ordered:
        kept.sort(key=lambda number: names[number])
    target = np.full(len(names), BAD + len(kept), np.uint8)
    target[kept] = BAD + np.arange(len(kept), dtype=np.uint8)
    status = states.astype(np.uint8)
    status[bad] = target[states[bad] - BAD]
    return (*(names[number] for number in kept), *([OTHER] if overflow else [])), status


def _words(rows: Rows, signal: Signal, values: Floats, *, ordered: bool) -> tuple[Floats, tuple[str, ...]]:
    """Values of a text signal as indexes into its own words."""
    if not signal.is_text:
        return values, ()
    valid = ~np.isnan(values)
    used, inverse = np.unique(values[valid].astype(np.int64), return_inverse=True)
    listed = list(rows.words)
    words = [listed[number][1] for number in used]
    order = sorted(range(len(words)), key=words.__getitem__) if ordered else list(range(len(words)))
    place = np.empty(len(words))
    place[order] = np.arange(len(words))
    numbers = np.full(len(values), np.nan)
    numbers[valid] = place[inverse]
    return numbers, tuple(words[index] for index in order)
