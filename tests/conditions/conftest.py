"""A small catalogue with one signal of each sort, and a check against it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stoploss.rules.catalogue import Catalogue, Signal, SignalKind
from stoploss.rules.conditions.check import Problem, check_condition
from stoploss.rules.conditions.typed import CheckedCondition, Condition

ROWS: tuple[tuple[str, SignalKind, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("gpu.utilization", SignalKind.GAUGE, "share", ("gpu",), ()),
    ("gpu.power", SignalKind.GAUGE, "W", ("gpu",), ()),
    ("gpu.power_limit", SignalKind.ATTRIBUTE, "W", ("gpu",), ()),
    ("gpu.model", SignalKind.ATTRIBUTE, "text", ("gpu",), ()),
    ("train.step", SignalKind.COUNTER, "1", ("job",), ()),
    ("train.loss", SignalKind.CURVE, "1", ("job",), ()),
    ("loss.verdict", SignalKind.STATE, "text", ("job",), ("converged", "flat", "healthy")),
    ("job.exit_reason", SignalKind.TEXT, "text", ("job",), ()),
    ("data.errors", SignalKind.EVENT, "1", ("job",), ()),
    ("data.records", SignalKind.EVENT, "1", ("job",), ()),
    ("host.cpu", SignalKind.GAUGE, "share", ("host",), ()),
    ("network.bytes", SignalKind.COUNTER, "B", ("host", "instance"), ()),
    ("budget.used", SignalKind.GAUGE, "share", ("job", "team"), ()),
    ("cost.total", SignalKind.COUNTER, "money", ("job",), ()),
    ("cost.rate", SignalKind.GAUGE, "money/h", ("job",), ()),
    ("checkpoint.size", SignalKind.GAUGE, "B", ("checkpoint",), ()),
    ("bucket.size", SignalKind.GAUGE, "B", ("bucket",), ()),
)

Check = Callable[..., tuple[CheckedCondition | None, tuple[Problem, ...]]]


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Signals of every kind, on resources at several levels."""
    return Catalogue(
        tuple(
            Signal(name, kind, unit, resources, "a signal for tests", "fake", values)
            for name, kind, unit, resources, values in ROWS
        )
    )


@pytest.fixture(scope="session")
def check(catalogue: Catalogue) -> Check:
    """Checks a condition against the small catalogue, for jobs unless told otherwise."""

    def run(
        text: str, each: str | None = "job", *, labels_only: bool = False
    ) -> tuple[CheckedCondition | None, tuple[Problem, ...]]:
        return check_condition(text, each=each, catalogue=catalogue, labels_only=labels_only)

    return run


@pytest.fixture(scope="session")
def root(check: Check) -> Callable[..., Condition]:
    """The checked tree of a condition without mistakes."""

    def run(text: str, each: str | None = "job", *, labels_only: bool = False) -> Condition:
        condition, problems = check(text, each, labels_only=labels_only)
        assert problems == ()
        assert condition is not None
        return condition.root

    return run


@pytest.fixture(scope="session")
def told(check: Check) -> Callable[..., list[tuple[str, str]]]:
    """Code and offending text of each problem of a condition."""

    def run(text: str, each: str | None = "job", *, labels_only: bool = False) -> list[tuple[str, str]]:
        condition, problems = check(text, each, labels_only=labels_only)
        assert condition is None
        return [(problem.code, text[problem.offset :][: problem.length]) for problem in problems]

    return run
