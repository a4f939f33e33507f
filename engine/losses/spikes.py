"""Spikes of the training loss against a level that freezes while one lasts."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, insort
from dataclasses import dataclass

import bottleneck
import numpy as np
import numpy.typing as npt

from stoploss.engine.losses.clean import Floats, Track, view
from stoploss.engine.losses.model import LossSettings, Spike
from stoploss.engine.losses.statistics import Sums

SMALL = 32
LARGE = 4096
MOST = 50
ROOT_HALF = math.sqrt(0.5)


@dataclass(slots=True)
class Episode:
    """Records in a row that are spikes: first and last position, and the level before them."""

    start: int
    end: int
    level: float


def _median(ordered: list[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def _stay(limit: float, level: float) -> float:
    """The value above which an open spike goes on: it is over half way back to the level."""
    return level + 0.5 * (limit - level)


def _slide(ordered: list[float], behind: array[float], value: float, window: int) -> None:
    """Move a sorted window over the newest values by one."""
    if len(ordered) == window:
        del ordered[bisect_left(ordered, behind[-window])]
    insort(ordered, value)


def _moving(before: array[float], values: Floats, window: int) -> Floats:
    """For each value the median of the window of values before it."""
    # A copy: an array cannot grow while a view of it lives.
    known = np.concatenate((np.array(before[-window:]), values))
    start = min(window, len(before)) - 1
    medians: Floats = bottleneck.move_median(known, min(window, len(known)), min_count=1)[start:-1]
    return medians


class Level:
    """The calm part of a curve: every finite record that is no spike.

    A record is a spike when it lies above the median of the newest calm records by six robust
    standard deviations, by a tenth, and by a fiftieth of where the run began (so that a loss
    near zero may flicker). Spikes never join the calm records, which is what freezes the level.

    Attributes:
        places: positions of the calm records in the track.
        values: their values.
        sums: running sums of them.
        episodes: spikes as runs of neighbouring records, oldest first.
    """

    __slots__ = (
        "_deviations",
        "_lows",
        "_near",
        "_sorted",
        "_sorted_deviations",
        "_told",
        "episodes",
        "places",
        "settings",
        "sums",
        "track",
        "values",
    )

    def __init__(self, track: Track, settings: LossSettings) -> None:
        self.track, self.settings = track, settings
        self.places, self.values = array("q"), array("d")
        self._deviations, self._lows = array("d"), array("d")
        self.sums = Sums()
        self.episodes: list[Episode] = []
        self._sorted: list[float] | None = []
        self._sorted_deviations: list[float] = []
        self._near = -1
        self._told: tuple[Spike, ...] | None = ()

    def update(self, changed: int) -> None:
        """Follow the track, whose records from `changed` on are new."""
        self._cut(changed)
        values = self.track.values
        if len(values) - changed <= SMALL:
            for place in range(changed, len(values)):
                if math.isfinite(values[place]):
                    self._add(place, values[place])
        else:
            self._add_all(changed)

    def median(self) -> float | None:
        """The level at the end of the curve."""
        self._sort()
        return _median(self._sorted) if self._sorted else None

    def low(self) -> float | None:
        """The lowest level that the curve has had over a baseline of records."""
        return self._lows[-1] if self._lows and math.isfinite(self._lows[-1]) else None

    def open(self) -> Episode | None:
        """The spike that the newest finite record belongs to."""
        return self.episodes[-1] if self.episodes and self.episodes[-1].end == self._near else None

    def spikes(self) -> tuple[Spike, ...]:
        """The newest spikes, at most 50, oldest first; those less than five records apart are one."""
        if self._told is None or (self._told and self._told[-1].open):
            self._told = self._tell()
        return self._told

    def _tell(self) -> tuple[Spike, ...]:
        joined: list[list[Episode]] = []
        for episode in self.episodes[-2 * MOST :]:
            if joined and episode.start - joined[-1][-1].end < self.settings.persistent:
                joined[-1].append(episode)
            else:
                joined.append([episode])
        return tuple(self._spike(group) for group in joined[-MOST:])

    def _spike(self, group: list[Episode]) -> Spike:
        track = self.track
        inside = [v for e in group for v in track.values[e.start : e.end + 1] if math.isfinite(v)]
        first, last = group[0], group[-1]
        return Spike(
            step=track.steps[first.start],
            end=track.steps[last.end],
            records=len(inside),
            jump=track.steps[max(group, key=self._height).start],
            peak=max(inside),
            level=first.level,
            open=last.end == self._near,
        )

    def _height(self, episode: Episode) -> float:
        inside = self.track.values[episode.start : episode.end + 1]
        return max(value for value in inside if math.isfinite(value))

    def _limit(self, level: float, deviation: float, count: int) -> float:
        """The value above which a record is a spike; infinite where nothing can be said yet."""
        settings = self.settings
        share = settings.spike_share
        if count < settings.baseline:
            late = self.track.starts_late()
            if count < (1 if late else 3):
                return math.inf
            share = share if late else 5 * share
        scatter = max(1.4826 * deviation, 0.005 * abs(level))
        rise = max(settings.spike_deviations * scatter, share * abs(level), 0.02 * abs(self.values[0]))
        return level + rise

    def _add(self, place: int, value: float) -> None:
        self._sort()
        ordered = self._sorted
        assert ordered is not None
        count = len(self.values)
        level = _median(ordered) if ordered else value
        if count:
            limit = self._limit(level, _median(self._sorted_deviations), count)
            if value > (_stay(limit, level) if self.open() else limit):
                self._spiked(place, level)
                return
        deviation = abs(value - self.values[-1]) * ROOT_HALF if count else 0.0
        _slide(ordered, self.values, value, self.settings.window)
        _slide(self._sorted_deviations, self._deviations, deviation, self.settings.scatter_window)
        low = self._lows[-1] if count else math.inf
        self._lows.append(min(low, level) if count >= self.settings.baseline else low)
        self.places.append(place)
        self.values.append(value)
        self._deviations.append(deviation)
        self.sums.add(value)
        self._near = place

    def _spiked(self, place: int, level: float) -> None:
        self._told = None
        last = self.episodes[-1] if self.episodes else None
        if last is not None and last.end == self._near:
            last.end = place
        else:
            self.episodes.append(Episode(place, place, level))
        self._near = place

    def _add_all(self, changed: int) -> None:
        all_values = view(self.track.values)
        places = changed + np.flatnonzero(np.isfinite(all_values[changed:]))
        values = all_values[places]
        done, size = 0, LARGE
        while len(self.values) < self.settings.baseline and done < len(values):
            self._add(int(places[done]), float(values[done]))
            done += 1
        while done < len(values):
            taken, limit, level = self._add_block(places[done : done + size], values[done : done + size])
            whole = done + taken == min(done + size, len(values))
            done += taken
            if not whole:
                self._spiked(int(places[done]), level)
                done += 1
                while done < len(values) and values[done] > _stay(limit, level):
                    self._spiked(int(places[done]), level)
                    done += 1
            size = min(LARGE, 4 * size) if whole else 128

    def _add_block(self, places: npt.NDArray[np.signedinteger], values: Floats) -> tuple[int, float, float]:
        """Take records up to the first spike: how many, and the limit and level that it broke."""
        settings = self.settings
        levels = _moving(self.values, values, settings.window)
        deviations = np.abs(np.diff(values, prepend=self.values[-1])) * ROOT_HALF
        scatter = _moving(self._deviations, deviations, settings.scatter_window)
        scatter = np.maximum(1.4826 * scatter, 0.005 * np.abs(levels))
        rise = np.maximum(settings.spike_deviations * scatter, settings.spike_share * np.abs(levels))
        limits = levels + np.maximum(rise, 0.02 * abs(self.values[0]))
        over = values > limits
        taken = int(over.argmax()) if over.any() else len(values)
        lows = np.minimum.accumulate(np.concatenate(([self._lows[-1]], levels[:taken])))[1:]
        for column, part in (
            (self.values, values[:taken]),
            (self._deviations, deviations[:taken]),
            (self._lows, lows),
            (self.places, places[:taken].astype(np.int64)),
        ):
            column.frombytes(np.ascontiguousarray(part).tobytes())
        self.sums.extend(values[:taken])
        self._sorted = None
        if taken:
            self._near = int(places[taken - 1])
        if taken == len(values):
            return taken, math.inf, 0.0
        return taken, float(limits[taken]), float(levels[taken])

    def _sort(self) -> None:
        if self._sorted is None:
            self._sorted = sorted(self.values[-self.settings.window :])
            self._sorted_deviations = sorted(self._deviations[-self.settings.scatter_window :])

    def _cut(self, place: int) -> None:
        if self._near < place:
            return
        self._told = None
        keep = bisect_left(self.places, place)
        for column in (self.places, self.values, self._deviations, self._lows):
            del column[keep:]
        self.sums.cut(keep, self.values[-1] if keep else 0.0)
        while self.episodes and self.episodes[-1].start >= place:
            self.episodes.pop()
        self._near = self.places[-1] if keep else -1
        if self.episodes:
            last = self.episodes[-1]
            while last.end >= place or not math.isfinite(self.track.values[last.end]):
                last.end -= 1
            self._near = max(self._near, last.end)
        self._sorted = None
