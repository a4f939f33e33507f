"""Planes of cost and of budgets that policies name, reckoned from what a frame holds.

What was recorded stands: only series that nobody recorded are added. A value is what was known in
its slot; where anything that a resource holds had not been seen, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from stoploss.engine.costs.accrual import accrue
from stoploss.engine.costs.book import Book, book_for
from stoploss.engine.costs.budgets import Standing, asked_labels, changed, highest, outlook, standings
from stoploss.engine.costs.figures import Figures, Foreknown, figures_of
from stoploss.engine.costs.goodput import classify
from stoploss.engine.costs.money import money
from stoploss.engine.costs.past import Past
from stoploss.engine.costs.priced import Prices
from stoploss.engine.costs.sights import Sights
from stoploss.engine.costs.use import Accrual
from stoploss.engine.evaluation.kleene import Floats
from stoploss.engine.history.frame import VALID, Frame, Plane
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Catalogue, Signal, SignalKind
from stoploss.rules.policy import Policy, PolicySet
from stoploss.rules.units import format_duration, format_value

_PIN = "@"
Column = tuple[ResourceId, Floats]


def prepared(
    policies: PolicySet, frames: Callable[[float], Frame], catalogue: Catalogue, past: Past | None = None
) -> tuple[PolicySet, Callable[[float], Frame]]:
    """Policies whose budget is pinned, and frames with the cost and budget signals that they name.

    `past` is what was used in slots that the frames do not hold.
    """
    policies = replace(policies, policies=tuple(_pinned(policy) for policy in policies.policies))
    wanted = _wanted(policies.policies)
    if not wanted:
        return policies, frames
    book = book_for(policies.prices, policies.currency)

    def with_planes(resolution: float) -> Frame:
        frame = frames(resolution)
        if not frame.slots:
            return frame
        asked = asked_labels(policies.budgets)
        accrual = accrue(frame, Prices(frame, book, catalogue), policies.fixed_costs, past, asked)
        return with_costs(accrual, policies, book, catalogue, wanted)

    return policies, with_planes


def with_costs(
    accrual: Accrual, policies: PolicySet, book: Book, catalogue: Catalogue, wanted: Mapping[str, Signal]
) -> Frame:
    """The frame with planes of the wanted signals, for every resource of which nobody recorded them."""
    frame = accrual.frame
    found: dict[str, list[Column]] = {name: [] for name in wanted}
    remarks = dict(frame.remarks)
    if any(name.startswith("cost.") for name in wanted):
        classes, sights = classify(accrual) if wanted.keys() & CLASSED else {}, Sights(frame)
        for figures in figures_of(accrual, classes, sights):
            _add_costs(figures, wanted, found, remarks)
        if "cost.per_hour" in wanted:
            found["cost.per_hour"] += _instances(frame, Prices(frame, book, catalogue), sights)
    if any(name.startswith("budget.") for name in wanted):
        standing = standings(accrual, policies.budgets, policies.settings.timezone, catalogue)
        known = Foreknown(accrual, book.currency, policies.settings.timezone)
        _add_budgets(known, standing, wanted, found, remarks)
    planes = dict(frame.planes)
    for name, columns in found.items():
        planes[name] = _merged(frame, wanted[name], columns)
    return replace(frame, planes=planes, remarks=remarks)


def _add_costs(
    figures: Figures,
    wanted: Mapping[str, Signal],
    found: dict[str, list[Column]],
    remarks: dict[tuple[str, ResourceId], str],
) -> None:
    for name, signal in wanted.items():
        reckon = FIGURES.get(name)
        if reckon is None or figures.resource.kind not in signal.resources:
            continue
        if figures.missing is not None and name not in ("cost.gpu_hours", "cost.goodput"):
            remarks[name, figures.resource] = figures.missing
            continue
        values = reckon(figures)
        if np.isnan(values).all():
            remarks[name, figures.resource] = WANTING.get(name, "not known, or not any more")
        else:
            found[name].append((figures.resource, values))


FIGURES: Mapping[str, Callable[[Figures], Floats]] = {
    "cost.total": Figures.total,
    "cost.per_hour": Figures.per_hour,
    "cost.compute": lambda f: f.category("compute") - f.hidden(),
    "cost.storage": lambda f: f.category("storage"),
    "cost.network": lambda f: f.category("network"),
    "cost.logs": lambda f: f.category("logs"),
    "cost.services": lambda f: f.category("database"),
    "cost.hidden": lambda f: f.category("hidden") + f.hidden(),
    "cost.idle": lambda f: f.of_class("idle"),
    "cost.failed": lambda f: f.of_class("failed"),
    "cost.startup": lambda f: f.of_class("starting"),
    "cost.redone": lambda f: f.of_class("redone"),
    "cost.waiting": lambda f: f.of_class("waiting for data", "waiting for the network"),
    "cost.gpu_hours": Figures.gpu_hours,
    "cost.goodput": Figures.useful_share,
    "cost.projected": Figures.projected,
    "cost.per_epoch": Figures.per_epoch,
    "cost.per_step": Figures.per_step,
    "cost.since_best": Figures.since_best,
    "cost.per_improvement": Figures.per_improvement,
    "cost.to_target": Figures.to_target,
}
"""Signal -> how it is reckoned."""
CLASSED = frozenset(
    f"cost.{name}"
    for name in ("compute", "hidden", "idle", "failed", "startup", "redone", "waiting", "goodput")
)
"""Signals for which every slot must be classed, which is dear."""

WANTING = {
    "cost.goodput": "too little is known of what the GPUs did; read training logs",
    "cost.projected": "no planned end is known; train.time_left or train.steps_planned would tell it",
    "cost.per_epoch": "no epoch has ended yet",
    "cost.per_step": "no step was seen in the last hour",
    "cost.since_best": "no evaluation was seen",
    "cost.per_improvement": "no evaluation has got better yet",
    "cost.to_target": "no forecast is there: no target is declared, or the trend does not lead to it",
}
"""What is said where a figure cannot be reckoned."""


def _instances(frame: Frame, prices: Prices, sights: Sights) -> list[Column]:
    found = []
    for instance in frame.resources:
        price = prices.of(instance) if instance.kind == "instance" else None
        amount = getattr(price, "amount", None)
        if amount is not None:
            found.append((instance, np.where(sights.fresh(instance), amount, np.nan)))
    return found


# ---- budgets -----------------------------------------------------------------------------


def _add_budgets(
    known: Foreknown,
    standing: Iterable[Standing],
    wanted: Mapping[str, Signal],
    found: dict[str, list[Column]],
    remarks: dict[tuple[str, ResourceId], str],
) -> None:
    by_resource: dict[ResourceId, list[Standing]] = {resource: [] for resource in known.resources}
    for item in standing:
        by_resource.setdefault(item.resource, []).append(item)
    counts = {resource: len(items) for resource, items in by_resource.items()}
    for name in wanted:
        if not name.startswith("budget."):
            continue
        plain, _, pin = name.partition(_PIN)
        for resource, items in by_resource.items():
            if plain == "budget.count":
                # A budget of its team or experiment limits a job too.
                count = counts[resource] + sum(counts.get(owner, 0) for owner in known.owners(resource))
                found[name].append((resource, known.since_begun(resource, float(count))))
                continue
            held = [item for item in items if pin in ("", item.budget.name)]
            _add_budget(known, (name, plain, resource), held, found, remarks)


def _add_budget(
    known: Foreknown,
    what: tuple[str, str, ResourceId],
    held: list[Standing],
    found: dict[str, list[Column]],
    remarks: dict[tuple[str, ResourceId], str],
) -> None:
    name, plain, resource = what
    used, projected, limit = highest(held, known.frame)
    values = {"budget.used": used, "budget.projected": projected, "budget.limit": limit}[plain]
    values = np.where(known.since_begun(resource, 1.0) == 1.0, values, np.nan)
    if not held:
        remarks.setdefault((name, resource), f"no budget holds for this {resource.kind}")
        return
    if not np.isnan(values).all():
        found[name].append((resource, values))
    plane = known.frame.planes.get(name)
    recorded = plane is not None and resource in plane.series
    remarks[name, resource] = "as recorded" if recorded else _told(known, plain, held, values)


def _told(known: Foreknown, plain: str, held: list[Standing], values: Floats) -> str:
    """Which budget a number is about, or why there is none."""
    missing = next((item for item in held if item.missing is not None), None)
    if missing is not None:
        return f"budget {missing.budget.name}: {missing.missing}"
    shares = [item.share_projected if plain == "budget.projected" else item.used for item in held]
    newest = [-1.0 if np.isnan(share[-1]) else float(share[-1]) for share in shares]
    item = held[int(np.argmax(newest))]
    text = f"budget {item.budget.name}: {amount_told(item, known.currency)}"
    if plain == "budget.used" and (hours := known.to_target(item.resource)) is not None:
        text += f"; {outlook(item, hours, known.frame.resolution, known.currency)}"
    if plain == "budget.projected":
        if item.reported is not None:
            share, age = item.reported
            text += f", {format_value(share, 'share')} reported {format_duration(age)} ago"
        if np.isnan(values).all():
            return f"{text}; no planned end is known"
        ends = known.moment(item.until) if item.until is not None else "the planned end"
        text += f", {format_value(float(item.share_projected[-1]), 'share')} by {ends}"
    return text


def amount_told(item: Standing, currency: str) -> str:
    """What is spent of a budget, in words: `80 of 100 GPU-hours`."""
    spent = float(item.spent[-1])
    if item.in_money:
        return f"{money(spent, currency)} of {money(item.limit, currency)}"
    return f"{spent:,.4g} of {item.limit:,.4g} GPU-hours"


# ---- planes and pins -----------------------------------------------------------------------


def _merged(frame: Frame, signal: Signal, columns: list[Column]) -> Plane:
    """The recorded series of a signal, and the reckoned ones of other resources behind them."""
    plane = frame.planes.get(signal.name)
    there = set(plane.series) if plane else set()
    columns = [column for column in columns if column[0] not in there]
    values = np.stack([v for _, v in columns], axis=1) if columns else np.zeros((frame.slots, 0))
    status = np.where(np.isnan(values), 0, VALID).astype(np.uint8)
    cadence = np.ones(len(columns), np.int32)
    increase = None
    if signal.kind is SignalKind.COUNTER:
        increase = np.stack([_gained(v) for _, v in columns], axis=1) if columns else np.zeros_like(values)
    series = tuple(resource for resource, _ in columns)
    if plane is None:
        return Plane(signal, series, values, status, cadence, increase)
    return replace(
        plane,
        series=(*plane.series, *series),
        values=np.concatenate([plane.values, values], axis=1),
        status=np.concatenate([plane.status, status], axis=1),
        cadence=np.concatenate([plane.cadence, cadence]),
        increase=None
        if plane.increase is None or increase is None
        else np.concatenate([plane.increase, increase], axis=1),
    )


def _gained(values: Floats) -> Floats:
    """What a total gained since the slot before in which it was known; all of it at the first."""
    known = np.flatnonzero(~np.isnan(values))
    gained = np.zeros(len(values))
    gained[known] = np.maximum(np.diff(values[known], prepend=0.0), 0.0)
    return gained


def _wanted(policies: Iterable[Policy]) -> dict[str, Signal]:
    """The derived signals of cost and budgets that conditions name."""
    named = [signal for policy in policies for item in policy.conditions for signal in item.signals]
    return {
        signal.name: signal
        for signal in named
        if signal.collector == "derived" and signal.name.startswith(("cost.", "budget."))
    }


def _pinned(policy: Policy) -> Policy:
    """A policy whose budget signals speak of the one budget that it names."""
    if policy.budget is None:
        return policy

    def pin(signal: Signal) -> Signal:
        if signal.name in ("budget.used", "budget.projected", "budget.limit"):
            return replace(signal, name=f"{signal.name}{_PIN}{policy.budget}")
        return signal

    conditions = tuple(
        replace(
            item,
            root=changed(item.root, "signal", pin),
            signals=tuple(pin(signal) for signal in item.signals),
        )
        for item in policy.conditions
    )
    return replace(
        policy,
        when=None if policy.when is None else changed(policy.when, "signal", pin),
        conditions=conditions,
        canonical=f"{policy.canonical} of budget {policy.budget}",
    )
