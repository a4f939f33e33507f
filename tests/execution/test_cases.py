"""Cases of other systems that concern what is carried out, each by its number."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.toys import BEGIN, CHAIN, MINUTE, Fleet, kinds

from stoploss.engine.audit import audit
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.ledger import Ledger
from stoploss.engine.model import UNREADABLE, Look, ResourceId, Sample
from stoploss.engine.people import People
from stoploss.rules.catalogue import catalogue

EXEMPT = (
    "exemptions:\n"
    "  - {policy: idle, where: 'job == \"a\"', reason: by design, owner: ann, expires: %s}\npolicies:"
)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Three idle jobs."""
    made = Fleet(tmp_path)
    made.start("a", "b", "c")
    return made


def ended(fleet: Fleet) -> list[str]:
    """The jobs that were ended."""
    return sorted(line.split()[1] for line in fleet.lines("calls") if line.startswith("terminate"))


def test_P_A2_what_could_not_be_fetched_is_not_idle(fleet: Fleet) -> None:
    """A condition that says `none` of a value that cannot be read is unknown: only the others are ended."""
    cycle = fleet.cycle(
        CHAIN.replace(
            "when: ['max(gpu.utilization, 5m) < 5%']", "when: [{none: ['max(gpu.utilization, 5m) > 5%']}]"
        )
    )
    fleet.run(cycle, 3)
    fleet.silent.add("b")
    steps = fleet.run(cycle, 30)

    assert ended(fleet) == ["a", "c"]
    assert [str(item.resource) for item in steps[5].result.unknown] == ["job b"]


def test_P_A3_a_label_that_could_not_be_fetched_protects(fleet: Fleet) -> None:
    """Whether it is protected cannot be read of one job, and what it is of another: neither is touched."""
    fleet.labels = {"a": {"keep": UNREADABLE}, "b": {"class": UNREADABLE}}  # type: ignore[dict-item]
    fleet.run(fleet.cycle(CHAIN.replace("policies:", "protect: ['label.keep == \"true\"']\npolicies:")), 30)

    assert kinds(fleet.lines("calls")) == ["snapshot c", "terminate c"]


def test_P_B7_the_hour_that_comes_twice_acts_once(tmp_path: Path) -> None:
    """At 01:30 in New York, on the day on which 01:30 comes twice, a step is done once."""
    first = datetime(2026, 11, 1, 5, 30, tzinfo=UTC).timestamp()
    fleet = Fleet(tmp_path, minutes=round((first - BEGIN) / MINUTE) - 15)
    fleet.start("a")
    active = "    active: {schedule: '30-40 1 * * *', timezone: America/New_York}\n"
    text = CHAIN.replace("    waste: 100%\n", active).replace("{after: 2m}", "{}")
    cycle = fleet.cycle(text.replace("      - terminate: {after: 4m}\n", ""))
    fleet.run(cycle, 14)
    before = fleet.lines("calls")
    fleet.run(cycle, 2)
    once = kinds(fleet.lines("calls"))
    fleet.run(cycle, 70)

    assert (before, once, kinds(fleet.lines("calls"))) == ([], ["snapshot a"], ["snapshot a"])


@pytest.mark.parametrize(("expires", "jobs"), [("2026-11-30", ["a", "b", "c"]), ("2026-12-01", ["b", "c"])])
def test_P_D14_an_exemption_that_expired_yesterday(fleet: Fleet, expires: str, jobs: list[str]) -> None:
    """It protects through its last day; the day after, its job is told of, saved and ended like any other."""
    cycle = fleet.cycle(CHAIN.replace("policies:", EXEMPT % expires))
    [first, *_] = [item.result for item in fleet.run(cycle, 8) if item.result.findings]
    said = {item.resource.id: item.expired and item.expired.expires for item in first.findings}
    fleet.run(cycle, 20)

    assert said["a"] == ("2026-11-30" if "a" in jobs else None)
    assert ended(fleet) == jobs


def test_P_D14_an_exemption_of_a_person_runs_out_while_it_runs(fleet: Fleet) -> None:
    """At the end of its last day the job is told of, and ended when its owner has had the time."""
    said = {"expires": "2026-12-01", "reason": "by design", "owner": "ann", "who": "ann"}
    People(Ledger(fleet.url, environ={})).exempt("idle", 'job == "a"', now=fleet.now(), **said)
    cycle = fleet.cycle()
    fleet.run(cycle, 20)
    assert ended(fleet) == ["b", "c"]
    fleet.minutes = 10 * 60 - 10
    fleet.run(cycle, 9)
    assert ended(fleet) == ["b", "c"]
    fleet.run(cycle, 6)

    assert ended(fleet) == ["a", "b", "c"]


@pytest.mark.parametrize("where", ["labl.keep == 1", "job =~ '('"])
def test_P_D15_exemptions_that_cannot_be_read_end_nothing(fleet: Fleet, where: str) -> None:
    """One exemption that means nothing any more protects everything; alerts and snapshots go on."""
    said = {"expires": "2027-01-31", "reason": "by design", "owner": "ann", "who": "ann"}
    People(Ledger(fleet.url, environ={})).exempt("idle", where, now=fleet.now(), **said)
    cycle = fleet.cycle()
    fleet.run(cycle, 30)
    whys = {item.why for item in cycle.plan().decisions if item.action == "terminate"}

    assert ended(fleet) == []
    assert fleet.saved() == ["a", "b", "c"]
    assert all("cannot be read" in why for why in whys)


