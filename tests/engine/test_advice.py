"""Advice: what to change in a training, with numbers from its own measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packs.runner import Example, examples, policy_names
from support.scenes import Scene, policy, recording

from stoploss.engine.advice_rules import RULES, SAME, best_interval

SERIES = dict[tuple[str, str, str], list[object]]
KEYS = {"id", "change", "why", "saves_per_hour", "currency", "risk", "check"}
GIB_A_MONTH = 2**30 / 730
"""Bytes per hour that come to one GiB in a month."""


@pytest.fixture
def scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    """Commands in an empty folder."""
    return Scene(tmp_path, capsys)


def packs(*names: str) -> str:
    """A policy file that includes packs, with GPUs at $4 an hour."""
    included = ", ".join(f"pack:{name}" for name in names)
    return f"version: 1\ninclude: [{included}]\nprices: {{gpu-hour: {{default: $4/GPU-hour}}}}\n"


def steady(minutes: int = 100, **values: object) -> SERIES:
    """Signals of job a that stay as they are; dots are written as double underscores."""
    return {("job", "a", name.replace("__", ".")): [value] * minutes for name, value in values.items()}


def gpus(count: int = 2, minutes: int = 100) -> SERIES:
    """The GPUs of job a, so that it has a price."""
    return {("gpu", f"g{n}", "gpu.model"): ["H100"] * minutes for n in range(count)}


def audited(scene: Scene, policies: str, series: SERIES, **labels: dict[str, str]) -> dict[str, Any]:
    """An audit; GPUs belong to job a."""
    owned = {name: {"job": "a"} for kind, name, _ in series if kind == "gpu"}
    return scene.audit(policies, recording(series, labels=owned | labels))


def advice(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Rule -> advice, over all findings."""
    return {
        item["id"].partition(":")[0]: item for finding in result["findings"] for item in finding["advice"]
    }


def fired(result: dict[str, Any]) -> set[str]:
    """The policies with a finding."""
    return {finding["policy"] for finding in result["findings"]}


EXEMPTION = "{policy: input-bound, where: has(job), reason: by design, owner: ml, expires: 2099-01-31}"
TIMED = {"train__data_time": 0.217, "train__step_time": 0.333}


def test_G_36_a_job_that_waits_for_data_is_told_how_many_workers(scene: Scene) -> None:
    """0.217 of 0.333 s wait for data: 65%, no matter of size; four workers should be twelve."""
    series = steady(**TIMED, data__workers=4) | gpus()
    result = audited(scene, packs("data", "advice"), series)

    assert fired(result) == {"input-bound", "more-loader-workers"}
    [given] = advice(result).values()
    assert given["change"] == "raise the loader workers of each rank from 4 to 12"
    assert "0.217 s of 0.333 s per step (65%) wait for data" in given["why"]
    assert "2 GPUs x $4.00/GPU-hour x 65% = $5.21/h at most" in given["why"]
    assert given["saves_per_hour"] == pytest.approx(8 * 0.217 / 0.333, abs=1e-6)


def test_G_36_after_the_change_nothing_is_said(scene: Scene) -> None:
    """0.004 of 0.077 s are no reason for anything."""
    series = steady(train__data_time=0.004, train__step_time=0.077, data__workers=12) | gpus()

    assert audited(scene, packs("data", "advice"), series)["findings"] == []


def test_a_number_that_was_not_measured_is_not_made_up(scene: Scene) -> None:
    """Without the number of workers the advice is a factor, and says what to log."""
    given = advice(audited(scene, packs("advice"), steady(**TIMED) | gpus()))["more-loader-workers"]

    assert given["change"] == "use 2.9 times as many loader workers; log data.workers for the number"


def test_without_a_price_the_saving_is_unknown(scene: Scene) -> None:
    """A job whose GPUs nobody saw has a change and no amount, with the reason."""
    given = advice(audited(scene, packs("advice"), steady(**TIMED, data__workers=4)))["more-loader-workers"]

    assert given["saves_per_hour"] is None
    assert "what it saves is unknown: no GPU and no instance of this job was seen" in given["why"]


