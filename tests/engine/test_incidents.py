"""Incidents: findings of one audit that are one fact, with its cause and its price."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.scenes import START, Scene, recording

SERIES = dict[tuple[str, str, str], list[object]]

PACKS = """\
version: 1
include: [pack:gpu, pack:infrastructure]
prices: {gpu-hour: {default: $4/GPU-hour}}
"""
GPUS = ("g0", "g1")
LABELS = {gpu: {"job": "a", "host": "n"} for gpu in GPUS} | {"a": {"class": "train"}}

TWO = """\
version: 1
prices: {{gpu-hour: {{default: $4/GPU-hour}}}}
policies:
  - {{name: hot, each: gpu, waste: 100%, when: [gpu.temperature > 80C]}}
  - {{name: slow, each: gpu, waste: 50%, when: [gpu.clock.sm < 1000MHz]}}
  - {{name: loaded, each: host, when: [host.load > 8]}}
  - {{name: saving, each: job, when: ['job.phase == "checkpointing"']}}
{more}
correlate:
{correlate}
"""
HOT_SLOW = "  - {name: throttled, cause: infrastructure, join: job, all: [hot, slow], within: 10m}"


@pytest.fixture
def scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    """Commands in an empty folder."""
    return Scene(tmp_path, capsys)


def two(correlate: str = HOT_SLOW, more: str = "") -> str:
    """A policy file whose findings can be switched on one by one."""
    return TWO.format(correlate=correlate, more=more)


def readings(minutes: int = 20, **changes: list[object]) -> SERIES:
    """GPU g of job a on host n: hot, slow, its host loaded; `changes` by name of the policy."""
    base: SERIES = {
        ("gpu", "g", "gpu.model"): ["H100"] * minutes,
        ("gpu", "g", "gpu.temperature"): changes.get("hot", [90] * minutes),
        ("gpu", "g", "gpu.clock.sm"): changes.get("slow", [500] * minutes),
        ("host", "n", "host.load"): changes.get("loaded", [20] * minutes),
        ("job", "a", "job.phase"): changes.get("saving", ["training"] * minutes),
    }
    return base


def audited(scene: Scene, policies: str, series: SERIES, *arguments: str) -> list[dict[str, Any]]:
    """The incidents of an audit."""
    labels = {"g": {"job": "a", "host": "n"}}
    found = scene.audit(policies, recording(series, labels=labels), *arguments)["incidents"]
    assert isinstance(found, list)
    return found


def hang(**changes: list[object]) -> str:
    """Two GPUs that compute for an hour and then spin for 50 minutes, on a host that loses packets."""
    work, stuck = 60, 50
    minutes = work + stuck
    values: SERIES = {
        ("job", "a", "train.step"): [*range(work), *[work] * stuck],
        ("job", "a", "job.phase"): changes.get("phase", ["training"] * minutes),
        ("host", "n", "network.segments_sent"): [10_000 * k for k in range(minutes)],
        ("host", "n", "network.retransmits"): [300 * k for k in range(minutes)],
    }
    for gpu in GPUS:
        values |= {
            ("gpu", gpu, "gpu.model"): ["H100"] * minutes,
            ("gpu", gpu, "gpu.utilization"): [1.0] * minutes,
            ("gpu", gpu, "gpu.tensor_active"): [0.4] * work + [0.0] * stuck,
            ("gpu", gpu, "gpu.power_limit"): [700] * minutes,
            ("gpu", gpu, "gpu.power"): [600] * work + [100] * stuck,
        }
    return recording(values, labels=LABELS)


def test_G_29_a_hung_all_reduce_is_infrastructure(scene: Scene) -> None:
    """Full use on 100 of 700 W, no step, packets lost: one incident, the infrastructure, each GPU once."""
    result = scene.audit(PACKS, hang())

    [incident] = result["incidents"]
    by_policy = {finding["policy"]: finding for finding in result["findings"]}
    assert {"hung-collective", "comm-stall", "packet-loss"} <= set(by_policy)
    assert incident["cause"] == by_policy["hung-collective"]["cause"] == "infrastructure"
    assert incident["why"] == (
        "cause: infrastructure, because comm-stall and packet-loss fire together on job a; against: none"
    )
    assert incident["join"] == {"label": "job", "value": "a"}
    assert incident["findings"] == [by_policy[name]["id"] for name in ("comm-stall", "packet-loss")]
    assert incident["waste"]["per_hour"] == {"on-demand": 8.0}
    # The last step is seen in minute 61; the first window of 10 minutes without one ends in minute 71.
    assert incident["waste"]["so_far"] == {"on-demand": pytest.approx(2 * 4 * 40 / 60)}


def test_a_pause_for_a_checkpoint_is_no_incident(scene: Scene) -> None:
    """While the job writes a checkpoint, what looks like a stall is explained."""
    phase: list[object] = ["training"] * 60 + ["checkpointing"] * 50

    assert scene.audit(PACKS, hang(phase=phase))["incidents"] == []


def test_an_unknown_counter_sign_leaves_it_undecided(scene: Scene) -> None:
    """Where nobody can tell whether a checkpoint is being written the cause is not claimed."""
    [incident] = scene.audit(PACKS, hang(phase=[None] * 110))["incidents"]

    assert (incident["cause"], incident["undecided"]) == ("undecided", True)
    assert incident["unknown"] == ["checkpoint-in-progress"]
    assert incident["why"] == (
        "undecided between infrastructure and checkpoint-in-progress: comm-stall and packet-loss fire "
        "together on job a, and checkpoint-in-progress is unknown"
    )


def test_G_34_a_new_straggler_is_infrastructure_from_its_time(scene: Scene) -> None:
    """A rank that falls back from the usual 57 to 964 units explains the slower steps, from then on."""
    lag: list[object] = [0.05] * 400 + [(964 - 57) / 57] * 80
    values: SERIES = {
        ("job", "a", "train.rank_lag"): lag,
        ("job", "a", "train.step_time"): [1.0] * 400 + [9.0] * 80,
    }
    result = scene.audit("version: 1\ninclude: [pack:infrastructure]\n", recording(values))

    [incident] = result["incidents"]
    assert (incident["name"], incident["cause"]) == ("steps-behind-one-rank", "infrastructure")
    assert {finding["policy"]: finding["cause"] for finding in result["findings"]} == {
        "straggler": "infrastructure",
        "slow-steps": "infrastructure",
    }
    assert incident["since"] == "2026-01-01T06:41:00Z"


def test_what_two_findings_claim_is_counted_once(scene: Scene) -> None:
    """All of a GPU by one finding and half of it by another are one GPU."""
    [incident] = audited(scene, two(), readings())

    assert incident["waste"]["per_hour"] == {"on-demand": 4.0}
    assert incident["waste"]["so_far"] == {"on-demand": pytest.approx(4.0 * 20 / 60)}
    assert incident["waste"]["currency"] == "USD"


@pytest.mark.parametrize(("minutes", "count"), [(10, 1), (11, 0)])
def test_a_finding_that_has_just_ended_still_counts(scene: Scene, minutes: int, count: int) -> None:
    """`within: 10m` joins with what fired ten minutes ago, and not with what is longer over."""
    ended: list[object] = [90] * 20 + [40] * minutes
    found = audited(scene, two(), readings(20 + minutes, hot=ended))

    assert len(found) == count
    for incident in found:
        assert len(incident["findings"]) == 1
        assert "hot and slow fired within 10m on job a" in incident["why"]


def test_an_incident_ends_with_its_findings(scene: Scene) -> None:
    """When all of its findings are over there is no incident, however short ago that was."""
    over = readings(25, hot=[90] * 20 + [40] * 5, slow=[500] * 20 + [1500] * 5)

    assert audited(scene, two(), over) == []


def test_a_host_belongs_to_the_job_of_its_gpus(scene: Scene) -> None:
    """A finding on a host joins through the GPUs that a job has there."""
    rule = "  - {name: crowded, cause: infrastructure, join: job, all: [hot, loaded]}"
    [incident] = audited(scene, two(rule), readings())

    assert incident["join"] == {"label": "job", "value": "a"}


def test_a_shared_host_is_part_of_the_incidents_of_all_its_jobs(scene: Scene) -> None:
    """Two jobs with hot GPUs on one loaded host are two incidents with one finding in common."""
    rule = "  - {name: crowded, cause: infrastructure, join: job, all: [hot, loaded]}"
    values = readings() | {("gpu", "h", "gpu.temperature"): [90] * 20}
    labels = {"g": {"job": "a", "host": "n"}, "h": {"job": "b", "host": "n"}}
    found = scene.audit(two(rule), recording(values, labels=labels))["incidents"]

    assert [item["join"]["value"] for item in found] == ["a", "b"]
    assert len({found[0]["findings"][1], found[1]["findings"][1]}) == 1


RIVALS = """\
  - {name: throttled, cause: infrastructure, join: job, all: [hot, slow]}
  - {name: overdone, cause: strategy, join: job, all: [hot, loaded]}"""


def test_two_causes_of_one_finding_are_undecided(scene: Scene) -> None:
    """Where one finding is explained by two causes neither is claimed, and both are named."""
    found = audited(scene, two(RIVALS), readings())

    assert [item["cause"] for item in found] == ["undecided", "undecided"]
    assert sorted(found[0]["between"]) == ["infrastructure", "strategy"]
    assert found[0]["why"] == (
        "undecided between infrastructure and strategy: hot and slow fire together on job a, "
        "and overdone (hot and loaded) says strategy"
    )


def test_causes_on_two_jobs_do_not_contest_each_other(scene: Scene) -> None:
    """A host that two jobs share may be part of different causes for them; it then gets neither."""
    rules = """\
  - {name: hot-host, cause: infrastructure, join: job, all: [hot, loaded]}
  - {name: slow-host, cause: strategy, join: job, all: [slow, loaded]}"""
    values = readings(slow=[1500] * 20) | {("gpu", "h", "gpu.clock.sm"): [500] * 20}
    labels = {"g": {"job": "a", "host": "n"}, "h": {"job": "b", "host": "n"}}
    result = scene.audit(two(rules), recording(values, labels=labels))

    assert [item["cause"] for item in result["incidents"]] == ["infrastructure", "strategy"]
    assert {finding["policy"]: finding["cause"] for finding in result["findings"]} == {
        "hot": "infrastructure",
        "slow": "strategy",
        "loaded": None,
    }


def test_two_facts_about_one_job_are_two_incidents(scene: Scene) -> None:
    """Correlations that share no finding do not contest each other's cause."""
    rules = """\
  - {name: throttled, cause: infrastructure, join: job, all: [hot, slow]}
  - {name: busy, cause: strategy, join: job, all: [loaded]}"""
    found = audited(scene, two(rules), readings())

    assert [item["cause"] for item in found] == ["infrastructure", "strategy"]


