"""A run's folder with its two files, and the example trainer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TRAINER = ROOT / "examples" / "trainer" / "train.py"


class Run:
    """A run as whoever asks it sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.box = folder / ".stoploss"
        self.request = self.box / "request.json"
        self.log = folder / "run.jsonl"
        self.checkpoints = folder / "kept"
        self.children: list[subprocess.Popen[str]] = []

    def put(self, content: bytes) -> None:
        """Replace the request file as a whole."""
        self.box.mkdir(exist_ok=True)
        draft = self.box / "draft"
        draft.write_bytes(content)
        draft.rename(self.request)

    def ask(self, name: str, action: str = "checkpoint", **more: object) -> None:
        """Ask for something."""
        self.put(json.dumps({"version": 1, "id": name, "action": action, **more}).encode())

    def answer(self) -> dict[str, Any]:
        """What was answered last."""
        found: dict[str, Any] = json.loads((self.box / "answer.json").read_text(encoding="utf-8"))
        return found

    def start(self, *options: object) -> subprocess.Popen[str]:
        """Start the example trainer."""
        command = [sys.executable, str(TRAINER), "--out", str(self.log), *map(str, options)]
        child = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def train(self, *options: object) -> str:
        """Run the example trainer to its end; what it said of its troubles."""
        child = self.start(*options)
        _, said = child.communicate(timeout=60)
        assert child.returncode == 0, said
        return said

    def records(self) -> list[dict[str, float]]:
        """The log so far."""
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]


def environment(**more: str) -> dict[str, str]:
    """The environment of a training process that knows these sources and no other run's folder."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STOPLOSS_")}
    return {**clean, "PYTHONPATH": str(ROOT / "src"), **more}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run's folder; what was started in it is ended."""
    made = Run(tmp_path)
    yield made
    for child in made.children:
        if child.poll() is None:
            child.kill()
        child.communicate()
