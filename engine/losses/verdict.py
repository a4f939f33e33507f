"""The verdict: the first finding in order of gravity, with its evidence and numbers."""

from __future__ import annotations

import math

from stoploss.engine.losses import broken, plateau, progress, slack, strategy
from stoploss.engine.losses.clean import Track
from stoploss.engine.losses.facts import Goal, goal, number
from stoploss.engine.losses.forecast import forecast
from stoploss.engine.losses.model import Also, LossVerdict, Numbers, Point
from stoploss.engine.losses.nonfinite import WATCHED
from stoploss.engine.losses.run import Finding, Run


def conclude(run: Run, now: float | None) -> LossVerdict:
    """The verdict on what is known of a run; `now` is in seconds since the epoch."""
    if not any(len(track) for name, track in run.tracks.items() if name in WATCHED):
        return LossVerdict("cannot-tell", evidence=("neither a loss nor an evaluation is logged",))
    target = goal(run.tracks, run.facts)
    finding = _find(run, target, now)
    name, since = run.primary, finding.step
    track = run.tracks[name] if name else None
    main = run.train or track
    started = main.place(since) if main is not None and since is not None else None
    lr = strategy.learning_rate(run.tracks.get("train.lr"), since, number(run.facts, "total_steps"))
    return LossVerdict(
        verdict=finding.verdict,
        since_step=since,
        since_index=started,
        points=len(main) if main is not None else 0,
        curve=name,
        best=_best(track, finding),
        last=Point(track.steps[-1], track.values[-1]) if track else None,
        sudden=finding.sudden,
        synchronous=finding.lag,
        persistent=len(main) - started if main is not None and started is not None else None,
        evidence=finding.evidence + target.evidence,
        strategy=finding.strategy + lr,
        grad_norm_lead=finding.lead,
        wasted_share=_wasted(run, finding),
        also=_also(run),
        numbers=_numbers(run, target, now),
    )


def _find(run: Run, target: Goal, now: float | None) -> Finding:
    return (
        broken.not_finite(run)
        or broken.hung(run, now)
        or broken.diverged(run)
        or slack.converged(target)
        or slack.evaluated(run)
        or broken.degrading(run)
        or slack.stuck(run)
        or slack.calm(run)
    )


def _best(track: Track | None, finding: Finding) -> Point | None:
    """The best record, from before the trouble where numbers after it mean nothing."""
    if track is None:
        return None
    end = len(track)
    if finding.verdict == "non-finite" and finding.step is not None:
        end = track.place(finding.step)
    best = track.best_before(end)
    return None if best is None else Point(track.steps[best], track.values[best])


def _wasted(run: Run, finding: Finding) -> float | None:
    """The share of the run's steps after the one at which it stopped being worth its price."""
    if finding.wasted is not None or finding.step is None or finding.verdict == "hung":
        return finding.wasted
    tracks = [track for track in run.tracks.values() if len(track)]
    last = max(track.steps[-1] for track in tracks)
    # The first record closes a stretch of steps: it was paid for from its beginning.
    first = min(max(0.0, track.steps[0] - track.spacing()) for track in tracks)
    if last <= first:
        return None
    train = run.train
    whole = finding.verdict == "non-finite" and train is not None and finding.step <= train.steps[0]
    return 1.0 if whole else min(1.0, max(0.0, (last - finding.step) / (last - first)))


def _also(run: Run) -> Also:
    tracks = run.tracks.values()
    train = run.train
    notes = []
    if run.tracks.get("eval.metric") and "better" not in run.facts:
        notes.append("eval.metric is not judged: the log does not say whether lower or higher is better")
    if run.grad is not None and not strategy.measured(run.grad):
        notes.append(f"the gradient norm is always {run.grad.values[-1]:g}: not measured")
    if train is not None and len(train) > 2 and not any(train.values[-3:]):
        notes.append("the last training losses are exactly 0, which is rarely convergence")
    metric = (
        run.evaluations("eval.metric")
        if run.judged == "eval.loss" and "better" in run.facts and (run.tracks.get("eval.metric"))
        else None
    )
    if metric is not None:
        best = run.tracks["eval.metric"]
        notes.append(
            f"eval.metric was best at step {best.steps[metric.best]:g} ({best.values[metric.best]:.4g})"
        )
    return Also(
        spikes=run.level.spikes(),
        spike_count=len(run.level.episodes),
        resumes=max((track.resumes for track in tracks), default=0),
        redone_records=train.redone if train is not None else sum(track.redone for track in tracks),
        duplicates=train.duplicates if train is not None else sum(track.duplicates for track in tracks),
        non_finite=sum(len(run.tracks[name].bad) for name in WATCHED if name in run.tracks),
        notes=tuple(notes),
    )


def _numbers(run: Run, target: Goal, now: float | None) -> Numbers:
    train, half = run.train, run.half
    speed, ratio = progress.speeds(train)
    word, slope = "cannot-tell", None
    if train is not None and half is not None and half.mean:
        word = _word(run)
        start, level = len(run.level.values) // 2, run.level
        span = train.steps[level.places[-1]] - train.steps[level.places[start]]
        slope = -2 * half.fall / abs(half.mean) / span if span > 0 else None
    name = run.primary
    track = run.tracks[name] if name else None
    seen = run.evaluations(run.judged) if run.judged else None
    best = track.best_before(len(track)) if track is not None else None
    aim = run.tracks.get(target.curve) if target.curve and target.met is None else None
    return Numbers(
        trend=word,
        slope=slope,
        spike=_spike(run),
        gap=_gap(run),
        since_best=_since(track, best, now),
        steps_since_best=_newest(run) - track.steps[best] if track is not None and best is not None else None,
        evals_since_best=seen.since_best if seen is not None else None,
        forecast=forecast(aim, target.value, speed) if aim is not None else None,
        progress=progress.progress(run.tracks, run.facts),
        steps_per_hour=speed,
        speed_ratio=ratio,
    )


def _word(run: Run) -> str:
    half, settings = run.half, run.settings
    assert half is not None
    if plateau.practically_flat(half, settings):
        return "flat"
    if half.score >= settings.significance:
        return "falling"
    if half.score <= -settings.significance:
        return "rising"
    return "flat" if half.flat(settings.flat_share, settings.significance) else "cannot-tell"


def _spike(run: Run) -> float | None:
    train, episode, level = run.train, run.level.open(), run.level.median()
    if train is None or not level:
        return None
    last = train.values[-1]
    return last / (episode.level if episode is not None else level) if math.isfinite(last) else None


def _gap(run: Run) -> float | None:
    """How far the newest evaluation loss lies above the newest training losses, as a share of these."""
    count, evaluation = len(run.level.values), run.tracks.get("eval.loss")
    if not evaluation or not count or not math.isfinite(evaluation.values[-1]):
        return None
    near = run.level.sums.mean(max(0, count - 16), count)
    return (evaluation.values[-1] - near) / near if near > 0 else None


def _since(track: Track | None, best: int | None, now: float | None) -> float | None:
    if track is None or best is None:
        return None
    end = now if now is not None else track.times[-1]
    return end - track.times[best] if math.isfinite(end - track.times[best]) else None


def _newest(run: Run) -> float:
    return max(track.steps[-1] for track in run.tracks.values() if len(track))
