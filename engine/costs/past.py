"""Use in slots that a frame does not hold any more, by day, so that totals and budgets forget nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np

if TYPE_CHECKING:
    from stoploss.engine.costs.use import Accrual, Key
    from stoploss.engine.history.frame import Frame
    from stoploss.rules.catalogue import Catalogue
    from stoploss.rules.policy import PolicySet

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
    """

    until: float = float("-inf")
    days: Mapping[Key, tuple[Day, ...]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The use as JSON values."""
        rows = [
            [asdict(key), [[day.day, day.gpu_hours, day.money] for day in days]]
            for key, days in self.days.items()
        ]
        return {"until": None if self.until == float("-inf") else self.until, "rows": rows}

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
            return cls(float("-inf") if said["until"] is None else float(said["until"]), days)
        except (TypeError, KeyError) as error:
            raise ValueError(f"not what was used: {error}") from None


def past_of(accrual: Accrual, zone: str) -> Past:
    """All use through `OPEN` before the end of an accrual, which knows the past before it.

    Frames that come later hold that end: they are two hours longer than windows.
    """
    frame = accrual.frame
    ends = (np.arange(frame.slots) + frame.first) * frame.resolution
    place = ZoneInfo(zone)
    # A slot belongs to the day in which it begins.
    begins = (ends - frame.resolution).tolist()
    days = np.array([f"{datetime.fromtimestamp(begin, place):%Y-%m-%d}" for begin in begins])
    until = max(accrual.past.until, float(ends[-1]) - OPEN if len(ends) else accrual.past.until)
    new = (ends > accrual.past.until) & (ends <= until)
    out: dict[Key, dict[str, Day]] = {
        key: {day.day: day for day in rows} for key, rows in accrual.past.days.items()
    }
    for stream in accrual.streams:
        rows = out.setdefault(stream.key, {})
        for day in dict.fromkeys(days[new].tolist()):
            mask = new & (days == day)
            hours, money = float(stream.gpu_hours[mask].sum()), float(stream.money[mask].sum())
            before = rows.get(day, Day(day, 0.0, 0.0))
            if hours or money:
                rows[day] = Day(day, before.gpu_hours + hours, before.money + money)
    kept = {key: tuple(rows[day] for day in sorted(rows)) for key, rows in out.items() if rows}
    return Past(until, kept)


def sums(days: Iterable[Day], since: str = "") -> tuple[float, float]:
    """GPU-hours and money of days from one on (ISO date; all by default)."""
    chosen = [day for day in days if day.day >= since]
    return sum(day.gpu_hours for day in chosen), sum(day.money for day in chosen)


def kept(policies: PolicySet, frame: Frame, catalogue: Catalogue, before: Past) -> Past:
    """All use through the end of a frame, at the prices of a policy set."""
    from stoploss.engine.costs.accrual import accrue
    from stoploss.engine.costs.book import book_for
    from stoploss.engine.costs.priced import Prices

    prices = Prices(frame, book_for(policies.prices, policies.currency), catalogue)
    return past_of(accrue(frame, prices, policies.fixed_costs, before), policies.settings.timezone)
