"""Lines of the ledger: written once, found again, without secrets."""

from __future__ import annotations

import dataclasses
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from stoploss.engine.canonical import canonical
from stoploss.engine.history.store_errors import StoreError
from stoploss.engine.ledger import Entry, Ledger
from stoploss.engine.ledger_schema import META, entry_of, policy_hash, row_of
from stoploss.engine.masking import Masker
from stoploss.engine.model import ResourceId
from stoploss.rules.diagnostics import Position
from stoploss.rules.policy import Policy

NOW = datetime(2026, 12, 1, 14, tzinfo=UTC)
JOB = ResourceId("job", "4412")


def entry(kind: str = "note", **said: Any) -> Entry:
    """An entry of now."""
    return Entry(at=NOW, kind=kind, **said)


def test_a_line_comes_back_as_it_was_written(ledger: Ledger) -> None:
    """Everything that an entry says is read back the same."""
    full = entry(
        "decision",
        episode="f-1",
        policy="idle-gpu",
        policy_hash="abc",
        resource=JOB,
        action="terminate",
        target="slurm",
        parameters={"grace": 30.5, "signal": "TERM"},
        verdict="would",
        why="8 GPUs idle – für 3 h",
        evidence=[{"condition": "max(gpu.utilization, 30m) < 5%", "value": 0.4}],
        promised=28.8,
        got=27.0,
        currency="USD",
        who="daemon",
    )

    written = ledger.append(full)

    assert ledger.entries() == (written,)
    assert dataclasses.replace(written, seq=None, previous=None, hash=None) == full
    assert written.seq == 1


def test_lines_are_found_by_what_they_are_about(ledger: Ledger) -> None:
    """Each filter keeps the lines that fit, in order, and `last` the newest of them."""
    ledger.append(entry(episode="f-1", policy="a", resource=JOB))
    ledger.append(entry("pause", who="ada"))
    ledger.append(dataclasses.replace(entry(episode="f-2", policy="a"), at=NOW + timedelta(hours=1)))

    def found(**filters: Any) -> list[int | None]:
        return [line.seq for line in ledger.entries(**filters)]

    assert found(policy="a") == [1, 3]
    assert found(kinds=["pause"]) == [2]
    assert found(episode="f-2") == [3]
    assert found(resource="job 4412") == [1]
    assert found(since=NOW + timedelta(minutes=1)) == [3]
    assert found(until=NOW) == [1, 2]
    assert found(last=2) == [2, 3]


def test_an_intent_is_open_until_its_result(ledger: Ledger) -> None:
    """Of two intents on one job only the one without a result is open."""
    first = ledger.append(entry("intent", resource=JOB, action="snapshot"))
    second = ledger.append(entry("intent", resource=JOB, action="terminate"))
    ledger.append(entry("result", resource=JOB, intent=first.seq, verdict="done"))

    assert ledger.open_intents() == (second,)


@pytest.mark.parametrize(
    "said",
    [{"kind": "guess"}, {"kind": "result"}, {"kind": "note", "intent": 1}, {"at": datetime(2026, 1, 1)}],
)
def test_a_line_that_says_nothing_sound_is_refused(said: dict[str, Any]) -> None:
    """An unknown kind, a result without intent and a time without zone make no entry."""
    with pytest.raises(ValueError, match=r"kind of line|intent|time zone"):
        Entry(**{"at": NOW, "kind": "note", **said})


def test_writers_wait_for_each_other(url: str, ledger: Ledger) -> None:
    """Four programs that write at once leave one unbroken chain with every line."""

    def write() -> None:
        other = Ledger(url, environ={})
        for _ in range(10):
            other.append(entry())
        other.close()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(ledger.entries()) == 40
    assert ledger.verify() == ()


def test_a_transaction_that_fails_leaves_no_line(ledger: Ledger) -> None:
    """A line stands or falls with what is written beside it."""

    def fail() -> None:
        with ledger.writing() as connection:
            ledger.append_within(connection, entry())
            raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        fail()

    assert ledger.entries() == ()
    assert ledger.verify() == ()


