"""A filter keeps a share of what is said often, and all that matters."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoploss
from stoploss.training.sampling import Asked, SamplingFilter, parsed

from .conftest import ROOT, environment


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Scene:
    """A run's folder, and a filter that reads there."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / ".stoploss" / "sampling.json"
        self.file.parent.mkdir()
        self.clock = Clock()
        self.filter = SamplingFilter(folder, monotonic=self.clock, now=self.clock)

    def ask(self, **keys: object) -> None:
        """Replace the file as a whole."""
        self.put(json.dumps({"version": 1, **keys}).encode())

    def put(self, content: bytes) -> None:
        """Replace the file, and let a second pass."""
        draft = self.file.with_name("draft")
        draft.write_bytes(content)
        draft.rename(self.file)
        self.clock.time += 1

    def kept(self, message: object = "step done", count: int = 1000, **more: Any) -> int:
        """How many of so many equal lines are kept."""
        given: dict[str, Any] = {"level": logging.INFO, "name": "train", "args": (), "extra": {}, **more}
        total = 0
        for _ in range(count):
            record = logging.LogRecord(given["name"], given["level"], "", 0, message, given["args"], None)
            record.__dict__.update(given["extra"])
            total += bool(self.filter.filter(record))
        return total


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A run's folder without a file."""
    return Scene(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.25, 0.5, 0.9, 1.0])
def test_a_share_of_the_lines_is_kept(scene: Scene, share: float) -> None:
    """Of 1,000 lines the share is kept to within a few, at DEBUG and at INFO."""
    scene.ask(share=share)

    assert abs(scene.kept() - 1000 * share) <= 5
    assert abs(scene.kept(level=logging.DEBUG) - 1000 * share) <= 5


def test_lines_that_alternate_are_kept_alike(scene: Scene) -> None:
    """Where two lines take turns, each keeps its share."""
    scene.ask(share=0.5)

    kept = {"a": 0, "b": 0}
    for _ in range(500):
        for name in kept:
            kept[name] += scene.kept(name, count=1)

    assert all(abs(count - 250) <= 5 for count in kept.values())


def test_it_is_the_same_every_time(tmp_path: Path) -> None:
    """Two runs that say the same keep the same lines."""
    picks = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        scene = Scene(tmp_path / name)
        scene.ask(share=0.3)
        picks.append([scene.kept(count=1) for _ in range(200)])

    assert picks[0] == picks[1]


@pytest.mark.parametrize(
    "said",
    [
        {"level": logging.WARNING},
        {"level": logging.ERROR},
        {"level": logging.CRITICAL},
        {"name": "stoploss"},
        {"name": "stoploss.training"},
        {"extra": {"stoploss_metric": True}},
        {"message": "loss=0.5"},
        {"message": "train_loss: 0.5"},
        {"message": "step 5 loss %.3f", "args": (0.5,)},
        {"message": "%s", "args": ("{'grad_norm': 1.0}",)},
        {"message": "%s", "args": ({"eval_loss": 0.5},)},
        {"message": "%(lr)g", "args": ({"lr": 1e-3},)},
        {"message": {"learning_rate": 1e-3}},
    ],
)
def test_what_matters_always_passes(scene: Scene, said: dict[str, Any]) -> None:
    """Warnings and worse, metrics, and what stoploss says are never left out."""
    scene.ask(share=0)

    assert scene.kept(said.pop("message", "step done"), count=50, **said) == 50
    assert scene.kept(count=50) == 0


@pytest.mark.parametrize("message", ["glossy", "blr", "closest match", "flossing", "all done"])
def test_words_that_only_look_like_metrics_are_lines_like_others(scene: Scene, message: str) -> None:
    """A line that merely has the letters of a metric in it is left out with the others."""
    scene.ask(share=0)

    assert scene.kept(message, count=10) == 0


def test_changes_are_followed_within_a_second(scene: Scene) -> None:
    """A file that comes, changes and goes counts a second later, and not before."""
    assert scene.kept(count=10) == 10
    scene.ask(share=0)
    scene.clock.time -= 0.5
    assert scene.kept(count=10) == 10
    scene.clock.time += 0.5
    assert scene.kept(count=10) == 0
    scene.ask(share=1)
    assert scene.kept(count=10) == 10
    scene.ask(share=0)
    assert scene.kept(count=10) == 0
    scene.file.unlink()
    scene.clock.time += 1
    assert scene.kept(count=10) == 10


