"""What findings cost, through the real command over small recordings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st
from support.scenes import Scene, policy, recording

from stoploss.engine.costs.waste import TrueSlots
from stoploss.engine.evaluation.kleene import FALSE, OUTSIDE, TRUE, UNKNOWN
from stoploss.rules.diagnostics import Position
from stoploss.rules.policy import Policy
from stoploss.rules.units import parse_quantity

UTIL, MODEL = "gpu.utilization", "gpu.model"
IDLE = f"max({UTIL}, 30m) < 5%"
H100 = "NVIDIA H100 80GB HBM3"
OWN = "prices: {gpu-hour: {H100: $4.10/GPU-hour}, kind: committed}\n"
TRUE_SLOTS = 31
"""Of 60 idle slots: a window of 30 is first full in the 30th."""


@given(
    st.lists(st.lists(st.sampled_from([FALSE, UNKNOWN, TRUE, OUTSIDE]), min_size=3, max_size=3), max_size=40),
    st.integers(1, 17),
)
def test_true_slots_are_kept_whatever_the_blocks(rows: list[list[int]], step: int) -> None:
    """Told in blocks of any length, a row's true slots are those of the whole."""
    truths = np.array(rows, dtype=np.int8).reshape(-1, 3)
    slots = TrueSlots([Policy("p", "job", Position("f", 1, 1), waste=parse_quantity("1%"))])
    for low in range(0, len(truths), step):
        slots(0, 100 + low, truths[low : low + step], truths[:0])

    assert slots.of("p", 1, 95, len(truths) + 5)[5:].tolist() == (truths[:, 1] == TRUE).tolist()
    assert slots.of("p", 1, 102, 3).tolist() == [*(truths[2:5, 1] == TRUE), False, False, False][:3]


def gpus(count: int, model: str = H100, use: list[object] | None = None) -> dict[tuple[str, str, str], Any]:
    """Idle GPUs g0, g1, … of one model."""
    series: dict[tuple[str, str, str], Any] = {}
    for number in range(count):
        series["gpu", f"g{number}", UTIL] = use or [0] * 60
        series["gpu", f"g{number}", MODEL] = [model] * 60
    return series


def of_job(count: int, **labels: str) -> dict[str, dict[str, str]]:
    """Labels of GPUs g0, g1, … of job j."""
    return {f"g{number}": {"job": "j", **labels} for number in range(count)}


def waste(result: dict[str, Any], at: int = 0) -> dict[str, Any]:
    """The waste of a finding."""
    found = result["findings"][at]["waste"]
    assert isinstance(found, dict)
    return found


def test_an_idle_job_costs_all_its_gpus(scene: Scene) -> None:
    """Eight GPUs at the policy set's price, now and since the first true slot."""
    result = scene.audit(
        policy(IDLE, each="job", waste="100%") + OWN, recording(gpus(8), labels=of_job(8, team="x"))
    )

    found = waste(result)
    assert found["per_hour"] == pytest.approx(8 * 4.10)
    assert found["so_far"] == pytest.approx(8 * 4.10 * TRUE_SLOTS / 60)
    assert found["currency"] == "USD"
    assert found["price_source"] == "prices: in the policies (h100)"
    assert found["price_kind"] == "committed"
    assert found["how"] == "8 GPUs x $4.10/GPU-hour x 100%; true for 31m"
    assert found["saves_per_hour"] is None
    assert result["totals"] == {
        "per_hour": {"committed": pytest.approx(32.8)},
        "so_far": {"committed": pytest.approx(32.8 * TRUE_SLOTS / 60)},
        "saves_per_hour": {"committed": 0.0},
        "currency": "USD",
        "without_price": 0,
        "by_policy": {"p": pytest.approx(32.8)},
        "by_team": {"x": pytest.approx(32.8)},
        "by_cause": {"undecided": pytest.approx(32.8)},
    }


def test_without_own_prices_the_book_serves_and_is_named(scene: Scene) -> None:
    """The source says whose list it is and of which month."""
    found = waste(scene.audit(policy(IDLE, waste="50%"), recording(gpus(1))))

    assert found["per_hour"] == pytest.approx(6.88 / 2)
    assert found["price_source"] == "AWS list price, us-east-1 (p5.48xlarge / 8), 2026-11"
    assert found["how"] == "1 GPU x $6.88/GPU-hour x 50%; true for 31m"


def test_a_policy_without_waste_costs_nothing_that_is_known(scene: Scene) -> None:
    """No `waste:` is null, and no finding without a price either."""
    result = scene.audit(policy(IDLE), recording(gpus(1)))

    assert set(waste(result).values()) == {None}
    assert result["totals"]["per_hour"] is None
    assert result["totals"]["without_price"] == 0


