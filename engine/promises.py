"""Promised against got: what an advice was said to save, and what the next run really saves.

When a job was given advice, and a later job of the same experiment no longer needs it, the
change was made. What it brought is measured as the earlier job's money per step against the
later one's, at the later one's speed: the same measure whatever the advice was about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stoploss.engine.advice import HOUR, Measured
from stoploss.engine.costs.book import NoPrice
from stoploss.engine.costs.priced import Prices
from stoploss.engine.evaluation.columns import Column
from stoploss.engine.evaluation.evaluator import Episode, RowStatus
from stoploss.engine.evaluation.explain import Explainer
from stoploss.engine.evaluation.explain_numbers import NumberExplainer
from stoploss.engine.evaluation.kleene import FALSE
from stoploss.rules.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class Promise:
    """An advice that was taken.

    Attributes:
        policy: the policy that gave it.
        experiment: what both jobs belong to.
        before, after: the job that was advised, and the one that no longer needs it.
        change: what was advised.
        promised, got: money per hour in `currency`; None is unknown, negative got is a loss.
        why: how `got` was reckoned, or what is missing.
    """

    policy: str
    experiment: str
    before: str
    after: str
    change: str
    promised: float | None
    got: float | None
    currency: str
    why: str


class Promises:
    """Finds advice that was taken, one resolution after the other."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.found: list[Promise] = []

    def take(
        self,
        explainer: NumberExplainer,
        prices: Prices,
        episodes: Iterable[Episode],
        rows: Iterable[RowStatus],
    ) -> None:
        """Take what the policies of one resolution said over time and say now."""
        begun = [episode for episode in episodes if episode.event == "fired" and _is_job(episode.column)]
        if not begun:
            return
        quiet = [
            row for row in rows if row.truth == FALSE and row.state == "inactive" and _is_job(row.column)
        ]
        for episode in _newest_of_each_job(begun):
            experiment = self._experiment(explainer, episode.column)
            later = [
                row
                for row in quiet
                if row.policy.name == episode.policy.name
                and row.column.resource != episode.column.resource
                and row.column.start > episode.slot
                and experiment is not None
                and self._experiment(explainer, row.column) == experiment
            ]
            if later and experiment is not None:
                newest = max(later, key=lambda row: row.column.start)
                self._settle(experiment, episode, newest.column, explainer, prices)

    def _experiment(self, explainer: NumberExplainer, column: Column) -> str | None:
        value = explainer.world.label_at(column.resource, "experiment", explainer.frame.last)
        return value if isinstance(value, str) and value else None

    def _settle(
        self, experiment: str, episode: Episode, after: Column, explainer: NumberExplainer, prices: Prices
    ) -> None:
        from stoploss.engine.advice_rules import advise

        before = self._measured(explainer, prices, episode.column, self._at_its_end(explainer, episode))
        advice = advise(episode.policy.name, before)
        if advice is None:
            return
        now = self._measured(explainer, prices, after, explainer.frame.last)
        got, why = _gain(before, now)
        self.found.append(
            Promise(
                episode.policy.name,
                experiment,
                episode.column.resource.id,
                after.resource.id,
                advice.change,
                advice.saves_per_hour,
                got,
                advice.currency,
                why,
            )
        )

    def _at_its_end(self, explainer: NumberExplainer, episode: Episode) -> int:
        """The newest slot in which the advised job made steps, when most was measured of it."""
        found = explainer.readings.place(self._catalogue["train.step"], episode.column.resource)
        newest = explainer.readings.newest_valid(*found, explainer.frame.last) if found else None
        return max(episode.slot, newest or episode.slot)

    def _measured(self, explainer: NumberExplainer, prices: Prices, column: Column, slot: int) -> Measured:
        """What was measured of a row as of a slot."""
        frame = explainer.frame
        if slot == frame.last:
            return Measured(explainer, column, prices, self._catalogue)
        then = frame.cut(frame.first, slot)
        past = Explainer(then, explainer.world)
        return Measured(past, column, Prices(then, prices.book, self._catalogue), self._catalogue)


def _is_job(column: Column) -> bool:
    return column.resource.kind == "job"


def _newest_of_each_job(episodes: Iterable[Episode]) -> list[Episode]:
    newest = {(item.policy.name, item.column.resource): item for item in episodes}
    return list(newest.values())


def _gain(before: Measured, after: Measured) -> tuple[float | None, str]:
    """Money per hour that the later run saves: the difference per step, at its own speed."""
    costs = []
    for run in (before, after):
        bill, steps = run.bill(), run.gained("train.step", HOUR)
        if isinstance(bill, NoPrice):
            return None, f"job {run.resource.id}: {bill.reason}"
        if not steps:
            return None, f"job {run.resource.id}: no step was seen in an hour; log train.step"
        costs.append((bill.per_hour / steps, steps))
    (was, _), (is_now, speed) = costs
    why = f"{was:.4g} a step before, {is_now:.4g} a step now, at {speed:,.0f} steps an hour"
    return (was - is_now) * speed, why
