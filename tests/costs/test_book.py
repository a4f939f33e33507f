"""The price book: what it knows, what it does not, and what a policy set puts in its place."""

from __future__ import annotations

import csv
import shutil
from datetime import date
from pathlib import Path

import pytest

from stoploss.engine.costs.book import (
    Book,
    NoPrice,
    Price,
    age_days,
    book_for,
    read_book,
    shipped,
)
from stoploss.rules.units import parse_quantity

BOOK = Path(__file__).parents[2] / "engine" / "costs" / "book"
LISTED = Path(__file__).parents[3] / "shared" / "data" / "prices" / "aws_gpu_prices.csv"


def amount(price: Price | NoPrice) -> float:
    """The amount of a price that is known."""
    assert isinstance(price, Price), price
    return price.amount


def own(**prices: str) -> Book:
    """The book under `prices: gpu-hour:`."""
    return book_for({"gpu-hour": {key: parse_quantity(text) for key, text in prices.items()}}, "USD")


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", "H200-NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA A100 80GB PCIe", "A100-80"),
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100-16"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("AMD Instinct MI300X", "MI300X"),
        ("h100-sxm", "H100-SXM"),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA A100", None),
        ("Quadro", None),
    ],
)
def test_a_model_is_known_by_the_name_that_the_driver_gives(model: str, row: str | None) -> None:
    """Each name meets one row; a name that could be two cards meets none."""
    found = shipped().spec(model)

    assert (found.name if found else None) == row


def test_every_row_says_where_it_comes_from_and_since_when() -> None:
    """No row is without a source and a month, and no price is 0."""
    book = shipped()
    rows = [*book.gpus, *book.instances.values(), *book.storages, *book.rates.values()]

    assert len(book.gpus) > 15
    assert len(book.instances) > 60
    assert [row for row in rows if not row.source or not age_days(row.month, date(2099, 1, 1))] == []
    assert [row for row in rows if row.price is not None and row.price <= 0] == []


def test_the_book_does_not_contradict_itself() -> None:
    """Totals of GPU memory fit count and model, and every instance's GPU has a row."""
    assert shipped().problems == ()


@pytest.mark.real
@pytest.mark.skipif(not LISTED.exists(), reason="the recorded price list is not here")
def test_instances_cost_what_the_recorded_list_says() -> None:
    """Where the recorded list names an instance type, the book is within one cent."""
    with LISTED.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))

    assert len(rows) >= 10
    for row in rows:
        book = shipped().instances[row["InstanceType"]]
        assert book.price == pytest.approx(float(row["Price"]), abs=0.01)
        assert (book.gpus, book.vcpus) == (int(row["AcceleratorCount"]), int(row["vCPUs"]))
        assert book.memory_gib == float(row["MemoryGiB"])
        if row["SpotPriceMax"] and row["Region"] == "us-east-1":
            assert book.spot == pytest.approx(float(row["SpotPriceMax"]), abs=0.01)


def test_G_66_a_blank_spot_price_is_an_unknown_saving() -> None:
    """A blank cell saves an unknown share, never all; spot at the list price saves nothing."""
    book = shipped()

    assert book.instances["p3.8xlarge"].spot is None
    assert book.instances["p3.8xlarge"].spot_saving is None
    assert isinstance(book.instance("p3.8xlarge", "spot"), NoPrice)
    assert book.instances["p5.48xlarge"].spot_saving == 0


def test_G_67_a_wrong_total_of_gpu_memory_is_told_and_not_used(tmp_path: Path) -> None:
    """Eight GPUs whose total is that of one: per GPU times count counts, and the row is flagged."""
    shutil.copytree(BOOK, tmp_path / "book")
    file = tmp_path / "book" / "instances.csv"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("p3.16xlarge,8,V100-16,128,", "p3.16xlarge,8,V100-16,16,"), encoding="utf-8")
    book = read_book(tmp_path / "book")

    assert book.gpu_memory_gb("p3.16xlarge") == 128
    assert book.problems == ("p3.16xlarge: total GPU memory 16 GB does not fit 8 x 16 GB; 128 GB is used",)