def test_one_gpu_of_unknown_price_makes_the_job_unknown(scene: Scene) -> None:
    """A part of a bill is not the bill: null with the reason, counted, and never 0."""
    series = {**gpus(2), ("gpu", "g1", MODEL): ["Riva TNT"] * 60}
    result = scene.audit(policy(IDLE, each="job", waste="100%"), recording(series, labels=of_job(2)))

    assert waste(result)["per_hour"] is None
    assert waste(result)["so_far"] is None
    assert waste(result)["missing"] == "1 of 2 GPUs: the price book does not know one model 'Riva TNT'"
    assert result["totals"]["per_hour"] is None
    assert result["totals"]["without_price"] == 1


def test_a_set_in_euros_does_not_use_a_book_in_dollars(scene: Scene) -> None:
    """Own prices in euros count; what they do not name is unknown, with the fix."""
    text = policy(IDLE, waste="100%") + "prices: {gpu-hour: {A100: €2/GPU-hour}}\n"
    series = {**gpus(1), **{("gpu", "g1", key): value for (_, _, key), value in gpus(1, "A100").items()}}
    result = scene.audit(text, recording(series))

    known, unknown = waste(result), waste(result, 1)
    assert (known["per_hour"], known["currency"]) == (pytest.approx(2.0), "EUR")
    assert unknown["per_hour"] is None
    assert unknown["missing"] == "the book is in USD; give prices: in EUR"


def test_two_findings_on_one_job_are_counted_once(scene: Scene) -> None:
    """A job and one of its GPUs: the totals take the larger claim on each GPU, never the sum."""
    second = policy(IDLE, waste="100%").partition("policies:\n")[2].replace("name: p", "name: q")
    text = policy(IDLE, each="job", waste="25%") + second + OWN
    result = scene.audit(text, recording(gpus(2), labels=of_job(2)))

    assert [item["waste"]["per_hour"] for item in result["findings"]] == pytest.approx([4.1, 4.1, 2.05])
    assert result["totals"]["per_hour"] == {"committed": pytest.approx(8.2)}
    assert result["totals"]["by_policy"] == {"q": pytest.approx(8.2)}


def test_only_slots_in_which_it_was_true_count(scene: Scene) -> None:
    """Silence is not waste: unknown slots cost nothing so far, and what it costs now is unknown."""
    use: list[object] = [0] * 45 + [None] * 15
    text = policy(IDLE, waste="100%") + OWN
    result = scene.audit(text, recording({**gpus(1, use=use), ("gpu", "b", UTIL): [0.9] * 60}))

    found = waste(result)
    assert found["per_hour"] is None
    assert found["missing"] == "whether it still holds is unknown"
    assert found["so_far"] == pytest.approx(4.10 * 16 / 60)


def test_what_is_over_and_held_costs_nothing_more(scene: Scene) -> None:
    """Cleared under `hold`: 0 per hour is known, and what it has cost stays."""
    text = policy(IDLE, waste="100%", hold="30m") + OWN
    found = waste(scene.audit(text, recording(gpus(1, use=[0] * 50 + [0.9] * 10))))

    assert found["per_hour"] == 0
    assert found["so_far"] == pytest.approx(4.10 * 21 / 60)


def test_a_gpu_counts_only_while_it_belongs_to_the_job(scene: Scene) -> None:
    """A GPU that came at half time is charged for half the time."""
    series = gpus(2)
    head, *rows = recording(series, labels=of_job(2)).splitlines(keepends=True)
    start = float(rows[0].partition(",")[0]) - 60
    moved = [
        row.replace(",j\n", ",other\n")
        if ",g1," in row and float(row.partition(",")[0]) <= start + 3000
        else row
        for row in rows
    ]
    text = policy("max(train.step, 30m) >= 0", each="job", waste="100%") + OWN
    text = text.replace("max(train.step, 30m) >= 0", "job.gpus_held > 0")
    held = [f"{start + 60 * n},j,job,job.gpus_held,1,\n" for n in range(1, 61)]
    result = scene.audit(text, "".join([head, *moved, *held]))

    found = waste(result)
    assert found["per_hour"] == pytest.approx(8.2)
    assert found["so_far"] == pytest.approx(4.10 * (60 + 10) / 60)


def test_an_amount_of_money_needs_no_price(scene: Scene) -> None:
    """`waste: $3/h` is $3 per hour, and the policy is the source."""
    found = waste(scene.audit(policy(IDLE, each="job", waste="$3/h"), recording(gpus(2), labels=of_job(2))))

    assert found["per_hour"] == pytest.approx(3.0)
    assert found["so_far"] == pytest.approx(3.0 * TRUE_SLOTS / 60)
    assert found["price_source"] == "waste: in the policy"


