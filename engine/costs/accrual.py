"""Accrual: what every job used in every slot, and what that costs.

GPU-hours are allocated GPUs times wall time. A GPU belongs to a job from the slot in which that
was first said; what lies between two sights of the same job is billed whole, a hole in the data
included, and what follows the newest sight is not billed until the GPU is seen again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from stoploss.engine.costs.book import LIST_GB, ON_DEMAND, SPOT, NoPrice, Price
from stoploss.engine.costs.gone import together
from stoploss.engine.costs.past import Past, sums
from stoploss.engine.costs.priced import UNIT_BYTES, Prices
from stoploss.engine.costs.sights import Sights
from stoploss.engine.costs.use import Accrual, Key, Stream
from stoploss.engine.evaluation.columns import World, value_at
from stoploss.engine.evaluation.kleene import Bools, Floats
from stoploss.engine.history.frame import Frame
from stoploss.engine.model import ResourceId
from stoploss.rules.units import MONTH

IDLE_BELOW = 0.05
"""A GPU whose utilization lies below this in a slot did no work in it."""
_SIZES = {"volume": ("storage.size", "storage.capacity"), "bucket": ("storage.size",)}
_SENT = {
    "network.cross_zone": "egress-cross-zone",
    "network.cross_region": "egress-cross-region",
    "network.internet": "egress-internet",
}
_MONTH_HOURS = MONTH / 3600.0


def accrue(
    frame: Frame,
    prices: Prices,
    fixed_costs: Sequence[Mapping[str, Any]] = (),
    past: Past | None = None,
    asked: Sequence[str] = (),
) -> Accrual:
    """What was used in the slots of a frame.

    Args:
        frame: what was seen.
        prices: of what was used.
        fixed_costs: those of the policy set.
        past: use in slots that the frame does not hold.
        asked: labels by which budgets choose jobs; others tell no gone jobs apart.
    """
    world = World()
    world.update(frame)
    found = _Accruer(frame, world, prices).run(fixed_costs)
    return found if past is None else with_past(found, past, asked)


def with_past(accrual: Accrual, past: Past, asked: Sequence[str] = ()) -> Accrual:
    """An accrual that knows what was used before, of jobs that are gone together."""
    experiments = {column.resource.id for column in accrual.world.tables["experiment"].columns}
    past = together(past, accrual.there, experiments, asked)
    found = replace(accrual, past=past)
    held, zeros = found.held, np.zeros(accrual.frame.slots)
    streams = {stream.key: stream for stream in accrual.streams}
    for key in past.days.keys() - streams.keys():
        streams[key] = Stream(key, zeros, zeros)
    every = []
    for key, stream in streams.items():
        hours, money = sums(past.days.get(key, ()))
        hours -= float(stream.gpu_hours[:held].sum())
        money -= float(stream.money[:held].sum())
        every.append(replace(stream, before_hours=hours, before_money=money))
    return replace(found, streams=tuple(every))


class _Accruer:
    def __init__(self, frame: Frame, world: World, prices: Prices) -> None:
        self.frame, self.world, self.prices = frame, world, prices
        self.sights = Sights(frame)
        self.hours = frame.resolution / 3600.0
        self.sums: dict[Key, tuple[Floats, Floats]] = {}
        self.known: dict[str, Bools] = {}
        self.begun: dict[str, int] = {}

    def run(self, fixed_costs: Sequence[Mapping[str, Any]]) -> Accrual:
        self._gpus()
        self._instances()
        self._counted_gpus()
        for kind in ("volume", "bucket", "checkpoint"):
            self._kept(kind)
        self._logs()
        self._network()
        for cost in fixed_costs:
            self._fixed(cost)
        streams = tuple(Stream(key, *amounts) for key, amounts in self.sums.items())
        return Accrual(self.frame, self.world, streams, self.known, self.begun)

    # ---- compute -----------------------------------------------------------------------

    def _gpus(self) -> None:
        slices = {gpu: self.prices.parent(gpu) for gpu in self.world.tables["gpu"].by_resource}
        cut = set(slices.values())
        billed: dict[ResourceId, Bools] = {}
        columns = sorted(self.world.tables["gpu"].columns, key=lambda c: slices[c.resource] is not None)
        for column in columns:
            gpu, parent = column.resource, slices[column.resource]
            if column.owner is None and gpu in cut:
                continue  # its slices are billed
            used = self._held(gpu, column.owner, column.start, column.end)
            if used is None:
                continue
            if parent is not None and parent in billed:
                used &= ~billed[parent]
            billed[gpu] = billed.get(gpu, np.zeros_like(used)) | used
            part = self.prices.part(gpu)
            share = 1.0 if isinstance(part, NoPrice) else part
            price = self.prices.of(gpu) if not isinstance(part, NoPrice) else part
            idle = used & (self.sights.numbers("gpu.utilization", gpu) < IDLE_BELOW)
            for mask, rests in ((used & ~idle, False), (idle, True)):
                if mask.any():
                    self._bill((column.owner, gpu), np.where(mask, share, 0.0), price, rests)

    def _held(self, leaf: ResourceId, job: str | None, start: int, end: int) -> Bools | None:
        """The slots in which a thing is billed, and a note of those in which it was seen."""
        first, count = self.frame.first, self.frame.slots
        low, high = max(start - first, 0), min(end - first, count)
        if low >= high:
            return None
        fresh = self.sights.fresh(leaf)
        seen = np.flatnonzero(fresh[low:high])
        if job is not None:
            known = self.known.setdefault(job, np.ones(count, np.bool_))
            known[low:high] &= fresh[low:high]
        if not len(seen):
            return None
        if job is not None:
            self.begun[job] = min(self.begun.get(job, low + first), low + first)
        used = np.zeros(count, np.bool_)
        used[low : low + int(seen[-1]) + 1] = True
        return used

    def _bill(
        self,
        who: tuple[str | None, ResourceId],
        units: Floats | Bools,
        price: Price | NoPrice,
        idle: bool = False,
        gpus: bool = True,
    ) -> None:
        """Bill allocated units (per slot) at a price per unit and hour."""
        hours = np.asarray(units, np.float64) * self.hours
        kind, missing, money = ON_DEMAND, None, np.zeros_like(hours)
        if isinstance(price, Price):
            kind, money = price.kind, hours * price.amount
        else:
            missing = price.reason
        elasticity = "elastic" if kind in (ON_DEMAND, SPOT) else "fixed"
        rest = ("compute", elasticity, "allocated", kind, missing, idle)
        self._add(who, rest, hours if gpus else np.zeros_like(hours), money)

    def _instances(self) -> None:
        """Jobs that hold no GPU are billed for their instances."""
        with_gpus = set(self.begun)
        table, jobs = self.world.tables["instance"], self.world.tables["job"]
        entries = self.world.entries("instance", "job")
        for lower, upper, start, end in zip(
            entries.lower, entries.upper, entries.start, entries.end, strict=True
        ):
            job = jobs.columns[int(upper)].resource.id
            if job in with_gpus:
                continue
            instance = table.columns[int(lower)].resource
            used = self._held(instance, job, int(start), int(end))
            if used is not None:
                self._bill((job, instance), used, self.prices.of(instance), gpus=False)

    def _counted_gpus(self) -> None:
        """Jobs of which only the number of GPUs is known, as a scheduler tells it."""
        for column in self.world.tables["job"].columns:
            job = column.resource
            if job.id in self.begun:
                continue
            name = next((n for n in ("job.gpus_held", "job.gpus") if self.sights.has(n, job)), None)
            if name is None:
                continue
            used = self._held(job, job.id, column.start, column.end)
            if used is not None:
                count = np.nan_to_num(self.sights.numbers(name, job, whole=True))
                self._bill((job.id, job), used * count, self.prices.book.gpu(None))

    # ---- the rest ----------------------------------------------------------------------

    def _kept(self, kind: str) -> None:
        for column in self.world.tables[kind].columns:
            resource = column.resource
            if kind == "checkpoint" and self._lies_in_something_billed(resource):
                continue
            names = _SIZES.get(kind, ("checkpoint.size",))
            name = next((n for n in names if self.sights.has(n, resource)), None)
            used = None if name is None else self._held(resource, None, column.start, column.end)
            if name is None or used is None:
                continue
            price = self.prices.of(resource)
            size = np.nan_to_num(self.sights.numbers(name, resource, whole=True)) * used
            per_byte_hour = 0.0
            if isinstance(price, Price):
                per_byte_hour = price.amount / UNIT_BYTES[price.unit] / _MONTH_HOURS
            self._measured(resource, "storage", size * (per_byte_hour * self.hours), price)

    def _lies_in_something_billed(self, checkpoint: ResourceId) -> bool:
        return any(self.prices.label(checkpoint, name) for name in ("volume", "bucket"))

    def _logs(self) -> None:
        price = self.prices.book.rate("log-ingest")
        per_byte = price.amount / LIST_GB if isinstance(price, Price) else 0.0
        for log in self.world.tables["log"].by_resource:
            if self.sights.has("logs.bytes", log):
                written = self.sights.gained("logs.bytes", log)
            elif self.sights.has("logs.rate", log):
                written = np.nan_to_num(self.sights.numbers("logs.rate", log)) * self.frame.resolution
            else:
                continue
            self._measured(log, "logs", written * per_byte, price)

    def _network(self) -> None:
        entries, hosts = self.world.entries("host", "job"), self.world.tables["host"]
        jobs = self.world.tables["job"]
        for name, rate in _SENT.items():
            plane = self.frame.planes.get(name)
            price = self.prices.book.rate(rate)
            per_byte = price.amount / LIST_GB if isinstance(price, Price) else 0.0
            for host in plane.series if plane else ():
                sent = self.sights.gained(name, host) * per_byte
                spans = [
                    (jobs.columns[int(upper)].resource.id, *self._range(int(start), int(end)))
                    for lower, upper, start, end in zip(
                        entries.lower, entries.upper, entries.start, entries.end, strict=True
                    )
                    if hosts.columns[int(lower)].resource == host
                ]
                users = np.zeros(self.frame.slots)
                for _, low, high in spans:
                    users[low:high] += 1
                # Jobs that share a host share what it sends.
                for job, low, high in spans:
                    part = np.zeros(self.frame.slots)
                    part[low:high] = sent[low:high] / users[low:high]
                    self._measured(host, "network", part, price, job)
                self._measured(host, "network", np.where(users == 0, sent, 0.0), price, "")

    def _range(self, start: int, end: int) -> tuple[int, int]:
        first, count = self.frame.first, self.frame.slots
        return min(max(start - first, 0), count), min(max(end - first, 0), count)

    def _measured(
        self,
        resource: ResourceId,
        category: str,
        money: Floats,
        price: Price | NoPrice,
        job: str | None = None,
    ) -> None:
        """Add a measured amount; `job` overrides whose it is, empty for nobody's."""
        if not money.any() and isinstance(price, Price):
            return
        missing = price.reason if isinstance(price, NoPrice) else None
        rest = (category, "elastic", "measured", ON_DEMAND, missing, False)
        owners = [(job or None, 0, self.frame.slots)] if job is not None else self._spans(resource, "job")
        for owner, low, high in owners:
            part = np.zeros_like(money)
            part[low:high] = money[low:high]
            self._add((owner, resource), rest, np.zeros_like(money), part)

    def _fixed(self, cost: Mapping[str, Any]) -> None:
        """A fixed cost: over jobs with the label `share-by`, by GPU-hours; the rest by itself."""
        per_slot = cost["cost"].value * self.frame.resolution
        label, category = cost.get("share-by"), cost.get("category") or "compute"
        rest = (category, "fixed", "declared", self.prices.book.own_kind, None, False)
        left = np.full(self.frame.slots, per_slot)
        zeros = np.zeros(self.frame.slots)
        if label:
            allocated: dict[str, Floats] = {}
            total = np.zeros(self.frame.slots)
            for key, (hours, _) in self.sums.items():
                if key.job is not None:
                    allocated[key.job] = allocated.get(key.job, zeros) + hours
                    total = total + hours
            share = np.divide(per_slot, total, out=np.zeros_like(total), where=total > 0)
            for job, hours in sorted(allocated.items()):
                carries = np.zeros(self.frame.slots, np.bool_)
                for value, low, high in self._spans(ResourceId("job", job), label):
                    carries[low:high] = bool(value)
                part = np.where(carries, hours * share, 0.0)
                if part.any():
                    self._add((job, ResourceId("job", job)), rest, zeros, part, cost["name"])
                    left = left - part
        self._add((None, None), rest, zeros, np.maximum(left, 0.0), cost["name"])

    # ---- whose it is -------------------------------------------------------------------

    def _add(
        self,
        who: tuple[str | None, ResourceId | None],
        rest: tuple[str, str, str, str, str | None, bool],
        hours: Floats,
        money: Floats,
        name: str = "",
    ) -> None:
        job, leaf = who
        owner = ResourceId("job", job) if job is not None else leaf
        for team, experiment, low, high in self._teams(owner):
            key = Key(job, team, experiment, *rest, name)
            if key not in self.sums:
                self.sums[key] = np.zeros(self.frame.slots), np.zeros(self.frame.slots)
            sums = self.sums[key]
            sums[0][low:high] += hours[low:high]
            sums[1][low:high] += money[low:high]

    def _teams(self, owner: ResourceId | None) -> Iterator[tuple[str | None, str | None, int, int]]:
        if owner is None:
            yield None, None, 0, self.frame.slots
            return
        experiments = self._spans(owner, "experiment")
        for team, low, high in self._spans(owner, "team"):
            for experiment, begin, end in experiments:
                if max(low, begin) < min(high, end):
                    yield team, experiment, max(low, begin), min(high, end)

    def _spans(self, resource: ResourceId, label: str) -> list[tuple[str | None, int, int]]:
        """The values of a label over the frame's slots: (value, from, to)."""
        track = self.world.track(resource, label)
        cuts = sorted({0, self.frame.slots, *(self._range(slot, slot)[0] for slot, _ in track)})
        spans = []
        for low, high in pairwise(cuts):
            value = value_at(track, low + self.frame.first)
            spans.append((value if isinstance(value, str) and value else None, low, high))
        return spans
