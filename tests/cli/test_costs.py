"""`stoploss costs`."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from support.scenes import Scene, recording

H100 = "NVIDIA H100 80GB HBM3"
TEXT = """\
version: 1
settings: {timezone: Europe/Berlin}
prices: {gpu-hour: {H100: $4/GPU-hour}}
fixed-costs: [{name: feature-store, cost: $3/h, category: database, share-by: team}]
budgets: [{name: one-job, each: job, limit: 10 GPU-hours, per: month}]
policies: [{name: p, each: job, when: [train.step > 0]}]
"""


def signals(model: str = H100) -> str:
    """Two GPUs of job a of team t, the second one idle in the second hour; one of job b without a team."""
    series: dict[tuple[str, str, str], Any] = {
        ("gpu", "g0", "gpu.utilization"): [0.9] * 120,
        ("gpu", "g1", "gpu.utilization"): [0.9] * 60 + [0.0] * 60,
        ("gpu", "g2", "gpu.utilization"): [0.9] * 120,
        ("job", "a", "train.step"): range(1, 121),
    }
    series |= {("gpu", f"g{n}", "gpu.model"): [H100 if n < 2 else model] * 120 for n in range(3)}
    a = {"job": "a", "team": "t"}
    return recording(series, labels={"g0": a, "g1": a, "a": a, "g2": {"job": "b"}})


def told(scene: Scene, *arguments: str, model: str = H100) -> str:
    """What the command prints over the recording."""
    files = scene.write("p.yaml", TEXT), scene.write("s.csv", signals(model))
    return scene.run("costs", files[0], "--signals", files[1], *arguments)


def test_the_table_tells_categories_goodput_and_budgets(scene: Scene) -> None:
    """Six GPU-hours at $4, a third of the fixed cost not shared, and one idle hour hidden."""
    lines = told(scene).splitlines()

    assert scene.status == 0
    assert lines[0] == "stoploss costs · 2026-01-01 01:00 to 2026-01-01 03:00 CET"
    assert lines[2] == "PAID  6.00 GPU-hours · $30.00 on-demand, $4.00 of it hidden"
    assert [line.split() for line in lines[4:8]] == [
        ["CATEGORY", "GPU-HOURS", "SHARE", "ON-DEMAND"],
        ["compute", "5.00", "83%", "20.00"],
        ["database", "-", "-", "6.00"],
        ["hidden", "1.00", "17%", "4.00"],
    ]
    goodput = {line.rpartition("  ")[0].split("  ")[0]: line.split()[1] for line in lines[10:13]}
    assert goodput == {"useful": "3.00", "idle": "1.00", "unknown": "2.00"}
    assert "one-job  job a: 40% used, 4 of 10 GPU-hours since 2026-01-01 01:00" in lines[15]
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("job", [("a", "20.00"), ("b", "8.00"), ("no job", "2.00")]),
        ("team", [("t", "20.00"), ("no team", "10.00")]),
        ("category", [("compute", "20.00"), ("database", "6.00"), ("hidden", "4.00")]),
    ],
)
def test_one_table_by_a_name(scene: Scene, by: str, rows: list[tuple[str, str]]) -> None:
    """The dearest team or job first; what is nobody's has a row."""
    lines = told(scene, "--by", by).splitlines()[5:]

    assert [(line.split("  ")[0], line.split()[-1]) for line in lines] == rows


def test_json_adds_up(scene: Scene) -> None:
    """Every grouping comes to the total, and the lines too."""
    files = scene.write("p.yaml", TEXT), scene.write("s.csv", signals())
    result = scene.json("costs", files[0], "--signals", files[1])

    assert result["version"] == 1
    assert (result["from"], result["to"]) == ("2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z")
    assert result["total"]["money"] == {"on-demand": 30}
    for by in ("category", "goodput", "team", "job"):
        groups = result[f"by_{by}"].values()
        assert sum(group["gpu_hours"] for group in groups) == pytest.approx(6)
        assert sum(group["money"]["on-demand"] for group in groups) == pytest.approx(30)
    assert sum(line["money"] for line in result["lines"]) == pytest.approx(30)
    bases = {line["category"]: (line["elasticity"], line["basis"]) for line in result["lines"]}
    assert bases["database"] == ("fixed", "declared")
    assert bases["compute"] == ("elastic", "allocated")
    assert [(b["resource"]["id"], b["used"]) for b in result["budgets"]] == [("a", 0.4), ("b", 0.2)]


def test_an_unknown_price_is_said(scene: Scene) -> None:
    """Its GPU-hours count, its money is null and empty, never 0."""
    files = scene.write("p.yaml", TEXT), scene.write("s.csv", signals("Riva TNT"))
    table = scene.run("costs", files[0], "--signals", files[1])
    result = scene.json("costs", files[0], "--signals", files[1])
    rows = list(
        csv.DictReader(io.StringIO(scene.run("costs", files[0], "--signals", files[1], "--format", "csv")))
    )

    assert "2.00 GPU-hours without a price" in " ".join(table.split())
    assert table.splitlines()[-2:] == [
        "WITHOUT A PRICE",
        "2.00 GPU-hours: the price book does not know one model 'Riva TNT'",
    ]
    assert [line["money"] for line in result["lines"] if line["job"] == "b"] == [None]
    assert result["without_price"][0]["gpu_hours"] == 2
    assert [row["money"] for row in rows if row["job"] == "b"] == [""]


def test_csv_has_a_row_per_line_or_group(scene: Scene) -> None:
    """The sums are those of the table."""
    rows = list(csv.DictReader(io.StringIO(told(scene, "--format", "csv"))))
    groups = list(csv.DictReader(io.StringIO(told(scene, "--format", "csv", "--by", "team"))))

    assert sum(float(row["money"]) for row in rows) == pytest.approx(30)
    assert {row["name"] for row in rows} == {"", "feature-store"}
    assert {row["team"]: row["money"] for row in groups} == {"t": "20.000000", "no team": "10.000000"}


def test_without_policies_the_book_serves(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a recording is needed."""
    monkeypatch.chdir(scene.folder)
    out = scene.run("costs", "--signals", scene.write("s.csv", signals()), "--by", "job")

    assert scene.status == 0
    assert "6.00 GPU-hours · $41.28 on-demand" in out


def test_bad_policies_are_told(scene: Scene) -> None:
    """And nothing is reckoned."""
    file = scene.write("p.yaml", "version: 1\nbudgets: [{name: b, each: job}]\n")
    out = scene.run("costs", file, "--signals", scene.write("s.csv", signals()))

    assert (scene.status, out) == (2, "")
    assert "limit" in scene.stderr