def test_steps_that_end_it_save_what_is_wasted(scene: Scene) -> None:
    """A policy with a terminate step saves its waste per hour; the totals say so."""
    text = policy(
        IDLE,
        each="job",
        waste="100%",
        **{"for": "5m"},
        then="[{terminate: {after: 30m, snapshot: not-needed}}]",
    )
    result = scene.audit(text + OWN, recording(gpus(2), labels=of_job(2)))

    assert waste(result)["saves_per_hour"] == pytest.approx(8.2)
    assert result["totals"]["saves_per_hour"] == {"committed": pytest.approx(8.2)}


@pytest.mark.parametrize(
    ("lifecycle", "per_hour", "kind"),
    [("on-demand", 12.24, "on-demand"), ("spot", None, None), ("owned", None, None)],
)
def test_G_66_an_instance_costs_what_its_lifecycle_says(
    scene: Scene, lifecycle: str, per_hour: float | None, kind: str | None
) -> None:
    """A blank spot price is unknown, not free."""
    series = {
        ("instance", "i", "instance.cpu.utilization"): [0] * 60,
        ("instance", "i", "instance.type"): ["p3.8xlarge"] * 60,
        ("instance", "i", "instance.lifecycle"): [lifecycle] * 60,
    }
    text = policy("max(instance.cpu.utilization, 30m) < 5%", each="instance", waste="100%")
    found = waste(scene.audit(text, recording(series)))

    assert found["per_hour"] == (None if per_hour is None else pytest.approx(per_hour))
    assert found["price_kind"] == kind


def test_a_host_costs_its_instance(scene: Scene) -> None:
    """The host's label names the instance; without one its GPUs are what is billed."""
    series = {
        ("host", "h", "host.cpu.utilization"): [0] * 60,
        ("instance", "i", "instance.type"): ["p3.8xlarge"] * 60,
        ("host", "bare", "host.cpu.utilization"): [0] * 60,
        **gpus(2),
    }
    labels = {"h": {"instance": "i"}, "g0": {"host": "bare"}, "g1": {"host": "bare"}}
    text = policy("max(host.cpu.utilization, 30m) < 5%", each="host", waste="100%") + OWN
    result = scene.audit(text, recording(series, labels=labels))

    assert [(f["resource"]["id"], f["waste"]["per_hour"]) for f in result["findings"]] == [
        ("h", pytest.approx(12.24)),
        ("bare", pytest.approx(8.2)),
    ]


@pytest.mark.parametrize(
    ("kind", "signal", "labels", "per_month", "how"),
    [
        ("bucket", "storage.size", {}, 2.3, "100 GiB x $0.023/GiB-month"),
        ("bucket", "storage.size", {"storage_class": "GLACIER_IR"}, 0.4, "100 GiB x $0.004/GiB-month"),
        ("volume", "storage.size", {"volume_type": "io2"}, 12.5, "100 GiB x $0.125/GiB-month"),
        ("checkpoint", "checkpoint.size", {}, 2.3, "100 GiB x $0.023/GiB-month"),
    ],
)
def test_what_is_kept_costs_its_size(
    scene: Scene, kind: str, signal: str, labels: dict[str, str], per_month: float, how: str
) -> None:
    """Size times the price of the class, standard where none is known; a month has 730 hours."""
    text = policy(f"{signal} > 1 GB", each=kind, waste="100%")
    series = {(kind, "v", signal): [100 * 2**30] * 60}
    found = waste(scene.audit(text, recording(series, labels={"v": labels} if labels else None)))

    assert found["per_hour"] == pytest.approx(per_month / 730, abs=1e-6)
    assert found["how"].startswith(how)


def test_a_volume_of_a_host_has_no_price_by_default(scene: Scene) -> None:
    """A disk inside a machine is not a cloud volume because nobody said what it is."""
    text = policy("storage.size > 1 GB", each="volume", waste="100%")
    series = {("volume", "v", "storage.size"): [100 * 2**30] * 60}
    found = waste(scene.audit(text, recording(series, labels={"v": {"host": "h"}})))

    assert found["per_hour"] is None
    assert "storage class is unknown" in found["missing"]


def test_G_84_a_log_costs_what_taking_it_in_costs(scene: Scene) -> None:
    """150 GiB in a month cost $75, whether the speed or the size written was recorded."""
    speed = 150 * 2**30 / (730 * 3600)
    text = policy("rate(logs.bytes, 30m) > 1 kB/s", each="log", waste="100%")
    bytes_written = {("log", "l", "logs.bytes"): [round(speed * 60 * n) for n in range(1, 61)]}
    found = waste(scene.audit(text, recording(bytes_written)))

    assert found["per_hour"] * 730 == pytest.approx(75, rel=1e-3)
    assert found["so_far"] == pytest.approx(found["per_hour"] * TRUE_SLOTS / 60, rel=0.05)


