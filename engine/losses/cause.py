"""The root cause of a verdict, from the verdict and what the log holds beside the loss.

Four dimensions: data, model, strategy (how it is trained) and infrastructure. Where the evidence
does not decide between two of them the cause is undecided, and both are named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

from stoploss.engine.losses import strategy
from stoploss.engine.losses.clean import Track
from stoploss.engine.losses.model import LossVerdict
from stoploss.engine.model import Curve, TrainingLog

DATA, MODEL, STRATEGY, INFRASTRUCTURE, UNDECIDED = "data", "model", "strategy", "infrastructure", "undecided"

SLOWER = 0.7
"""Speed, as a part of the run's own before, below which steps are slow."""

WAITING = 0.3
"""Share of a step spent waiting for data from which the data is what it waits for."""

BEFORE = 50
"""Records before the trouble in which bad data counts as having come first."""

_PAIRS = {
    "diverged": (STRATEGY, DATA),
    "transient-spike": (STRATEGY, DATA),
    "degrading": (STRATEGY, DATA),
    "oscillating": (STRATEGY, MODEL),
    "flat": (MODEL, STRATEGY),
    "overfit": (MODEL, DATA),
    "hung": (INFRASTRUCTURE, MODEL),
}
"""Verdict -> the two dimensions that it can come from, the likelier first."""

_ALONE = {
    "overfit": "the training loss goes on falling while the evaluations rise",
    "oscillating": "no bad record and no swing of the gradient came first: a learning rate too high, "
    "or a batch too small, makes a loss swing",
    "hung": "steps stopped at once, without a bad value before",
}
"""Verdicts whose own shape decides, where nothing speaks against it."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A root cause.

    Attributes:
        cause: data, model, strategy, infrastructure or undecided.
        between: the two that the evidence does not decide between; empty where it does.
        evidence_for: sentences that speak for it, or for either of the two.
        evidence_against: sentences that speak for something else.
    """

    cause: str
    between: tuple[str, ...] = ()
    evidence_for: tuple[str, ...] = ()
    evidence_against: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """In a few words: `strategy`, or `strategy or data`."""
        return " or ".join(self.between) if self.between else self.cause

    @property
    def sentence(self) -> str:
        """The cause with what speaks for and against it."""
        head = f"undecided between {' and '.join(self.between)}" if self.between else self.cause
        because = f", because {' and '.join(self.evidence_for)}" if self.evidence_for else ""
        return f"cause: {head}{because}; against: {' and '.join(self.evidence_against) or 'none'}"


@dataclass(slots=True)
class _Evidence:
    """Sentences by the dimension that they speak for; `shared` speak for both of a pair."""

    of: dict[str, list[str]] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)

    def add(self, dimension: str, sentence: str | None) -> None:
        if sentence:
            self.of.setdefault(dimension, []).append(sentence)


def find_cause(verdict: LossVerdict, log: TrainingLog) -> Cause | None:
    """The cause of what a verdict tells; None where nothing is wrong."""
    evidence = _Evidence()
    pair = _pair(verdict)
    if pair is None:
        return _slow(verdict, log)
    since = verdict.since_step if verdict.since_step is not None else math.nan
    for signal, words in (("data.invalid_records", "invalid records"), ("data.retries", "failed reads")):
        evidence.add(DATA, _more(log.curves.get(signal), since, words))
    evidence.add(DATA, _jump(log.curves.get("data.feature_abs_max"), since))
    if verdict.verdict in ("diverged", "transient-spike", "degrading", "non-finite"):
        evidence.add(DATA, _same_place(log.curves.get("train.loss"), since))
        _spiked(verdict, log, evidence, since)
    if verdict.verdict == "flat":
        _stuck(log, evidence)
    if verdict.verdict == "oscillating":
        _swinging(verdict, log, evidence, since)
    return _decide(verdict, pair, evidence)


def _pair(verdict: LossVerdict) -> tuple[str, str] | None:
    if verdict.verdict != "non-finite":
        return _PAIRS.get(verdict.verdict)
    return (DATA, MODEL) if _from_the_start(verdict) else (STRATEGY, DATA)


def _from_the_start(verdict: LossVerdict) -> bool:
    return verdict.since_index in (None, 0)


def _spiked(verdict: LossVerdict, log: TrainingLog, evidence: _Evidence, since: float) -> None:
    """What the gradient, the schedule and the precision did before a loss went wrong."""
    if verdict.grad_norm_lead:
        evidence.shared.append(f"the gradient norm rose {_records(verdict.grad_norm_lead)} earlier")
    if _from_the_start(verdict):
        evidence.shared.append("it was so from the first record")
        rates = _values(log, "train.lr")
        if rates and not any(rates):
            evidence.shared.append("the learning rate is 0, so that no weight moves")
        return
    for sentence in strategy.learning_rate(_track(log, "train.lr", -1.0), since, None):
        evidence.add(STRATEGY, sentence)
    scale = log.curves.get("train.loss_scale")
    if scale is not None:
        before = _until(scale, since)
        if before and before[-1] <= max(before) / 8:
            evidence.add(STRATEGY, f"the loss scale had fallen from {max(before):g} to {before[-1]:g}")


