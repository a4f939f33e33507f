"""`stoploss run` as a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SOURCES = str(Path(__file__).parents[2] / "src")
LISTEN = "127.0.0.1:0"
LIVELY = """
from datetime import timedelta
from stoploss.daemon import service
service.CARRY_EVERY = timedelta(seconds=20)
from stoploss.__main__ import main
main()
"""
"""The same program, but what is settled every half an hour is settled every 20 seconds."""
PROGRAM = ("-m", "stoploss")


class Daemon:
    """`stoploss run` over a folder."""

    def __init__(self, folder: Path, log: str = "log", program: tuple[str, ...] = PROGRAM) -> None:
        """Start it; `log` is the file that it logs to."""
        self.folder, self.log = folder, folder / log
        with self.log.open("a") as errors:
            self.child = subprocess.Popen(
                [sys.executable, *program, "run", str(folder / "policies.yaml"), "--listen", LISTEN],
                stderr=errors,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": SOURCES},
            )

    def texts(self) -> list[str]:
        """What it has logged."""
        return [json.loads(line)["text"] for line in self.log.read_text().splitlines() if line[:1] == "{"]

    def until(self, met: Callable[[], object], seconds: float = 20.0) -> None:
        """Wait until something is so."""
        limit = time.monotonic() + seconds
        while not met():
            assert time.monotonic() < limit, self.log.read_text()
            time.sleep(0.05)

    def logged(self, text: str) -> None:
        """Wait for a line."""
        self.until(lambda: any(text in line for line in self.texts()))

    def port(self) -> int | None:
        """Where it answers; None while it does not."""
        found = re.search(r"answering on http://127\.0\.0\.1:(\d+)", self.log.read_text())
        return None if found is None else int(found[1])

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal, and wait for the end."""
        self.child.send_signal(number)
        return self.child.wait(20)