def test_P_D19_worked_once_and_idle_since(fleet: Fleet) -> None:
    """The window decides, not the life: busy for five minutes of forty, it is ended."""
    fleet.busy = {"a"}
    cycle = fleet.cycle()
    fleet.run(cycle, 5)
    fleet.busy = set()
    fleet.run(cycle, 35)

    assert ended(fleet) == ["a", "b", "c"]


def test_P_D20_two_policies_one_action(fleet: Fleet) -> None:
    """One says smaller, one says end: each job is ended once, nothing is made smaller, both are named."""
    smaller = (
        "  - {name: small, each: job, for: 2m, when: ['max(gpu.utilization, 5m) < 5%'],\n"
        "     then: [{alert: {to: boss}}, {downscale: {after: 3m, gpus: 1, snapshot: not-needed}}]}\n"
    )
    fleet.run(fleet.cycle(CHAIN + smaller), 30)
    ends = [e for e in Ledger(fleet.url, environ={}).entries(kinds=("intent",)) if e.action == "terminate"]

    assert sorted(kinds(fleet.lines("calls"))) == sorted(
        f"{w} {j}" for j in "abc" for w in ("snapshot", "terminate")
    )
    assert all("also: small" in str(entry.why) for entry in ends)


def test_P_D21_told_once_whatever_is_started_again(fleet: Fleet) -> None:
    """The same findings every minute, and a restart between: one notice, and one that it is over."""
    text = CHAIN.replace("      - snapshot: {after: 2m}\n      - terminate: {after: 4m}\n", "")
    fleet.run(fleet.cycle(text), 20)
    cycle = fleet.cycle(text)
    cycle.reconcile()
    fleet.run(cycle, 20)
    fleet.busy = {"a", "b", "c"}
    fleet.run(cycle, 10)

    assert kinds(fleet.lines("told")) == ["firing owner", "resolved owner"]


@pytest.mark.slow
def test_P_D25_a_hundred_thousand_facts_are_as_many_findings(tmp_path: Path) -> None:
    """GPUs that differ by their name alone: none is lost, and none stands for another."""
    number = 100_000
    buffer = SampleBuffer(catalogue(), {"gpu": MINUTE})
    for minute in (1, 2):
        at = BEGIN + minute * MINUTE
        samples = tuple(
            Sample(at, ResourceId("gpu", str(gpu)), "gpu.utilization", 0.0) for gpu in range(number)
        )
        buffer.add("gpu", Look(samples, frozenset({"gpu"})), slot_time=at)
    text = "version: 1\npolicies: [{name: p, each: gpu, when: [gpu.utilization < 5%], then: [alert: {}]}]\n"
    policies = Fleet(tmp_path).cycle(text).policies
    now = datetime.fromtimestamp(BEGIN + 2 * MINUTE, UTC)
    result = audit(policies, lambda resolution: buffer.frame(resolution), catalogue(), now=now)

    assert len({item.id for item in result.findings}) == number
    assert len({item.resource for item in result.findings}) == number


def test_G_2_a_window_that_was_missed_begins_with_a_warning(fleet: Fleet) -> None:
    """Idle for 160 minutes while nobody evaluated: told now, and ended when the time after that is over."""
    for minute in range(1, 161):
        fleet.look(minute)
    fleet.minutes = 160
    cycle = fleet.cycle()
    cycle.step()
    assert kinds(fleet.lines("told")) == ["firing owner"]
    assert fleet.lines("calls") == []
    fleet.run(cycle, 3)
    early = ended(fleet)
    fleet.run(cycle, 1)

    assert (early, ended(fleet)) == ([], ["a", "b", "c"])


def test_G_71_a_save_that_fails_ends_nothing(fleet: Fleet) -> None:
    """Every save fails, however often: no job is ended, and somebody is told of each."""
    for job in "abc":
        fleet.faults["snapshot", job] = "fail"
    fleet.run(fleet.cycle(), 120)

    assert ended(fleet) == []
    assert any("snapshot failed" in line or "3 firing" in line for line in fleet.lines("told")[1:])


def test_G_71_a_copy_of_an_older_save_ends_nothing(fleet: Fleet) -> None:
    """What was kept was begun before the job went idle: steps made since would be lost, so it lives on."""
    fleet.faults["snapshot", "a"] = "old"
    fleet.start("a", "b")
    cycle = fleet.cycle()
    results = fleet.run(cycle, 20)

    assert fleet.running() == ["a"]
    [(verdict, whys)] = [(d.verdict, d.whys) for d in results[-1].result.decisions if d.action == "terminate"]
    assert verdict == "held"
    assert "waits for a verified snapshot" in whys


def test_G_75_a_save_that_is_gone_ends_nothing(fleet: Fleet) -> None:
    """What was verified and cannot be relied on any more blocks the end, with the reason."""
    cycle = fleet.cycle()
    fleet.run(cycle, 10)
    (fleet.folder / "saved" / "a").unlink()
    steps = fleet.run(cycle, 10)
    whys = [why for item in steps for _, why in item.round.failed]

    assert ended(fleet) == ["b", "c"]
    assert any("cannot be relied on any more" in why for why in whys)