def use(values: list[object]) -> SERIES:
    """GPU g0 with little memory in use, on a host with room."""
    minutes = len(values)
    return gpus(1, minutes) | {
        ("gpu", "g0", "gpu.utilization"): values,
        ("gpu", "g0", "gpu.memory.utilization"): [0.45] * minutes,
        ("host", "n", "host.cpu.utilization"): [0.3] * minutes,
        ("host", "n", "host.io_wait"): [0.0] * minutes,
        ("host", "n", "host.pressure.io"): [0.0] * minutes,
        ("job", "a", "train.batch_size"): [256] * minutes,
    }


ON_HOST = {"g0": {"job": "a", "host": "n"}}


def test_G_38_an_underused_gpu_takes_a_larger_batch(scene: Scene) -> None:
    """A 95th percentile of 62% with room everywhere: the batch may grow to 90% of the memory."""
    result = audited(scene, packs("data", "advice"), use([0.62] * 100), **ON_HOST)

    assert fired(result) == {"larger-batch"}
    assert advice(result)["larger-batch"]["change"] == "raise the batch from 256 to 512"
    assert advice(result)["larger-batch"]["saves_per_hour"] is None


def test_G_38_a_fluctuating_gpu_is_fed_badly_and_not_too_large(scene: Scene) -> None:
    """A 95th percentile of 97% and a 5th of 3% is a matter of input; nothing smaller or larger is advised."""
    teeth: list[object] = ([0.97] * 5 + [0.03] * 5) * 10
    result = audited(scene, packs("data", "advice"), use(teeth), **ON_HOST)

    assert fired(result) == {"saw-tooth"}
    assert result["findings"][0]["cause"] == "data"
    assert "log train.data_time" in advice(result)["more-loader-workers"]["change"]


def log(gib_a_month: float, minutes: int = 130, **values: float) -> SERIES:
    """Log l of job a, which is well."""
    per_minute = gib_a_month * GIB_A_MONTH / 60
    series: SERIES = {
        ("log", "l", "logs.bytes"): [per_minute * k for k in range(minutes)],
        ("job", "a", "loss.verdict"): ["healthy"] * minutes,
    }
    for name, value in values.items():
        series["log", "l", f"logs.{name}"] = [value] * minutes
    return series


def test_G_84_sampling_comes_before_a_shorter_retention(scene: Scene) -> None:
    """Of 150 GiB a month, dropping four fifths saves $60, and 30 instead of 90 days $9: sample first."""
    series = log(150, debug_share=0.8, retention=90 * 86400)
    given = advice(audited(scene, packs("advice"), series, l={"job": "a"}))["sample-logs"]

    assert given["change"] == "sample the debug lines before anything is kept for a shorter time"
    assert "150 GiB/month x 80% x $0.50/GiB = $60.00/month" in given["why"]
    assert "keeping it 30 instead of 90 days saves $9.00/month" in given["why"]
    assert given["saves_per_hour"] == pytest.approx(60 / 730, rel=1e-3)
    assert "never sampled" in given["risk"]


def test_the_log_of_an_unhealthy_run_keeps_its_words(scene: Scene) -> None:
    """Each log follows the verdict of its own job, whatever the order of their names."""
    series = log(150, debug_share=0.8)
    series |= {("log", "m", name): values for (kind, _, name), values in series.items() if kind == "log"}
    series["job", "b", "loss.verdict"] = ["diverged"] * 130
    result = audited(scene, packs("advice"), series, l={"job": "b"}, m={"job": "a"})

    assert [(finding["policy"], finding["resource"]["id"]) for finding in result["findings"]] == [
        ("sample-logs", "m")
    ]


def test_where_nothing_can_be_dropped_the_retention_is_shortened(scene: Scene) -> None:
    """A log that is all signal and is kept for ten years is kept for a shorter time."""
    series = log(500, minutes=400, debug_share=0.0, retention=3650 * 86400, size=2e12)
    given = advice(audited(scene, packs("logs"), series, l={"job": "a"}))["sample-logs"]

    assert given["change"] == "keep the log for 30 instead of 3650 days"


