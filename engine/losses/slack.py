"""Runs that still work but buy little or nothing: converged, overfit, flat; and those that are well."""

from __future__ import annotations

import math
from bisect import bisect_left

from stoploss.engine.losses import broken, plateau, progress, strategy
from stoploss.engine.losses.facts import Goal
from stoploss.engine.losses.model import Spike
from stoploss.engine.losses.run import Finding, Run

FRESH = 8
"""Records after a single outlier in which it is still worth a verdict."""
YOUNG = 10
"""Records of a run without a learning rate before it counts as under way."""


def converged(target: Goal) -> Finding | None:
    """The declared target is met."""
    return None if target.met is None else Finding("converged", target.met)


def evaluated(run: Run) -> Finding | None:
    """Overfitting or degrading: evaluations that rise while training falls, or while it does not."""
    name = run.judged
    seen = run.evaluations(name) if name else None
    if name is None or seen is None or not seen.worse:
        return None
    track, share = run.tracks[name], progress.progress(run.tracks, run.facts)
    big = abs(seen.recent - seen.level) > 0.1 * abs(seen.level)
    if share is not None and share < run.settings.early_share and not big:
        return None
    step, best = track.steps[seen.best], track.values[seen.best]
    first = (
        f"{name} was best at step {step:g} ({best:.4g}); of the {seen.since_best} evaluations since, "
        f"the last three have the median {seen.recent:.4g}"
    )
    if run.train is None:
        text = "no training loss is logged, so overfitting cannot be told apart"
        return Finding("degrading", step, (first, text), seen.sudden)
    down, text = _train_since(run, step, best)
    lag = None if down else 0.0
    return Finding("overfit" if down else "degrading", step, (first, text), seen.sudden, lag)


def _train_since(run: Run, step: float, evaluated_loss: float) -> tuple[bool, str]:
    """Whether the training loss fell since a step, or lies so low that it need not; and in words."""
    track, level = run.train, run.level
    assert track is not None
    count = len(level.values)
    middle = bisect_left(level.places, track.place(math.nextafter(step, math.inf)))
    size = min(16, middle, count - middle)
    if size < 2:
        return False, "too few training records to say more"
    sums = level.sums
    before, now = sums.mean(middle - size, middle), sums.mean(count - size, count)
    error = math.hypot(sums.deviation(middle - size, middle), sums.deviation(count - size, count))
    fallen = before - now > max(2 * error / math.sqrt(size), 0.005 * abs(before))
    low = run.judged == "eval.loss" and 0 <= now < 0.5 * evaluated_loss
    word = "fell" if fallen else "did not fall"
    return fallen or low, f"meanwhile the training loss {word}: {before:.4g} then, {now:.4g} now"


def stuck(run: Run) -> Finding | None:
    """A training loss that oscillates or is flat, though the schedule lets it fall."""
    track = run.train
    shape = plateau.no_progress(run.level, run.half, run.settings)
    if track is None or shape is None or young(run) or strategy.between_drops(run.tracks.get("train.lr")):
        return None
    if shape.verdict == "flat" and shape.start > 0 and _early(run, shape.start):
        return None
    seen = run.evaluations(run.judged) if run.judged else None
    thrown = shape.verdict == "oscillating" and shape.start == 0
    if seen is not None and seen.improving and not thrown:
        return None
    step = track.steps[run.level.places[shape.start]]
    added = strategy.vanishing(run.grad) if shape.verdict == "flat" else strategy.restless(run.grad, step)
    return Finding(shape.verdict, step, shape.evidence, strategy=(added,) if added else ())


def _early(run: Run, start: int) -> bool:
    """Whether a later part of the schedule may well end a plateau that began at a calm record.

    Most schedules lower the learning rate in the second half of the plan, and the loss falls with
    it. Where the rate is known to stand at its height, a plateau must also be two thirds of the run.
    """
    lr = run.tracks.get("train.lr")
    peak = lr.best_before(len(lr)) if lr is not None else None
    high = lr is not None and peak is not None and lr.values[-1] > 0.5 * lr.values[peak]
    share = progress.progress(run.tracks, run.facts)
    if share is not None and share < 0.5 and (lr is None or high):
        return True
    return high and start > len(run.level.values) / 3


