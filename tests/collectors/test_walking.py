"""The bounded walk: its limits, going on where it stopped, and trees that change or are denied."""

from __future__ import annotations

import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.unprivileged import unprivileged

from stoploss.collectors.walking import DEEPEST, Tree, Walk, notes_of, read_unnoticed, walk_all


class Visited:
    """Remembers what it is told."""

    def __init__(self, at_file: Callable[[str], None] = lambda path: None) -> None:
        self.files: list[str] = []
        self.entered: list[str] = []
        self.left: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.at_file = at_file

    def enter(self, folder: str, status: os.stat_result) -> bool:
        self.entered.append(folder)
        return not folder.endswith("/skipped")

    def file(self, folder: str, name: str, status: os.stat_result) -> None:
        self.at_file(f"{folder}/{name}")
        self.files.append(f"{folder}/{name}")

    def leave(self, folder: str) -> None:
        self.left.append(folder)

    def denied(self, folder: str, reason: str) -> None:
        self.refused.append((folder, reason))


def never() -> bool:
    return False


def fill(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")


def test_everything_is_visited_once_and_each_folder_left(tmp_path: Path) -> None:
    """A walk tells of every file once, and leaves every folder that it entered after its content."""
    fill(tmp_path, "a", "b/c", "b/d/e", "skipped/f")
    visited = Visited()

    assert Walk(str(tmp_path), visited).advance(never)
    assert sorted(visited.files) == [f"{tmp_path}/{name}" for name in ("a", "b/c", "b/d/e")]
    assert sorted(visited.left) == [str(tmp_path), f"{tmp_path}/b", f"{tmp_path}/b/d"]
    assert visited.left[-1] == str(tmp_path)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limit=st.integers(1, 9))
def test_a_walk_cut_into_looks_sees_what_a_whole_one_sees(
    tmp_path_factory: pytest.TempPathFactory, limit: int
) -> None:
    """However few entries a look may walk, the looks together see everything once."""
    root = tmp_path_factory.mktemp("tree")
    fill(root, *(f"{folder}/{name}" for folder in ("a", "a/b", "c") for name in range(5)))
    visited = Visited()
    walk = Walk(str(root), visited)
    looks = 1

    while not walk.advance(never, limit):
        looks += 1

    assert len(visited.files) == len(set(visited.files)) == 15
    assert sorted(visited.entered) == sorted(visited.left)
    assert looks >= 18 // limit


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    """A link to a folder above, to a file or to nothing is passed over, so no walk goes in circles."""
    fill(tmp_path, "real/file")
    (tmp_path / "real/loop").symlink_to(tmp_path)
    (tmp_path / "alias").symlink_to(tmp_path / "real/file")
    (tmp_path / "dangling").symlink_to("nowhere")
    visited = Visited()

    assert Walk(str(tmp_path), visited).advance(never)
    assert visited.files == [f"{tmp_path}/real/file"]


def test_other_file_systems_are_not_entered() -> None:
    """What is mounted within a folder is left out."""
    if not os.path.ismount("/dev/shm"):  # noqa: S108
        pytest.skip("nothing is mounted at /dev/shm")
    visited = Visited()

    Walk("/dev", visited).advance(never)

    assert "/dev/shm" not in visited.entered  # noqa: S108


def test_folders_within_folders_end_somewhere(tmp_path: Path) -> None:
    """A tree deeper than the limit is walked down to it, and that is told."""
    deep = tmp_path.joinpath(*["d"] * (DEEPEST + 3))
    deep.mkdir(parents=True)
    fill(tmp_path, "top")
    visited = Visited()

    assert Walk(str(tmp_path), visited).advance(never)
    assert visited.files == [f"{tmp_path}/top"]
    assert [reason for _, reason in visited.refused] == [f"more than {DEEPEST} folders deep"]


def test_what_vanishes_on_the_way_is_left_out(tmp_path: Path) -> None:
    """Files and folders that are removed while they are walked stop nothing."""
    fill(tmp_path, *(f"{folder}/{name}" for folder in "abc" for name in range(4)))

    def remove(path: str) -> None:
        for other in Path(path).parent.iterdir():
            if str(other) != path:
                other.unlink()

    visited = Visited(remove)

    assert Walk(str(tmp_path), visited).advance(never)
    assert len(visited.files) == 3
    assert visited.refused == []


def test_a_folder_that_vanishes_between_two_looks_is_left(tmp_path: Path) -> None:
    """A walk goes on when the folder in which it stopped is gone."""
    fill(tmp_path, *(f"a/{name}" for name in range(4)))
    visited = Visited()
    walk = Walk(str(tmp_path), visited)
    walk.advance(never, 2)
    for path in sorted((tmp_path / "a").iterdir()):
        path.unlink()
    (tmp_path / "a").rmdir()

    assert walk.advance(never)
    assert visited.left == [f"{tmp_path}/a", str(tmp_path)]


