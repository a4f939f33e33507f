"""The figures of cost of one job, team or experiment, slot by slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from stoploss.engine.costs.gone import is_stand_in
from stoploss.engine.costs.goodput import CLASSES, HIDDEN, UNKNOWN, USEFUL, JobGoodput, evaluations
from stoploss.engine.costs.sights import Sights
from stoploss.engine.costs.use import Accrual, Stream
from stoploss.engine.evaluation.kleene import Bools, Floats
from stoploss.engine.model import ResourceId

_ENOUGH = 0.8
"""Share of the paid time that must have a known class before a goodput is told."""
_PER_CENT = 0.01


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of one resource's cost.

    Attributes:
        known: per slot, whether all that it holds had been seen.
        missing: why money cannot be told; None where every price is known.
        streams: its use.
        classed: classes of its jobs.
        slot_hours: hours of a slot.
    """

    resource: ResourceId
    known: Bools
    missing: str | None
    streams: tuple[Stream, ...]
    classed: tuple[JobGoodput, ...]
    sights: Sights
    slot_hours: float

    def _shown(self, values: Floats) -> Floats:
        return np.where(self.known, values, np.nan)

    def _spent(self) -> Floats:
        """Money of all use ever."""
        before = sum(s.before_money for s in self.streams)
        return np.cumsum(sum((s.money for s in self.streams), np.zeros(len(self.known)))) + before

    def total(self) -> Floats:
        """Money of all categories."""
        return self._shown(self._spent())

    def category(self, name: str) -> Floats:
        """Money of one category as accrued; what is hidden of compute still lies in it."""
        mine = [s for s in self.streams if s.key.category == name]
        total = np.cumsum(sum((s.money for s in mine), np.zeros(len(self.known))))
        return self._shown(total + sum(s.before_money for s in mine))

    def hidden(self) -> Floats:
        """Money for computing that bought nothing."""
        return self.of_class(*(CLASSES[at] for at in HIDDEN))

    def of_class(self, *names: str) -> Floats:
        """Money for computing of some goodput classes, as known in each slot.

        What was used in slots that are not held any more cannot be classed any more.
        """
        if any(stream.began_before for stream in self.streams):
            return np.full(len(self.known), np.nan)
        rows = [CLASSES.index(name) for name in names]
        parts = (job.money[rows].sum(axis=0) for job in self.classed)
        return self._shown(sum(parts, np.zeros(len(self.known))))

    def gpu_hours(self) -> Floats:
        """GPU-hours allocated."""
        before = sum(s.before_hours for s in self.streams)
        total = np.cumsum(sum((s.gpu_hours for s in self.streams), np.zeros(len(self.known))))
        return self._shown(total + before)

    def useful_share(self) -> Floats:
        """Useful share of the paid GPU-hours, where most of them have a known class."""
        hours = sum((job.hours for job in self.classed), np.zeros((len(CLASSES), len(self.known))))
        paid = hours.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            enough = 1.0 - hours[UNKNOWN] / paid >= _ENOUGH
            return self._shown(np.where(enough, hours[USEFUL] / paid, np.nan))

    def per_hour(self) -> Floats:
        """Money per hour in each slot."""
        spent = sum((s.money for s in self.streams), np.zeros(len(self.known)))
        return self._shown(spent / self.slot_hours)

    def per_step(self) -> Floats:
        """Money per step over the last hour."""
        slots = max(1, round(1.0 / self.slot_hours))
        steps = _over(np.cumsum(self.sights.gained("train.step", self.resource)), slots)
        with np.errstate(divide="ignore", invalid="ignore"):
            per_step = np.where(steps > 0, _over(self._spent(), slots) / steps, np.nan)
        return self._shown(per_step)

    def projected(self) -> Floats:
        """Money at the planned end: what is spent, and the time or the steps that are left."""
        left = self.sights.numbers("train.time_left", self.resource) / 3600.0
        planned = self.sights.numbers("train.steps_planned", self.resource, whole=True)
        steps = np.maximum(planned - self.sights.numbers("train.step", self.resource), 0.0)
        return self.total() + np.where(np.isnan(left), steps * self.per_step(), left * self.per_hour())

    def per_epoch(self) -> Floats:
        """Money from the beginning of the last epoch that ended to its end."""
        begun = np.flatnonzero(self.sights.gained("train.epoch", self.resource) > 0)
        return self._since(begun[1:], lambda at, spent: spent[begun[at + 1]] - spent[begun[at]])

    def since_best(self) -> Floats:
        """Money since the best evaluation, as a reader of the logs tells it, else as read."""
        spent, index = self._spent(), np.arange(len(self.known))
        read, ages = self.sights.read("loss.since_best", self.resource)
        slots = read.astype(np.int64)
        best = np.maximum(slots - np.round(ages / (self.slot_hours * 3600.0)).astype(np.int64), 0)
        if not len(slots):
            slots = best = np.array([slot for slot, _, better in self._evaluations() if better], np.int64)
        if not len(slots):
            return np.full(len(self.known), np.nan)
        # The best stays the best until a later reading says otherwise.
        at = np.searchsorted(slots, index, side="right") - 1
        return self._shown(np.where(at >= 0, spent - spent[best[np.maximum(at, 0)]], np.nan))

    def per_improvement(self) -> Floats:
        """Money of the newest 1% by which the evaluations improved."""
        best = [(slot, value) for slot, value, better in self._evaluations() if better]
        slots = np.array([slot for slot, _ in best], np.int64)

        def price(at: int, spent: Floats) -> float:
            """From the newest earlier best that was at least 1% worse, else from the first."""
            value = best[at + 1][1]
            gains = [abs(value - earlier) / abs(earlier) if earlier else np.inf for _, earlier in best]
            back = next((n for n in range(at, -1, -1) if gains[n] >= _PER_CENT), 0)
            return float((spent[slots[at + 1]] - spent[slots[back]]) / (gains[back] / _PER_CENT))

        return self._since(slots[1:], price)

    def to_target(self) -> Floats:
        """Money until the declared target is met, by the forecast of time, else of steps."""
        hours = self.sights.numbers("loss.forecast.time_to_target", self.resource) / 3600.0
        steps = self.sights.numbers("loss.forecast.steps_to_target", self.resource)
        return np.where(np.isnan(hours), steps * self.per_step(), hours * self.per_hour())

    def _evaluations(self) -> list[tuple[int, float, bool]]:
        return evaluations(self.sights, self.resource)

    def _since(self, slots: npt.NDArray[np.int64], price: Callable[[int, Floats], float]) -> Floats:
        """A figure that is reckoned anew in some slots and holds until the next."""
        values, spent = np.full(len(self.known), np.nan), self._spent()
        for at, slot in enumerate(slots.tolist()):
            values[slot:] = price(at, spent)
        return self._shown(values)


