"""How budgets stand, slot by slot: what is spent of them, and where that leads.

A budget is the sum of use over the rows that its `where` selects, for each resource of a kind, from
the start of its period on. Days, weeks and months are those of the calendar in settings.timezone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import numpy as np

from stoploss.engine.costs.gone import is_stand_in, presences
from stoploss.engine.costs.money import money
from stoploss.engine.costs.past import Day, sums
from stoploss.engine.costs.sights import Sights
from stoploss.engine.costs.use import Accrual
from stoploss.engine.evaluation.evaluator import Evaluator
from stoploss.engine.evaluation.kleene import TRUE, Bools, Floats, Truths
from stoploss.engine.history.frame import Frame
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.conditions import typed
from stoploss.rules.diagnostics import Position
from stoploss.rules.policy import Budget, Policy

KINDS = ("job", "team", "experiment")
"""Kinds whose use is known by itself."""
RUN_RATE_HOURS = 6.0
"""Over how long the present speed of spending is taken."""

_NOWHERE = Position("")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Standing:
    """One budget of one resource, per slot.

    Attributes:
        limit: GPU-hours, or money in the policy set's currency where `in_money`.
        spent: since the start of the period that a slot lies in.
        projected: what will have been spent at the end of the period; NaN where no end is known.
        since: start of the newest slot's period, or of the data, in seconds since the epoch.
        until: end of that period; None for a budget for life.
        known: whether all that spends had been seen.
        missing: why it is unknown altogether, such as a price that is not known.
        reported: (share, age in seconds) of the newest share that was recorded, None where none was.
    """

    budget: Budget
    resource: ResourceId
    limit: float
    in_money: bool
    spent: Floats
    projected: Floats
    since: float
    until: float | None
    known: Bools
    missing: str | None = None
    reported: tuple[float, float] | None = None

    @property
    def used(self) -> Floats:
        """Share of the limit that is spent; NaN where unknown."""
        return np.where(self.known & (self.missing is None), self.spent / self.limit, np.nan)

    @property
    def share_projected(self) -> Floats:
        """Share of the limit that will have been spent at the end."""
        return np.where(self.known & (self.missing is None), self.projected / self.limit, np.nan)


def standings(
    accrual: Accrual, budgets: Sequence[Budget], zone: str, catalogue: Catalogue
) -> tuple[Standing, ...]:
    """Every budget for every resource that it holds for."""
    reckoner = _Reckoner(accrual, zone, catalogue)
    found = [spending for budget in budgets if budget.each in KINDS for spending in reckoner.of(budget)]
    held = Counter(spending.resource for spending in found)
    # A share that was recorded does not say of which of several budgets.
    return tuple(reckoner.standing(spending, alone=held[spending.resource] == 1) for spending in found)


def period_starts(per: str, zone: str, begin: float, end: float) -> list[float]:
    """Starts of the periods that lie over [begin, end], and the start of the one after.

    Times are seconds since the epoch; a period is begun by the wall clock of the zone, so that a day
    in which the clock is put forward has 23 hours. `life` has one period without an end.
    """
    if per == "life":
        return [-np.inf, np.inf]
    place = ZoneInfo(zone)
    day = datetime.fromtimestamp(begin, place).date()
    if per == "week":
        day -= timedelta(days=day.weekday())
    elif per == "month":
        day = day.replace(day=1)
    starts = [_midnight(day, place)]
    while starts[-1] <= end:
        day = _next(per, day)
        starts.append(_midnight(day, place))
    return starts


def _next(per: str, day: date) -> date:
    if per == "month":
        return (day.replace(day=28) + timedelta(days=4)).replace(day=1)
    return day + timedelta(days=7 if per == "week" else 1)


def _midnight(day: date, zone: ZoneInfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()


@dataclass(frozen=True, slots=True)
class _Spending:
    """What counts against one budget of one resource in every slot, and how sure that is."""

    budget: Budget
    resource: ResourceId
    amount: Floats
    known: Bools
    missing: str | None
    before: tuple[Day, ...] = ()


class _Reckoner:
    def __init__(self, accrual: Accrual, zone: str, catalogue: Catalogue) -> None:
        self.accrual, self.frame, self.zone, self.catalogue = accrual, accrual.frame, zone, catalogue
        self.sights = Sights(accrual.frame)
        self.starts = (np.arange(self.frame.slots) + self.frame.first - 1) * self.frame.resolution
        self._periods: dict[str, tuple[list[float], Any]] = {}

    def of(self, budget: Budget) -> list[_Spending]:
        """What counts against a budget, for each resource that it holds for."""
        in_money = budget.limit.dimension.money is not None
        selected = self._selected(budget)
        spent: dict[str, Floats] = {}
        missing: dict[str, str] = {}
        before: dict[str, list[Day]] = {}
        jobs: dict[str, set[str]] = {}
        for stream in self.accrual.streams:
            name, job = getattr(stream.key, budget.each), stream.key.job
            if name is None or is_stand_in(name) or not (counts := selected(job, name)).any():
                continue
            amount = stream.money if in_money else stream.gpu_hours
            before.setdefault(name, []).extend(self.accrual.past.days.get(stream.key, ()))
            spent[name] = spent.get(name, np.zeros(self.frame.slots)) + amount * counts
            if stream.key.missing is not None and in_money and stream.holds_gpus:
                missing.setdefault(name, stream.key.missing)
            if job is not None:
                jobs.setdefault(name, set()).add(job)
        always = np.ones(self.frame.slots, np.bool_)
        found = []
        for name, amount in sorted(spent.items()):
            known = always.copy()
            for job in jobs.get(name, ()):
                known &= self.accrual.known.get(job, always)
            resource = ResourceId(budget.each, name)
            days = tuple(before.get(name, ()))
            found.append(_Spending(budget, resource, amount, known, missing.get(name), days))
        return found

    def standing(self, spending: _Spending, *, alone: bool) -> Standing:
        """How a budget stands; `alone` where no other one holds for the resource."""
        budget, resource, amount = spending.budget, spending.resource, spending.amount
        in_money = budget.limit.dimension.money is not None
        limit = budget.limit.value if in_money else budget.limit.value / 3600.0
        frame, total = self.frame, np.concatenate([[0.0], np.cumsum(amount)])
        begin, (bounds, period) = float(self.starts[0]), self._period(budget.per)
        opened = np.searchsorted(period, period)
        spent = total[1:] - total[opened] + self._before(spending, bounds, period, in_money=in_money)
        reported = self._reported(resource, limit, (spent, total, period)) if alone else None
        rate = self._rate(amount)
        until = np.array(bounds)[period + 1]
        left = (until - self.starts - frame.resolution) / 3600.0
        if budget.per == "life":
            left = self._hours_left(resource)
        newest = int(period[-1])
        return Standing(
            budget,
            resource,
            limit,
            in_money,
            spent,
            spent + rate * left,
            max(bounds[newest], begin),
            None if budget.per == "life" else bounds[newest + 1],
            spending.known,
            spending.missing,
            reported,
        )

    def _period(self, per: str) -> tuple[list[float], Any]:
        """Starts of periods, and for each slot in which one it lies."""
        if per not in self._periods:
            begin, end = float(self.starts[0]), self.frame.time_of(self.frame.last)
            bounds = period_starts(per, self.zone, begin, end)
            numbers = np.array([bisect_right(bounds, start) - 1 for start in self.starts.tolist()])
            self._periods[per] = bounds, numbers
        return self._periods[per]

    def _before(self, spending: _Spending, bounds: list[float], period: Any, *, in_money: bool) -> Floats:
        """Per slot, what was spent in its period in slots that are not in the sum over the frame."""
        out, held = np.zeros(self.frame.slots), self.accrual.held
        if not spending.before:
            return out
        place = ZoneInfo(self.zone)
        for number in dict.fromkeys(period.tolist()):
            mine, begin = period == number, bounds[number]
            since = "" if np.isinf(begin) else f"{datetime.fromtimestamp(begin, place):%Y-%m-%d}"
            until = bounds[number + 1]
            end = "9999" if np.isinf(until) else f"{datetime.fromtimestamp(until, place):%Y-%m-%d}"
            hours, spent = sums((day for day in spending.before if day.day < end), since)
            counted = float(spending.amount[:held][mine[:held]].sum())
            out[mine] = (spent if in_money else hours) - counted
        return out

    def _reported(
        self, resource: ResourceId, limit: float, sums: tuple[Floats, Floats, Any]
    ) -> tuple[float, float] | None:
        """Where a share was recorded, what is spent is that and what has been used since then."""
        spent, total, period = sums
        slots, shares = self.sights.read("budget.used", resource)
        for at, slot in enumerate(slots.tolist()):
            until = int(slots[at + 1]) if at + 1 < len(slots) else self.frame.slots
            same = slice(slot, int(np.searchsorted(period, period[slot], side="right")))
            same = slice(slot, min(same.stop, until))
            spent[same] = shares[at] * limit + total[1:][same] - total[slot + 1]
        if not len(slots):
            return None
        age = (self.frame.slots - 1 - int(slots[-1])) * self.frame.resolution
        return float(shares[-1]), age

    def _rate(self, amount: Floats) -> Floats:
        """Amount per hour over the last hours, from the first use on."""
        slots = max(1, round(RUN_RATE_HOURS * 3600.0 / self.frame.resolution))
        total = np.concatenate([np.zeros(slots), np.cumsum(amount)])
        first = int(np.argmax(amount > 0))
        length = np.clip(np.arange(len(amount)) - first + 1, 1, slots)
        return np.asarray((total[slots:] - total[:-slots]) / (length * self.accrual.slot_hours))

    def _hours_left(self, resource: ResourceId) -> Floats:
        """Hours to the planned end of a job: as recorded, else by its steps."""
        left = self.sights.numbers("train.time_left", resource) / 3600.0
        planned = self.sights.numbers("train.steps_planned", resource, whole=True)
        steps = self.sights.numbers("train.step", resource)
        speed = self._rate(self.sights.gained("train.step", resource))
        with np.errstate(divide="ignore", invalid="ignore"):
            by_steps = np.where(speed > 0, np.maximum(planned - steps, 0.0) / speed, np.nan)
        return np.where(np.isnan(left), by_steps, left)

    def _selected(self, budget: Budget) -> Any:
        """(job, resource's name) -> the slots in which that use counts."""
        always = np.ones(self.frame.slots, np.bool_)
        if budget.where is None:
            return lambda job, name: always
        never = ~always
        root = budget.where.root
        if budget.each != "job" and _is_of_labels(root):
            # Labels are judged on the rows that spend: a team has no class, its jobs have, and had.
            by_job = self._true(replace(budget.where, root=at_level(root, "job")), "job")
            return lambda job, name: by_job.get(job, never)
        by_name = self._true(budget.where, budget.each)
        return lambda job, name: by_name.get(name, never)

    def _true(self, where: typed.CheckedCondition, each: str) -> Mapping[str | None, Bools]:
        blocks: list[Truths] = []
        policy = Policy("budget", each, _NOWHERE, where=where, resolution=self.frame.resolution)
        evaluator = Evaluator(
            [policy],
            self.catalogue,
            resolution=self.frame.resolution,
            observer=lambda number, first, truths, states: blocks.append(truths.copy()),
        )
        gone = presences(self.accrual.past, self.accrual.there, self.frame.first) if each == "job" else {}
        frame = replace(self.frame, resources={**self.frame.resources, **gone}) if gone else self.frame
        evaluator.advance(frame)
        truths = np.concatenate(blocks) if blocks else np.zeros((0, 0), np.int8)
        found: dict[str | None, Bools] = {}
        for at, column in enumerate(evaluator.rows(0)):
            true = truths[:, at] == TRUE
            name = column.resource.id
            found[name] = found[name] | true if name in found else true
        return found


def asked_labels(budgets: Sequence[Budget]) -> tuple[str, ...]:
    """The labels by which budgets choose among the jobs that spend."""
    roots = [item.where.root for item in budgets if item.where is not None and item.each != "job"]
    found: set[str] = set()

    def note(name: str) -> str:
        found.add(name)
        return name

    for root in roots:
        if _is_of_labels(root):
            changed(root, "name", note)
    return tuple(sorted(found))


def _is_of_labels(node: typed.Condition) -> bool:
    match node:
        case typed.Junction():
            return all(_is_of_labels(item) for item in node.items)
        case typed.Not():
            return _is_of_labels(node.inner)
        case typed.TextTest(operand=typed.Label(name=name)):
            return name not in ("kind", "id")
        case typed.Has():
            return True
    return False


def at_level(node: T, level: str) -> T:
    """A condition with all of its parts judged on another kind of resource."""
    return changed(node, "level", lambda value: level if value is not None else None)


def changed(node: T, name: str, change: Any) -> T:
    """A tree of dataclasses with the attribute `name` of every part changed."""
    if isinstance(node, tuple):
        return tuple(changed(item, name, change) for item in node)  # type: ignore[return-value]
    if not is_dataclass(node) or isinstance(node, type) or not type(node).__module__.endswith(".typed"):
        return node
    values = {
        item.name: change(value) if item.name == name else changed(value, name, change)
        for item in fields(node)
        if item.init and (value := getattr(node, item.name)) is not None
    }
    return replace(node, **values)


def highest(found: Sequence[Standing], frame: Frame) -> tuple[Floats, Floats, Floats]:
    """Per slot the highest share used, the highest share projected, and the limit behind the first.

    A share is unknown where any of the budgets is: the one that is not known may be the highest. The
    limit is in money, NaN where the fullest budget is in GPU-hours.
    """
    nothing = np.full(frame.slots, np.nan)
    if not found:
        return nothing, nothing, nothing
    used = np.stack([standing.used for standing in found])
    projected = np.stack([standing.share_projected for standing in found])
    limits = np.array([standing.limit if standing.in_money else np.nan for standing in found])
    known = ~np.isnan(used).any(axis=0)
    fullest = np.argmax(np.nan_to_num(used), axis=0)
    foreseen = np.where(np.isnan(projected), -np.inf, projected).max(axis=0)
    return (
        np.where(known, used.max(axis=0), np.nan),
        np.where(np.isfinite(foreseen), foreseen, np.nan),
        np.where(known, limits[fullest], np.nan),
    )


def outlook(item: Standing, hours: float, resolution: float, currency: str) -> str:
    """Whether a run gets to its target within a budget, at its use of the last hour, in words.

    Args:
        item: the budget.
        hours: until the target, by the forecast.
        resolution: seconds per slot.
        currency: ISO code of money.
    """
    back = min(len(item.spent) - 1, max(1, round(3600 / resolution)))
    gained = float(item.spent[-1] - item.spent[-1 - back]) if back else 0.0
    needs = hours * gained / (back * resolution / 3600) if back else 0.0
    left = max(0.0, item.limit - float(item.spent[-1]))
    if item.in_money:
        amounts = f"{money(needs, currency)} to its target, {money(left, currency)} left"
    else:
        amounts = f"{needs:,.4g} GPU-hours to its target, {left:,.4g} left"
    return f"{amounts}: {'gets there' if needs <= left else 'will not get there'}"
