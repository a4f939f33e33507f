"""What the nodes of all policies of one resolution share while a block is evaluated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from stoploss.engine.evaluation import windows
from stoploss.engine.evaluation.columns import World
from stoploss.engine.evaluation.kleene import Bools
from stoploss.engine.evaluation.series import NEVER, Ring, SeriesState
from stoploss.engine.history.frame import LOOKED, Frame
from stoploss.engine.history.nodes import collector_of, keys_of
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Catalogue, Signal

N = TypeVar("N", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Tellers:
    """Which machines told of each of some resources: distinct sets of machines, and each one's set."""

    sets: tuple[tuple[str, ...], ...]
    of: npt.NDArray[np.intp]

    @classmethod
    def gather(cls, world: World, resources: Iterable[ResourceId]) -> Tellers:
        """Those of resources, in their order."""
        sets: dict[tuple[str, ...], int] = {}
        of = [sets.setdefault(world.nodes(resource), len(sets)) for resource in resources]
        return cls(tuple(sets), np.array(of, dtype=np.intp))


class Lookout:
    """In which slots a collector had looked: its newest look succeeded and is fresh.

    On each machine by itself: this one's is the first column, those of nodes follow as they come.
    """

    def __init__(self, collector: str, capacity: int) -> None:
        self.collector = collector
        self.ring: Ring[np.bool_] = Ring(capacity, 1, np.bool_(False))
        self.keys: dict[str, int] = {collector: 0}
        self._here = False
        self._slot = np.full(1, NEVER, dtype=np.int64)
        self._good = np.zeros(1, dtype=np.bool_)
        self._cadence = np.ones(1, dtype=np.int64)
        self.out: Bools = np.zeros((0, 1), dtype=np.bool_)

    def push(self, first: int, slots: int, frame: Frame | None) -> None:
        """Take the collector's looks of the next block."""
        looks = np.zeros((slots, len(self.keys)), dtype=np.uint8)
        if frame is not None:
            self._here = self._here or self.collector in frame.looks
            self._widen(frame)
            looks = np.zeros((slots, len(self.keys)), dtype=np.uint8)
            for key, at in self.keys.items():
                self._cadence[at] = frame.look_cadence.get(key, 1)
                if key in frame.looks:
                    looks[:, at] = frame.looks[key][:slots]
        index = np.arange(first, first + slots, dtype=np.int64)[:, None]
        newest = np.maximum.accumulate(np.where(looks > 0, index, self._slot), axis=0)
        rows = np.clip(newest - first, 0, max(slots - 1, 0))
        inside = np.take_along_axis(looks, rows, axis=0) == LOOKED if slots else looks == LOOKED
        good = np.where(newest >= first, inside, self._good)
        if slots:
            self._slot, self._good = newest[-1], good[-1]
        self.out = good & (index - newest < self._cadence)
        self.ring.push(first, self.out)

    def _widen(self, frame: Frame) -> None:
        """Make room for the machines that look for the first time."""
        fresh = [key for key in frame.looks if collector_of(key) == self.collector and key not in self.keys]
        if fresh:
            self.keys |= {key: len(self.keys) + at for at, key in enumerate(fresh)}
            self.ring.widen(len(self.keys))
            more = len(fresh)
            self._slot = np.concatenate([self._slot, np.full(more, NEVER, dtype=np.int64)])
            self._good = np.concatenate([self._good, np.zeros(more, dtype=np.bool_)])
            self._cadence = np.concatenate([self._cadence, np.ones(more, dtype=np.int64)])

    def looked(self, first: int, last: int, window: int, need: int) -> Bools:
        """Per slot and machine: looked in it and in at least `need` slots of the window that ends there."""
        past = self.ring.read(first - window + 1, last).astype(np.int64)
        total = np.concatenate([np.zeros((1, past.shape[1]), dtype=np.int64), np.cumsum(past, axis=0)])
        counts = total[window:] - total[:-window]
        return np.asarray((counts >= need) & self.out)

    def spread(self, by_machine: Bools, tellers: Tellers) -> Bools:
        """What is so of each machine, of resources: so of all machines that told of one and have this
        collector."""
        if len(self.keys) == 1:
            return by_machine
        known = self.keys if self._here else [key for key in self.keys if key != self.collector]
        parts = []
        for nodes in tellers.sets:
            places = [self.keys[key] for key in keys_of(self.collector, nodes, known)]
            parts.append(by_machine[:, places].all(axis=1) & bool(places))
        if not parts:
            return np.zeros((len(by_machine), 0), dtype=np.bool_)
        return np.stack(parts, axis=1)[:, tellers.of]