def young(run: Run) -> bool:
    """Whether the learning rate still climbs, or a tenth of the plan is not yet done."""
    if strategy.warming_up(run.tracks.get("train.lr")):
        return True
    share = progress.progress(run.tracks, run.facts)
    return share is not None and share < 0.1


def calm(run: Run) -> Finding:
    """Nothing is wrong: warming up, a spike that is over, or a healthy run."""
    spike = _fresh_spike(run)
    if spike is not None:
        return _spiked(run, spike)
    if _beginning(run):
        return Finding("warming-up", evidence=(_beginning_text(run),), wasted=0.0)
    return Finding("healthy", evidence=(_heading(run),), wasted=0.0)


def _fresh_spike(run: Run) -> Spike | None:
    """The worst spike that is open, or recent enough for its size."""
    level, track = run.level, run.train
    if track is None or not level.episodes:
        return None
    last = len(track) - 1
    if last - level.episodes[-1].end > run.settings.memory:
        return None
    fresh = []
    for spike in level.spikes()[-8:]:
        ago = last - track.place(spike.end)
        if spike.open or ago <= (FRESH if spike.records == 1 else run.settings.memory):
            fresh.append(spike)
    return max(fresh, key=lambda spike: spike.peak - spike.level, default=None)


def _spiked(run: Run, spike: Spike) -> Finding:
    track, short = run.train, broken.excerpt(run)
    assert track is not None
    lead = strategy.lead(run.grad, spike.jump)
    back = "it is not over" if spike.open else f"back at step {track.steps[track.place(spike.end) + 1]:g}"
    where = f"step {spike.step:g}" if spike.records == 1 else f"steps {spike.step:g} to {spike.end:g}"
    count = "one record" if spike.records == 1 else f"{spike.records} records"
    text = f"training loss went from {spike.level:.4g} to {spike.peak:.4g} at {where} ({count}); {back}"
    evidence = [text]
    if lead:
        evidence.append(strategy.warned(lead))
    if run.grad is not None and not strategy.measured(run.grad):
        evidence.append(f"the gradient norm is always {run.grad.values[-1]:g}: not measured")
    if short:
        evidence.append(short + (", so whether it comes back is not known" if spike.open else ""))
    place = track.place(spike.step)
    lag = broken.evaluation_lag(run, spike.step)
    start = broken.sudden(run, place)
    return Finding("transient-spike", spike.step, tuple(evidence), start, lag, lead, 0.0)


def _beginning(run: Run) -> bool:
    track = run.train or (run.tracks[run.primary] if run.primary else None)
    climbing = strategy.warming_up(run.tracks.get("train.lr"))
    if climbing is not None and not ("status" in run.facts or "ended" in run.facts):
        return climbing
    if track is None or "status" in run.facts or "ended" in run.facts:
        return False
    late = track.starts_late() or track.steps[0] > 32 * YOUNG
    return run.train is not None and len(track) < YOUNG and not late


def _beginning_text(run: Run) -> str:
    count = len(run.train) if run.train else 0
    lr = run.tracks.get("train.lr")
    if lr is not None and strategy.warming_up(lr):
        return f"the learning rate still climbs ({lr.values[-1]:.3g} at step {lr.steps[-1]:g})"
    return f"too few records ({count}) to say more"


def _heading(run: Run) -> str:
    half, train = run.half, run.train
    if train is not None and half is not None and half.mean:
        share, error = half.fall / abs(half.mean), 2 * half.error / abs(half.mean)
        span = f"between the halves of the last {half.points} records"
        return f"training loss fell by {share:.2%} ± {error:.2%} {span}"
    name = run.primary
    if name is None:
        return "only numbers without a direction are logged"
    track = run.tracks[name]
    few = ", too few records for a trend" if train is not None and half is None else ""
    return f"{name} went from {track.values[0]:.4g} to {track.values[-1]:.4g} in {len(track)} records{few}"
