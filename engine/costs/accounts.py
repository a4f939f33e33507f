"""The money of one audit: prices the frames, the findings, and all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING

from stoploss.engine.costs.book import OLD_DAYS, age_days, book_for
from stoploss.engine.costs.claims import Claim, joined
from stoploss.engine.costs.model import Totals, Waste
from stoploss.engine.costs.priced import Prices, priced, wanted_prices
from stoploss.engine.costs.totals import Costed, totals
from stoploss.engine.costs.waste import Assessment, Assessor, TrueSlots
from stoploss.engine.evaluation.columns import World
from stoploss.engine.evaluation.evaluator import RowStatus
from stoploss.engine.history.frame import Frame
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.policy import Policy, PolicySet

if TYPE_CHECKING:
    from stoploss.engine.findings import Finding

NO_TEAM, UNDECIDED = "no team", "undecided"


class Accounts:
    """Keeps what every finding claims until all are summed up."""

    def __init__(
        self,
        policies: PolicySet,
        frames: Callable[[float], Frame],
        catalogue: Catalogue,
        before: Mapping[str, tuple[Claim, ...]] | None = None,
    ) -> None:
        """Begin; `before` is what findings claimed in slots that the frames do not hold."""
        self._before = before or {}
        self._book = book_for(policies.prices, policies.currency)
        self._frames, self._catalogue = frames, catalogue
        self._wanted = wanted_prices(policies.policies, (item.where for item in policies.exemptions))
        self._prices: dict[float, Prices] = {}
        self._slots: dict[float, TrueSlots] = {}
        self._assessors: dict[float, Assessor] = {}
        self._assessed: dict[str, tuple[Assessment, str]] = {}

    def frame(self, resolution: float) -> Frame:
        """The frame of a resolution (seconds), with the price attributes that conditions name."""
        frame = self._frames(resolution)
        self._prices[resolution] = Prices(frame, self._book, self._catalogue)
        return priced(frame, self._prices[resolution], self._wanted, self._catalogue)

    def prices(self, resolution: float) -> Prices:
        """The prices of the frame of a resolution (seconds)."""
        return self._prices[resolution]

    def observer(self, resolution: float, policies: Sequence[Policy]) -> TrueSlots:
        """What the evaluator of a resolution has to tell its truths to."""
        self._slots[resolution] = TrueSlots(policies)
        return self._slots[resolution]

    def waste(self, finding: str, row: RowStatus, world: World) -> Waste | None:
        """What a row loses, filed under the id of its finding; None where its policy names no waste."""
        resolution = row.policy.resolution
        prices = self._prices[resolution]
        if resolution not in self._assessors:
            self._assessors[resolution] = Assessor(world, prices, self._slots[resolution])
        assessed = self._assessors[resolution].assess(row, self._before.get(finding, ()))
        if assessed is None:
            return None
        team = world.label_at(row.column.resource, "team", prices.frame.last)
        self._assessed[finding] = assessed, team if isinstance(team, str) and team else NO_TEAM
        return assessed.waste

    def claims(self) -> dict[str, tuple[Claim, ...]]:
        """What each finding has claimed so far, as it is carried on."""
        found = {name: joined(assessed.claims) for name, (assessed, _) in self._assessed.items()}
        return {name: claims for name, claims in found.items() if claims}

    def totals(self, findings: Iterable[Finding]) -> Totals:
        """What these findings lose together."""
        costed = []
        for finding in findings:
            if finding.id in self._assessed:
                assessed, team = self._assessed[finding.id]
                cause = finding.cause or UNDECIDED
                costed.append(
                    Costed(
                        finding.policy.name, team, cause, assessed.waste, assessed.claims, assessed.parents
                    )
                )
        return totals(costed, self._book.currency)

    def notes(self, today: date) -> tuple[str, ...]:
        """What is to be said about the prices that were used: that they are old."""
        months = {month for assessed, _ in self._assessed.values() for month in assessed.months}
        if not months or (days := age_days(min(months), today)) <= OLD_DAYS:
            return ()
        return (f"prices of {min(months)} were used, {days} days old; give your own under prices:",)
