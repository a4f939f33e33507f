"""How dear and how fast a job is: money per step, and steps per hour, over the last hour or since an act."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from datetime import UTC, datetime

from stoploss.engine.advice import HOUR, Measured
from stoploss.engine.costs.book import NoPrice
from stoploss.engine.costs.priced import Prices
from stoploss.engine.evaluation.columns import Column
from stoploss.engine.evaluation.explain import Explainer
from stoploss.engine.history.frame import slot_of
from stoploss.engine.incidents import label_values
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.units import format_duration

LEAST = 600.0
"""Seconds of which a pace is taken at the least."""
QUARTERS = 4
BESIDE = frozenset({"volume", "bucket", "checkpoint", "log"})
"""Kinds that are billed beside the job that uses them."""
STEP = "train.step"


@dataclass(frozen=True, slots=True)
class Pace:
    """What a job costs and how fast it goes, in a window that ends at an instant.

    Attributes:
        job: whose steps they are; None where no job, or more than one, is known.
        at: the end of the window.
        seconds: its length.
        currency: of the money.
        per_hour: money per hour of the job, and of what it uses where that is billed beside it;
            None is unknown.
        steps_per_hour: None is unknown.
        noise: standard error of `steps_per_hour` as a share of it; None is unknown.
        seen: steps since the act, or in the window.
        counted: whether its steps are logged at all.
        missing: why something is unknown, for people; empty where nothing is.
    """

    job: str | None
    at: datetime
    seconds: float
    currency: str
    per_hour: float | None = None
    steps_per_hour: float | None = None
    noise: float | None = None
    seen: float | None = None
    counted: bool = False
    missing: str = ""

    @property
    def per_step(self) -> float | None:
        """Money per step; None where it is unknown, or no step was made."""
        if self.per_hour is None or not self.steps_per_hour:
            return None
        return self.per_hour / self.steps_per_hour


class Pacer:
    """Takes paces from one frame."""

    def __init__(self, explainer: Explainer, prices: Prices, catalogue: Catalogue) -> None:
        self.explainer, self._prices, self._catalogue = explainer, prices, catalogue
        self._cuts: dict[int, tuple[Explainer, Prices]] = {}

    def column(self, resource: ResourceId) -> Column | None:
        """The newest stretch of a resource; None where it was never seen."""
        table = self.explainer.world.tables.get(resource.kind)
        found = table.by_resource.get(resource) if table is not None else None
        return table.columns[found[-1]] if table is not None and found else None

    def job_of(self, resource: ResourceId) -> str | None:
        """The one job that a resource is, works for or is kept for."""
        if resource.kind == "job":
            return resource.id
        column = self.column(resource)
        if column is None:
            return None
        jobs = label_values(self.explainer, column, "job", self.explainer.frame.last)
        return jobs[0] if len(jobs) == 1 and jobs[0] else None

    def last_step(self, job: str) -> int | None:
        """The newest slot in which a job told its step."""
        found = self.explainer.readings.place(self._catalogue[STEP], ResourceId("job", job))
        return self.explainer.readings.newest_valid(*found, self.explainer.frame.last) if found else None

    def pace(
        self, resource: ResourceId, job: str | None, *, slot: int, since: datetime | None = None
    ) -> Pace | None:
        """The pace as of a slot, of what came wholly after `since`; None where there is too little of it."""
        frame = self.explainer.frame
        row = self.column(ResourceId("job", job)) if job is not None else None
        own = self.column(resource)
        # The first slot after an act may hold steps from before it: a counter tells them late.
        begun = frame.first if since is None else slot_of(since.timestamp(), frame.resolution) + 2
        # The first sample of a counter says nothing of what it gained.
        begun = max(begun, frame.first, row.start + 1 if row is not None else frame.first)
        most = math.floor(HOUR / frame.resolution) // QUARTERS * QUARTERS
        slots = min(most, slot - begun + 1) // QUARTERS * QUARTERS
        seconds = slots * frame.resolution
        if not slots or seconds < LEAST or slot > frame.last:
            return None
        explainer, prices = self._as_of(slot)
        at = datetime.fromtimestamp(frame.time_of(slot), UTC)
        measured = None if row is None else Measured(explainer, row, prices, self._catalogue)
        bill, unpriced = self._bill(measured, own, explainer, prices)
        rate, noise, seen, unseen = self._steps(measured, slots, slot - begun + 1)
        return Pace(
            job,
            at,
            seconds,
            prices.book.currency,
            bill,
            rate,
            noise,
            seen,
            job is not None and self.last_step(job) is not None,
            "; ".join(text for text in (unpriced, unseen) if text),
        )

    def _bill(
        self, job: Measured | None, own: Column | None, explainer: Explainer, prices: Prices
    ) -> tuple[float | None, str]:
        """Money per hour, or what of it is missing: a part of a bill is not the bill."""
        billed = [job] if job is not None else []
        if own is not None and (job is None or own.resource.kind in BESIDE):
            billed.append(Measured(explainer, own, prices, self._catalogue))
        if not billed:
            return None, "it is not seen"
        found = [(item.resource, item.bill()) for item in billed]
        missing = [f"{resource}: {bill.reason}" for resource, bill in found if isinstance(bill, NoPrice)]
        if missing:
            return None, missing[0]
        return sum(bill.per_hour for _, bill in found if not isinstance(bill, NoPrice)), ""

    def _steps(
        self, job: Measured | None, slots: int, since: int
    ) -> tuple[float | None, float | None, float | None, str]:
        """Steps per hour, their standard error as a share, steps since the act, and what is missing."""
        if job is None:
            return None, None, None, "no job, or more than one, is known to use it"
        resolution = self.explainer.frame.resolution
        total = job.gained(STEP, slots * resolution)
        if total is None:
            if self.last_step(job.resource.id) is None:
                return None, None, None, "no step is logged; log train.step"
            window = format_duration(slots * resolution)
            return None, None, None, f"its steps of the last {window} are not known"
        sums = [job.gained(STEP, part * slots // QUARTERS * resolution) for part in range(1, QUARTERS)]
        seen = job.gained(STEP, since * resolution)
        rate = total / (slots * resolution) * HOUR
        return rate, _noise([*sums, total]), total if seen is None else seen, ""

    def _as_of(self, slot: int) -> tuple[Explainer, Prices]:
        frame = self.explainer.frame
        if slot == frame.last:
            return self.explainer, self._prices
        if slot not in self._cuts:
            then = frame.cut(frame.first, slot)
            prices = Prices(then, self._prices.book, self._catalogue)
            self._cuts[slot] = Explainer(then, self.explainer.world), prices
        return self._cuts[slot]


def _noise(sums: list[float | None]) -> float | None:
    """The standard error of a mean as a share of it, from what its quarters add up to."""
    known = [item for item in sums if item is not None]
    if len(known) < len(sums) or not known[-1]:
        return None
    parts = [later - before for before, later in zip([0.0, *known], known, strict=False)]
    return statistics.stdev(parts) / math.sqrt(len(parts)) / statistics.fmean(parts)
