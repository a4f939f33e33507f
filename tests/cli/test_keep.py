"""`stoploss keep`: capped, and its cost is told."""

from __future__ import annotations

import pytest
from support.scenes import Scene

from stoploss.engine import clock
from stoploss.engine.ledger import Entry, Ledger
from stoploss.engine.model import ResourceId


@pytest.fixture
def keep(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The command, in an empty folder."""
    monkeypatch.chdir(scene.folder)
    return "keep", "4412", "--reason", "demo", "--for"


def test_it_prints_the_cost_of_the_price_that_is_given(scene: Scene, keep: tuple[str, ...]) -> None:
    """Four hours at $28.80/h are told as $115.20."""
    out = scene.run(*keep, "4h", "--per-hour", "$28.80/h")

    assert scene.status == 0
    assert "job 4412 is kept until " in out
    assert "UTC (4 h); that costs $115.20 at $28.80/h" in out
    assert "cost 115.2" in scene.run("ledger", "list")


def test_it_prints_what_the_newest_decision_would_have_saved(scene: Scene, keep: tuple[str, ...]) -> None:
    """Without --per-hour the ledger's newest decision on the job gives the price."""
    ledger = Ledger("sqlite:///stoploss.db")
    for amount in (1.0, 8.2):
        job = ResourceId("job", "4412")
        ledger.append(Entry(at=clock.now(), kind="decision", resource=job, promised=amount, currency="EUR"))
    ledger.close()

    assert "that costs €16.40 at €8.20/h" in scene.run(*keep, "2h")


def test_an_unknown_price_is_said_to_be_unknown(scene: Scene, keep: tuple[str, ...]) -> None:
    """A job without any price is kept, and no cost of 0 is told."""
    out = scene.run(*keep, "2h")

    assert scene.status == 0
    assert "its price is unknown" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["25h"], "24 h at most"),
        (["0"], "more than nothing"),
        (["99999999999d"], "24 h at most"),
        (["soon"], "soon"),
        (["4"], "--for: '4' is a plain number"),
        (["4h", "--per-hour", "much"], "--per-hour: "),
        (["4h", "--per-hour", "4h"], "no money per time"),
        (["4h", "--per-hour", "$4"], "no money per time"),
        (["4h", "--reason", " "], "no reason"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    scene: Scene, keep: tuple[str, ...], arguments: list[str], said: str
) -> None:
    """A span over the cap or none, and a price that is none, are refused with why."""
    scene.run(*keep, *arguments)

    assert scene.status == 2
    assert said in scene.stderr