def test_a_decided_incident_gives_its_cause_to_its_findings(scene: Scene) -> None:
    """Findings whose policies name no cause get that of the incident; sums by cause follow."""
    result = scene.audit(two(), recording(readings(), labels={"g": {"job": "a", "host": "n"}}))

    causes = {finding["policy"]: finding["cause"] for finding in result["findings"]}
    assert causes == {"hot": "infrastructure", "slow": "infrastructure", "loaded": None}
    assert result["totals"]["by_cause"] == {"infrastructure": 4.0}


def test_an_exempt_finding_takes_no_part(scene: Scene) -> None:
    """What somebody has declared to be right is no sign of a fault."""
    exempt = """\
exemptions:
  - {policy: hot, where: job == "a", reason: warm room, owner: ml-infra, expires: 2099-01-01}"""

    assert audited(scene, two(more=exempt), readings()) == []


def test_a_pending_finding_takes_no_part(scene: Scene) -> None:
    """What has not been true for long enough to fire joins nothing."""
    policies = two().replace("name: hot,", "name: hot, for: 1h,")

    assert audited(scene, policies, readings()) == []


def test_an_incident_keeps_its_id(scene: Scene) -> None:
    """An audit ten minutes later names the same incident by the same id."""
    early, late = (
        audited(scene, two(), readings(), "--at", str(START + minutes * 60))[0] for minutes in (10, 20)
    )

    assert early["id"] == late["id"]
    assert early["since"] == late["since"] == "2026-01-01T00:01:00Z"