def test_the_longest_part_of_the_model_wins_in_any_case() -> None:
    """`A100-SXM4-80` beats `a100`, `default` serves the rest, and the book no longer counts."""
    book = own(**{"a100": "$2/GPU-hour", "A100-SXM4-80": "$3/GPU-hour", "default": "$1/GPU-hour"})

    assert amount(book.gpu("NVIDIA A100-SXM4-80GB")) == pytest.approx(3)
    assert amount(book.gpu("NVIDIA A100-SXM4-40GB")) == pytest.approx(2)
    assert amount(book.gpu("NVIDIA H100 80GB HBM3")) == pytest.approx(1)
    assert amount(book.gpu(None)) == pytest.approx(1)


def test_without_a_default_the_book_serves_the_rest() -> None:
    """An own price of one model leaves the others to the book."""
    book = own(H200="$5/GPU-hour")

    assert amount(book.gpu("NVIDIA H200")) == pytest.approx(5)
    assert amount(book.gpu("NVIDIA H100 80GB HBM3")) == pytest.approx(55.04 / 8)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (None, "gpu.model is unknown"),
        ("NVIDIA H100 PCIe", "has no price of H100-PCIe"),
        ("Riva TNT", "does not know one model 'Riva TNT'"),
    ],
)
def test_an_unknown_price_has_a_reason(model: str | None, reason: str) -> None:
    """What is not known is never guessed."""
    found = shipped().gpu(model)

    assert isinstance(found, NoPrice)
    assert reason in found.reason


def test_nothing_is_converted() -> None:
    """In a set in euros the book's prices are unknown, and the fix is told."""
    found = book_for({}, "EUR").gpu("NVIDIA H100 80GB HBM3")

    assert found == NoPrice("the book is in USD; give prices: in EUR")


def test_instances_are_paid_as_their_lifecycle_says() -> None:
    """On demand by the list, spot by what was read or the book, committed and owned not at all."""
    book = shipped()

    assert amount(book.instance("p4d.24xlarge", "on-demand")) == pytest.approx(21.9576)
    assert book.instance("p4d.24xlarge", "spot") == Price(
        8.19, "h", "USD", "AWS spot price, us-east-1, dearest zone", "spot", "2026-11"
    )
    assert amount(book.instance("p4d.24xlarge", "spot", 5.0)) == 5.0
    assert book.instance("p4d.24xlarge", "committed") == NoPrice("the price book has no committed prices")
    assert isinstance(book.instance("x99.mega"), NoPrice)


def test_storage_is_priced_by_class_or_by_tier() -> None:
    """A class is taken by its name; without one the kind's tier, standard where none is said."""
    book = shipped()

    assert amount(book.storage("volume", None, None)) == 0.08
    assert amount(book.storage("bucket", "archive", None)) == 0.00099
    assert amount(book.storage("bucket", "standard", "glacier_ir")) == 0.004
    assert isinstance(book.storage("volume", None, "nfs-of-the-institute"), NoPrice)
    assert isinstance(book.storage("volume", "archive", None), NoPrice)


@pytest.mark.parametrize(
    ("today", "days"), [(date(2026, 11, 3), 0), (date(2026, 12, 1), 1), (date(2027, 5, 30), 181)]
)
def test_the_age_of_a_price_counts_from_the_end_of_its_month(today: date, days: int) -> None:
    """A price of November is a day old on the first of December."""
    assert age_days("2026-11", today) == days


def test_a_row_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """File and row stand in the error."""
    shutil.copytree(BOOK, tmp_path / "book")
    file = tmp_path / "book" / "gpus.csv"
    file.write_text(file.read_text(encoding="utf-8").replace("H200,h200,141", "H200,h200,much"), "utf-8")

    with pytest.raises(ValueError, match=r"gpus\.csv: row 'H200': could not convert"):
        read_book(tmp_path / "book")
