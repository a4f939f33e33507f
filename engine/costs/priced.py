"""Prices of the resources in a frame, and the attributes that conditions read them by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from stoploss.engine.costs.book import LIST_GB, Book, NoPrice, Price
from stoploss.engine.evaluation.readings import Readings
from stoploss.engine.history.frame import VALID, Frame, Plane
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.conditions.typed import CheckedCondition
from stoploss.rules.policy import Policy, PolicySet

PRICE_SIGNALS = ("gpu.price", "instance.price", "storage.price")
UNIT_BYTES = {"GiB-month": LIST_GB, "GB-month": 10**9, "GiB": LIST_GB}
"""Bytes of the size that a price is per."""
_CLASS_LABELS = ("storage_class", "volume_type")
_MIG = re.compile(r"\bMIG\b.*\d+g\.", re.IGNORECASE)


class Prices:
    """What the resources of a frame cost: as recorded, else by the price book."""

    def __init__(self, frame: Frame, book: Book, catalogue: Catalogue) -> None:
        self.frame, self.book, self._catalogue = frame, book, catalogue
        self._readings = Readings(frame, 80)

    def series(self, signal: str, resource: ResourceId) -> tuple[Plane, int] | None:
        """The plane and column of a signal of a resource, None where it was never read."""
        return self._readings.place(self._catalogue[signal], resource)

    def number(self, signal: str, resource: ResourceId) -> float | None:
        """The newest valid value of a signal, in its catalogue unit."""
        found = self.series(signal, resource)
        if found is None:
            return None
        plane, at = found
        slot = self._readings.newest_valid(plane, at, self.frame.last)
        return None if slot is None else float(plane.values[slot - self.frame.first, at])

    def word(self, signal: str, resource: ResourceId) -> str | None:
        """The newest valid word of a signal."""
        value = self.number(signal, resource)
        return None if value is None else self.frame.planes[signal].words[int(value)]

    def label(self, resource: ResourceId, name: str) -> str | None:
        """The newest text of a label that was said of the resource itself."""
        presence = self.frame.resources.get(resource)
        value = presence.changes[-1].labels.get(name) if presence and presence.changes else None
        return value if isinstance(value, str) and value else None

    def of(self, resource: ResourceId) -> Price | NoPrice:
        """The price of a GPU-hour, an instance-hour, or a size kept for a month."""
        if resource.kind == "gpu":
            return self._recorded(resource, "gpu.price", "GPU-hour") or self._gpu(resource)
        if resource.kind == "instance":
            return self._recorded(resource, "instance.price", "h") or self._instance(resource)
        return self._recorded(resource, "storage.price", "GB-month") or self._storage(resource)

    def parent(self, gpu: ResourceId) -> ResourceId | None:
        """The GPU that a MIG slice is cut from, as its label `parent` or `gpu` says."""
        for name in ("parent", "gpu"):
            found = self.label(gpu, name)
            whole = ResourceId("gpu", found) if found else None
            if whole is not None and whole != gpu and whole in self.frame.resources:
                return whole
        return None

    def part(self, gpu: ResourceId) -> float | NoPrice:
        """The share of a GPU that a resource is: of its memory for a MIG slice, else 1."""
        whole = self.parent(gpu)
        model = self.word("gpu.model", gpu) or ""
        if whole is None and not _MIG.search(model):
            return 1.0
        own = self.number("gpu.memory.total", gpu)
        of = self.number("gpu.memory.total", whole) if whole else None
        spec = self.book.spec(self.word("gpu.model", whole) or model if whole else model)
        if of is None and spec is not None:
            of = spec.memory_gb * 2**30
        if not own or not of:
            return NoPrice("the memory of the MIG slice or of its GPU is unknown")
        return min(1.0, own / of)

    def _recorded(self, resource: ResourceId, signal: str, unit: str) -> Price | None:
        if signal not in self.frame.planes:
            return None
        value = self.number(signal, resource)
        if value is None:
            return None
        return Price(value, unit, self.book.currency, f"{signal} as recorded", self._kind(resource))

    def _kind(self, resource: ResourceId) -> str:
        lifecycle = self.word("instance.lifecycle", resource) if resource.kind == "instance" else None
        return lifecycle or self.book.own_kind

    def _gpu(self, gpu: ResourceId) -> Price | NoPrice:
        whole = self.parent(gpu)
        return self.book.gpu(self.word("gpu.model", whole or gpu) or self.word("gpu.model", gpu))

    def _instance(self, instance: ResourceId) -> Price | NoPrice:
        return self.book.instance(
            self.word("instance.type", instance),
            self.word("instance.lifecycle", instance),
            self.number("instance.spot_price", instance),
        )

    def _storage(self, resource: ResourceId) -> Price | NoPrice:
        named = next((found for name in _CLASS_LABELS if (found := self.label(resource, name))), None)
        tier = self.word("storage.tier", resource)
        if named is None and tier is None and self.label(resource, "host") and resource.kind == "volume":
            return NoPrice("a volume of a host, whose storage class is unknown")
        return self.book.storage(resource.kind, tier, named)


def priced(frame: Frame, prices: Prices, wanted: Iterable[str], catalogue: Catalogue) -> Frame:
    """The frame with the price attributes that conditions ask for and nobody recorded.

    A resource without a price gets no reading, so that a condition on it is unknown.
    """
    sources = {"gpu.price": "gpu.model", "instance.price": "instance.type", "storage.price": None}
    planes = dict(frame.planes)
    for name in wanted:
        if name in planes:
            continue
        source = sources[name]
        if source is not None:
            resources = planes[source].series if source in planes else ()
        else:
            resources = tuple(item for item in frame.resources if item.kind in catalogue[name].resources)
        found = [
            (resource, price) for resource in resources if isinstance(price := prices.of(resource), Price)
        ]
        if found:
            planes[name] = _plane(frame, name, found, catalogue)
    return replace(frame, planes=planes)


def _plane(frame: Frame, name: str, found: list[tuple[ResourceId, Price]], catalogue: Catalogue) -> Plane:
    """An attribute known from each resource's first slot on."""
    series = tuple(resource for resource, _ in found)
    # Catalogue units are per GB, price lists per GiB.
    amounts = [price.amount * 1e9 / UNIT_BYTES.get(price.unit, 1e9) for _, price in found]
    first = np.array([max(0, frame.resources[item].first - frame.first) for item in series])
    known = np.arange(frame.slots)[:, None] == np.minimum(first, frame.slots - 1)
    values = np.where(known, np.array(amounts), np.nan)
    status = np.where(known, np.uint8(VALID), np.uint8(0))
    return Plane(catalogue[name], series, values, status, np.ones(len(series), dtype=np.int32))


def wanted_prices(policies: Iterable[Policy], others: Iterable[CheckedCondition] = ()) -> tuple[str, ...]:
    """The price attributes that policies and other conditions name."""
    conditions = [*others]
    for policy in policies:
        conditions += [*policy.conditions, *((policy.where,) if policy.where else ())]
    named = {signal.name for condition in conditions for signal in condition.signals}
    return tuple(name for name in PRICE_SIGNALS if name in named)


def with_prices(
    policies: PolicySet, frames: Callable[[float], Frame], book: Book, catalogue: Catalogue
) -> Callable[[float], Frame]:
    """Frames that carry the price attributes which the set's conditions name."""
    wanted = wanted_prices(policies.policies, (item.where for item in policies.exemptions))
    if not wanted:
        return frames

    def frame_of(resolution: float) -> Frame:
        frame = frames(resolution)
        return priced(frame, Prices(frame, book, catalogue), wanted, catalogue)

    return frame_of
