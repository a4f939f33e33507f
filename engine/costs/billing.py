"""What is billed for a resource: its GPUs, its instance, its size or its stream of data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stoploss.engine.costs.book import LIST_GB, NoPrice, Price
from stoploss.engine.costs.money import price_text
from stoploss.engine.costs.priced import UNIT_BYTES, Prices
from stoploss.engine.evaluation.columns import Column, World
from stoploss.engine.evaluation.kleene import Bools
from stoploss.engine.model import ResourceId
from stoploss.rules.units import MONTH

GROUPS = frozenset({"job", "experiment", "team"})
_KEPT = {"volume": ("storage.size", "storage.capacity"), "bucket": ("storage.size",)}
_MONTH_HOURS = MONTH / 3600.0


@dataclass(frozen=True, slots=True)
class Charge:
    """One thing billed during the slots [start, end).

    Attributes:
        per_hour: money per hour at the newest slot.
        past: money per hour before it, on average.
        price: what it was reckoned with.
        measure: how much of it, in words: `GPU`, `3,725 GiB`.
    """

    leaf: ResourceId
    start: int
    end: int
    per_hour: float
    past: float
    price: Price
    measure: str


class Billing:
    """Charges of rows of one frame."""

    def __init__(self, world: World, prices: Prices) -> None:
        self.world, self.prices = world, prices
        self._last = prices.frame.last

    def charges(self, column: Column, since: int, true: Bools) -> list[Charge] | NoPrice:
        """What is billed for a row from slot `since` on; `true` marks the slots of the frame that count."""
        resource = column.resource
        if resource.kind == "gpu":
            return _all([self._gpu(resource, column.start, column.end)], "GPU")
        if resource.kind in GROUPS:
            return self._group(column, since)
        if resource.kind == "host":
            return self._host(column, since)
        if resource.kind == "instance":
            return _all([self._instance(resource, column.start, column.end)], "instance")
        if resource.kind in _KEPT or resource.kind == "checkpoint":
            return self._kept(column)
        if resource.kind == "log":
            return self._log(column, true)
        return NoPrice(f"a {resource.kind} has no price of its own")

    def parent(self, leaf: ResourceId) -> ResourceId | None:
        """The leaf whose bill holds this one: a slice's GPU, a GPU's instance."""
        if leaf.kind != "gpu":
            return None
        whole = self.prices.parent(leaf)
        if whole is not None:
            return whole
        found = self.world.label_at(leaf, "instance", self._last)
        instance = ResourceId("instance", found) if isinstance(found, str) else None
        return instance if instance is not None and self.world.knows(instance) else None

    def members(self, lower: str, column: Column, since: int) -> list[tuple[ResourceId, int, int]]:
        """Resources of a lower kind that belonged to a row since a slot, with the slots they did."""
        table, kind = self.world.tables[lower], column.resource.kind
        at = self.world.tables[kind].index[(column.resource, column.start)]
        entries = self.world.entries(lower, kind)
        low, high = np.searchsorted(entries.upper, (at, at + 1))
        spans = [
            (table.columns[int(entries.lower[n])].resource, int(entries.start[n]), int(entries.end[n]))
            for n in range(int(low), int(high))
        ]
        return [span for span in spans if span[2] > since]

    def is_bare(self, column: Column, since: int) -> bool:
        """Whether nothing is known that a job, an experiment or a team held since a slot."""
        mine = ("gpu", "instance") if column.resource.kind in GROUPS else ()
        return bool(mine) and not any(self.members(kind, column, since) for kind in mine)

    def _group(self, column: Column, since: int) -> list[Charge] | NoPrice:
        gpus = self.members("gpu", column, since)
        if gpus:
            return _all([self._gpu(*gpu) for gpu in gpus], "GPU")
        instances = self.members("instance", column, since)
        if instances:
            return _all([self._instance(*item) for item in instances], "instance")
        return NoPrice(f"no GPU and no instance of this {column.resource.kind} was seen")

    def _host(self, column: Column, since: int) -> list[Charge] | NoPrice:
        named = self.world.label_at(column.resource, "instance", self._last)
        if isinstance(named, str) and named:
            charge = self._instance(ResourceId("instance", named), column.start, column.end)
            return _all([charge], "instance")
        gpus = self.members("gpu", column, since)
        if not gpus:
            return NoPrice("no instance and no GPU of this host was seen")
        return _all([self._gpu(*gpu) for gpu in gpus], "GPU")

    def _gpu(self, gpu: ResourceId, start: int, end: int) -> Charge | NoPrice:
        price, part = self.prices.of(gpu), self.prices.part(gpu)
        if isinstance(price, NoPrice):
            return price
        if isinstance(part, NoPrice):
            return part
        measure = "GPU" if part == 1.0 else f"MIG slice ({part:.3g} GPU)"
        per_hour = price.amount * part
        return Charge(gpu, start, end, per_hour, per_hour, price, measure)

    def _instance(self, instance: ResourceId, start: int, end: int) -> Charge | NoPrice:
        price = self.prices.of(instance)
        if isinstance(price, NoPrice):
            return price
        measure = self.prices.word("instance.type", instance) or "instance"
        return Charge(instance, start, end, price.amount, price.amount, price, measure)

    def _kept(self, column: Column) -> list[Charge] | NoPrice:
        """Storage by its newest size: what it grew to is what can be got rid of."""
        resource = column.resource
        signals = _KEPT.get(resource.kind, ("checkpoint.size",))
        size = next((s for name in signals if (s := self.prices.number(name, resource)) is not None), None)
        if size is None:
            return NoPrice(f"{signals[0]} is unknown")
        price = self.prices.of(resource)
        if isinstance(price, NoPrice):
            return price
        amount = size / UNIT_BYTES[price.unit]
        per_hour = amount * price.amount / _MONTH_HOURS
        measure = f"{_amount(amount)} {price.unit.removesuffix('-month')}"
        return [Charge(resource, column.start, column.end, per_hour, per_hour, price, measure)]

    def _log(self, column: Column, true: Bools) -> list[Charge] | NoPrice:
        price = self.prices.book.rate("log-ingest")
        if isinstance(price, NoPrice):
            return price
        speeds = self._speeds(column.resource, true)
        if speeds is None:
            return NoPrice("logs.rate and logs.bytes are unknown")
        now, past = (speed * 3600.0 / LIST_GB for speed in speeds)
        measure = f"{_amount(now)} GiB/h"
        leaf, start, end = column.resource, column.start, column.end
        return [Charge(leaf, start, end, now * price.amount, past * price.amount, price, measure)]

    def _speeds(self, log: ResourceId, true: Bools) -> tuple[float, float] | None:
        """Bytes per second at the newest look, and on average over the slots that count."""
        frame = self.prices.frame
        for name in ("logs.rate", "logs.bytes"):
            found = self.prices.series(name, log)
            if found is None:
                continue
            plane, at = found
            values = plane.values[:, at]
            if plane.increase is not None:
                seconds = float(plane.cadence[at]) * frame.resolution
                values = np.where(np.isnan(values), np.nan, plane.increase[:, at] / seconds)
            read = np.flatnonzero(~np.isnan(values))
            if len(read):
                counted = values[true & ~np.isnan(values)]
                newest = float(values[read[-1]])
                return newest, float(counted.mean()) if len(counted) else newest
        return None


def told(charges: Iterable[Charge], last: int) -> str:
    """What is billed at the newest slot, in words: `8 GPUs x $4.10/GPU-hour`."""
    counts = Counter(
        (charge.measure, price_text(charge.price.amount, charge.price.unit, charge.price.currency))
        for charge in charges
        if charge.start <= last < charge.end
    )
    parts = [
        f"{f'{count} {measure}s' if count > 1 else measure if ' ' in measure else f'1 {measure}'} x {price}"
        for (measure, price), count in counts.items()
    ]
    return " + ".join(parts) or "nothing any more"


def _all(charges: list[Charge | NoPrice], what: str) -> list[Charge] | NoPrice:
    """All charges, or why some are unknown: a part of a bill is not the bill."""
    known = [charge for charge in charges if isinstance(charge, Charge)]
    missing = [charge.reason for charge in charges if isinstance(charge, NoPrice)]
    if not missing:
        return known
    counted = "" if len(charges) == 1 else f"{len(missing)} of {len(charges)} {what}s: "
    return NoPrice(counted + missing[0])


def _amount(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
