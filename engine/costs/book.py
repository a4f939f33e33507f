"""The price book and the spec book beside it: dated tables, and what a policy set puts in their place.

The tables lie in `engine/costs/book/` as CSV, each row with its source and month. A cell that
is empty is unknown: a price that is not known is never taken for 0 or for another price.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

BOOK_CURRENCY = "USD"
LIST_GB = 2**30
"""Bytes of the gigabyte that cloud price lists bill."""
OLD_DAYS = 180
"""Age from which a price is told to be old."""
ON_DEMAND, SPOT = "on-demand", "spot"

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU model: `words` are those that its name must hold; None is unknown.

    Memory in GB, peak dense TFLOPS, power in W, price in USD per GPU-hour on demand.
    """

    name: str
    words: frozenset[str]
    memory_gb: float
    fp16_tflops: float | None
    bf16_tflops: float | None
    tensor_cores: bool
    tdp_w: float
    price: float | None
    source: str
    month: str


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance type: memory in GiB, GPU memory of all GPUs in GB, network in Gbit/s, USD per hour."""

    type: str
    gpus: int
    gpu: str | None
    gpu_memory_gb: float | None
    vcpus: int
    memory_gib: float
    network_gbit: float | None
    price: float | None
    spot: float | None
    source: str
    month: str

    @property
    def spot_saving(self) -> float | None:
        """The share that spot saves; None where either price is unknown."""
        if self.price is None or self.spot is None:
            return None
        return max(0.0, 1 - self.spot / self.price)


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage class: USD per GiB and month; `tier` is set where it stands for a whole tier."""

    name: str
    kinds: tuple[str, ...]
    tier: str | None
    price: float | None
    source: str
    month: str


@dataclass(frozen=True, slots=True)
class Rate:
    """What moving or taking in data costs, USD per GiB."""

    name: str
    price: float | None
    meaning: str
    source: str
    month: str


@dataclass(frozen=True, slots=True)
class Price:
    """A price: `amount` per `unit` in `currency`; `month` is None for the policy set's own."""

    amount: float
    unit: str
    currency: str
    source: str
    kind: str = ON_DEMAND
    month: str | None = None

    @property
    def told(self) -> str:
        """Source and month in words."""
        return f"{self.source}, {self.month}" if self.month else self.source


@dataclass(frozen=True, slots=True)
class NoPrice:
    """Why a price is unknown."""

    reason: str


@dataclass(frozen=True, slots=True)
class Book:
    """Prices of one policy set.

    Attributes:
        currency: of all amounts given out.
        own: (part of the model's name in lower case, price per GPU-hour), from `prices:`.
        own_kind: what sort of price those are.
        problems: rows of the book that contradict themselves, and what is used instead.
    """

    gpus: tuple[Gpu, ...]
    instances: Mapping[str, Instance]
    storages: tuple[Storage, ...]
    rates: Mapping[str, Rate]
    problems: tuple[str, ...] = ()
    currency: str = BOOK_CURRENCY
    own: tuple[tuple[str, float], ...] = ()
    own_kind: str = ON_DEMAND

    @property
    def month(self) -> str:
        """The oldest month of a row, such as 2026-11."""
        rows: list[Gpu | Instance | Storage | Rate] = [*self.gpus, *self.instances.values()]
        rows += [*self.storages, *self.rates.values()]
        return min(row.month for row in rows)

    def gpu(self, model: str | None) -> Price | NoPrice:
        """The price of a GPU-hour of a model."""
        key = self.own_key(model)
        if key is not None:
            source = f"prices: in the policies ({key})"
            return Price(dict(self.own)[key], "GPU-hour", self.currency, source, self.own_kind)
        if model is None:
            return NoPrice("gpu.model is unknown")
        row = self.spec(model)
        if row is None:
            return NoPrice(f"the price book does not know one model {model!r}")
        return self._listed(row.price, "GPU-hour", row.name, row)

    def own_key(self, model: str | None) -> str | None:
        """The key of `prices: gpu-hour:` that holds for a model: the longest part of its name."""
        keys = [key for key, _ in self.own if model is not None and key in model.lower()]
        if keys:
            return max(keys, key=len)
        return "default" if any(key == "default" for key, _ in self.own) else None

    def spec(self, model: str) -> Gpu | None:
        """The row of a model as the driver names it; None where none or more than one fits best."""
        words = frozenset(re.findall(r"[a-z0-9]+", model.lower()))
        named = [row for row in self.gpus if row.name.lower() == model.lower()]
        fitting = named or [row for row in self.gpus if row.words <= words]
        most = max((len(row.words) for row in fitting), default=0)
        best = [row for row in fitting if len(row.words) == most]
        return best[0] if len(best) == 1 else None

    def instance(
        self, type_: str | None, lifecycle: str | None = None, spot: float | None = None
    ) -> Price | NoPrice:
        """The price of an instance-hour; `spot` is a spot price that was read, in the set's currency."""
        if lifecycle == SPOT and spot is not None:
            return Price(spot, "h", self.currency, "instance.spot_price", SPOT)
        if lifecycle not in (None, ON_DEMAND, SPOT):
            return NoPrice(f"the price book has no {lifecycle} prices")
        if type_ is None:
            return NoPrice("instance.type is unknown")
        row = self.instances.get(type_)
        if row is None:
            return NoPrice(f"the price book does not know instance type {type_!r}")
        if lifecycle != SPOT:
            return self._listed(row.price, "h", type_, row)
        found = self._listed(row.spot, "h", f"{type_} on spot", row)
        if isinstance(found, NoPrice):
            return found
        return replace(found, kind=SPOT, source="AWS spot price, us-east-1, dearest zone")

    def gpu_memory_gb(self, type_: str) -> float | None:
        """Memory of all GPUs of an instance type: per GPU times count, whatever the row's total says."""
        row = self.instances.get(type_)
        spec = next((gpu for gpu in self.gpus if row and gpu.name == row.gpu), None)
        return row.gpus * spec.memory_gb if row and spec else None

    def storage(self, kind: str, tier: str | None, class_: str | None) -> Price | NoPrice:
        """The price of a GiB-month: of a named class, else of the kind's tier (default standard)."""
        if class_ is not None:
            row = next((row for row in self.storages if row.name.lower() == class_.lower()), None)
            if row is None:
                return NoPrice(f"the price book does not know storage class {class_!r}")
        else:
            tier = tier or "standard"
            row = next((row for row in self.storages if row.tier == tier and kind in row.kinds), None)
            if row is None:
                return NoPrice(f"the price book has no {tier} storage for a {kind}")
        return self._listed(row.price, "GiB-month", row.name, row)

    def rate(self, name: str) -> Price | NoPrice:
        """What a GiB costs to take in or to send; `log-ingest`, `egress-internet` and others."""
        row = self.rates[name]
        return self._listed(row.price, "GiB", name, row)

    def _listed(
        self, amount: float | None, unit: str, name: str, row: Gpu | Instance | Storage | Rate
    ) -> Price | NoPrice:
        if amount is None:
            return NoPrice(f"the price book has no price of {name}")
        if self.currency != BOOK_CURRENCY:
            return NoPrice(f"the book is in {BOOK_CURRENCY}; give prices: in {self.currency}")
        return Price(amount, unit, BOOK_CURRENCY, row.source, ON_DEMAND, row.month)


