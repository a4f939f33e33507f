"""Advice: what a person could change in a training so that it costs less; never carried out.

A policy says when an advice is worth giving, `advice_rules` reckons what to change, by how much
and what that saves, from what was measured of the job itself. Where a measurement is missing
the advice says what to log instead of guessing a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stoploss.engine.costs.billing import Billing, told
from stoploss.engine.costs.book import NoPrice, Price
from stoploss.engine.costs.priced import Prices
from stoploss.engine.evaluation.columns import Column
from stoploss.engine.evaluation.evaluator import RowStatus
from stoploss.engine.evaluation.explain_numbers import NumberExplainer
from stoploss.engine.incidents import label_values
from stoploss.rules.catalogue import Catalogue, path
from stoploss.rules.conditions import typed

if TYPE_CHECKING:
    from stoploss.engine.findings import Finding

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Advice:
    """One change that would pay off.

    Attributes:
        id: the rule and what it is about: `larger-batch:job/4412`.
        change: what to do, with the number where it could be reckoned.
        why: the measurements and the arithmetic, in words.
        saves_per_hour: money per hour in `currency`; None is unknown.
        risk: what may go wrong.
        check: which signal tells that it worked.
    """

    id: str
    change: str
    why: str
    saves_per_hour: float | None
    currency: str
    risk: str
    check: str


@dataclass(frozen=True, slots=True)
class Bill:
    """Money per hour that a resource is billed now, and how that came about in words."""

    per_hour: float
    told: str


class Measured:
    """What was measured of one row, of its members and of its owners, in catalogue units."""

    def __init__(
        self, explainer: NumberExplainer, column: Column, prices: Prices, catalogue: Catalogue
    ) -> None:
        self.resource = column.resource
        self.book = prices.book
        self._explainer, self._column = explainer, column
        self._prices, self._catalogue = prices, catalogue

    def newest(self, name: str) -> float | None:
        """The newest fresh value; the mean over members where there are several."""
        return _mean(self._read(name, None))

    def mean(self, name: str, seconds: float = HOUR / 2) -> float | None:
        """The mean over a window (seconds), and over members."""
        return _mean(self._read(name, ("avg", seconds, 0)))

    def gained(self, name: str, seconds: float) -> float | None:
        """What a counter grew by in a window (seconds), summed over members."""
        found = self._read(name, ("increase", seconds, 0))
        return sum(found) if found else None

    def busiest(self, name: str, seconds: float = HOUR) -> float | None:
        """The 95th percentile over a window (seconds) of the member in which it is highest."""
        found = self._read(name, ("quantile", seconds, 950))
        return max(found) if found else None

    def bill(self) -> Bill | NoPrice:
        """What the row's resource is billed now."""
        last = self._explainer.frame.last
        never = np.zeros(self._explainer.frame.slots, dtype=np.bool_)
        charges = Billing(self._explainer.world, self._prices).charges(self._column, last, never)
        if isinstance(charges, NoPrice):
            return charges
        now = [charge for charge in charges if charge.start <= last < charge.end]
        return Bill(sum(charge.per_hour for charge in now), told(now, last))

    def storage_price(self, tier: str) -> Price | NoPrice:
        """The price of a GiB-month of the row's kind of storage in another tier."""
        return self.book.storage(self.resource.kind, tier, None)

    def _read(self, name: str, window: tuple[str, float, int] | None) -> list[float]:
        """The values of all that carry the signal; none where one of them is unknown."""
        signal, slot = self._catalogue[name], self._explainer.frame.last
        found = []
        for column in self._carriers(signal.resources):
            if window is None:
                value = self._explainer.bare(signal, column, slot)
            else:
                function, seconds, quantile = window
                kind = column.resource.kind
                node = typed.Window(function, signal, seconds, signal.dimension, kind, quantile, name)
                value = self._explainer.window(node, column, slot)
            if value.number is None:
                return []
            found.append(value.number / signal.factor)
        return found

    def _carriers(self, kinds: Sequence[str]) -> list[Column]:
        own, slot = self.resource.kind, self._explainer.frame.last
        if own in kinds:
            return [self._column]
        for kind in kinds:
            if path(own, kind):
                return self._explainer.owners(kind, self._column, slot)
            if path(kind, own):
                return self._explainer.members(kind, self._column, slot)
        return []


class Advisor:
    """Gives the advice that findings ask for, to all findings of the same job."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._about: dict[str, frozenset[str]] = {}
        self._given: dict[str, dict[str, Advice]] = {}

    def take(
        self, explainer: NumberExplainer, prices: Prices, found: Iterable[tuple[RowStatus, Finding]]
    ) -> None:
        """Take the findings of one resolution at its newest slot."""
        from stoploss.engine.advice_rules import advise

        for row, finding in found:
            jobs = label_values(explainer, row.column, "job", explainer.frame.last)
            about = frozenset(f"job {job}" for job in jobs) or frozenset((str(finding.resource),))
            self._about[finding.id] = about
            if finding.state == "pending" or finding.exemption is not None:
                continue
            measured = Measured(explainer, row.column, prices, self._catalogue)
            advice = advise(finding.policy.name, measured)
            if advice is not None:
                for subject in about:
                    self._given.setdefault(subject, {})[advice.id] = advice

    def advised(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """The findings, each with the advice about its job, or about itself where it has none."""
        return tuple(self._advised(finding) for finding in findings)

    def _advised(self, finding: Finding) -> Finding:
        given: dict[str, Advice] = {}
        for subject in sorted(self._about.get(finding.id, ())):
            given.update(self._given.get(subject, {}))
        if not given:
            return finding
        dearest = sorted(given.values(), key=lambda item: (-(item.saves_per_hour or 0.0), item.id))
        return replace(finding, advice=tuple(dearest))


def _mean(found: Sequence[float]) -> float | None:
    return sum(found) / len(found) if found else None
