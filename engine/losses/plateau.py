"""Training losses that get nowhere: flat, oscillating, or slowly rising."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from stoploss.engine.losses.model import LossSettings
from stoploss.engine.losses.spikes import Episode, Level
from stoploss.engine.losses.statistics import Sums, Trend

PARTS = 16
RECENT = 32
SLOW, SAW = 0.7, 0.4
"""Correlations of neighbouring records beyond which swings, slow ones or jumps, are no noise.

Batches that are alike make neighbours alike too, up to about 0.6; no data makes them opposite.
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a stretch of calm records looks like; `start` counts calm records."""

    verdict: str
    start: int
    evidence: tuple[str, ...]


def trend(level: Level, settings: LossSettings) -> Trend | None:
    """The trend of the last half of a run; None while that half is too short."""
    count = len(level.sums)
    start = count // 2
    if count - start < settings.trend_points:
        return None
    return level.sums.trend(start, count)


def no_progress(level: Level, half: Trend | None, settings: LossSettings) -> Shape | None:
    """Whether the loss oscillates or is flat; None where it falls or cannot be told."""
    if half is None or not half.mean or not math.isfinite(half.mean):
        return None
    thrown = _above_start(level, half, settings) or _spiky(level, half, settings)
    if thrown is not None:
        return thrown
    if half.score >= settings.significance and not practically_flat(half, settings):
        return None
    return _oscillating(level, half, settings) or _flat(level, half, settings)


def rising(level: Level, settings: LossSettings) -> Shape | None:
    """A level that has crept up from the lowest it has had, too slowly for a spike."""
    count, sums, low = len(level.sums), level.sums, level.low()
    if low is None or count < 2 * RECENT:
        return None
    start = count - RECENT
    now = sums.mean(start, count)
    rise = now - low
    least = max(0.2 * abs(low), 0.02 * abs(level.values[0]))
    if rise < least or rise < least + 4 * sums.deviation(start, count) / math.sqrt(RECENT):
        return None
    if sums.trend(max(0, count - 4 * RECENT), count).score > -1.0:
        return None
    size = RECENT // 2
    while start > size and sums.mean(start - size, start) > low + 0.1 * abs(low):
        start -= size
    word = "diverged" if rise > abs(low) else "degrading"
    text = f"training loss has risen from {low:.4g} to {now:.4g} ({rise / abs(low) if low else 1:+.0%})"
    return Shape(word, start, (text,))


def practically_flat(half: Trend, settings: LossSettings) -> bool:
    """Whether a fall, though certain, is too small to be worth its price."""
    return half.fall + 2 * half.error < settings.flat_share / 20 * abs(half.mean)


def _oscillating(level: Level, half: Trend, settings: LossSettings) -> Shape | None:
    sums, count = level.sums, len(level.sums)
    start = count // 2
    scatter, points = sums.deviation(start, count), count - start
    size = max(settings.swing_share * abs(half.mean), 0.02 * abs(level.values[0]))
    if scatter < size:
        return None
    linked = sums.neighbours(start, count)
    calm = _calmest(sums, start)
    evidence = [
        f"the last {points} records scatter by {scatter / abs(half.mean):.0%} of their mean",
        _fall(half),
    ]
    if calm is not None and scatter > 3 * calm:
        evidence.append(f"that is {scatter / calm:.1f} times the scatter that this run had before")
    elif linked > max(SLOW, 4 / math.sqrt(points)) or -linked > max(SAW, 4 / math.sqrt(points)):
        kind = "swing slowly" if linked > 0 else "jump up and down"
        evidence.append(f"neighbouring records {kind} (correlation {linked:+.2f}), unlike noise")
    else:
        return None
    return Shape("oscillating", _began(sums, start, scatter), tuple(evidence))


def _above_start(level: Level, half: Trend, settings: LossSettings) -> Shape | None:
    """A loss that swings above its very first record: the steps throw it about, however it drifts."""
    sums, count = level.sums, len(level.sums)
    start, first = count // 2, level.values[0]
    scatter, points = sums.deviation(start, count), count - start
    clear = max(0.1 * abs(first), 1.5 * scatter)
    if half.mean < first + clear or scatter < settings.swing_share * abs(half.mean):
        return None
    linked = sums.neighbours(start, count)
    if abs(linked) < 3 / math.sqrt(points):
        return None
    swing = scatter / abs(half.mean)
    text = f"training loss swings by {swing:.0%} around {half.mean:.4g}, above its first {first:.4g}"
    unlike = f"neighbouring records are correlated ({linked:+.2f}), unlike noise"
    return Shape("oscillating", 0, (text, unlike))


def _spiky(level: Level, half: Trend, settings: LossSettings) -> Shape | None:
    """A tenth of the records in spikes: of some length, or many of them while the calm ones do not fall."""
    if len(level.episodes) < 3:
        return None
    start = len(level.sums) // 2
    share = _spike_share(level, start)
    if share < 0.1:
        return None
    bursts = sum(1 for _ in _bursts(level, start))
    if not (swings(level, settings) or (bursts >= 5 and half.score < settings.significance)):
        return None
    text = f"{share:.0%} of the records of the last half of the run lie in {bursts} separate spikes"
    return Shape("oscillating", start, (text, _fall(half)))


def swings(level: Level, settings: LossSettings) -> bool:
    """Whether the last half of a run went up for long and came back again and again."""
    lasting = (e for e in _bursts(level, len(level.sums) // 2) if e.end - e.start + 1 >= settings.persistent)
    return sum(1 for _ in lasting) >= 3


def _bursts(level: Level, start: int) -> Iterator[Episode]:
    """The newest spikes after a calm record, at most 50."""
    first = level.places[start] if len(level.places) else 0
    return (episode for episode in level.episodes[-50:] if episode.start >= first)


def _spike_share(level: Level, start: int) -> float:
    spikes = sum(episode.end - episode.start + 1 for episode in _bursts(level, start))
    return spikes / (spikes + len(level.values) - start)


def _calmest(sums: Sums, end: int) -> float | None:
    """The smallest scatter that an eighth of the run had before a position."""
    size = end // 8
    if size < PARTS:
        return None
    return min(sums.deviation(k * size, (k + 1) * size) for k in range(8)) or None


def _began(sums: Sums, start: int, scatter: float) -> int:
    size = max(4, start // PARTS)
    while start >= size and sums.deviation(start - size, start) > scatter / 2:
        start -= size
    return start if start >= size else 0


def _flat(level: Level, half: Trend, settings: LossSettings) -> Shape | None:
    sums, count = level.sums, len(level.sums)
    share, significance = settings.flat_share, settings.significance
    if abs(half.mean) < 0.02 * abs(level.values[0]):
        return None  # Nothing left to lose: what remains is noise around zero.
    whole = sums.trend(0, count)
    still = half.score < significance or practically_flat(half, settings)
    if still and whole.flat(4 * share, significance):
        first = sums.mean(0, max(1, count // PARTS))
        text = f"training loss is flat from the start: {first:.4g} then, {half.mean:.4g} in the last half"
        return Shape("flat", 0, (text, _fall(half)))
    if not half.flat(share, significance):
        return None
    start = _plateau_began(sums, count, half)
    text = f"training loss has stayed at {half.mean:.4g} for {count - start} records"
    return Shape("flat", start, (text, _fall(half)))


def _plateau_began(sums: Sums, count: int, half: Trend) -> int:
    start = count // 2
    size = max(4, start // PARTS)
    near = 0.01 * abs(half.mean) + 2 * sums.deviation(start, count) / math.sqrt(size)
    while start > size and abs(sums.mean(start - size, start) - half.mean) <= near:
        start -= size
    return start


def _fall(half: Trend) -> str:
    share = half.fall / abs(half.mean) if half.mean else 0.0
    error = half.error / abs(half.mean) if half.mean else 0.0
    return f"it fell by {share:.2%} ± {2 * error:.2%} between the halves of the last {half.points} records"