def _stuck(log: TrainingLog, evidence: _Evidence) -> None:
    vanished = strategy.vanishing(_track(log, "train.grad_norm"))
    rates = [value for value in _values(log, "train.lr") if math.isfinite(value)]
    if rates and rates[-1] <= 0.01 * max(rates):
        share = rates[-1] / max(rates) if max(rates) > 0 else 0.0
        evidence.add(STRATEGY, f"the learning rate is {share:.2%} of its peak")
    elif vanished and rates:
        evidence.add(MODEL, f"{vanished}, while the learning rate is {rates[-1]:.3g}")
    elif vanished:
        evidence.shared.append(vanished)


def _swinging(verdict: LossVerdict, log: TrainingLog, evidence: _Evidence, since: float) -> None:
    gradient = _track(log, "train.grad_norm")
    if verdict.grad_norm_lead:
        evidence.add(MODEL, f"the gradient norm swung {_records(verdict.grad_norm_lead)} before the loss")
    else:
        evidence.shared += [sentence for sentence in (strategy.restless(gradient, since),) if sentence]
    for sentence in strategy.learning_rate(_track(log, "train.lr", -1.0), since, None):
        evidence.add(STRATEGY, sentence)


def _decide(verdict: LossVerdict, pair: tuple[str, str], evidence: _Evidence) -> Cause:
    first, second = (evidence.of.get(name, []) for name in pair)
    alone = _ALONE.get(verdict.verdict)
    if bool(first) == bool(second) and (first or alone is None):
        return Cause(UNDECIDED, pair, (*evidence.shared, *first, *second))
    chosen, other = (pair[1], first) if second else (pair[0], second)
    decisive = second or first or ([alone] if alone else [])
    against = list(other)
    if verdict.verdict == "hung":
        against.append("use and power of the GPUs are not in the log")
    return Cause(chosen, (), (*evidence.shared, *decisive), tuple(against))


def _slow(verdict: LossVerdict, log: TrainingLog) -> Cause | None:
    """A loss that falls as it should per step, while the steps take longer than they did."""
    ratio = verdict.numbers.speed_ratio
    if verdict.verdict == "cannot-tell" or ratio is None or ratio >= SLOWER:
        return None
    slower = f"a step takes {1 / ratio:.1f} times as long as before, while the loss falls as it did"
    waits = waiting_share(log)
    if waits is None:
        return Cause(UNDECIDED, (INFRASTRUCTURE, DATA), (slower,))
    told = f"{waits:.0%} of a step is spent waiting for data"
    if waits >= WAITING:
        return Cause(DATA, (), (slower, told))
    return Cause(INFRASTRUCTURE, (), (slower, f"only {told}"))


def waiting_share(log: TrainingLog) -> float | None:
    """The median share of the newest steps that waited for data; None where it is not logged."""
    shares = list(_values(log, "data.wait_share"))[-BEFORE:]
    if not shares:
        waits, steps = _values(log, "train.data_time"), _values(log, "train.step_time")
        pairs = zip(list(waits)[-BEFORE:], list(steps)[-BEFORE:], strict=False)
        shares = [wait / step for wait, step in pairs if step > 0]
    finite = sorted(share for share in shares if math.isfinite(share))
    return finite[len(finite) // 2] if finite else None


def _more(curve: Curve | None, since: float, words: str) -> str | None:
    """Whether a counter rose faster just before the trouble than it had before."""
    if curve is None:
        return None
    values = _until(curve, since)
    gains = [max(0.0, after - before) for before, after in pairwise(values)]
    near, early = gains[-BEFORE // 10 :], gains[: -BEFORE // 10]
    if not near or not sum(near):
        return None
    usual = sum(early) / len(early) if early else 0.0
    return f"{sum(near):,.0f} {words} came just before" if sum(near) / len(near) > 3 * usual else None


def _until(curve: Curve, since: float) -> list[float]:
    """The finite values up to a step; all of them where the log counts no steps."""
    pairs = zip(curve.steps, curve.values, strict=True)
    return [value for step, value in pairs if not step > since and math.isfinite(value)]


def _jump(curve: Curve | None, since: float) -> str | None:
    """Whether the largest input value left its range by the time of the trouble."""
    if curve is None:
        return None
    before = _until(curve, since)[-BEFORE:]
    if len(before) < 2:
        return None
    usual, highest = sorted(before)[len(before) // 2], max(before[-3:])
    if highest <= 10 * usual:
        return None
    return f"the largest input value jumped from {usual:.3g} to {highest:.3g}"


def _same_place(curve: Curve | None, since: float) -> str | None:
    """Whether an earlier pass over the same steps went wrong at the same place."""
    if curve is None or not math.isfinite(since):
        return None
    cuts = [n for n in range(1, len(curve.steps)) if curve.steps[n] <= curve.steps[n - 1]]
    for start, end in zip([0, *cuts], cuts, strict=False):
        steps, values = curve.steps[start:end], curve.values[start:end]
        early = sorted(v for s, v in zip(steps, values, strict=True) if s < since and math.isfinite(v))[-128:]
        later = [v for s, v in zip(steps, values, strict=True) if s >= since]
        if len(early) >= 3 and later:
            level = early[len(early) // 2]
            if not max(later[:5]) <= 1.5 * level:
                return f"an earlier pass went wrong at the same step ({since:g}) too"
    return None


def _values(log: TrainingLog, signal: str) -> list[float]:
    curve = log.curves.get(signal)
    return [] if curve is None else list(curve.values)


def _track(log: TrainingLog, signal: str, sign: float = 1.0) -> Track | None:
    curve = log.curves.get(signal)
    if curve is None:
        return None
    track = Track(sign)
    track.extend(curve.steps, curve.values, curve.times)
    return track


def _records(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"