def test_it_looks_once_a_second_at_most(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of lines within a second cost one look at the file."""
    scene.ask(share=0.1)
    looks: list[object] = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: (looks.append(path), real(path, **more))[1])

    scene.kept(count=5000)

    assert len(looks) == 1


def test_everything_passes_where_it_is_over_or_unhealthy(scene: Scene) -> None:
    """From `until` on, and until `everything_until`, nothing is left out."""
    scene.ask(share=0, until=1100.0)
    assert scene.kept(count=10) == 0
    scene.clock.time = 1100.0
    assert scene.kept(count=10) == 10

    scene.ask(share=0, everything_until=1100.0 + 1800)
    assert scene.kept(count=10) == 10
    scene.clock.time = 1100.0 + 1800
    assert scene.kept(count=10) == 0


def test_only_the_levels_that_are_named_are_sampled(scene: Scene) -> None:
    """Where only DEBUG is named, INFO passes."""
    scene.ask(share=0, levels=["DEBUG"])

    assert (scene.kept(count=10), scene.kept(count=10, level=logging.DEBUG)) == (10, 0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"version": 1, "sha',
        b"[" * 60_000,
        b"\xff\xfe",
        b"[]",
        b'{"version": 2, "share": 0}',
        b'{"version": 1}',
        b'{"version": 1, "share": "0"}',
        b'{"version": 1, "share": true}',
        b'{"version": 1, "share": -1}',
        b'{"version": 1, "share": NaN}',
        b'{"version": 1, "share": 0, "until": "soon"}',
        b'{"version": 1, "share": 0, "levels": "INFO"}',
        b'{"version": 1, "share": 0}' + b" " * 70_000,
    ],
)
def test_a_damaged_file_lets_everything_pass(scene: Scene, content: bytes) -> None:
    """What is no complete file asks for nothing; the whole one after it counts."""
    scene.put(content)
    assert scene.kept(count=20) == 20

    scene.ask(share=0)
    assert scene.kept(count=20) == 0


@given(st.binary(max_size=200) | st.text(max_size=50).map(str.encode))
def test_no_content_is_a_fault(content: bytes) -> None:
    """Whatever a file holds is no error."""
    assert isinstance(parsed(content), Asked)


def test_what_is_no_file_lets_everything_pass(scene: Scene) -> None:
    """A pipe in the place of the file is not opened, which would hang."""
    os.mkfifo(scene.file)

    assert scene.kept(count=10) == 10


LOGGING = """
import logging, stoploss, sys
handler = logging.StreamHandler(sys.stdout)
handler.addFilter(stoploss.SamplingFilter())
logging.basicConfig(level=logging.DEBUG, handlers=[handler], format="%(message)s")
for n in range(100):
    logging.info("line %d", n)
logging.warning("careful")
logging.info("loss=1.5")
others = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(sorted(others))
"""


def test_a_program_says_less(tmp_path: Path, scene: Scene) -> None:
    """With the real clocks and `logging`, a program keeps a tenth, and loads the standard library only."""
    scene.ask(share=0.1)

    done = subprocess.run(
        [sys.executable, "-S", "-c", LOGGING],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    lines = done.stdout.splitlines()
    assert lines[-3:] == ["careful", "loss=1.5", "['__main__', 'stoploss']"]
    assert 8 <= len(lines) - 3 <= 12


@pytest.mark.parametrize("named", ["STOPLOSS_SAMPLING", "STOPLOSS_RUN_DIR"])
def test_where_the_file_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """The file is that of its variable, or in the run's folder."""
    path = tmp_path / ".stoploss" / "sampling.json"
    for variable in ("STOPLOSS_SAMPLING", "STOPLOSS_RUN_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(named, str(path if named == "STOPLOSS_SAMPLING" else tmp_path))

    assert stoploss.SamplingFilter().path == str(path)


def test_the_page_shows_a_file_that_is_understood() -> None:
    """The example of the page asks for a tenth."""
    page = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")

    assert parsed(page.split("```jsonc\n")[1].split("```")[0].encode()) == Asked(0.1)
