"""How fast a run moves, and whether it still does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stoploss.engine.losses.clean import Track, view
from stoploss.engine.losses.facts import Facts, number
from stoploss.engine.losses.model import LossSettings

FIRST = 5
"""Steps at the start that compile, load and cache, and say nothing about the others."""


@dataclass(frozen=True, slots=True)
class Hang:
    """A silence that is too long.

    Attributes:
        silence: seconds since the last record.
        longest: seconds of the longest step seen.
        allowed: seconds that a silence may last.
        wasted: share of the run's time that the silence is; None where its start is not known.
    """

    silence: float
    longest: float
    allowed: float
    wasted: float | None


def hang(tracks: Mapping[str, Track], facts: Facts, now: float | None, settings: LossSettings) -> Hang | None:
    """The silence of a run that has not ended; None while it moves or cannot be told.

    `now` is when somebody last looked. Where the records have no clock, the facts `quiet_from` and
    `quiet_to` (first and newest sign of life since the last record) stand in.
    """
    if "ended" in facts or "status" in facts or _done(tracks, facts):
        return None
    instant = number(facts, "quiet_to") if now is None else now
    last = _last_time(tracks)
    since = number(facts, "quiet_from") if last is None else last
    if instant is None or since is None:
        return None
    silence = instant - since
    longest = _longest(tracks, settings) if silence > settings.pause_seconds else None
    if longest is None:
        return None
    allowed = max(settings.hang_factor * longest, settings.pause_seconds)
    if silence <= allowed:
        return None
    started = number(facts, "started")
    if started is None:
        started = min((t.times[0] for t in tracks.values() if len(t) > 1), default=math.nan)
    wasted = silence / (instant - started) if instant > started else None
    return Hang(silence, longest, allowed, wasted)


def progress(tracks: Mapping[str, Track], facts: Facts) -> float | None:
    """Share of the planned steps that is done; None where no plan is declared."""
    planned = number(facts, "total_steps")
    last = _last_step(tracks)
    return min(1.0, last / planned) if planned and last is not None else None


def speeds(track: Track | None) -> tuple[float | None, float | None]:
    """Steps per hour over the newest tenth, and that against the median speed before it.

    Medians over records, so that a pause for a checkpoint is not a slow-down.
    """
    if track is None or len(track) < 2 * FIRST or not math.isfinite(track.times[-1]):
        return None, None
    count = len(track)
    newest = max(FIRST, min(count // 10, 1000))
    times, steps = view(track.times)[-11 * newest :], view(track.steps)[-11 * newest :]
    spent = np.diff(times) / np.diff(steps)
    good = np.isfinite(spent) & (spent > 0)
    recent, past = spent[-newest:][good[-newest:]], spent[:-newest][good[:-newest]]
    if len(recent) < FIRST - 1:
        return None, None
    now = float(np.median(recent))
    return 3600 / now, float(np.median(past)) / now if len(past) >= FIRST - 1 else None


def _last_step(tracks: Mapping[str, Track]) -> float | None:
    return max((track.steps[-1] for track in tracks.values() if len(track)), default=None)


def _last_time(tracks: Mapping[str, Track]) -> float | None:
    times = [track.times[-1] for track in tracks.values() if len(track)]
    return max((time for time in times if math.isfinite(time)), default=None)


def _done(tracks: Mapping[str, Track], facts: Facts) -> bool:
    share = progress(tracks, facts)
    return share is not None and share >= 1


def _longest(tracks: Mapping[str, Track], settings: LossSettings) -> float | None:
    """The longest step in seconds, between records where the log has a clock."""
    track = tracks.get("train.loss") or next(iter(tracks.values()), None)
    if track is None:
        return None
    gaps = np.diff(view(track.times))[FIRST - 1 :]
    gaps = gaps[np.isfinite(gaps)]
    if len(gaps):
        return float(gaps.max())
    took = tracks.get("train.step_time")
    if took is None or not len(took):
        return None
    late = took.starts_late() or (len(took) == 1 and took.steps[0] > settings.baseline)
    spent = view(took.values)[0 if late else FIRST :]
    spent = spent[np.isfinite(spent)]
    return float(spent.max()) * max(1.0, track.spacing()) if len(spent) else None
