"""Everything that is said about one run: verdict, cause, cost, budget, advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from stoploss.engine.advice import Advice
from stoploss.engine.costs.book import Book
from stoploss.engine.losses.advice import advice_on
from stoploss.engine.losses.cause import Cause, find_cause
from stoploss.engine.losses.incremental import judge
from stoploss.engine.losses.model import LossVerdict
from stoploss.engine.losses.run_budget import BudgetUse, budget_use
from stoploss.engine.losses.run_cost import RunCost, cost_of
from stoploss.engine.model import TrainingLog
from stoploss.rules.declarations import Declarations

GOOD = frozenset({"healthy", "converged", "warming-up"})
"""Verdicts that ask for nothing."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One run; `log` carries the facts that were declared beside it too."""

    log: TrainingLog
    verdict: LossVerdict
    cause: Cause | None
    cost: RunCost
    advice: tuple[Advice, ...]
    budget: BudgetUse | None

    @property
    def anomalous(self) -> bool:
        """Whether something is wrong with it; a run without a curve is not judged at all."""
        return self.judged and self.verdict.verdict not in GOOD

    @property
    def judged(self) -> bool:
        """Whether there was a curve to judge."""
        return self.verdict.verdict != "cannot-tell"


@dataclass(frozen=True, slots=True)
class Report:
    """What one diagnosis of files came to.

    Attributes:
        runs: in the order of the paths.
        problems: (path, reason) of what could not be read.
    """

    runs: tuple[Diagnosis, ...]
    problems: tuple[tuple[str, str], ...] = ()


def diagnose(
    logs: Iterable[TrainingLog],
    declarations: Declarations,
    book: Book,
    now: Mapping[str, float] | None = None,
) -> tuple[Diagnosis, ...]:
    """What there is to say about each run.

    `now` holds the time (seconds since the epoch) for each source that is still being written: only
    such a run can hang.
    """
    times = now or {}
    return tuple(_one(log, declarations, book, times.get(log.source)) for log in logs)


def _one(read: TrainingLog, declarations: Declarations, book: Book, now: float | None) -> Diagnosis:
    declared = declarations.of(read.source, read.run)
    log = replace(read, facts={**read.facts, **declared.facts})
    verdict = judge(log, now=now)
    cost = cost_of(log, declared, book, verdict.wasted_share)
    budget = None if declared.budget is None else budget_use(log, verdict, cost, declared.budget)
    return Diagnosis(
        log, verdict, find_cause(verdict, log), cost, advice_on(log, verdict, cost, declared), budget
    )
