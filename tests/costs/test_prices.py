"""Prices in conditions, and the command that lists them."""

from __future__ import annotations

import json
from datetime import date

import pytest
from support.scenes import Scene, policy, reasons, recording, states

from stoploss.engine.costs.book import shipped
from stoploss.engine.costs.money import figure, money, price_text
from stoploss.reports import prices_table

UTIL = "gpu.utilization"
CARDS = {
    ("gpu", "dear", UTIL): [0] * 60,
    ("gpu", "dear", "gpu.model"): ["NVIDIA H100 80GB HBM3"] * 60,
    ("gpu", "cheap", UTIL): [0] * 60,
    ("gpu", "cheap", "gpu.model"): ["Tesla T4"] * 60,
    ("gpu", "odd", UTIL): [0] * 60,
    ("gpu", "odd", "gpu.model"): ["Riva TNT"] * 60,
}


def test_a_condition_can_ask_for_the_price(scene: Scene) -> None:
    """Above it fires, below it does not, and without a price it is unknown."""
    result = scene.audit(policy(["gpu.price > $2/GPU-hour", f"max({UTIL}, 30m) < 5%"]), recording(CARDS))

    assert states(result) == {"dear": "firing"}
    assert list(reasons(result)) == ["odd"]
    assert scene.status == 1


def test_where_can_ask_for_the_price(scene: Scene) -> None:
    """Prices are attributes, which `where` may name; own prices count there too."""
    text = policy(f"max({UTIL}, 30m) < 5%", where="gpu.price < $1/GPU-hour")
    own = "prices: {gpu-hour: {H100: $0.50/GPU-hour}}\n"

    assert states(scene.audit(text, recording(CARDS))) == {"cheap": "firing"}
    assert states(scene.audit(text + own, recording(CARDS))) == {"cheap": "firing", "dear": "firing"}


def test_a_recorded_price_stands_before_the_book(scene: Scene) -> None:
    """Where the recording holds gpu.price it decides, and is the source of the waste."""
    series = {**CARDS, ("gpu", "cheap", "gpu.price"): [9] * 60}
    text = policy(["gpu.price > $8/GPU-hour", f"max({UTIL}, 30m) < 5%"], waste="100%")
    result = scene.audit(text, recording(series))

    assert states(result) == {"cheap": "firing"}
    assert result["findings"][0]["waste"]["per_hour"] == 9
    assert result["findings"][0]["waste"]["price_source"] == "gpu.price as recorded"


@pytest.mark.parametrize(
    ("kind", "condition", "series"),
    [
        ("instance", "instance.price > $50/h", {"instance.type": "p5.48xlarge"}),
        ("bucket", "storage.price < $0.03/GB-month", {"storage.size": 1e9}),
    ],
)
def test_instances_and_storage_have_prices_too(
    scene: Scene, kind: str, condition: str, series: dict[str, object]
) -> None:
    """Each kind by the book."""
    values = {(kind, "r", name): [value] * 60 for name, value in series.items()}

    assert states(scene.audit(policy(condition, each=kind), recording(values))) == {"r": "firing"}


def test_explain_knows_the_price(scene: Scene) -> None:
    """The tree of a condition on a price shows it."""
    file = scene.write("p.yaml", policy("gpu.price > $2/GPU-hour"))
    signals = scene.write("s.csv", recording(CARDS))
    out = scene.run("explain", "--policy", "p", "--resource", "dear", "--file", file, "--signals", signals)

    assert scene.status == 0
    assert "6.88" in out


def test_prices_lists_the_book_with_sources_and_age(scene: Scene) -> None:
    """Without policies it is the book as shipped, in 80 columns."""
    lines = scene.run("prices").splitlines()

    assert scene.status == 0
    assert lines[0].startswith("stoploss prices · book of 2026-11, ")
    assert any(line.split()[:2] == ["H100-SXM", "6.88"] for line in lines)
    assert any(line.split()[:2] == ["RTX-4090", "unknown"] for line in lines)
    assert any("AWS list price, us-east-1" in line for line in lines)
    assert [line for line in lines if len(line) > 80] == []


def test_prices_marks_what_the_policies_override(scene: Scene) -> None:
    """The own price stands in the row with its key, in table and JSON."""
    text = policy(f"max({UTIL}, 30m) < 5%") + "prices: {gpu-hour: {h100: $4.10/GPU-hour}, kind: owned}\n"
    file = scene.write("p.yaml", text)
    lines = scene.run("prices", file).splitlines()
    told = json.loads(scene.run("prices", file, "--format", "json"))

    assert next(line for line in lines if line.startswith("H100-SXM")).endswith("* yours (h100)")
    assert told["version"] == 1
    assert told["own"] == [{"key": "h100", "per_gpu_hour": 4.1, "currency": "USD", "kind": "owned"}]
    assert {row["name"]: row["overridden_by"] for row in told["gpus"]}["H100-SXM"] == "h100"
    assert {row["name"]: row["price"] for row in told["gpus"]}["RTX-4090"] is None


def test_an_old_book_says_that_it_is_old() -> None:
    """From 181 days on a note stands under the title."""
    assert "note: the book is older" in prices_table.render(shipped(), date(2027, 5, 30))
    assert "note: the book is older" not in prices_table.render(shipped(), date(2027, 5, 29))


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0.00"),
        (0.001, "<$0.01"),
        (412.8, "$412.80"),
        (999.994, "$999.99"),
        (1000, "$1,000"),
        (1234567.8, "$1,234,568"),
    ],
)
def test_money_is_told_to_the_cent_below_a_thousand(amount: float, text: str) -> None:
    """Whole above, and never 0.00 for what is not 0."""
    assert money(amount, "USD") == text
    assert figure(amount) == text.replace("$", "")


def test_a_price_keeps_the_digits_it_was_listed_with() -> None:
    """At least cents, more where the list has more."""
    assert price_text(4.1, "GPU-hour", "USD") == "$4.10/GPU-hour"
    assert price_text(0.0036, "GiB-month", "EUR") == "€0.0036/GiB-month"