def test_a_reader_writes_nothing_and_leaves_nothing(url: str, tmp_path: Path, ledger: Ledger) -> None:
    """A ledger opened for reading refuses to write, and leaves the folder as it is."""
    ledger.append(entry())
    ledger.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    reader = Ledger(url, read_only=True)
    assert len(reader.entries()) == 1
    assert reader.verify() == ()
    with pytest.raises(StoreError, match="reading only"):
        reader.append(entry())
    reader.close()

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("options", [{"read_only": True}, {"create": False}])
def test_what_is_not_there_is_not_made(url: str, tmp_path: Path, options: dict[str, bool]) -> None:
    """Opening a state that is not there, other than to begin one, is an error and makes no file."""
    with pytest.raises(StoreError, match="nothing yet"):
        Ledger(url, **options)

    assert list(tmp_path.iterdir()) == []


def test_a_ledger_of_a_newer_program_is_left_alone(url: str, ledger: Ledger) -> None:
    """A greater schema version is refused with what to do."""
    with ledger.writing() as connection:
        connection.execute(update(META).values(value="99"))

    with pytest.raises(StoreError, match="upgrade stoploss"):
        Ledger(url)


def test_a_locked_ledger_is_said_to_be_locked(
    url: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that waited in vain gets a clear error, and nothing is written."""
    monkeypatch.setattr("stoploss.engine.state_database.BUSY_SECONDS", 0.05)
    other = Ledger(url)

    with ledger.writing(), pytest.raises(StoreError, match="another program is writing"):
        other.append(entry())
    other.close()

    assert ledger.entries() == ()


def test_secrets_of_the_environment_are_nowhere_in_the_database(url: str, tmp_path: Path) -> None:
    """Values of variables named KEY, TOKEN, SECRET or PASSWORD are in no byte of the files."""
    names = ("AWS_SECRET_ACCESS_KEY", "SLACK_TOKEN", "db_password", "SECRET")
    secrets = {name: f"hush-{number}-Zq" for number, name in enumerate(names)}
    opened = Ledger(url, environ=secrets)
    for secret in secrets.values():
        opened.append(
            entry(
                "intent",
                resource=ResourceId("job", f"j-{secret}"),
                target=f"https://x.example/{secret}",
                parameters={"argv": ["run", f"--with={secret}"], secret: {"deep": [secret]}},
                evidence={"log": f"line {secret} end"},
                why=secret,
                who=secret,
                episode=secret,
                policy=secret,
            )
        )

    def held() -> bytes:
        return b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))

    assert b"x.example" in held()
    assert b"hush" not in held()
    opened.close()
    assert b"hush" not in held()


def test_what_is_named_a_secret_is_masked_wherever_it_comes_from() -> None:
    """Fields, assignments and URLs that carry a secret lose it; what merely sounds like it stays."""
    masker = Masker({"API_KEY": "abcd", "SHORT_KEY": "1"})

    assert masker.plain({"apiKey": "x", "auth-token": "y", "passwd": "z"}) == {
        "apiKey": "***",
        "auth-token": "***",
        "passwd": "***",
    }
    assert masker.text("run MY_TOKEN=t0p --n=1") == "run MY_TOKEN=*** --n=1"
    assert masker.text("postgresql://u:pw@host/db") == "postgresql://u:***@host/db"
    assert masker.plain({"key": "runs/1.pt", "max_tokens": 5, "n": 1}) == {
        "key": "runs/1.pt",
        "max_tokens": 5,
        "n": 1,
    }


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(PLAIN, st.text())
def test_any_evidence_survives_its_row(evidence: Any, why: str) -> None:
    """Whatever JSON an entry holds, its row reads back to the same row."""
    masker = Masker({})
    row = row_of(entry(evidence=evidence, why=why), 1, "0" * 64, masker)

    class Row:
        seq, body, previous, hash = row["seq"], row["body"], row["previous"], row["hash"]

    again = row_of(entry_of(Row), 1, "0" * 64, masker)

    assert again == row
    assert canonical(masker.plain(evidence)) in row["body"] or evidence is None or evidence == {}


def test_the_policy_hash_is_about_what_the_policy_says() -> None:
    """Moving a policy in its file keeps its hash, and changing what it says does not."""
    policy = Policy("p", "job", Position("a.yaml", 3), severity="high", limits={"b": 1, "a": 2})
    moved = dataclasses.replace(policy, position=Position("b.yaml", 9), limits={"a": 2, "b": 1})

    assert policy_hash(moved) == policy_hash(policy)
    assert policy_hash(dataclasses.replace(policy, severity="low")) != policy_hash(policy)
