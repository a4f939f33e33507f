"""Samples in a database into which other programs write too."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

from stoploss.engine.history.store import SampleStore
from stoploss.engine.history.store_errors import parsed
from stoploss.engine.ledger import Ledger
from stoploss.engine.state_database import engine_of


def test_a_store_is_made_while_another_program_writes(tmp_path: Path) -> None:
    """Who writes just then is waited for: a daemon does not end at its start by that."""
    url = f"sqlite:///{tmp_path}/state.db"
    Ledger(url, environ={}).close()
    writer = sqlite3.connect(tmp_path / "state.db", check_same_thread=False, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("CREATE TABLE other (one INTEGER)")

    def end() -> None:
        time.sleep(0.5)
        writer.execute("COMMIT")

    ending = threading.Thread(target=end)
    ending.start()
    store = SampleStore(url, 60.0)
    ending.join()

    assert store.resolution == 60.0
    store.close()
    writer.close()


def test_an_engine_leaves_the_locks_of_this_process_alone(tmp_path: Path) -> None:
    """While one connection writes, making an engine for the same file lets no other process write.

    A process lets go of all its locks on a file when it closes any handle of it: nothing may open the file
    beside SQLite.
    """
    file = tmp_path / "state.db"
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("CREATE TABLE t (x)")
    writer.execute("BEGIN EXCLUSIVE")
    engine_of(parsed(f"sqlite:///{file}"), busy=5.0, durable=True).dispose()
    code = f"import sqlite3; sqlite3.connect({str(file)!r}, timeout=0).execute('BEGIN IMMEDIATE')"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    writer.close()

    assert "database is locked" in other.stderr
