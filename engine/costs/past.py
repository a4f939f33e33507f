"""Use in slots that a frame does not hold any more, by day, so that totals and budgets forget nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np

if TYPE_CHECKING:
    from stoploss.engine.costs.use import Accrual, Key, Stream
    from stoploss.engine.history.frame import Frame
    from stoploss.rules.catalogue import Catalogue
    from stoploss.rules.policy import PolicySet

RETENTION = 30 * 86400.0
"""Seconds for which slots are kept, and jobs told apart that are gone, where the policies do not say."""
APART = timedelta(days=100)
"""How long days are told apart: longer than a month and the longest frame."""
OPEN = 3600.0
"""Seconds before the end of a frame not past yet: a hole there is billed once the GPU is seen again."""


@dataclass(frozen=True, slots=True)
class Day:
    """Use of one stream on one day of the calendar: GPU-hours, and money (0 where no price is known)."""

    day: str
    gpu_hours: float
    money: float


@dataclass(frozen=True, slots=True)
class Past:
    """All use through an instant.

    Attributes:
        until: in seconds since the epoch; a slot that ends by then is in it.
        days: stream -> its days, in order.
        labels: job -> its labels when it was seen last.
        folds: by labels that are asked for, the same with jobs that are gone taken together.
    """

    until: float = float("-inf")
    days: Mapping[Key, tuple[Day, ...]] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    folds: dict[tuple[str, ...], Together] = field(default_factory=dict, compare=False, repr=False)

    def as_json(self) -> dict[str, Any]:
        """The use as JSON values."""
        rows = [
            [asdict(key), [[day.day, day.gpu_hours, day.money] for day in days]]
            for key, days in self.days.items()
        ]
        labels = {job: dict(said) for job, said in self.labels.items()}
        until = None if self.until == float("-inf") else self.until
        return {"until": until, "rows": rows, "labels": labels}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Past:
        """What `as_json` gave.

        Raises:
            ValueError: it is none.
        """
        from stoploss.engine.costs.use import Key

        try:
            days = {
                Key(**key): tuple(Day(str(day), float(hours), float(money)) for day, hours, money in rows)
                for key, rows in said["rows"]
            }
            labels = {str(job): dict(told) for job, told in said.get("labels", {}).items()}
            return cls(float("-inf") if said["until"] is None else float(said["until"]), days, labels)
        except (AttributeError, TypeError, KeyError) as error:
            raise ValueError(f"not what was used: {error}") from None


@dataclass(frozen=True, slots=True)
class Together:
    """Use in which some jobs and experiments are not told apart any more."""

    jobs: frozenset[str]
    experiments: frozenset[str]
    past: Past


def past_of(accrual: Accrual, before: Past, zone: str) -> Past:
    """All use through `OPEN` before the end of an accrual, and before it.

    Frames that come later hold that end: they are two hours longer than windows.
    """
    frame = accrual.frame
    ends = (np.arange(frame.slots) + frame.first) * frame.resolution
    until = max(before.until, float(ends[-1]) - OPEN if len(ends) else before.until)
    new = np.flatnonzero((ends > before.until) & (ends <= until))
    place = ZoneInfo(zone)
    # A slot belongs to the day in which it begins.
    begins = (ends[new] - frame.resolution).tolist()
    names = np.array([f"{datetime.fromtimestamp(begin, place):%Y-%m-%d}" for begin in begins])
    days = {day: new[names == day] for day in dict.fromkeys(names.tolist())}
    out = dict(before.days)
    for stream in accrual.streams:
        if rows := _with(out.get(stream.key, ()), stream, days):
            out[stream.key] = rows
    return Past(until, out, before.labels)


def _with(rows: tuple[Day, ...], stream: Stream, days: Mapping[str, np.ndarray[Any, Any]]) -> tuple[Day, ...]:
    """The days of a stream with what it used in slots of some days."""
    known = {row.day: row for row in rows}
    for day, slots in days.items():
        hours, money = float(stream.gpu_hours[slots].sum()), float(stream.money[slots].sum())
        if hours or money:
            before = known.get(day, Day(day, 0.0, 0.0))
            known[day] = Day(day, before.gpu_hours + hours, before.money + money)
    old = (date.fromisoformat(max(known)) - APART).isoformat() if len(known) > 2 * APART.days else ""
    if not old:
        return tuple(known[day] for day in sorted(known))
    hours, money = sums(row for row in known.values() if row.day < old)
    kept = [known[day] for day in sorted(known) if day >= old]
    return (Day(max(day for day in known if day < old), hours, money), *kept)


def sums(days: Iterable[Day], since: str = "") -> tuple[float, float]:
    """GPU-hours and money of days from one on (ISO date; all by default)."""
    chosen = [day for day in days if day.day >= since]
    return sum(day.gpu_hours for day in chosen), sum(day.money for day in chosen)


def kept(
    policies: PolicySet, frame: Frame, catalogue: Catalogue, before: Past, asked: Sequence[str] = ()
) -> Past:
    """All use through the end of a frame, at the prices of a policy set.

    Jobs that are gone for as long as slots are kept are not told apart any more, but by the labels that are
    `asked` for.
    """
    from stoploss.engine.costs.accrual import accrue
    from stoploss.engine.costs.book import book_for
    from stoploss.engine.costs.gone import forgotten, labels_of
    from stoploss.engine.costs.priced import Prices

    prices = Prices(frame, book_for(policies.prices, policies.currency), catalogue)
    accrual = accrue(frame, prices, policies.fixed_costs)
    past = past_of(accrual, before, policies.settings.timezone)
    there: Collection[str] = {column.resource.id for column in accrual.world.tables["job"].columns}
    used = {key.job for key in past.days}
    labels = {job: labels_of(accrual.world, job, frame.last) for job in there if job in used}
    past = Past(past.until, past.days, {**past.labels, **labels})
    oldest = past.until - (policies.settings.retention or RETENTION)
    if oldest <= 0:
        return past
    since = f"{datetime.fromtimestamp(oldest, ZoneInfo(policies.settings.timezone)):%Y-%m-%d}"
    return forgotten(past, there, since, asked)
