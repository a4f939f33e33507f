"""The same failure again: attempts counted over the jobs of one configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.scenes import recording

from stoploss.engine.attempts import SIGNAL, counted
from stoploss.engine.history.recorded import read_recorded
from stoploss.rules.catalogue import catalogue

Reasons = dict[str, list[str | None]]


def counts(
    folder: Path, reasons: Reasons, attempts: dict[str, list[int]] | None = None, **recipes: str
) -> dict[str, list[float]]:
    values: dict[tuple[str, str, str], list[object]] = {
        ("job", job, "job.exit_reason"): list(words) for job, words in reasons.items()
    }
    values |= {("job", job, "job.attempts"): list(n) for job, n in (attempts or {}).items()}
    labels = {job: {"experiment": "e1", "recipe": recipes.get(job, "r1")} for job in reasons}
    path = folder / "s.csv"
    path.write_text(recording(values, labels=labels))
    frame = read_recorded([path], catalogue=catalogue(), timezone="UTC").frame(60.0)
    plane = counted(frame, catalogue()).planes[SIGNAL]
    return {resource.id: plane.values[:, at].tolist() for at, resource in enumerate(plane.series)}


def test_three_jobs_that_fail_in_the_same_way_count_three(tmp_path: Path) -> None:
    """Attempts of one configuration count together, in the order in which they ended."""
    reasons: Reasons = {
        "a": ["none", "out-of-memory", "out-of-memory", "out-of-memory"],
        "b": ["none", "none", "out-of-memory", "out-of-memory"],
        "c": ["none", "none", "none", "out-of-memory"],
    }

    assert counts(tmp_path, reasons) == {job: [0.0, 1.0, 2.0, 3.0] for job in "abc"}


@pytest.mark.parametrize(
    ("second", "expected"),
    [("completed", 1.0), ("timeout", 1.0), ("cancelled", 2.0), ("preempted", 2.0)],
)
def test_what_lies_between_two_failures(tmp_path: Path, second: str, expected: float) -> None:
    """Success and another failure begin anew; what a person or provider ended changes nothing."""
    reasons: Reasons = {
        "a": ["failed", "failed", "failed"],
        "b": ["none", second, second],
        "c": ["none", "none", "failed"],
    }

    assert counts(tmp_path, reasons)["c"][-1] == expected


def test_another_configuration_is_another_count(tmp_path: Path) -> None:
    """A changed recipe is not the same attempt again."""
    reasons: Reasons = {"a": ["failed", "failed"], "b": ["none", "failed"]}

    assert counts(tmp_path, reasons, b="r2") == {"a": [1.0, 1.0], "b": [0.0, 1.0]}


def test_a_job_that_is_queued_again_counts_by_its_attempts(tmp_path: Path) -> None:
    """The same reason at a higher attempt is a further failure, at the same attempt it is the same one."""
    reasons: Reasons = {"a": ["failed", "failed", "failed", "failed"]}

    assert counts(tmp_path, reasons, {"a": [1, 1, 2, 3]}) == {"a": [1.0, 1.0, 2.0, 3.0]}


def test_where_the_reason_was_not_read_the_count_is_unknown(tmp_path: Path) -> None:
    """No look, no count; and a bad reading stays one."""
    seen = counts(tmp_path, {"a": ["failed", None, "???", "failed"], "b": ["none"] * 4})["a"]

    assert np.isnan(seen).tolist() == [False, True, True, False]
    assert seen[3] == 1.0
