"""What rotation set aside goes to the trash; the log itself never does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.shelf import DAY, HOST, age, means, order, tree

from stoploss.actions import retain
from stoploss.actions.contract import Refused
from stoploss.actions.targets.log_retention import Shorten
from stoploss.engine.model import Order

OLD = ("app.log.1", "app.log.2.gz", "app.log-20260101", "app.log-20260101.gz", "app.log.20260101-1200.zst")
OTHERS = ("app.log", "app.log.bak", "app.log-2", "app.log.old.1", "other.log.1", "app.log2", "app.logx.1")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with rotated files and others beside it, all of them old, and a rotated one that is young."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in (*OLD, *OTHERS):
        (folder / name).write_text(f"{name}\n", "utf-8")
    age(folder, 40 * DAY)
    (folder / "app.log.3").write_text("young\n", "utf-8")
    return folder / "app.log"


def asked_for(log: Path, retention: object = 30 * DAY, host: str = HOST) -> Order:
    """An order to keep a log for a time, in seconds."""
    return order("log", f"{host}:{log}", {"host": host, "path": str(log)}, retention=retention)


def test_old_rotated_files_go_and_come_back(tmp_path: Path, log: Path) -> None:
    """Exactly those of this log that are older than the retention are moved, and an undo brings them back."""
    before = tree(log.parent)
    action = retain.build(means(tmp_path))
    asked = asked_for(log)

    found = action.find(asked)
    done = action.act(asked, found)

    assert (found.place, done.state, done.after["moved"]) == ("log?retention", "done", len(OLD))
    left = {name for name in os.listdir(log.parent) if not name.startswith(".")}
    assert left == {*OTHERS, "app.log.3"}
    assert action.look(asked, found).state == "done"
    assert action.undo(asked, found).state == "done"
    assert tree(log.parent) == before


def test_looking_changes_nothing(tmp_path: Path, log: Path) -> None:
    """Finding and looking leave every file alone."""
    before = tree(tmp_path)
    action = Shorten(means(tmp_path))

    found = action.find(asked_for(log))

    assert action.look(asked_for(log), found).state == "undone"
    assert tree(tmp_path) == before


def test_the_log_itself_stays_under_any_name(tmp_path: Path, log: Path) -> None:
    """A rotated name that is another name of the log, or a link, is left alone."""
    folder = log.parent
    (folder / "app.log.1").unlink()
    os.link(log, folder / "app.log.1")
    (folder / "app.log.2.gz").unlink()
    (folder / "app.log.2.gz").symlink_to(log)

    found = Shorten(means(tmp_path)).find(asked_for(log))

    names = {os.path.basename(item["path"]) for item in found.before["items"]}
    assert names == {*OLD} - {"app.log.1", "app.log.2.gz"}


def test_one_that_is_written_to_or_open_stays(tmp_path: Path, log: Path) -> None:
    """A rotated file that a process has open is no candidate, and one opened later is left alone."""
    action = Shorten(means(tmp_path))
    before = action.find(asked_for(log))
    with (log.parent / "app.log.1").open("ab") as stream:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=stream)
    try:
        found = action.find(asked_for(log))
        done = action.act(asked_for(log), before)
    finally:
        child.kill()
        child.communicate()

    assert len(found.before["items"]) == len(OLD) - 1
    assert (done.state, done.after["moved"]) == ("failed", len(OLD) - 1)
    assert f"process {child.pid} has" in done.words
    assert (log.parent / "app.log.1").exists()


@pytest.mark.parametrize("retention", [None, 0, -5.0, True, "30d"])
def test_what_is_no_time_is_refused(tmp_path: Path, log: Path, retention: object) -> None:
    """A retention that is no time above zero moves nothing."""
    with pytest.raises(Refused, match="no time"):
        Shorten(means(tmp_path)).find(asked_for(log, retention))


def test_what_is_not_here_is_refused(tmp_path: Path, log: Path) -> None:
    """Another machine's log, one that is gone, a link, and one without old files are refused."""
    action = Shorten(means(tmp_path))
    link = tmp_path / "link.log"
    link.symlink_to(log)
    with pytest.raises(Refused, match="is on host n2"):
        action.find(asked_for(log, host="n2"))
    with pytest.raises(Refused, match="is not there any more") as caught:
        action.find(asked_for(tmp_path / "none.log"))
    assert caught.value.gone
    with pytest.raises(Refused, match="no plain file"):
        action.find(asked_for(link))
    with pytest.raises(Refused, match="no rotated file"):
        action.find(asked_for(log, 400 * DAY))