def test_G_85_a_log_that_costs_more_than_the_computing_is_sampled(scene: Scene) -> None:
    """The flood fires on the ratio of the two, and the advice says what to drop."""
    minutes = 400
    series = log(900, minutes, debug_share=0.1, repeat_ratio=0.6)
    series |= {
        ("job", "a", "cost.logs"): [2.0 * k for k in range(minutes)],
        ("job", "a", "cost.compute"): [1.0 * k for k in range(minutes)],
    }
    result = audited(scene, packs("logs"), series, l={"job": "a"})

    assert fired(result) == {"log-flood"}
    assert advice(result)["sample-logs"]["change"] == "sample the lines that repeat an earlier one"


def test_G_78_the_best_interval_between_checkpoints() -> None:
    """A save of 60 s and a failure every 3.09 h: 19 minutes."""
    assert round(best_interval(60, 3.09 * 3600) / 60) == 19


@pytest.mark.parametrize(
    ("interval", "given"),
    [
        (3 * 3600, {"checkpoint-more-often": "save a checkpoint every 20m 17s instead of every 3h"}),
        (60, {"checkpoint-less-often": "save a checkpoint every 20m 17s instead of every 1m"}),
        (1200, {}),
    ],
)
def test_G_78_too_rare_and_too_often(scene: Scene, interval: int, given: dict[str, str]) -> None:
    """With seven restarts in a day, three hours are too rare, a minute too often, 20 minutes right."""
    looks = 300
    series: SERIES = {
        ("job", "a", "checkpoint.save_time"): [60] * looks,
        ("job", "a", "checkpoint.interval"): [interval] * looks,
        ("job", "a", "job.attempts"): [1 + k // 40 for k in range(looks)],
    }
    result = scene.audit(packs("advice"), recording(series, step=300))

    assert {name: item["change"] for name, item in advice(result).items()} == given


def test_an_equal_global_batch_with_fewer_synchronisations(scene: Scene) -> None:
    """Four micro-batches that synchronise once spare three quarters of a communication of 40%."""
    series = steady(train__comm_share=0.4, train__grad_accumulation=4) | gpus()
    given = advice(audited(scene, packs("advice"), series))["synchronise-less-often"]

    assert given["saves_per_hour"] == pytest.approx(8 * 0.4 * 0.75)
    assert "40% x (1 - 1/4) = 30%" in given["why"]


def test_half_the_ranks_where_nothing_is_accumulated(scene: Scene) -> None:
    """With one micro-batch a step, half as many ranks halve the communication per sample."""
    series = steady(train__comm_share=0.4, train__grad_accumulation=1) | gpus()
    given = advice(audited(scene, packs("advice"), series))["synchronise-less-often"]

    assert given["saves_per_hour"] == pytest.approx(8 * 0.2)
    assert "a step takes 1.6 times as long" in given["why"]


def test_spot_saves_the_difference_of_two_prices(scene: Scene) -> None:
    """$40 on demand and $16 on spot: $24 an hour."""
    minutes = 160
    series: SERIES = {
        ("instance", "i", f"instance.{name}"): [value] * minutes
        for name, value in (
            ("lifecycle", "on-demand"),
            ("price", 40.0),
            ("spot_price", 16.0),
            ("reclaim_rate", 0.05),
        )
    }
    series |= steady(minutes, checkpoint__since_last=1200, checkpoint__save_time=30)
    labels = {"i": {"job": "a", "class": "train"}, "a": {"class": "train"}}
    given = advice(audited(scene, packs("advice"), series, **labels))["use-spot"]

    assert given["saves_per_hour"] == 24.0
    assert "$40.00/h - $16.00/h = $24.00/h" in given["why"]


def test_advice_is_shown_on_all_findings_of_the_job_and_on_no_other(scene: Scene) -> None:
    """What helps a job stands on each of its findings, whatever the policy; another job has none of it."""
    series = steady(**TIMED, data__workers=4, loss__verdict="diverged") | gpus()
    series["job", "b", "loss.verdict"] = ["diverged"] * 100
    result = audited(scene, packs("loss", "advice"), series)

    given = {
        (finding["policy"], finding["resource"]["id"]): [item["id"] for item in finding["advice"]]
        for finding in result["findings"]
    }
    assert given == {
        ("diverged", "a"): ["more-loader-workers:job/a"],
        ("more-loader-workers", "a"): ["more-loader-workers:job/a"],
        ("diverged", "b"): [],
    }


def test_two_policies_that_ask_for_one_advice_get_it_once(scene: Scene) -> None:
    """A pack and the advice pack may say the same; a person reads it once."""
    series = steady(**TIMED, data__workers=4) | gpus()
    audited(scene, packs("data", "advice"), series)
    table = scene.run(
        "audit", str(scene.folder / "policies.yaml"), "--signals", str(scene.folder / "signals.csv")
    )

    assert table.count("raise the loader workers") == 1
    assert "ADVICE\njob a · raise the loader workers of each rank from 4 to 12 · saves $5.21/h\n" in table


@pytest.mark.parametrize(
    ("key", "section"),
    [
        ("for: 2d", ""),
        ("for: 1m", f"exemptions:\n  - {EXEMPTION}"),
    ],
    ids=["pending", "exempt"],
)
def test_a_finding_that_does_not_count_gives_no_advice(scene: Scene, key: str, section: str) -> None:
    """Neither a pending nor an exempt finding asks for a change."""
    name, _, value = key.partition(": ")
    policies = policy("train.data_time > 0.1s", each="job", **{name: value})
    policies = policies.replace("name: p\n", "name: input-bound\n") + section + "\n"
    result = audited(scene, policies, steady(**TIMED, data__workers=4))

    assert fired(result) == {"input-bound"}
    assert advice(result) == {}


def test_a_policy_of_that_name_on_another_kind_gives_no_advice(scene: Scene) -> None:
    """A user's own policy that happens to have the name of a rule is not taken for it."""
    policies = "version: 1\npolicies:\n  - {name: use-spot, each: job, when: [train.step_time > 0s]}\n"

    assert advice(audited(scene, policies, steady(**TIMED))) == {}


def test_every_rule_is_a_policy_of_the_pack() -> None:
    """The arithmetic and the preconditions belong together by name, and the others name policies of packs."""
    assert set(RULES) == policy_names("advice")
    assert set(SAME.values()) <= set(RULES)
    others = {
        name for pack in ("data", "gpu", "logs", "loss", "spot", "storage") for name in policy_names(pack)
    }
    assert set(SAME) <= others


@pytest.mark.parametrize(
    "example",
    [pytest.param(item, id=item.name) for item in examples("firing") if item.policy in RULES],
)
def test_every_firing_example_gives_its_advice(example: Example) -> None:
    """Where a policy of the pack fires there is a change, a reason, a risk and a way to check it."""
    [finding] = example.audit().findings
    [given] = finding.advice

    assert given.id == f"{example.policy}:{finding.resource.kind}/{finding.resource.id}"
    assert all((given.change, given.why, given.risk, given.check))
    assert given.saves_per_hour is None or given.saves_per_hour > 0


def test_the_json_and_the_page_hold_every_part(scene: Scene) -> None:
    """The keys are the agreed ones, and a page shows change, reason, risk, check and amount."""
    series = steady(**TIMED, data__workers=4) | gpus()
    [given] = advice(audited(scene, packs("advice"), series)).values()
    files = str(scene.folder / "policies.yaml"), "--signals", str(scene.folder / "signals.csv")
    page = scene.run("audit", *files, "--format", "html")

    assert set(given) == KEYS
    assert "What would make it cheaper" in page
    for text in ("raise the loader workers of each rank from 4 to 12", "risk: ", "check: ", "$5.21/h"):
        assert text in page