def test_a_service_joins_through_its_team(scene: Scene) -> None:
    """A feature store that is full explains slower steps of its team's jobs, and of no other team's."""
    values: SERIES = {
        ("service", "features", "service.utilization"): [0.97] * 400,
        ("service", "features", "service.error_share"): [0.0] * 400,
    }
    values |= {("job", name, "train.step_time"): [1.0] * 350 + [1.5] * 50 for name in ("a", "b")}
    labels = {"features": {"team": "vision"}, "a": {"team": "vision"}, "b": {"team": "speech"}}
    policies = "version: 1\ninclude: [pack:infrastructure]\n"
    found = scene.audit(policies, recording(values, labels=labels))["incidents"]

    assert [(item["name"], item["join"]) for item in found] == [
        ("steps-behind-a-service", {"label": "team", "value": "vision"})
    ]


def test_bad_data_before_a_divergence_is_data(scene: Scene) -> None:
    """A loss that diverges while one record in fifty is unusable has the data for its cause."""
    values: SERIES = {
        ("job", "a", "loss.verdict"): ["healthy"] * 60 + ["diverged"] * 30,
        ("job", "a", "data.records"): [1000 * k for k in range(90)],
        ("job", "a", "data.invalid_records"): [20 * k for k in range(90)],
    }
    result = scene.audit("version: 1\ninclude: [pack:data]\n", recording(values))

    assert [item["cause"] for item in result["incidents"]] == ["data"]
    assert {finding["policy"]: finding["cause"] for finding in result["findings"]} == {
        "diverged": "data",
        "bad-data": "data",
    }


def test_the_table_and_the_page_tell_incidents(scene: Scene) -> None:
    """A person reads the job, the price and the sentence in both."""
    audited(scene, two(), readings())
    files = str(scene.folder / "policies.yaml"), "--signals", str(scene.folder / "signals.csv")
    table, page = scene.run("audit", *files), scene.run("audit", *files, "--format", "html")

    assert "INCIDENTS\njob a · throttled · $4.00/h, $1.33 so far\n" in table
    assert "cause: infrastructure, because hot and slow fire together on job a; against:" in table
    assert "What caused it" in page
    assert "hot and slow fire together on job a" in page
    assert max(len(line) for line in table.splitlines() if not line.startswith("next:")) <= 80
