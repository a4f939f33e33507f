"""The chain: whatever is done to it behind the ledger's back is found and named."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stoploss.engine.history.store_errors import StoreError
from stoploss.engine.ledger import Entry, Head, Ledger
from stoploss.engine.ledger_schema import digest

NOW = datetime(2026, 12, 1, 14, tzinfo=UTC)
SOURCES = str(Path(__file__).parents[2] / "src")
LINES = 6


@pytest.fixture
def chain(ledger: Ledger) -> Ledger:
    """A ledger of six lines."""
    for number in range(1, LINES + 1):
        ledger.append(Entry(at=NOW, kind="note", episode=f"f-{number}", why=f"line {number}"))
    return ledger


def meddle(ledger: Ledger, *statements: str) -> None:
    """Change the tables as somebody with the file could."""
    assert ledger.file is not None
    with sqlite3.connect(ledger.file) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def told(ledger: Ledger, kept: Head | None = None) -> list[tuple[str, int | None]]:
    """Kind and line of every fault."""
    return [(fault.kind, fault.line) for fault in ledger.verify(kept)]


def test_a_sound_chain_has_no_fault(chain: Ledger) -> None:
    """An untouched ledger verifies, also against its own head."""
    assert told(chain, chain.head()) == []


BODY = "UPDATE ledger_lines SET body = replace(body, 'line 3', 'line X') WHERE seq = 3"


@pytest.mark.parametrize(
    ("statements", "faults"),
    [
        ([BODY], [("tampered", 3)]),
        (["UPDATE ledger_lines SET hash = replace(hash, substr(hash, 1, 1), 'x') WHERE seq = 6"], None),
        (["UPDATE ledger_lines SET episode = 'f-9' WHERE seq = 2"], [("tampered", 2)]),
        (["UPDATE ledger_lines SET time = time - 60 WHERE seq = 2"], [("tampered", 2)]),
        (["DELETE FROM ledger_lines WHERE seq = 3"], [("missing", 3)]),
        (["DELETE FROM ledger_lines WHERE seq = 1"], [("missing", 1)]),
        (["DELETE FROM ledger_lines WHERE seq > 4"], [("truncated", 5)]),
        (["DELETE FROM ledger_lines"], [("truncated", 1)]),
        (["DELETE FROM ledger_head"], [("bad-head", None)]),
        (["UPDATE ledger_head SET count = 5"], [("bad-head", None)]),
        (
            [
                "UPDATE ledger_lines SET seq = -1 WHERE seq = 3",
                "UPDATE ledger_lines SET seq = 3 WHERE seq = 4",
                "UPDATE ledger_lines SET seq = 4 WHERE seq = -1",
            ],
            [("reordered", 3), ("reordered", 4)],
        ),
    ],
)
def test_every_change_is_found_and_its_line_named(
    chain: Ledger, statements: Iterable[str], faults: list[tuple[str, int | None]] | None
) -> None:
    """A changed, missing, moved or cut-off line gives the fault that fits, at its line."""
    meddle(chain, *statements)

    assert told(chain) == (faults if faults is not None else [("tampered", 6), ("bad-head", 6)])


def test_a_line_that_was_hashed_anew_breaks_the_chain_at_the_next(chain: Ledger) -> None:
    """Who changes a line and its hash leaves the next line without a predecessor."""
    meddle(chain, BODY)
    rehash(chain, 3)

    assert told(chain) == [("bad-previous", 4)]


def rehash(ledger: Ledger, first: int, last: int | None = None) -> None:
    """Give lines the hashes that their texts would have; the chain after `last` is left."""
    assert ledger.file is not None
    with sqlite3.connect(ledger.file) as connection:
        query = "SELECT seq, body, previous FROM ledger_lines WHERE seq BETWEEN ? AND ? ORDER BY seq"
        previous = None
        for seq, body, stored in connection.execute(query, (first, last or first)).fetchall():
            stored = previous or stored
            previous = digest(stored, body)
            values = (previous, stored, seq)
            connection.execute("UPDATE ledger_lines SET hash = ?, previous = ? WHERE seq = ?", values)
        connection.execute("UPDATE ledger_head SET hash = (SELECT hash FROM ledger_lines WHERE seq = count)")
    connection.close()


def test_a_chain_forged_to_its_end_is_found_by_a_head_that_was_kept(chain: Ledger) -> None:
    """Only a head kept elsewhere tells a chain that was written anew, also after more lines."""
    kept = chain.head()
    assert kept is not None
    meddle(chain, BODY)
    rehash(chain, 3, LINES)
    chain.append(Entry(at=NOW, kind="note"))

    assert told(chain) == []
    assert told(chain, kept) == [("tampered", LINES)]


def test_a_cut_with_a_forged_head_is_found_by_a_head_that_was_kept(chain: Ledger) -> None:
    """A ledger cut off together with its head record is shorter than the head that was kept."""
    kept = chain.head()
    meddle(
        chain,
        "DELETE FROM ledger_lines WHERE seq > 4",
        "UPDATE ledger_head SET count = 4, hash = (SELECT hash FROM ledger_lines WHERE seq = 4)",
    )

    assert told(chain) == []
    assert told(chain, kept) == [("truncated", 5)]


def test_lines_after_a_cut_do_not_hide_it(chain: Ledger) -> None:
    """What is written after a cut goes on counting, so that the gap stays."""
    meddle(chain, "DELETE FROM ledger_lines WHERE seq > 4")
    chain.append(Entry(at=NOW, kind="note"))

    assert told(chain) == [("missing", 5)]


def test_without_its_head_nothing_is_added(chain: Ledger) -> None:
    """A ledger whose head record is gone refuses new lines."""
    meddle(chain, "DELETE FROM ledger_head")

    with pytest.raises(StoreError, match="head record is gone"):
        chain.append(Entry(at=NOW, kind="note"))


def test_a_line_that_cannot_be_read_is_named(chain: Ledger) -> None:
    """Listing a ledger with a damaged line says which one it is."""
    meddle(chain, "UPDATE ledger_lines SET body = '{' WHERE seq = 2")

    with pytest.raises(StoreError, match="line 2"):
        chain.entries()


@pytest.mark.parametrize("text", ["", "6", "x:" + "0" * 64, "6:" + "g" * 64, "-1:" + "0" * 64])
def test_a_head_is_read_only_as_it_is_printed(text: str) -> None:
    """Anything but COUNT:HASH is refused."""
    with pytest.raises(ValueError, match="no head"):
        Head.parse(text)

    assert Head.parse(str(Head(6, "a" * 64))) == Head(6, "a" * 64)


KILLER = """
import os, random, signal, sys, time
from datetime import UTC, datetime
from stoploss.engine.ledger import Entry, Ledger

url, rounds = sys.argv[1], int(sys.argv[2])
now, chance = datetime(2026, 12, 1, tzinfo=UTC), random.Random(rounds)
Ledger(url).close()
for number in range(rounds):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        ledger = Ledger(url)
        while True:
            done = ledger.append(Entry(at=now, kind="intent", why="x" * chance.randrange(5000)))
            os.write(write, f"{done.seq}\\n".encode())
    os.close(write)
    # Every other one while it opens the ledger, the others while they write.
    said = os.read(read, 1 << 20) if number % 2 else b""
    time.sleep(chance.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = (said + os.read(read, 1 << 20)).split()
    os.close(read)
    ledger = Ledger(url)
    faults, head = ledger.verify(), ledger.head()
    ledger.close()
    assert faults == (), (number, faults)
    assert head.count >= int(said[-1] if said else 0), (number, head, said[-1])
print(head.count)
"""


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_writer_that_is_killed_leaves_a_whole_chain(url: str, rounds: int) -> None:
    """After kill -9 at any moment the chain verifies, with every line that was said to be written."""
    done = subprocess.run(
        [sys.executable, "-c", KILLER, url, str(rounds)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PYTHONPATH": SOURCES},
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= rounds / 2