class Mapper:
    """From a signal's series to the columns of a kind."""

    def __init__(self, context: Context, signal: Signal, level: str) -> None:
        self.context, self.signal, self.level = context, signal, level
        self.index: npt.NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self.missing: Bools = np.zeros(0, dtype=np.bool_)
        self.identity = False

    def refresh(self) -> None:
        """Find each column's series again after new resources or series."""
        places = {
            resource: at for at, resource in enumerate(self.context.resources.get(self.signal.name, ()))
        }
        columns = self.context.world.tables[self.level].columns
        index = np.array([places.get(column.resource, -1) for column in columns], dtype=np.intp)
        self.missing = index < 0
        self.index = np.where(self.missing, 0, index)
        self.identity = len(index) == len(places) and bool((index == np.arange(len(index))).all())

    def take(self, array: npt.NDArray[N], missing: Any) -> npt.NDArray[N]:
        """Series -> columns along the last axis; `missing` where a column has no such series."""
        if self.identity:
            return array
        if array.shape[1] == 0:
            return np.full((array.shape[0], len(self.index)), missing, dtype=array.dtype)
        out = np.take(array, self.index, axis=1)
        if self.missing.any():
            out[:, self.missing] = missing
        return out


class Context:
    """Series, windows and columns of one resolution; nodes register what they need here."""

    def __init__(self, catalogue: Catalogue, resolution: float, capacity: int, percent: int) -> None:
        self.catalogue, self.resolution, self.capacity, self.percent = (
            catalogue,
            resolution,
            capacity,
            percent,
        )
        self.world = World()
        self.series: dict[str, SeriesState] = {}
        self.lookouts: dict[str, Lookout] = {}
        self.resources: dict[str, tuple[ResourceId, ...]] = {}
        self.own_rings: list[Ring[Any]] = []
        self.first = self.last = 0
        self._windows: dict[tuple[object, ...], windows.State] = {}
        self._mappers: dict[tuple[str, str], Mapper] = {}
        self._mature: dict[tuple[str, int], Bools | None] = {}
        self._tellers: dict[str, tuple[tuple[int, int], Tellers]] = {}

    def resize(self, capacity: int, last: int) -> None:
        """Let the rings keep `capacity` slots, among them the newest up to `last`."""
        self.capacity = capacity
        rings = [ring for series in self.series.values() for ring in series.rings()]
        rings += [lookout.ring for lookout in self.lookouts.values()]
        for ring in [*rings, *self.own_rings]:
            ring.resize(capacity, last)

    def slots(self, seconds: float) -> int:
        """Whole slots of a duration, at least one."""
        return max(1, -int(-(seconds / self.resolution - 1e-9) // 1))

    def series_of(self, signal: Signal) -> SeriesState:
        """The state of a signal."""
        if signal.name not in self.series:
            self.series[signal.name] = SeriesState(signal, self.capacity)
        return self.series[signal.name]

    def lookout(self, signal: Signal) -> Lookout:
        """The state of the collector that provides a signal."""
        if signal.collector not in self.lookouts:
            self.lookouts[signal.collector] = Lookout(signal.collector, self.capacity)
        return self.lookouts[signal.collector]

    def tellers(self, level: str) -> Tellers:
        """Which machines told of the resource of each column of a kind."""
        columns = self.world.tables[level].columns
        return self._told(level, len(columns), (column.resource for column in columns))

    def tellers_of(self, signal: Signal) -> Tellers:
        """Which machines told of the resource of each series of a signal."""
        series = self.resources.get(signal.name, ())
        return self._told(f"{signal.name} ", len(series), series)

    def _told(self, name: str, count: int, resources: Iterable[ResourceId]) -> Tellers:
        mark = self.world.version, count
        if name not in self._tellers or self._tellers[name][0] != mark:
            self._tellers[name] = mark, Tellers.gather(self.world, resources)
        return self._tellers[name][1]

    def mapper(self, signal: Signal, level: str) -> Mapper:
        """The way from a signal's series to the columns of a kind."""
        key = (signal.name, level)
        if key not in self._mappers:
            self._mappers[key] = Mapper(self, signal, level)
        return self._mappers[key]

    def covered(self, signal: Signal, window: int) -> windows.CoveredCount:
        """Covered slots of a window."""
        return self._window(
            windows.CoveredCount, ("covered", signal.name, window), self.series_of(signal), window
        )

    def valid(self, signal: Signal, window: int) -> windows.ValidCount:
        """Valid samples of a window."""
        covered = self.covered(signal, window)
        key = ("valid", signal.name, window)
        return self._window(windows.ValidCount, key, self.series_of(signal), window, covered)

    def known(self, signal: Signal, window: int) -> windows.KnownWindow:
        """Whether a window is known, age apart."""
        covered, valid = self.covered(signal, window), self.valid(signal, window)
        return self._window(
            windows.KnownWindow,
            ("known", signal.name, window),
            self.series_of(signal),
            covered,
            valid,
            self.percent,
        )

    def passing(self, signal: Signal, window: int, op: str, threshold: float) -> windows.ValueCount:
        """Samples of a window on one side of a constant (in the signal's own unit)."""
        key = ("passing", signal.name, window, op, threshold)
        return self._window(
            windows.ValueCount, key, self.series_of(signal), window, windows.beyond(op, threshold)
        )

    def bad(self, signal: Signal, window: int) -> windows.BadCount:
        """Bad readings of a window."""
        series = self.series_of(signal)
        series.want_bad()
        return self._window(windows.BadCount, ("bad", signal.name, window), series, window)

    def total(self, signal: Signal, window: int, *, increase: bool) -> windows.SumWindow:
        """Sum over a window."""
        series = self.series_of(signal)
        if increase:
            series.want_increase()
        return self._window(
            windows.SumWindow, ("sum", signal.name, window, increase), series, window, increase
        )

    def extreme(self, signal: Signal, window: int, *, largest: bool) -> windows.ExtremeWindow:
        """Minimum or maximum over a window."""
        key = ("extreme", signal.name, window, largest)
        return self._window(windows.ExtremeWindow, key, self.series_of(signal), window, largest)

    def quantile(self, signal: Signal, window: int, thousandths: int) -> windows.QuantileWindow:
        """Nearest-rank quantile over a window."""
        key = ("quantile", signal.name, window, thousandths)
        valid = self.valid(signal, window)
        return self._window(windows.QuantileWindow, key, self.series_of(signal), window, valid, thousandths)

    def _window(self, kind: type[windows.S], key: tuple[object, ...], *arguments: object) -> windows.S:
        if key not in self._windows:
            self._windows[key] = kind(*arguments)
        state = self._windows[key]
        assert isinstance(state, kind)
        return state

    def update(self, frame: Frame) -> bool:
        """Take over new resources and series; whether columns may have moved or grown."""
        changed = self.world.update(frame)
        for name, series in self.series.items():
            plane = frame.planes.get(name)
            if plane is not None and plane.series is not self.resources.get(name):
                changed = changed or plane.series != self.resources.get(name)
                self.resources[name] = plane.series
            series.widen(plane)
        if changed:
            for mapper in self._mappers.values():
                mapper.refresh()
        return changed

    def push(self, first: int, slots: int, frame: Frame | None) -> None:
        """Take the next block into series, lookouts and windows (in the order of their making)."""
        self.first, self.last = first, first + slots - 1
        self._mature.clear()
        for name, series in self.series.items():
            series.push(first, slots, frame.planes.get(name) if frame else None)
        for lookout in self.lookouts.values():
            lookout.push(first, slots, frame)
        for state in self._windows.values():
            state.advance()

    def mature(self, level: str, window: int) -> Bools | None:
        """Which columns are at least as old as a window, per slot; None when all are."""
        key = (level, window)
        if key not in self._mature:
            born = self.world.tables[level].start
            if not len(born) or int(born.max()) + window - 1 <= self.first:
                self._mature[key] = None
            else:
                self._mature[key] = self.index() - born[None, :] + 1 >= window
        return self._mature[key]

    def index(self) -> npt.NDArray[np.int64]:
        """The slots of the block as a column."""
        return np.arange(self.first, self.last + 1, dtype=np.int64)[:, None]
