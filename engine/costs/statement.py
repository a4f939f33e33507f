"""The statement of costs: what was used and paid over a recording, in sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from stoploss.engine.costs.accrual import accrue
from stoploss.engine.costs.book import book_for
from stoploss.engine.costs.budgets import Standing, standings
from stoploss.engine.costs.goodput import CLASSES, Row, classify, rows
from stoploss.engine.costs.priced import Prices
from stoploss.engine.costs.use import Key
from stoploss.engine.history.frame import Frame
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.policy import PolicySet

CATEGORIES = ("compute", "storage", "network", "logs", "database", "hidden")
NOBODY = {"team": "no team", "job": "no job"}


@dataclass(frozen=True, slots=True)
class Entry:
    """All use of one key, category and goodput class; money is None where no price is known."""

    key: Key
    category: str
    goodput: str
    gpu_hours: float
    money: float | None


@dataclass(slots=True)
class Sums:
    """Sums over entries: GPU-hours, those of them that were useful, and money by price kind."""

    gpu_hours: float = 0.0
    useful_hours: float = 0.0
    unpriced_hours: float = 0.0
    money: dict[str, float] = field(default_factory=dict)
    hidden: dict[str, float] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Count an entry in."""
        self.gpu_hours += entry.gpu_hours
        self.useful_hours += entry.gpu_hours if entry.goodput == "useful" else 0.0
        if entry.money is None:
            self.unpriced_hours += entry.gpu_hours
            return
        kind = entry.key.kind
        self.money[kind] = self.money.get(kind, 0.0) + entry.money
        if entry.category == "hidden":
            self.hidden[kind] = self.hidden.get(kind, 0.0) + entry.money


@dataclass(frozen=True, slots=True)
class Statement:
    """What was used and paid from `since` to `until` (seconds since the epoch).

    Attributes:
        entries: every sum, in a fixed order.
        missing: (category, why its price is unknown) -> GPU-hours without it.
        budgets: how every budget stands for every resource that it holds for.
    """

    since: float
    until: float
    currency: str
    entries: tuple[Entry, ...]
    missing: Mapping[tuple[str, str], float]
    budgets: tuple[Standing, ...]

    @property
    def total(self) -> Sums:
        """Everything together."""
        return self.by(lambda entry: "")[""] if self.entries else Sums()

    def by(self, name: Callable[[Entry], str]) -> dict[str, Sums]:
        """Sums by a name of each entry, in order of appearance."""
        found: dict[str, Sums] = {}
        for entry in self.entries:
            found.setdefault(name(entry), Sums()).add(entry)
        return found

    def grouped(self, by: str) -> dict[str, Sums]:
        """Sums by team, job, category or goodput class; categories and classes in their own order."""
        if by in NOBODY:
            found = self.by(lambda entry: getattr(entry.key, by) or NOBODY[by])
            return dict(sorted(found.items(), key=lambda item: (item[0] == NOBODY[by], item[0])))
        order = CATEGORIES if by == "category" else CLASSES
        found = self.by(lambda entry: str(getattr(entry, by)))
        return {name: found[name] for name in order if name in found}


def statement(frame: Frame, policies: PolicySet, catalogue: Catalogue) -> Statement:
    """The statement over the slots of a frame."""
    book = book_for(policies.prices, policies.currency)
    accrual = accrue(frame, Prices(frame, book, catalogue), policies.fixed_costs)
    entries = [_entry(row) for row in rows(accrual, classify(accrual))]
    missing: dict[tuple[str, str], float] = {}
    for entry in entries:
        if entry.key.missing is not None:
            what = entry.key.category, entry.key.missing
            missing[what] = missing.get(what, 0.0) + entry.gpu_hours
    return Statement(
        frame.time_of(frame.first - 1),
        frame.time_of(frame.last),
        book.currency,
        tuple(sorted(entries, key=_order)),
        missing,
        standings(accrual, policies.budgets, policies.settings.timezone, catalogue),
    )


def _entry(row: Row) -> Entry:
    money = None if row.key.missing is not None else float(np.sum(row.money))
    return Entry(row.key, row.category, row.goodput, float(np.sum(row.gpu_hours)), money)


def _order(entry: Entry) -> tuple[object, ...]:
    key = entry.key
    who = (key.team is None, key.team or "", key.job is None, key.job or "")
    return (*who, CATEGORIES.index(entry.category), CLASSES.index(entry.goodput), key.kind, key.name)