def age_days(month: str, today: date) -> int:
    """Days since the last day of a price's month, at least 0."""
    year, number = (int(part) for part in month.split("-"))
    after = date(year + number // 12, number % 12 + 1, 1)
    return max(0, (today - after).days + 1)


def book_for(prices: Mapping[str, Any], currency: str | None) -> Book:
    """The shipped book with a policy set's `prices:` and currency (ISO code, None for the book's)."""
    own = tuple(
        (key.lower(), price.value * 3600.0) for key, price in sorted(prices.get("gpu-hour", {}).items())
    )
    return replace(
        shipped(), currency=currency or BOOK_CURRENCY, own=own, own_kind=prices.get("kind") or ON_DEMAND
    )


@cache
def shipped() -> Book:
    """The book of this version."""
    return read_book(resources.files("stoploss.engine.costs") / "book")


def read_book(folder: Traversable) -> Book:
    """Read the four tables of a folder.

    Raises:
        ValueError: a row cannot be read.
    """
    gpus = tuple(_rows(folder / "gpus.csv", _gpu))
    instances = {row.type: row for row in _rows(folder / "instances.csv", _instance)}
    book = Book(
        gpus,
        instances,
        tuple(_rows(folder / "storage.csv", _storage)),
        {row.name: row for row in _rows(folder / "rates.csv", _rate)},
    )
    return replace(book, problems=tuple(_mismatches(book)))


def _mismatches(book: Book) -> Iterator[str]:
    for row in book.instances.values():
        known = book.gpu_memory_gb(row.type)
        if row.gpu is not None and known is None:
            yield f"{row.type}: GPU model {row.gpu} has no row"
        elif row.gpu_memory_gb is not None and known is not None and row.gpu_memory_gb != known:
            yield (
                f"{row.type}: total GPU memory {row.gpu_memory_gb:g} GB does not fit "
                f"{row.gpus} x {known / row.gpus:g} GB; {known:g} GB is used"
            )


def _rows(file: Traversable, read: Callable[[Mapping[str, str]], R]) -> Iterator[R]:
    with file.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            try:
                yield read(row)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{file.name}: row {next(iter(row.values()))!r}: {error}") from error


def _number(text: str) -> float | None:
    return float(text) if text else None


def _gpu(row: Mapping[str, str]) -> Gpu:
    return Gpu(
        row["name"],
        frozenset(row["match"].split()),
        float(row["memory_gb"]),
        _number(row["fp16_tflops"]),
        _number(row["bf16_tflops"]),
        row["tensor_cores"] == "yes",
        float(row["tdp_w"]),
        _number(row["price_gpu_hour"]),
        row["source"],
        row["date"],
    )


def _instance(row: Mapping[str, str]) -> Instance:
    return Instance(
        row["type"],
        int(row["gpus"]),
        row["gpu"] or None,
        _number(row["gpu_memory_gb"]),
        int(row["vcpus"]),
        float(row["memory_gib"]),
        _number(row["network_gbit"]),
        _number(row["price_hour"]),
        _number(row["spot_hour"]),
        row["source"],
        row["date"],
    )


def _storage(row: Mapping[str, str]) -> Storage:
    kinds, price = tuple(row["kinds"].split()), _number(row["price_gib_month"])
    return Storage(row["name"], kinds, row["tier"] or None, price, row["source"], row["date"])


def _rate(row: Mapping[str, str]) -> Rate:
    return Rate(row["name"], _number(row["price_gib"]), row["meaning"], row["source"], row["date"])
