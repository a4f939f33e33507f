"""What a person can change about a run; nothing of it is ever carried out by itself.

Each piece takes its numbers from the run's own log or from what its owner declared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stoploss.engine.advice import Advice
from stoploss.engine.costs.book import BOOK_CURRENCY
from stoploss.engine.costs.intervals import checkpoint_interval, lost_share
from stoploss.engine.losses.cause import WAITING, waiting_share
from stoploss.engine.losses.model import LossVerdict
from stoploss.engine.losses.run_cost import RunCost
from stoploss.engine.model import TrainingLog
from stoploss.rules.declarations import Declared
from stoploss.rules.units import format_duration

TALKING = 0.2
"""Share of a step spent in communication from which less of it pays."""

OFF = 2.0
"""A checkpoint interval that is this many times the best one, or a part of it, is worth a word."""


def advice_on(
    log: TrainingLog, verdict: LossVerdict, cost: RunCost, declared: Declared
) -> tuple[Advice, ...]:
    """All advice on a run, what saves most first."""
    found = [*_on_verdict(verdict, cost), *_on_speed(log, cost), *_on_checkpoints(cost, declared)]
    return tuple(sorted(found, key=lambda item: -(item.saves_per_hour or 0.0)))


def _on_verdict(verdict: LossVerdict, cost: RunCost) -> Iterator[Advice]:
    rate, best, currency = cost.per_hour, verdict.best, cost.currency or BOOK_CURRENCY
    why = verdict.evidence[0] if verdict.evidence else verdict.verdict
    since = f"step {verdict.since_step:g}" if verdict.since_step is not None else "the start"
    if verdict.verdict in ("overfit", "degrading", "converged", "flat") and best is not None:
        kept = f"the checkpoint of step {best.step:g}"
        yield Advice(
            "stop-and-keep-the-best",
            f"stop, once {kept} is kept safe",
            why,
            rate,
            currency,
            "a later improvement is given up",
            f"evaluate {kept} before others are removed",
        )
    elif verdict.verdict in ("diverged", "non-finite"):
        yield Advice(
            "stop-and-rewind",
            f"stop, and go on from a checkpoint before {since}, with a lower learning rate or other data"
            if verdict.wasted_share != 1.0
            else "stop; begin again once one batch gives a finite loss and gradient",
            why,
            rate,
            currency,
            "none: the weights are lost already"
            if verdict.verdict == "non-finite"
            else "it may yet come back",
            "the loss and the gradient norm stay at their level past that step",
        )
    elif verdict.verdict == "oscillating":
        yield Advice(
            "smaller-steps",
            "lower the learning rate to a third, or double the batch",
            why,
            None,
            currency,
            "slower steps, where the swing is not from them",
            "the scatter of the loss halves within a few hundred records",
        )
    elif verdict.verdict == "hung":
        yield Advice(
            "save-stacks-and-restart",
            "save the stacks of all ranks, then restart from the newest complete checkpoint",
            why,
            rate,
            currency,
            "an evaluation or a save that is only slow is cut off",
            "the stacks show all ranks in the same collective",
        )


def _on_speed(log: TrainingLog, cost: RunCost) -> Iterator[Advice]:
    waits = waiting_share(log)
    if waits is not None and WAITING <= waits < 1:
        workers = _last(log, "data.workers")
        if workers:
            change = f"raise loader workers per rank from {workers:g} to {math.ceil(workers / (1 - waits)):g}"
        else:
            change = "raise loader workers per rank; log data.workers for how many"
        yield Advice(
            "more-loader-workers",
            change,
            f"{waits:.0%} of a step is spent waiting for data",
            None if cost.per_hour is None else cost.per_hour * waits,
            cost.currency or BOOK_CURRENCY,
            "CPU and memory of the host run out",
            "data.wait_share falls below 10%",
        )
    talks = _last(log, "train.comm_share")
    if talks is not None and talks >= TALKING:
        yield Advice(
            "synchronise-less",
            "synchronise less often at an equal global batch (accumulate gradients)",
            f"{talks:.0%} of a step is communication",
            None if cost.per_hour is None else cost.per_hour * talks / 2,
            cost.currency or BOOK_CURRENCY,
            "none where the global batch stays",
            "train.comm_share halves and the loss per sample stays",
        )


def _on_checkpoints(cost: RunCost, declared: Declared) -> Iterator[Advice]:
    if declared.save_time is None or declared.mtbf is None:
        return
    best = checkpoint_interval(declared.save_time, declared.mtbf)
    now, word = declared.checkpoint_every, "save"
    why = (
        f"a save takes {format_duration(declared.save_time)} and a failure comes every "
        f"{format_duration(declared.mtbf)}"
    )
    saves = None
    if now is not None:
        if best / OFF <= now <= best * OFF:
            return
        word = "save more often" if now > best else "save less often"
        before, after = (lost_share(at, declared.save_time, declared.mtbf) for at in (now, best))
        why += f": every {format_duration(now)} is too {'rare' if now > best else 'often'}"
        why += f", it loses {before:.0%} of the time against {after:.0%}"
        saves = None if cost.per_hour is None else cost.per_hour * (min(1.0, before) - after)
    yield Advice(
        "checkpoint-interval",
        f"{word}: every {format_duration(60 * round(best / 60) if best >= 60 else best)}",
        why,
        saves,
        cost.currency or BOOK_CURRENCY,
        "storage for more checkpoints" if now is None or now > best else "more work lost per failure",
        "time between failures, measured over the next ten",
    )


def _last(log: TrainingLog, signal: str) -> float | None:
    curve = log.curves.get(signal)
    values = [value for value in curve.values if math.isfinite(value)] if curve is not None else []
    return values[-1] if values else None
