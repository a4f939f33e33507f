"""Only what is left over in a folder that is said to be temporary goes, by way of its trash."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.shelf import DAY, HOST, Clock, age, means, order, tree

from stoploss.actions import release
from stoploss.actions.contract import Means, Refused
from stoploss.actions.targets import trash
from stoploss.actions.targets.temporary import Release
from stoploss.engine.model import Order


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with old and young entries."""
    path = tmp_path / "scratch"
    (path / "old").mkdir(parents=True)
    (path / "old" / "x.bin").write_bytes(b"x" * 100)
    (path / "file").write_bytes(b"y")
    (path / "link").symlink_to("/etc")
    (path / "mixed").mkdir()
    (path / "mixed" / "a").write_bytes(b"a")
    age(path, 2 * DAY)
    (path / "mixed" / "b").write_bytes(b"b")
    os.utime(path / "mixed", (0, 0))
    (path / "young").write_bytes(b"z")
    return path


def given(tmp_path: Path, folder: Path, role: str | None = "temporary", **more: object) -> Means:
    """Means whose storage options give the folder a role."""
    return means(tmp_path, storage=[{"path": str(folder), "role": role, "tier": None}], **more)


def asked_for(folder: Path, host: str = HOST, **parameters: object) -> Order:
    """An order to release a folder."""
    return order("volume", f"{host}:{folder}", {"host": host, "path": str(folder)}, **parameters)


def test_old_entries_go_and_come_back(tmp_path: Path, folder: Path) -> None:
    """What nothing was written to for a day goes, links as links; the rest and the folder stay."""
    before = tree(folder)
    action = release.build(given(tmp_path, folder))
    asked = asked_for(folder)

    found = action.find(asked)
    done = action.act(asked, found)

    assert (found.place, done.state, done.after["moved"]) == ("volume", "done", 3)
    assert sorted(os.listdir(folder)) == [".stoploss-trash", "mixed", "young"]
    assert action.look(asked, found).state == "done"
    assert action.undo(asked, found).state == "done"
    assert tree(folder) == before


def test_it_is_deleted_a_day_later(tmp_path: Path, folder: Path) -> None:
    """After 24 h the trash is emptied; what a link leads to is not touched."""
    clock = Clock()
    with_clock = given(tmp_path, folder, clock=clock)
    action, asked = Release(with_clock), asked_for(folder)
    action.act(asked, action.find(asked))
    clock.ahead = DAY + 60

    assert sorted(os.path.basename(path) for path in trash.empty_all(with_clock)) == ["file", "link", "old"]
    assert sorted(os.listdir(folder)) == ["mixed", "young"]
    assert os.listdir("/etc")


def test_looking_changes_nothing(tmp_path: Path, folder: Path) -> None:
    """Finding and looking leave every file alone."""
    action, asked = Release(given(tmp_path, folder)), asked_for(folder)
    before = tree(tmp_path)

    assert action.look(asked, action.find(asked)).state == "undone"
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("role", "what", "goes"),
    [
        ("temporary", None, True),
        ("temporary", "temporary", True),
        ("temporary", "volume", False),
        ("scratch", None, False),
        ("scratch", "temporary", True),
        ("cache", "temporary", True),
        ("dataset", "temporary", False),
        ("checkpoints", "temporary", False),
        (None, "temporary", False),
    ],
)
def test_a_folder_must_be_said_to_be_temporary(
    tmp_path: Path, folder: Path, role: str | None, what: str | None, goes: bool
) -> None:
    """By its role alone, or for scratch and cache by its role and the step."""
    action = Release(given(tmp_path, folder, role))
    asked = asked_for(folder) if what is None else asked_for(folder, what=what)

    if goes:
        assert action.find(asked).undoable
    else:
        with pytest.raises(Refused):
            action.find(asked)


def test_what_is_not_named_or_not_here_is_refused(tmp_path: Path, folder: Path) -> None:
    """A folder that no option names, one below it, another machine's, and an empty one are refused."""
    action = Release(given(tmp_path, folder))
    with pytest.raises(Refused, match="no option of the collector storage names"):
        action.find(asked_for(tmp_path))
    with pytest.raises(Refused, match="no option of the collector storage names"):
        action.find(asked_for(folder / "old"))
    with pytest.raises(Refused, match="is on host n2"):
        action.find(asked_for(folder, host="n2"))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(Refused, match="holds nothing"):
        Release(given(tmp_path, empty)).find(asked_for(empty))
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(Refused, match="is no folder"):
        Release(given(tmp_path, tmp_path / "link")).find(asked_for(tmp_path / "link"))


def test_a_folder_in_use_is_left_alone(tmp_path: Path, folder: Path) -> None:
    """While a process works below it nothing is found, and what was found before is skipped."""
    action, asked = Release(given(tmp_path, folder)), asked_for(folder)
    found = action.find(asked)
    child = subprocess.Popen([sys.executable, "-c", "input()"], cwd=folder / "old", stdin=subprocess.PIPE)
    try:
        with pytest.raises(Refused, match=f"process {child.pid} uses"):
            action.find(asked)
        done = action.act(asked, found)
    finally:
        child.kill()
        child.communicate()

    assert (done.state, done.words) == ("skipped", f"process {child.pid} uses {folder}")
    assert action.act(asked, found).state == "done"


def test_sockets_are_somebodys(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old socket stays, and so does a folder with one."""
    monkeypatch.chdir(folder)
    for name in ("sock", "old/sock"):
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(name)
    age(folder, 3 * DAY)

    found = Release(given(tmp_path, folder)).find(asked_for(folder))

    names = {os.path.basename(item["path"]) for item in found.before["items"]}
    assert names == {"file", "link", "mixed", "young"}
