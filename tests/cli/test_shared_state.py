"""Who shares the state by its group decides, as whoever runs the daemon does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.scenes import Scene

GROUP, DAEMON, MEMBER, STRANGER = 60_001, 60_002, 60_003, 60_004
KEEP = ("--for", "1h", "--reason", "still needed")


@contextmanager
def being(user: int, *groups: int) -> Iterator[None]:
    """Another user, under the umask of the service, for as long as this lasts."""
    before, umask = os.getgroups(), os.umask(0o007)
    os.setgroups(groups)
    os.setegid(groups[0])
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)
        os.umask(umask)


@pytest.fixture
def shared(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files are the group's; what is imported late was imported by then."""
    monkeypatch.chdir(scene.folder)
    scene.run("keep", "j0", *KEEP)
    scene.run("ledger", "list")
    for folder in (tmp_path, *tmp_path.parents):
        if len(folder.parts) > 2:
            folder.chmod(0o755)
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chown(folder, DAEMON, GROUP)
    folder.chmod(0o2770)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_member_of_the_group_decides_and_a_stranger_does_not(scene: Scene, shared: Path) -> None:
    """What the service made one of its group writes to, and the other way round; nobody else reads it."""
    said = {}
    for user, groups, job in (
        (DAEMON, (GROUP,), "j1"),
        (MEMBER, (MEMBER, GROUP), "j2"),
        (DAEMON, (GROUP,), "j3"),
    ):
        with being(user, *groups):
            scene.run("keep", job, *KEEP)
        said[job] = (scene.status, scene.stderr)
    with being(MEMBER, MEMBER, GROUP):
        listed = scene.run("ledger", "list")
    with being(STRANGER, STRANGER):
        scene.run("ledger", "list")

    assert [status for status, _ in said.values()] == [0, 0, 0], said
    assert all(job in listed for job in said)
    assert (scene.status, "may not be read" in scene.stderr) == (2, True), scene.stderr
    assert {oct(path.stat().st_mode & 0o777) for path in shared.glob("stoploss.db*")} == {"0o660"}