def test_a_mig_slice_costs_its_share_of_the_memory(scene: Scene) -> None:
    """A slice with an eighth of the memory costs an eighth, and its GPU is not billed twice."""
    series = {
        **gpus(1),
        ("gpu", "g0", "gpu.memory.total"): [80e9] * 60,
        ("gpu", "g0/1", UTIL): [0] * 60,
        ("gpu", "g0/1", MODEL): [f"{H100} MIG 1g.10gb"] * 60,
        ("gpu", "g0/1", "gpu.memory.total"): [10e9] * 60,
    }
    text = policy(IDLE, waste="100%") + OWN
    result = scene.audit(text, recording(series, labels={"g0/1": {"parent": "g0"}}))

    assert [item["waste"]["per_hour"] for item in result["findings"]] == pytest.approx([4.1, 0.5125])
    assert result["totals"]["per_hour"] == {"committed": pytest.approx(4.1)}


def test_old_prices_are_told(scene: Scene) -> None:
    """An audit that used prices of the book says so once they are older than 180 days."""
    text, signals = policy(IDLE, waste="100%"), recording(gpus(1))
    # Models are made before time stands still.
    scene.audit(text, signals)
    with freeze_time("2027-08-01"):
        notes = {
            name: scene.audit(text + own, signals)["notes"] for name, own in (("book", ""), ("own", OWN))
        }

    told = "prices of 2026-11 were used, 244 days old; give your own under prices:"
    assert [name for name, said in notes.items() if told in said] == ["book"]


def test_findings_come_dearest_first(scene: Scene) -> None:
    """By money per hour; what has no known price follows, by severity."""
    series = {
        **gpus(1, "Riva TNT"),
        **{("gpu", "g1", key): value for (_, _, key), value in gpus(1, "Tesla T4").items()},
        **{("gpu", "g2", key): value for (_, _, key), value in gpus(1).items()},
    }
    result = scene.audit(policy(IDLE, waste="100%"), recording(series))

    assert [item["resource"]["id"] for item in result["findings"]] == ["g2", "g1", "g0"]


def test_an_exempt_finding_is_not_in_the_totals(scene: Scene) -> None:
    """It keeps its own waste, and adds nothing."""
    text = policy(IDLE, waste="100%") + OWN
    text += (
        "exemptions:\n"
        "  - {policy: p, where: 'id == \"g0\"', reason: by design, owner: me, expires: 2999-01-31}\n"
    )
    result = scene.audit(text, recording(gpus(1)))

    assert waste(result)["per_hour"] == pytest.approx(4.10)
    assert result["totals"]["per_hour"] is None


def test_the_table_puts_money_first(scene: Scene) -> None:
    """Now, so far, the counts; then a row per finding with the evidence below, and what has no price."""
    series = {**gpus(8), ("gpu", "x", UTIL): [0] * 60, ("gpu", "y", UTIL): [0.9] * 59 + ["ERR!"]}
    text = policy(IDLE, waste="100%", cause="waste", severity="low") + OWN
    files = scene.write("p.yaml", text), scene.write("s.csv", recording(series))
    lines = scene.run("audit", files[0], "--signals", files[1]).splitlines()

    assert lines[2] == "BURNING NOW  $32.80/h · $16.95 so far · 1 unknown"
    assert lines[3] == "             9 findings · 1 policy · 1 without a price"
    assert lines[5] == "    $/h    SO FAR  SINCE    POLICY                RESOURCE        CAUSE"
    assert lines[6] == "   4.10      2.12  30m      p                     gpu g0          waste"
    assert lines[7] == f"         low · {IDLE}: 0%"
    assert [line.split()[:2] for line in lines if line.endswith("gpu x           waste")] == [
        ["unknown", "unknown"]
    ]
    assert lines[lines.index("WITHOUT A PRICE") + 1] == "p  gpu x: gpu.model is unknown"
    assert all(len(line) <= 80 for line in lines if not line.startswith("next: "))


def test_price_kinds_are_never_added(scene: Scene) -> None:
    """Own GPUs and an instance on demand stand side by side in the line and in the totals."""
    second = policy("max(instance.cpu.utilization, 30m) < 5%", each="instance", waste="100%")
    text = policy(IDLE, waste="100%") + second.partition("policies:\n")[2].replace("name: p", "name: q") + OWN
    series = {
        **gpus(1),
        ("instance", "i", "instance.cpu.utilization"): [0] * 60,
        ("instance", "i", "instance.type"): ["p3.8xlarge"] * 60,
    }
    files = scene.write("p.yaml", text), scene.write("s.csv", recording(series))
    out = scene.run("audit", files[0], "--signals", files[1])
    found = scene.json("audit", files[0], "--signals", files[1])["totals"]["per_hour"]

    assert found == {"on-demand": pytest.approx(12.24), "committed": pytest.approx(4.1)}
    assert "BURNING NOW  $12.24/h on-demand · $6.32 so far · $4.10/h committed" in out
    assert "16.34" not in out
