"""What one run has cost, as its log and its owner tell."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stoploss.engine.costs.book import Book, NoPrice, Price
from stoploss.engine.costs.money import money, price_text
from stoploss.engine.model import TrainingLog
from stoploss.rules.declarations import Declared

QUIET = ("quiet_from", "quiet_to")
"""Facts of a log that went on writing, without a step: since when, and until when."""


@dataclass(frozen=True, slots=True)
class RunCost:
    """The cost of one run; None is unknown, never 0.

    Attributes:
        seconds: from its start to its end, or to the last record of a log with a clock.
        gpus: GPUs that it held.
        gpu_hours: GPUs times that time, idle and redone work included.
        amount: money, with its currency (ISO code).
        how: the arithmetic in words.
        source: where the money comes from.
        missing: why GPU-hours or money are unknown.
        wasted_gpu_hours, wasted: the part of both that the run went on after its useful end.
    """

    seconds: float | None = None
    gpus: float | None = None
    gpu_hours: float | None = None
    amount: float | None = None
    currency: str | None = None
    how: str = ""
    source: str | None = None
    missing: str | None = None
    wasted_gpu_hours: float | None = None
    wasted: float | None = None

    @property
    def per_hour(self) -> float | None:
        """Money per hour that the run has cost on average."""
        return self.amount / self.seconds * 3600 if self.amount is not None and self.seconds else None


def bounds(log: TrainingLog) -> tuple[float, float] | None:
    """When a run began and ended, in seconds since the epoch; None where its log holds no clock."""
    times = [time for curve in log.curves.values() for time in curve.times if math.isfinite(time)]
    times += [time for name in QUIET if (time := _instant(log, name)) is not None]
    start, end = _instant(log, "started"), _instant(log, "ended")
    start = min(times, default=None) if start is None else start
    end = max(times, default=None) if end is None else end
    return None if start is None or end is None or end < start else (start, end)


def _instant(log: TrainingLog, name: str) -> float | None:
    value = log.facts.get(name)
    return value if isinstance(value, float | int) and math.isfinite(value) else None


def cost_of(log: TrainingLog, declared: Declared, book: Book, wasted_share: float | None) -> RunCost:
    """The cost of a run: money that its log counts, else GPU-hours times their price."""
    span = bounds(log)
    seconds = None if span is None else span[1] - span[0]
    gpus = log.facts.get("gpus")
    held = gpus if isinstance(gpus, float | int) and gpus > 0 else None
    gpu_hours = None if held is None or seconds is None else held * seconds / 3600
    amount, currency, how, source, missing = _money(log, declared, book, (held, gpu_hours))
    if gpu_hours is not None and not how:
        how = f"{held:g} GPUs x {seconds:,.0f} s"
    share = wasted_share if wasted_share is not None else _quiet_share(log, seconds)
    return RunCost(
        seconds,
        held,
        gpu_hours,
        amount,
        currency,
        how,
        source,
        missing,
        None if gpu_hours is None or share is None else gpu_hours * share,
        None if amount is None or share is None else amount * share,
    )


def _quiet_share(log: TrainingLog, seconds: float | None) -> float | None:
    """The part of the time in which the log went on without a step."""
    begin, end = (_instant(log, name) for name in QUIET)
    return (end - begin) / seconds if begin is not None and end is not None and seconds else None


def _money(
    log: TrainingLog, declared: Declared, book: Book, use: tuple[float | None, float | None]
) -> tuple[float | None, str | None, str, str | None, str | None]:
    """Amount, currency, arithmetic, source, and what is missing."""
    gpus, gpu_hours = use
    counted, currency = log.facts.get("cost"), log.facts.get("cost_currency")
    if isinstance(counted, float | int) and math.isfinite(counted):
        named = str(currency) if currency else book.currency
        how = f"{money(counted, named)} by the cost counter of the log, its resets added up"
        return float(counted), named, how, "the log", None
    if gpu_hours is None:
        why = "the log declares no GPUs; give gpus: under runs:" if gpus is None else "the log holds no clock"
        return None, None, "", None, why
    if declared.gpu is None and book.own_key(None) is None:
        return None, None, "", None, "no price: give gpu: under runs:, or prices: with a default"
    price = book.gpu(declared.gpu)
    if isinstance(price, NoPrice):
        return None, None, "", None, price.reason
    assert isinstance(price, Price)
    how = f"{gpu_hours:.2f} GPU-hours x {price_text(price.amount, price.unit, price.currency)}"
    return gpu_hours * price.amount, price.currency, how, price.told, None