def test_a_denied_folder_is_named_and_the_rest_is_walked(open_folder: Path) -> None:
    """A folder without the right to list or to search it is noted; its neighbours are walked."""
    fill(open_folder, "free/a", "closed/b", "listed/c")
    (open_folder / "closed").chmod(0o700 if os.geteuid() == 0 else 0)
    (open_folder / "listed").chmod(0o704 if os.geteuid() == 0 else 0o400)
    tree: Tree[Visited] = Tree(str(open_folder), lambda _: Visited())

    with unprivileged():
        walk_all([tree])

    assert tree.walked is not None
    assert tree.walked.files == [f"{open_folder}/free/a"]
    assert sorted(tree.walked.refused) == [
        (f"{open_folder}/{name}", "permission denied") for name in ("closed", "listed")
    ]
    [note] = notes_of("x", [tree])
    assert f"{open_folder}/closed (permission denied)" in note


def test_a_folder_that_is_not_there_is_its_own_trouble(tmp_path: Path) -> None:
    """A missing folder, or a file in its place, is told; others are walked, and it is found later."""
    fill(tmp_path, "a/file")
    trees = [Tree(str(tmp_path / name), lambda _: Visited()) for name in ("a", "late", "a/file")]

    walk_all(trees)
    first = [tree.trouble for tree in trees]
    fill(tmp_path, "late/file")
    walk_all(trees)

    assert first == [None, "no such file or directory", "not a directory"]
    assert trees[1].trouble is None
    assert trees[1].walked is not None
    assert trees[1].walked.files == [f"{tmp_path}/late/file"]


def test_an_unfinished_walk_says_how_far_it_is(tmp_path: Path) -> None:
    """A first walk tells how many entries it saw, a later one which share, and both go on."""
    fill(tmp_path, *(str(name) for name in range(10)))
    tree: Tree[Visited] = Tree(str(tmp_path), lambda _: Visited(), entries=6)
    notes = []

    for _ in range(4):
        walk_all([tree])
        notes.append(tree.note)

    assert notes == [
        "partly walked (6 entries), goes on at the next look",
        None,
        "60 % walked, goes on at the next look",
        None,
    ]
    assert tree.walked is not None
    assert len(tree.walked.files) == 10


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a hanging folder waits for."""
    event = threading.Event()
    yield event
    event.set()


def test_a_tree_that_hangs_costs_only_itself(gate: threading.Event, tmp_path: Path) -> None:
    """A folder that does not answer is its own trouble, is not asked again, and is walked once it does."""
    fill(tmp_path, "good/a", "hung/a")
    begun = []

    def hang(path: str) -> None:
        begun.append(path)
        gate.wait(30)

    good = Tree(str(tmp_path / "good"), lambda _: Visited())
    hung = Tree(str(tmp_path / "hung"), lambda _: Visited(hang))
    trees = [good, hung]

    walk_all(trees, 0.1, 0.1)
    walk_all(trees, 0.1, 0.1)
    then = hung.trouble
    gate.set()
    next(thread for thread in threading.enumerate() if thread.name == f"walk {hung.root}").join(5)
    walk_all(trees)

    assert then == "the folder does not answer"
    assert good.trouble is None
    assert hung.trouble is None
    assert hung.walked is not None
    assert begun[0] == f"{tmp_path}/hung/a"


def test_a_fault_in_a_walk_is_told_as_its_trouble(tmp_path: Path) -> None:
    """An error that nobody foresaw stops one tree, with its type and text."""
    fill(tmp_path, "a")

    def fail(path: str) -> None:
        raise ValueError("odd")

    tree: Tree[Visited] = Tree(str(tmp_path), lambda _: Visited(fail))

    walk_all([tree])

    assert tree.trouble == "ValueError: odd"


def test_reading_leaves_no_trace(tmp_path: Path) -> None:
    """A file that is read here does not count as read, and an offset below 0 is from its end."""
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    os.utime(path, (1000, 2000))

    assert read_unnoticed(str(path), 4) == b"0123"
    assert read_unnoticed(str(path), 4, -3) == b"789"
    assert os.stat(path).st_atime == 1000


@pytest.mark.slow
def test_a_million_files_are_walked_over_some_looks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A tree of 1,000,000 files keeps each look in its time, and memory in a few megabytes."""
    import shutil
    import tempfile

    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    root = tempfile.mkdtemp(prefix="stoploss-million-", dir=place)

    class Counting(Visited):
        count = 0

        def file(self, folder: str, name: str, status: os.stat_result) -> None:
            self.count += 1

    try:
        for folder in range(10):
            os.mkdir(f"{root}/{folder}")
            first = f"{root}/{folder}/0"
            open(first, "w").close()
            for name in range(1, 100_000):
                os.link(first, f"{root}/{folder}/{name}")
        tree: Tree[Counting] = Tree(root, lambda _: Counting(), entries=400_000)
        tracemalloc.start()
        slowest, looks = 0.0, 0
        while tree.walked is None:
            begun = time.monotonic()
            walk_all([tree], 2.0)
            slowest, looks = max(slowest, time.monotonic() - begun), looks + 1
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    finally:
        shutil.rmtree(root)

    assert tree.walked.count == 1_000_000
    assert looks >= 3
    assert slowest < 3.5
    assert peak < 8_000_000
