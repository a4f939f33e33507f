"""Samples in a database into which other programs write too."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

from stoploss.engine.history.store import SampleStore
from stoploss.engine.ledger import Ledger


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
