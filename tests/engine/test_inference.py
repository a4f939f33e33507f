"""Correlations: what fires together, by durable-rules and by a hash join."""

from __future__ import annotations

import random

import pytest
from support.worlds import HERE

from stoploss.engine.inference import DurableRules, HashJoin, Incident, Signal, incidents
from stoploss.rules.policy import Correlation

pytest.importorskip("durable", reason="durable-rules does not import on this Python")


def correlation(
    name: str, all_: tuple[str, ...], none: tuple[str, ...] = (), within: float = 600.0
) -> Correlation:
    return Correlation(name, "infrastructure", "job", all_, none, within, (), HERE)


def signal(policy: str, job: str, ago: float | None = 0.0) -> Signal:
    return Signal(policy, {"job": job}, None if ago is None else f"f-{policy}-{job}", ago)


STALL = correlation("stall", ("comm", "loss"), ("saving",))


def found(signals: list[Signal], rules: list[Correlation] | None = None) -> list[Incident]:
    rules = rules or [STALL]
    results = [incidents(rules, signals, using(rules)) for using in (HashJoin, DurableRules)]
    assert results[0] == results[1]
    return results[0]


def test_findings_that_share_a_job_are_one_incident() -> None:
    """All policies of `all` on one job, and the ids of their findings in the order of `all`."""
    result = found([signal("loss", "a"), signal("comm", "a"), signal("comm", "b")])

    assert [(item.value, item.findings, item.undecided) for item in result] == [
        ("a", ("f-comm-a", "f-loss-a"), False)
    ]


def test_a_policy_of_none_prevents_it() -> None:
    """A checkpoint being written explains the stall."""
    assert found([signal("comm", "a"), signal("loss", "a"), signal("saving", "a")]) == []
    assert len(found([signal("comm", "a"), signal("loss", "a"), signal("saving", "b")])) == 1


def test_an_unknown_policy_of_none_leaves_it_undecided() -> None:
    """What we do not know is not taken for absent: the incident is listed, and not as certain."""
    [incident] = found([signal("comm", "a"), signal("loss", "a"), signal("saving", "a", None)])

    assert incident.undecided


def test_an_unknown_policy_of_all_is_not_taken_for_firing() -> None:
    """No incident from what is not known."""
    assert found([signal("comm", "a"), signal("loss", "a", None)]) == []


@pytest.mark.parametrize(("ago", "count"), [(600.0, 1), (600.1, 0)])
def test_what_fired_within_a_while_still_counts(ago: float, count: int) -> None:
    """`within` is how long ago a finding may have ended."""
    assert len(found([signal("comm", "a"), signal("loss", "a", ago)])) == count


def test_a_resource_without_the_label_takes_no_part() -> None:
    """A finding on something that has no job joins nothing."""
    assert found([Signal("comm", {}, "f", 0.0), signal("loss", "a")]) == []


def random_case(rng: random.Random) -> tuple[list[Correlation], list[Signal]]:
    policies = [f"p{n}" for n in range(rng.randint(1, 6))]
    rules = []
    for number in range(rng.randint(1, 4)):
        names = rng.sample(policies, rng.randint(1, min(3, len(policies))))
        barred = [name for name in policies if name not in names and rng.random() < 0.3]
        rules.append(correlation(f"r{number}", tuple(names), tuple(barred), rng.choice([0.0, 300.0, 600.0])))
    jobs = [
        rng.choice(["a", "b", "j 3", "é|x", '"q"', "1e-05", "", "0", "true"])
        for _ in range(rng.randint(1, 4))
    ]
    signals = [
        signal(rng.choice(policies), rng.choice(jobs), rng.choice([0.0, 0.0, 200.0, 450.0, 900.0, None]))
        for _ in range(rng.randint(0, 14))
    ]
    return rules, signals


def test_durable_rules_agrees_with_the_hash_join_on_random_cases() -> None:
    """Three thousand random rule sets and facts: positive, negative, unknown, several joins, within."""
    rng = random.Random(11)
    for _ in range(600):
        rules, _ = random_case(rng)
        plain, durable = HashJoin(rules), DurableRules(rules)
        for _ in range(5):
            # The same engine again and again: nothing of one instant is left for the next.
            _, signals = random_case(rng)
            assert incidents(rules, signals, durable) == incidents(rules, signals, plain), (rules, signals)
