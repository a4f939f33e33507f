"""Runs that are past saving: not finite, hung, or diverged."""

from __future__ import annotations

from itertools import pairwise

from stoploss.engine.losses import plateau, progress, strategy
from stoploss.engine.losses.clean import Track
from stoploss.engine.losses.nonfinite import non_finite
from stoploss.engine.losses.run import Finding, Run


def not_finite(run: Run) -> Finding | None:
    """Numbers that are not finite and did not come back."""
    found = non_finite(run.tracks, run.settings)
    if found is None:
        return None
    train, lead, evidence = run.train, None, found.evidence
    if train is not None and train.bad_run():
        lead = strategy.lead(run.grad, train.steps[len(train) - train.bad_run()])
    if lead:
        evidence = (*evidence, strategy.warned(lead))
    return Finding("non-finite", found.step, evidence, sudden=1, lead=lead)


def hung(run: Run, now: float | None) -> Finding | None:
    """No new step for too long."""
    found = progress.hang(run.tracks, run.facts, now, run.settings)
    if found is None:
        return None
    step = max(track.steps[-1] for track in run.tracks.values() if len(track))
    text = (
        f"no new step for {found.silence:,.0f} s; the longest step so far took {found.longest:,.0f} s, "
        f"so {found.allowed:,.0f} s are allowed"
    )
    return Finding("hung", step, (text,), sudden=1, wasted=found.wasted)


def diverged(run: Run) -> Finding | None:
    """A training loss that went up and stayed there."""
    level, track = run.level, run.train
    if track is None:
        return None
    episode = level.open()
    lasting = episode is not None and episode.end - episode.start + 1 >= run.settings.persistent
    if episode is not None and lasting and not plateau.swings(level, run.settings):
        step, count = track.steps[episode.start], episode.end - episode.start + 1
        now = track.values[episode.end]
        text = f"training loss is {now:.4g} against {episode.level:.4g} before, and above for {count} records"
        return _risen(run, step, text, strategy.lead(run.grad, step))
    if _climbs(run, track):
        first, last = track.values[0], track.values[-1]
        text = f"training loss rose in each of {len(track)} records, {first:.4g} to {last:.4g}"
        return _risen(run, track.steps[1], text, strategy.lead(run.grad, track.steps[-1]))
    crept = plateau.rising(level, run.settings)
    if crept is None or crept.verdict != "diverged":
        return None
    return _risen(run, track.steps[level.places[crept.start]], crept.evidence[0], None)


def degrading(run: Run) -> Finding | None:
    """A training loss that creeps up, where no evaluation shows it."""
    track, crept = run.train, plateau.rising(run.level, run.settings)
    if track is None or crept is None:
        return None
    step = track.steps[run.level.places[crept.start]]
    return Finding(
        "degrading", step, crept.evidence, sudden(run, track.place(step)), evaluation_lag(run, step)
    )


def excerpt(run: Run) -> str | None:
    """A sentence where the log starts in the middle of a run and is short for a level."""
    track = run.train
    least = run.settings.baseline
    if track is None or len(track) >= least or not track.starts_late():
        return None
    return f"an excerpt: it starts at step {track.steps[0]:g}, and {len(track)} records are few for a level"


def _risen(run: Run, step: float, text: str, lead: int | None) -> Finding:
    track, short = run.train, excerpt(run)
    assert track is not None
    evidence = [text]
    if lead:
        evidence.append(strategy.warned(lead))
    if short:
        evidence.append(short)
    start = sudden(run, track.place(step))
    return Finding("diverged", step, tuple(evidence), start, evaluation_lag(run, step), lead)


def _climbs(run: Run, track: Track) -> bool:
    """An excerpt of a few records that does nothing but rise, by half or more."""
    values = track.values
    return (
        len(track) > 4
        and excerpt(run) is not None
        and all(later > earlier for earlier, later in pairwise(values))
        and values[-1] - values[0] > 0.5 * abs(values[0])
    )


def sudden(run: Run, place: int) -> int:
    """Records from the last one at its usual level to the record at `place`."""
    usual, track = run.level.median(), run.train
    assert track is not None
    count = 1
    while usual is not None and count < min(place, 128) and track.values[place - count] > 1.02 * usual:
        count += 1
    return count


def evaluation_lag(run: Run, step: float) -> float | None:
    """Steps from `step` to the first evaluation that is clearly worse than the best before it."""
    track = run.tracks[run.judged] if run.judged else None
    place = track.place(step) if track is not None else 0
    best = track.best_before(place) if track is not None else None
    if track is None or best is None:
        return None
    known = track.sign * track.values[best]
    for later in range(place, len(track)):
        if track.sign * track.values[later] > known + 0.05 * abs(known):
            return track.steps[later] - step
    return None