def _over(total: Floats, slots: int) -> Floats:
    """What a running total gained over the last slots."""
    before = np.concatenate([np.zeros(slots), total])[: len(total)]
    return np.asarray(total - before)


def figures_of(accrual: Accrual, classes: Mapping[str, JobGoodput], sights: Sights) -> Iterator[Figures]:
    """The figures of every job, team and experiment with use."""
    groups: dict[ResourceId, list[Stream]] = {}
    for stream in accrual.streams:
        for kind in ("job", "team", "experiment"):
            name = getattr(stream.key, kind)
            if name is not None and not is_stand_in(name):
                groups.setdefault(ResourceId(kind, name), []).append(stream)
    for resource, streams in sorted(groups.items()):
        known = np.ones(accrual.frame.slots, np.bool_)
        jobs = {stream.key.job for stream in streams if stream.key.job is not None}
        begun = [accrual.begun[job] for job in jobs if job in accrual.begun]
        for job in jobs:
            known &= accrual.known.get(job, known)
        known[: max(0, min(begun, default=accrual.frame.first) - accrual.frame.first)] = False
        yield Figures(
            resource,
            known,
            next((s.key.missing for s in streams if s.key.missing and s.holds_gpus), None),
            tuple(streams),
            tuple(classes[job] for job in sorted(jobs & classes.keys())),
            sights,
            accrual.slot_hours,
        )


class Foreknown:
    """Who there is in a frame, since when, and how instants and money are told."""

    def __init__(self, accrual: Accrual, currency: str, zone: str) -> None:
        self.frame, self.world, self.currency = accrual.frame, accrual.world, currency
        self._zone = ZoneInfo(zone)
        self.resources = tuple(
            resource
            for kind in ("job", "team", "experiment")
            for resource in self.world.tables[kind].by_resource
        )

    def owners(self, resource: ResourceId) -> list[ResourceId]:
        """The team and the experiment of a job, as of the newest slot; of others none."""
        if resource.kind != "job":
            return []
        named = {
            kind: self.world.label_at(resource, kind, self.frame.last) for kind in ("team", "experiment")
        }
        return [ResourceId(kind, name) for kind, name in named.items() if isinstance(name, str) and name]

    def since_begun(self, resource: ResourceId, value: float) -> Floats:
        """A value in every slot from the first sight of a resource on."""
        columns = self.world.tables[resource.kind].by_resource.get(resource, ())
        start = min((self.world.tables[resource.kind].columns[at].start for at in columns), default=0)
        return np.where(np.arange(self.frame.slots) + self.frame.first >= start, value, np.nan)

    def to_target(self, resource: ResourceId) -> float | None:
        """Hours until the declared target, by the newest forecast; None without one."""
        plane = self.frame.planes.get("loss.forecast.time_to_target")
        if plane is None or resource not in plane.series:
            return None
        values = plane.values[:, plane.series.index(resource)]
        known = values[~np.isnan(values)]
        return float(known[-1]) / 3600.0 if len(known) else None

    def moment(self, seconds: float) -> str:
        """An instant by the policy set's clock."""
        return f"{datetime.fromtimestamp(seconds, self._zone):%Y-%m-%d %H:%M}"
