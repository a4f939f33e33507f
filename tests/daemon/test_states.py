"""States of other versions, and states that are damaged: migrated, refused in words, or evaluated again."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.months import Life, life, said
from support.scenes import Scene
from support.toys import Fleet

from stoploss.engine.history.store_errors import StoreError
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import SCHEMA, Entry
from stoploss.engine.vitals import load_vitals

NOW = datetime(2026, 12, 1, 14, tzinfo=UTC)


@pytest.fixture
def lived(tmp_path: Path) -> Iterator[Life]:
    """Half a day of a daemon that was killed."""
    one = life(Fleet(tmp_path), 9, datetime(2026, 11, 10, 6, tzinfo=UTC))
    for _ in range(50):
        one.pass_()
    one.kill()
    yield one
    one.kill()


def change(one: Life, statement: str, *values: object) -> None:
    """Change the state's database."""
    with sqlite3.connect(one.fleet.folder / "state.db") as connection:
        connection.execute(statement, values)
    connection.close()


def test_a_ledger_of_version_1_is_taken_over(tmp_path: Path) -> None:
    """Tables and an index that came later are made, the lines stay; reading alone changes nothing."""
    url, file = f"sqlite:///{tmp_path}/state.db", tmp_path / "state.db"
    ledger = Ledger(url, environ={})
    ledger.append(Entry(at=NOW, kind="note", why="from before"))
    ledger.close()
    with sqlite3.connect(file) as connection:
        connection.execute("DROP INDEX ledger_lines_kind_time")
        connection.execute("DROP TABLE IF EXISTS alerts_told")
        connection.execute("UPDATE ledger_meta SET value = '1' WHERE name = 'schema'")
    connection.close()
    reader = Ledger(url, read_only=True, environ={})
    assert [entry.why for entry in reader.entries()] == ["from before"]
    reader.close()
    with sqlite3.connect(file) as connection:
        version = connection.execute("SELECT value FROM ledger_meta WHERE name = 'schema'").fetchone()
    connection.close()
    assert version == ("1",)

    writer = Ledger(url, environ={})
    assert writer.verify() == ()
    assert [entry.why for entry in writer.entries()] == ["from before"]
    writer.close()
    with sqlite3.connect(file) as connection:
        version = connection.execute("SELECT value FROM ledger_meta WHERE name = 'schema'").fetchone()
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    assert version == (str(SCHEMA),)
    assert "ledger_lines_kind_time" in names


def test_what_was_done_lately_is_found_without_reading_all(tmp_path: Path) -> None:
    """A ledger of years is not read from its beginning at every tick."""
    ledger = Ledger(f"sqlite:///{tmp_path}/state.db", environ={})
    with ledger.reading() as connection:
        plan = connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT * FROM ledger_lines WHERE kind IN ('note') AND time >= 5.0"
        ).fetchall()
    ledger.close()

    assert "ledger_lines_kind_time" in str(plan)


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_meta SET value = '99' WHERE name = 'schema'",
        "UPDATE history_meta SET value = '99' WHERE name = 'schema'",
    ],
    ids=["ledger", "samples"],
)
def test_a_newer_state_is_refused(lived: Life, statement: str) -> None:
    """It says which version it is, and what to do; nothing is written."""
    change(lived, statement)

    with pytest.raises(StoreError, match=r"newer stoploss .*99.* upgrade stoploss"):
        lived.start()


@pytest.mark.slow
def test_a_newer_carry_is_refused(lived: Life) -> None:
    """What a newer program carried on is not thrown away by an older one."""
    change(lived, "UPDATE carry SET body = ?", zlib.compress(json.dumps({"version": 2}).encode()))

    with pytest.raises(StoreError, match="newer stoploss"):
        lived.start()


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"no carry",
        zlib.compress(b"{"),
        zlib.compress(b'{"version": 1}'),
        zlib.compress(
            b'{"version":1,"slots":[[900.0,5]],"lifecycles":[[900.0,{"x":1}]],"true_seconds":{},"claims":{},'
            b'"past":{"until":null,"rows":[]}}'
        ),
    ],
    ids=["bytes", "text", "parts", "lifecycles"],
)
def test_a_damaged_carry_is_made_again_from_the_slots(lived: Life, body: bytes) -> None:
    """Open episodes go on under their names, nobody is told twice, money stays, and it is said."""
    twin = lived.start().cycle.plan()
    lived.kill()
    notices, calls = lived.fleet.lines("told"), lived.fleet.lines("calls")
    change(lived, "UPDATE carry SET body = ?", body)

    service = lived.start()
    again = service.cycle.plan()
    lived.pass_()

    assert said(again)["findings"] == said(twin)["findings"]
    assert any(finding.state == "firing" for finding in again.findings)
    assert said(again)["totals"] == said(twin)["totals"]
    assert "the stored slots were evaluated again" in service.vitals.problems["carry"]
    assert "2026-11-10" in service.vitals.problems["carry"]
    new = lived.fleet.lines("told")[len(notices) :]
    assert not {line for line in new if line.startswith("firing")} & set(notices)
    assert lived.fleet.lines("calls")[: len(calls)] == calls
    lived.kill()
    lived.start()
    lived.pass_()
    assert lived.service is not None
    assert "carry" not in lived.service.vitals.problems


@pytest.mark.slow
def test_damaged_vitals_are_told_and_replaced(lived: Life, scene: Scene) -> None:
    """Who reads them is told; the daemon writes new ones at its next tick."""
    change(lived, "UPDATE vitals SET body = '{'")
    with pytest.raises(StoreError, match="how the daemon is cannot be read"):
        load_vitals(lived.fleet.url)

    lived.pass_()

    vitals = load_vitals(lived.fleet.url)
    assert vitals is not None
    assert vitals.ticks == 1


@pytest.mark.slow
def test_P_B4_a_reload_resets_only_the_policy_whose_condition_changed(lived: Life) -> None:
    """Other words keep all episodes; another condition begins its own policy anew, and no other one."""
    service = lived.start()
    before = {f.policy.name: {x.id for x in service.cycle.plan().findings if x.policy == f.policy}
              for f in service.cycle.plan().findings}  # fmt: skip
    text = lived.text
    lived.text = text.replace("A job that does nothing.", "Other words.")
    service.reload(lived.policies())
    words = {f.id for f in service.cycle.plan().findings}
    lived.text = text.replace("p50(gpu.utilization, 6h) < 50%", "p50(gpu.utilization, 6h) < 51%")
    service.reload(lived.policies())
    changed = service.cycle.plan().findings

    assert words == {name for ids in before.values() for name in ids}
    assert {f.id for f in changed if f.policy.name != "coarse"} == words - before.get("coarse", set())
