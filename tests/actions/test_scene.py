"""The scene of a failed job is kept without its secrets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.snapshots import Trainer, contents

from stoploss.actions.targets import process_signal, scene
from stoploss.actions.targets.process_signal import Process
from stoploss.actions.targets.scene import Scene, keep
from stoploss.engine.masking import Masker

NOW = 2_000_000_000.0


def read(folder: Path, beginning: str) -> str:
    """The one file that begins so."""
    [path] = [path for path in folder.iterdir() if path.name.startswith(beginning)]
    return path.read_text("utf-8")


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    """A run with API_TOKEN=hunter22 in its environment."""
    made = Trainer(tmp_path)
    made.wait_for_steps(2)
    yield made
    made.end()


def test_the_scene_of_a_process_that_lives(tmp_path: Path, trainer: Trainer) -> None:
    """Log, command line, status, waits, threads, configuration and environment are in the folder."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "train.yaml").write_text("lr: 0.1\nauth: hunter22\n", "utf-8")
    (tmp_path / "conf" / "notes.txt").write_text("not configuration", "utf-8")
    process = Process(trainer.child.pid, process_signal.started(trainer.child.pid))
    kept = tmp_path / "scene"
    wanted = Scene(str(kept), (str(trainer.log),), (process,), str(tmp_path / "conf"), why="exit 1: hunter22")

    found = keep(wanted, Masker, NOW)

    manifest = json.loads((kept / "manifest.json").read_text("utf-8"))
    environment = json.loads(read(kept, "environment-"))
    assert found.path == str(kept)
    assert sorted([*found.files, "manifest.json"]) == sorted(os.listdir(kept))
    assert (manifest["at"], manifest["files"], manifest["why"]) == (NOW, list(found.files), "exit 1: ***")
    assert '"step": 2' in read(kept, "log-0-")
    assert "train.py" in read(kept, f"process-{process.pid}-cmdline")
    assert f"Pid:\t{process.pid}\n" in read(kept, f"process-{process.pid}-status")
    assert f"thread {process.pid}\n" in read(kept, f"process-{process.pid}-threads")
    assert read(kept, "configuration-") == "lr: 0.1\nauth: ***\n"
    assert (environment["PLAIN"], environment["API_TOKEN"]) == ("seen", "***")
    assert not [name for name, (content, _) in contents(kept).items() if b"hunter22" in content]
    assert kept.stat().st_mode & 0o777 == 0o700


def test_of_a_job_that_is_gone_the_rest_is_kept(tmp_path: Path) -> None:
    """What has ended or cannot be read is listed with its reason; logs and environment are kept."""
    log = tmp_path / "run.log"
    log.write_text("loss nan\npassword=abcdef\nkey is s3cr3t!\n", "utf-8")
    gone = Process(2**22 + 1, 1)
    wanted = Scene(
        str(tmp_path / "scene"),
        (str(log), str(tmp_path / "none.log")),
        (gone,),
        str(tmp_path / "nowhere"),
        environment={"DB_PASSWORD": "s3cr3t!", "RANK": "0"},
    )

    found = keep(wanted, Masker, NOW)

    assert read(tmp_path / "scene", "log-0-") == "loss nan\npassword=***\nkey is ***\n"
    assert json.loads(read(tmp_path / "scene", "environment-job")) == {"DB_PASSWORD": "***", "RANK": "0"}
    assert found.missing == {
        f"process {gone.pid}": "has ended",
        str(tmp_path / "none.log"): "no such file or directory",
        str(tmp_path / "nowhere"): "no such file or directory",
    }


def test_a_log_is_bounded(tmp_path: Path) -> None:
    """Of a log of any length the last thousand whole lines are kept, or as many as a megabyte holds."""
    short, long = tmp_path / "short.log", tmp_path / "long.log"
    short.write_text("".join(f"line {number}\n" for number in range(5000)), "utf-8")
    long.write_text("".join(f"{number:06} {'x' * 5000}\n" for number in range(1000)), "utf-8")

    keep(Scene(str(tmp_path / "scene"), (str(short), str(long))), Masker, NOW)

    lines = read(tmp_path / "scene", "log-0-").splitlines()
    content = read(tmp_path / "scene", "log-1-")
    assert (lines[0], len(lines), lines[-1]) == ("line 4000", 1000, "line 4999")
    assert len(content) <= scene.LOG_BYTES
    assert {len(line) for line in content.splitlines()} == {5007}
    assert content.splitlines()[-1].startswith("000999")


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    """A log or a configuration file that is a link, or a pipe, is missing with its reason."""
    (tmp_path / "secret").write_text("of another", "utf-8")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").symlink_to(tmp_path / "secret")
    (tmp_path / "run.log").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe.log")
    logs = (str(tmp_path / "run.log"), str(tmp_path / "pipe.log"))

    found = keep(Scene(str(tmp_path / "scene"), logs, folder=str(tmp_path / "conf")), Masker, NOW)

    assert found.files == ()
    assert found.missing["a.yaml"] == "is a link"
    assert set(found.missing) == {"a.yaml", *logs}


def test_configuration_is_bounded(tmp_path: Path) -> None:
    """At most a hundred files, none of more than a megabyte; what is left out is said."""
    for number in range(scene.CONFIGURATIONS + 5):
        (tmp_path / "conf" / f"{number:03}").mkdir(parents=True)
        (tmp_path / "conf" / f"{number:03}" / "a.json").write_text("{}", "utf-8")
    (tmp_path / "conf" / "000" / "big.json").write_bytes(b" " * (scene.CONFIGURATION_BYTES + 1))

    found = keep(Scene(str(tmp_path / "scene"), folder=str(tmp_path / "conf")), Masker, NOW)

    assert len(found.files) == scene.CONFIGURATIONS
    assert found.missing == {
        "000/big.json": "has more than 1,048,576 bytes",
        str(tmp_path / "conf"): "holds more than 100 configuration files",
    }


def test_a_scene_is_kept_once(tmp_path: Path) -> None:
    """After a crash a finished scene is found as it was, an unfinished one is begun anew."""
    log = tmp_path / "run.log"
    log.write_text("first\n", "utf-8")
    (tmp_path / ".tmp-scene").mkdir()
    (tmp_path / ".tmp-scene" / "left").write_text("x", "utf-8")
    wanted = Scene(str(tmp_path / "scene"), (str(log), str(tmp_path / "none")))

    first = keep(wanted, Masker, NOW)
    log.write_text("second\n", "utf-8")
    before = contents(tmp_path / "scene")
    second = keep(wanted, Masker, NOW + 1)

    assert first == second
    assert contents(tmp_path / "scene") == before
    assert read(tmp_path / "scene", "log-0-") == "first\n"
    assert sorted(os.listdir(tmp_path)) == ["run.log", "scene"]


def test_where_it_cannot_be_written_that_is_said(tmp_path: Path) -> None:
    """Something else in its place, or a file for a folder, gives no path and the reason."""
    (tmp_path / "scene").mkdir()
    (tmp_path / "file").write_text("x", "utf-8")

    taken = keep(Scene(str(tmp_path / "scene")), Masker, NOW)
    unwritable = keep(Scene(str(tmp_path / "file" / "scene")), Masker, NOW)

    assert (taken.path, unwritable.path) == (None, None)
    assert "is there already, and is no scene" in taken.why
    assert "cannot be written" in unwritable.why
