"""`stoploss exempt`: honoured by the audit through its last day, and not a day longer."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.scenes import Scene, policy, recording

SIGNALS = recording({("gpu", name, "gpu.utilization"): [0] * 5 for name in ("a", "b")})


@pytest.fixture
def exempt(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command for the GPU a, in a folder with policies and signals, on a fixed day."""
    monkeypatch.chdir(scene.folder)
    day(monkeypatch, 10)
    scene.write("policies.yaml", policy("gpu.utilization < 5%"))
    scene.write("signals.csv", SIGNALS)
    return ["exempt", "p", "--where", 'id == "a"', "--reason", "bench", "--owner", "ml", "--until"]


def day(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let it be noon of a day in January 2026."""
    monkeypatch.setattr("stoploss.engine.clock.now", lambda: datetime(2026, 1, number, 12, tzinfo=UTC))


def audited(scene: Scene) -> dict[str, dict[str, Any]]:
    """GPU -> its finding."""
    findings = scene.json("audit", "--signals", "signals.csv")["findings"]
    return {finding["resource"]["id"]: finding for finding in findings}


def test_an_exempt_resource_is_told_and_does_not_count(scene: Scene, exempt: list[str]) -> None:
    """From now on the audit shows the exemption of one GPU, and the other one still fires."""
    out = scene.run(*exempt, "2026-01-12")
    assert (scene.status, "through 2026-01-12" in out) == (0, True)

    found = audited(scene)

    assert found["a"]["exemption"]["reason"] == "bench"
    assert found["b"]["exemption"] is None


def test_P_D14_an_exemption_that_expired_yesterday_is_over(
    scene: Scene, exempt: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its last day an exemption holds; the day after the finding is back and says why."""
    scene.run(*exempt, "2026-01-12")

    day(monkeypatch, 12)
    assert audited(scene)["a"]["exemption"] is not None
    day(monkeypatch, 13)
    found = audited(scene)["a"]
    assert (found["exemption"], found["expired_exemption"]) == (None, "2026-01-12")
    assert "exemption expired 2026-01-12" in " ".join(scene.run("audit", "--signals", "signals.csv").split())
    assert scene.status == 1


def test_P_B11_an_exemption_has_to_end(scene: Scene, exempt: list[str]) -> None:
    """Without --until nothing is exempt."""
    scene.run(*exempt[:-1])

    assert scene.status == 2
    assert "--until" in scene.stderr
    assert not Path("stoploss.db").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["exempt", "q", "--until", "2026-02-01"], "no policy 'q'"),
        (["exempt", "p", "--until", "2026-01-09"], "is over"),
        (["exempt", "p", "--until", "soon"], "no day"),
        (["exempt", "p", "--until", "2026-02-01", "--where", "id = 1"], "id = 1"),
        (["exempt", "p", "--until", "2026-02-01", "--where", "gpu.utilization < 5%"], "gpu.utilization"),
        (["exempt", "p", "--until", "2026-02-01", "--owner", ""], "no owner"),
    ],
)
def test_an_exemption_that_is_wrong_is_refused(
    scene: Scene, exempt: list[str], change: list[str], said: str
) -> None:
    """An unknown policy, a day that is over or none, and a wrong condition exempt nothing."""
    scene.run(*change[:2], *exempt[2:-1], *change[2:])

    assert scene.status == 2
    assert said in scene.stderr
    found = audited(scene)
    assert found["a"]["exemption"] is None


def test_exemptions_that_cannot_be_read_are_said(scene: Scene, exempt: list[str]) -> None:
    """With a damaged state the audit still tells its findings, and exits 4."""
    Path("stoploss.db").write_text("no database at all, " * 100)

    out = scene.run("audit", "--signals", "signals.csv")

    assert scene.status == 4
    assert "exemptions" in out


def test_an_exemption_whose_condition_no_longer_reads_is_said(scene: Scene, exempt: list[str]) -> None:
    """A stored condition that this version cannot read is not passed over in silence."""
    scene.run(*exempt, "2026-01-12")
    with sqlite3.connect("stoploss.db") as connection:
        connection.execute("UPDATE people_exemptions SET condition = 'id ='")
    connection.close()

    scene.run("audit", "--signals", "signals.csv")

    assert scene.status == 4
