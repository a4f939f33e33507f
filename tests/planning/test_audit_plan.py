"""The plan of an audit, through the real command over small recordings."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support import plans
from support.audits import NASTY, audit, finding
from support.scenes import Scene, recording

from stoploss.engine import clock
from stoploss.engine.ledger import Ledger
from stoploss.engine.people import People
from stoploss.reports import audit_html

UTIL = "gpu.utilization"
PRICES = "prices: {gpu-hour: {default: $2.00/GPU-hour}}\n"
THEN = (
    "    then:\n      - alert: {to: owner}\n      - snapshot: {after: 20m}\n"
    "      - terminate: {after: 30m, approve: required}\n"
)
EXEMPT = "exemptions:\n  - {policy: p, where: '%s', reason: by design, owner: me, expires: 2099-01-31}\n"


def policies(
    then: str = THEN, *, head: str = "", body: str = "", when: str = "max(gpu.utilization, 30m) < 5%"
) -> str:
    return (
        f"version: 1\n{PRICES}{head}policies:\n  - name: p\n    each: job\n    waste: 100%\n{body}"
        f"    for: 5m\n    when: ['{when}']\n{then}"
    )


def idle(minutes: int = 60, jobs: int = 1, values: Any = 0, **labels: str) -> str:
    """GPUs of jobs a, b, …, two each, that were busy for ten minutes and idle since."""
    said = {"class": "train"} | labels
    names = [f"j{at}" for at in range(jobs)]
    column = [0.9] * 10 + (values if isinstance(values, list) else [values] * (minutes - 10))
    return recording(
        {("gpu", f"{job}/{gpu}", UTIL): column for job in names for gpu in range(2)},
        labels={f"{job}/{gpu}": {"job": job} | said for job in names for gpu in range(2)},
    )


def by_action(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["action"]: item for item in result["decisions"]}


def test_P_D7_a_dry_run_lists_everything_and_touches_nothing(scene: Scene) -> None:
    """Each resource and step with its parameters, time and saving; it says would, and writes no file."""
    result = scene.audit(policies(), idle(values=[0] * 50))
    before = sorted(Path(scene.folder).iterdir())
    found = by_action(result)
    end = found["terminate"]

    assert [item["step"] for item in result["decisions"]] == [1, 2, 3]
    assert (found["alert"]["verdict"], found["alert"]["target"]) == ("would", "owner")
    assert (found["snapshot"]["verdict"], found["snapshot"]["due"]) == ("would", "2026-01-01T01:20:00Z")
    assert found["snapshot"]["parameters"] == {"what": "job", "timeout": 600.0}
    assert (end["verdict"], end["due"]) == ("held", "2026-01-01T01:30:00Z")
    assert end["why"] == "waits for a verified snapshot; needs approval"
    assert end["saves_per_hour"] == 4.0
    assert end["finding"] == result["findings"][0]["id"]
    assert end["resource"] == {"kind": "job", "id": "j0"}
    assert end["request"]["valid_until"] == "2026-01-02T01:30:00Z"
    assert sorted(Path(scene.folder).iterdir()) == before
    again = scene.audit(policies(), idle(values=[0] * 50))
    assert again == result


def test_the_table_and_the_page_show_the_plan(scene: Scene) -> None:
    """Steps with their times beside the guard, within 80 columns; the page says the same."""
    files = scene.write("policies.yaml", policies()), scene.write("signals.csv", idle())
    table = scene.run("audit", files[0], "--signals", files[1])
    plan = scene.run("audit", files[0], "--signals", files[1], "--plan")
    page = scene.run("audit", files[0], "--signals", files[1], "--format", "html")

    row = "job j0  alert owner now, snapshot 01:20, terminate 01:30        needs approval"
    assert row in table
    assert row in plan
    assert "terminate: waits for a verified snapshot" in plan
    assert "POLICY" not in plan
    assert max(map(len, plan.splitlines())) <= 80
    assert "alert owner now, snapshot 01:20, terminate 01:30" in page


def test_plan_as_json_holds_the_plan_only(scene: Scene) -> None:
    """--plan narrows the json too, and does not go with a format that has no plan."""
    files = scene.write("policies.yaml", policies()), scene.write("signals.csv", idle())
    result = scene.json("audit", files[0], "--signals", files[1], "--plan")

    assert set(result) == {"version", "mode", "at", "degraded", "decisions", "totals"}
    assert len(result["decisions"]) == 3
    scene.run("audit", files[0], "--signals", files[1], "--plan", "--format", "csv")
    assert scene.status == 2


@pytest.mark.parametrize(
    ("head", "labels", "why"),
    [
        ("protect: ['label.keep == \"true\"']\n", {"keep": "true"}, 'protected: label.keep == "true"'),
        ("protect: ['label.keep == \"true\"']\n", {"keep": "?"}, "whether it is protected cannot be read"),
        ("protect: ['job =~ \"^j\"']\n", {}, 'protected: job =~ "^j"'),
        ("", {"class": ""}, "class unknown: alerts only"),
        ("", {"class": "interactive"}, "interactive is never ended"),
    ],
)
def test_labels_keep_a_job(scene: Scene, head: str, labels: dict[str, str], why: str) -> None:
    """Protected, or perhaps protected, or of no known class, or serving: only the alert is left."""
    found = by_action(scene.audit(policies(head=head), idle(**labels)))

    assert found["alert"]["verdict"] == "would"
    assert found["terminate"]["verdict"] == "blocked"
    assert why in found["terminate"]["why"]


def test_P_D30_an_exempt_finding_plans_nothing(scene: Scene) -> None:
    """It is shown as exempt with the reason, its steps are blocked, and the exit status is 0."""
    result = scene.audit(policies(head=EXEMPT % 'job == "j0"'), idle())

    assert scene.status == 0
    assert result["summary"]["exempt"] == 1
    assert {item["verdict"] for item in result["decisions"]} == {"blocked"}
    assert {item["why"].split(";")[0] for item in result["decisions"]} == {
        "exempt through 2099-01-31: by design"
    }


def test_an_exemption_that_cannot_be_read_protects(scene: Scene) -> None:
    """The alert goes out; nothing else is done."""
    found = by_action(scene.audit(policies(head=EXEMPT % 'user == "x"'), idle(user="?")))

    assert found["alert"]["verdict"] == "would"
    assert "whether it is exempt cannot be read" in found["terminate"]["why"]


def test_ninety_percent_are_needed_to_destroy(scene: Scene) -> None:
    """26 of 30 samples fire and alert; the end is held until there are 27."""
    values: list[Any] = [0] * 50
    for gap in (22, 28, 34, 40):
        values[gap] = None
    found = by_action(scene.audit(policies(), idle(values=values)))

    assert found["alert"]["verdict"] == "would"
    assert found["terminate"]["verdict"] == "held"
    assert "26 of 30 samples, needs 27" in found["terminate"]["why"]


def test_stale_and_unknown_never_destroy(scene: Scene) -> None:
    """Firing and then silent: it stays a finding, and nothing is ended on it."""
    found = by_action(scene.audit(policies(), idle(values=[0] * 50 + [None] * 9 + ["ERR!"])))

    assert found["terminate"]["verdict"] == "blocked"
    assert "unknown now: stale since" in found["terminate"]["why"]
    # Fourteen true minutes of twenty: the clock stands, so the snapshot has no time.
    assert (found["snapshot"]["verdict"], found["snapshot"]["due"]) == ("held", None)


def test_a_job_is_ended_only_where_it_holds_for_all_of_it(scene: Scene) -> None:
    """One idle GPU of two is no reason to end the job, whatever the policy asks."""
    signals = recording(
        {("gpu", "a", UTIL): [0] * 60, ("gpu", "b", UTIL): [0.9] * 60},
        labels={name: {"job": "j0", "class": "train"} for name in "ab"},
    )
    found = by_action(scene.audit(policies(when="any(max(gpu.utilization, 30m) < 5%)"), signals))
    whole = by_action(scene.audit(policies(when="any(max(gpu.utilization, 30m) < 5%)"), idle()))

    assert "does not hold for the job as a whole" in found["terminate"]["why"]
    assert "as a whole" not in whole["terminate"]["why"]


def test_a_gpu_of_a_job_needs_all_of_them(scene: Scene) -> None:
    """A policy on GPUs that would take one from a job says for how many of them it holds."""
    signals = recording(
        {("gpu", "a", UTIL): [0] * 60, ("gpu", "b", UTIL): [0.9] * 60},
        labels={name: {"job": "j0", "class": "train"} for name in "ab"},
    )
    text = policies().replace("each: job", "each: gpu")

    assert "holds for 1 of 2 gpus of job j0" in by_action(scene.audit(text, signals))["terminate"]["why"]
    assert "holds for" not in by_action(scene.audit(text, idle()))["terminate"]["why"]


def test_names_are_no_markup_on_the_page() -> None:
    """What a resource or a receiver is called stands on the page as text."""
    of = plans.policy(NASTY, (plans.step("alert", to=(NASTY,)),))
    decisions = plans.decide(plans.candidate(NASTY, of=of))
    page = audit_html.render(audit([finding()], decisions=tuple(decisions)))

    assert "&lt;b&gt;" in page
    assert '<b>"x"' not in page
    assert "\x1b" not in page


def test_a_name_of_two_jobs_is_refused(scene: Scene) -> None:
    """Two users call their job the same: nobody knows which of them is meant."""
    signals = recording(
        {("gpu", name, UTIL): [0] * 60 for name in "ab"},
        labels={name: {"job": "train", "class": "train", "user": f"u{name}"} for name in "ab"},
    )
    found = by_action(scene.audit(policies(), signals))

    assert "its name matches 2 jobs" in found["terminate"]["why"]


def test_a_verified_snapshot_lets_go(scene: Scene) -> None:
    """A complete checkpoint begun after the finding and beyond the processes that end is one."""
    then = "    then: [{alert: {to: owner}}, {terminate: {after: 30m}}]\n"

    def audited(age: float, domain: str = "zone") -> dict[str, Any]:
        values: dict[tuple[str, str, str], list[Any]] = {
            ("gpu", "a", UTIL): [0] * 60,
            ("checkpoint", "c", "checkpoint.complete"): [1] * 60,
            ("checkpoint", "c", "checkpoint.age"): [age] * 60,
            ("checkpoint", "c", "checkpoint.failure_domain"): [domain] * 60,
        }
        labels = {"a": {"job": "j0", "class": "train"}, "c": {"job": "j0"}}
        return by_action(scene.audit(policies(then), recording(values, labels=labels)))["terminate"]

    assert audited(600)["verdict"] == "would"
    assert audited(7200)["why"] == "waits for a verified snapshot"
    assert audited(600, "process")["why"] == "waits for a verified snapshot"


def test_P_D17_the_newest_checkpoint_is_never_pruned(scene: Scene) -> None:
    """11 checkpoints of one job: the nine oldest by number may go, the two newest say why they stay."""
    steps = range(9000, 10001, 100)
    values: dict[tuple[str, str, str], list[Any]] = {}
    for number in steps:
        facts = {"step": number, "complete": 1, "newest": int(number == 10000), "best": 0, "references": 0}
        for name, value in (facts | {"age": 9e6}).items():
            values["checkpoint", f"c{number}", f"checkpoint.{name}"] = [value] * 5
    text = (
        "version: 1\nsettings: {limits: {share-of-population: 100%, actions-per-run: 20}}\npolicies:\n"
        "  - name: p\n    each: checkpoint\n    for: 1m\n    when: [checkpoint.age > 30d]\n"
        "    then: [{alert: {}}, {prune: {}}]\n"
    )
    labels = {f"c{number}": {"job": "j0"} for number in steps}
    result = scene.audit(text, recording(values, labels=labels))
    prunes = {item["resource"]["id"]: item for item in result["decisions"] if item["action"] == "prune"}

    assert {name for name, item in prunes.items() if item["verdict"] == "would"} == {
        f"c{number}" for number in range(9000, 9900, 100)
    }
    assert prunes["c10000"]["why"] == "the newest complete checkpoint is kept"
    assert prunes["c9900"]["why"] == "one of the newest 2 is kept"


def test_P_D18_loading_data_is_not_idleness(scene: Scene) -> None:
    """A job in its set-up phase does no GPU work, fires nothing and plans nothing."""
    body = "    except-phase: [setup, loading]\n"
    values: dict[tuple[str, str, str], list[Any]] = {("gpu", "a", UTIL): [0] * 60}
    labels = {"a": {"job": "j0", "class": "train"}}
    for phase, planned in (("loading", 0), ("training", 3)):
        values["job", "j0", "job.phase"] = [phase] * 60
        result = scene.audit(policies(body=body), recording(values, labels=labels))
        assert len(result["decisions"]) == planned


def test_G_10_an_idle_slice_at_full_clock_is_idle(scene: Scene) -> None:
    """P0 and no utilization, at 67 W of 400: power tells, and the alert is planned."""
    values: dict[tuple[str, str, str], list[Any]] = {
        ("gpu", "a", "gpu.performance_state"): ["P0"] * 60,
        ("gpu", "a", UTIL): ["N/A"] * 60,
        ("gpu", "a", "gpu.power"): [67] * 60,
        ("gpu", "a", "gpu.power_limit"): [400] * 60,
    }
    text = (
        "version: 1\npolicies:\n  - name: p\n    each: gpu\n"
        "    when: ['max(gpu.power, 30m) < 35% * gpu.power_limit']\n"
        "    then: [{alert: {to: owner}}]\n"
    )
    [found] = scene.audit(text, recording(values))["decisions"]

    assert (found["action"], found["verdict"], found["resource"]["id"]) == ("alert", "would", "a")


def test_P_B15_not_yet_active_is_evaluated_and_said(scene: Scene) -> None:
    """The finding is there, and its steps say when the policy begins."""
    result = scene.audit(policies(body="    active: {from: 2030-01-01}\n"), idle())

    assert [item["state"] for item in result["findings"]] == ["firing"]
    assert {item["why"].split(";")[0] for item in result["decisions"]} == {"not yet active: from 2030-01-01"}


def test_a_storm_freezes_and_says_what_is_shared(scene: Scene) -> None:
    """Six jobs turn idle at once below one switch: nothing is ended, and everybody is told."""
    result = scene.audit(policies(), idle(jobs=6, switch="s1"))
    ends = [item for item in result["decisions"] if item["action"] == "terminate"]
    alerts = [item for item in result["decisions"] if item["action"] == "alert"]

    assert len(ends) == len(alerts) == 6
    assert all(
        "frozen: 6 of 6 jobs turned idle or unknown within 10m; they share switch s1" in e["why"]
        for e in ends
    )
    assert {item["verdict"] for item in alerts} == {"would"}
    assert any("frozen" in note for note in result["notes"])


def test_what_was_idle_from_the_start_is_no_storm(scene: Scene) -> None:
    """All windows fill in the same minute of a recording, which says nothing about the fleet."""
    names = [f"j{at}" for at in range(6)]
    signals = recording(
        {("gpu", name, UTIL): [0] * 60 for name in names},
        labels={name: {"job": name, "class": "train"} for name in names},
    )
    result = scene.audit(policies(), signals)

    assert len(result["findings"]) == 6
    assert not any("frozen" in item["why"] for item in result["decisions"])


def test_true_time_is_counted_without_the_gaps(scene: Scene) -> None:
    """Unknown minutes since firing do not count towards `after`."""
    text = policies("    then: [{snapshot: {after: 20m}}]\n", when="gpu.utilization < 5%")
    whole = scene.audit(text, idle(values=[0] * 20))["decisions"]
    gap = scene.audit(text, idle(values=[0] * 10 + ["ERR!"] * 5 + [0] * 5))["decisions"]

    # Busy for ten minutes, then `for`: it fires in minute 16, and the recording ends in minute 30.
    assert [item["due"] for item in whole] == ["2026-01-01T00:36:00Z"]
    assert [item["due"] for item in gap] == ["2026-01-01T00:41:00Z"]


def test_an_unknown_that_is_to_be_told_is_planned(scene: Scene) -> None:
    """`on-unknown: alert` plans the alerts of what is unknown for longer than `for`, and nothing else."""
    result = scene.audit(policies(body="    on-unknown: alert\n"), idle(values=["ERR!"] * 50))

    assert [(item["action"], item["verdict"], item["finding"]) for item in result["decisions"]] == [
        ("alert", "would", None)
    ]


def test_the_plan_knows_what_people_decided_and_what_was_done(scene: Scene) -> None:
    """A keep in the state blocks the end of its job, and an approval lets it go; the state is only read."""
    state = scene.folder / "stoploss.db"
    text = policies(THEN.replace("approve: required", "approve: required, snapshot: not-needed"))
    head = f"settings: {{state: 'sqlite:///{state}'}}\n"
    before = by_action(
        scene.audit(
            head + text,
            idle(),
        )
    )["terminate"]
    ledger = Ledger(f"sqlite:///{state}", environ={})
    now = clock.now()
    People(ledger).keep("j0", timedelta(hours=1), who="ann", now=now, reason="demo")
    kept = by_action(scene.audit(head + text, idle()))["terminate"]
    ledger.close()

    assert (before["verdict"], before["why"]) == ("held", "needs approval")
    assert kept["verdict"] == "blocked"
    assert "by ann: demo" in kept["why"]
