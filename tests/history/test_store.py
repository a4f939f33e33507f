"""The sample store."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.same_frames import assert_same

from stoploss.engine.history import store as store_module
from stoploss.engine.history.frame import (
    BAD,
    FAILED,
    LOOKED,
    NONE,
    NOT_A_NUMBER,
    VALID,
    Frame,
    LabelChange,
    Plane,
    Presence,
)
from stoploss.engine.history.presences import merged
from stoploss.engine.history.store import SampleStore, StoreError, open_store
from stoploss.engine.model import UNREADABLE, ResourceId
from stoploss.rules.catalogue import Catalogue, Signal, SignalKind

CATALOGUE = Catalogue(
    (
        Signal("gpu.utilization", SignalKind.GAUGE, "share", ("gpu",), "m", "gpu"),
        Signal("job.state", SignalKind.STATE, "text", ("job",), "m", "slurm", values=("running", "failed")),
        Signal("train.step", SignalKind.COUNTER, "1", ("job",), "m", "training", rewinds=True),
        Signal("train.loss", SignalKind.CURVE, "1", ("job",), "m", "training", better="lower"),
    )
)
GPU, JOB = ResourceId("gpu", "0"), ResourceId("job", "ein \u00fc 'name'")


def frame(first: int, slots: int, seed: int = 0) -> Frame:
    """A frame with every kind of content."""
    random = np.random.default_rng(seed)
    planes: dict[str, Plane] = {}
    for name, entry in CATALOGUE.items():
        series = tuple(ResourceId(entry.resources[0], f"{i}") for i in range(3))
        allowed = [NONE, VALID, BAD, BAD + 1] + ([NOT_A_NUMBER] if entry.kind is SignalKind.CURVE else [])
        status = random.choice(np.array(allowed, np.uint8), (slots, 3))
        numbers = random.integers(0, 2, (slots, 3)) if entry.is_text else random.normal(size=(slots, 3))
        values = np.where(status == VALID, numbers, np.where(status == NOT_A_NUMBER, np.inf, np.nan))
        counter = entry.kind is SignalKind.COUNTER
        increase = np.where(status == VALID, random.random((slots, 3)), 0.0) if counter else None
        words = ("running", "failed") if entry.is_text else ()
        planes[name] = Plane(entry, series, values, status, np.array([1, 2, 5], np.int32), increase, words)
    last = first + slots - 1
    changes = (
        LabelChange(first, {"job": "a", "team": None, "user": UNREADABLE}),
        *([LabelChange(last, {"job": "b", "team": "", "user": UNREADABLE})] if slots > 1 else []),
    )
    resources = {
        GPU: Presence(first, changes, ((first + 1, last), (last, None)) if slots > 2 else ()),
        JOB: Presence(last, (LabelChange(last, {}),)),
    }
    looks = {
        "gpu": random.choice(np.array([0, LOOKED, FAILED], np.uint8), slots),
        "slurm": np.zeros(slots, np.uint8),
    }
    cadence, reasons = {"gpu": 1, "slurm": 5}, {"gpu": "driver mismatch"}
    return Frame(60.0, first, slots, planes, resources, looks, cadence, reasons, ("N/A", "blank"), 3)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SampleStore]:
    """An empty store."""
    opened = SampleStore(f"sqlite:///{tmp_path}/s.db", 60.0, catalogue=CATALOGUE)
    yield opened
    opened.close()


def reopened(store: SampleStore, folder: Path) -> SampleStore:
    """The same store, opened for reading by another program."""
    store.close()
    return open_store(f"sqlite:///{folder}/s.db", read_only=True, catalogue=CATALOGUE)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**32), st.lists(st.integers(0, 8)), st.booleans())
def test_frame_written_in_any_split_reads_back_equal(
    slots: int, seed: int, cuts: list[int], shuffled: bool
) -> None:
    """A frame that is appended in parts of any size, in any order, and some parts twice, reads back whole."""
    whole = frame(100, slots, seed)
    edges = sorted({0, slots, *(cut for cut in cuts if cut < slots)})
    parts = [whole.cut(100 + low, 100 + high - 1) for low, high in pairwise(edges)]
    with tempfile.TemporaryDirectory() as folder:
        store = SampleStore(f"sqlite:///{folder}/s.db", 60.0, catalogue=CATALOGUE)
        for part in (*(parts[::-1] if shuffled else parts), parts[0]):
            store.append(part)
        own = store.read(100, 99 + slots)
        reader = reopened(store, Path(folder))
        read = reader.read(100, 99 + slots)
        assert (reader.first_slot, reader.last_slot) == (100, 99 + slots)
        reader.close()

    assert_same(whole, own)
    assert_same(whole, read)


def test_slots_are_replaced(store: SampleStore) -> None:
    """Appending the same slots again replaces them, also where the new ones are blank."""
    store.append(frame(10, 3, seed=1))
    blank = frame(10, 3, seed=2)
    name = "gpu.utilization"
    plane = blank.planes[name]
    empty = replace(plane, values=np.full((3, 3), np.nan), status=np.zeros((3, 3), np.uint8))
    store.append(replace(blank, planes={**blank.planes, name: empty}))

    assert not store.read(10, 12).planes[name].status.any()


def test_series_grow_at_the_end(store: SampleStore) -> None:
    """A series that comes later gets the next column; earlier slots are blank there."""
    early = frame(10, 1)
    store.append(early)
    plane = early.planes["train.step"]
    new = ResourceId("job", "new")
    later = replace(plane, series=(new, *plane.series[:2]), values=np.array([[7.0, 8.0, 9.0]]))
    later = replace(later, status=np.full((1, 3), VALID, np.uint8), increase=np.array([[1.0, 2.0, 3.0]]))
    store.append(replace(early, first=11, planes={"train.step": later}))

    read = store.read(10, 11).planes["train.step"]

    assert read.series == (*plane.series, new)
    assert read.status[:, 3].tolist() == [NONE, VALID]
    assert read.values[1].tolist()[:2] == [8.0, 9.0]
    assert read.values[1, 3] == 7.0
    assert read.increase is not None
    assert read.increase[1].tolist() == [2.0, 3.0, 0.0, 1.0]


def test_read_takes_chosen_signals_and_fills_gaps(store: SampleStore) -> None:
    """Only the signals asked for are read, and slots that were never stored are blank."""
    store.append(frame(10, 1))
    store.append(frame(14, 1))

    read = store.read(8, 15, signals=["train.loss"])

    assert list(read.planes) == ["train.loss"]
    assert not read.planes["train.loss"].status[3:6].any()
    assert read.resources[GPU].first == 10


def test_part_shows_only_what_was_known_then(store: SampleStore) -> None:
    """A read that ends early has no later labels, absences or resources."""
    store.append(frame(10, 4))

    read = store.read(10, 11)

    assert list(read.resources) == [GPU]
    assert [change.slot for change in read.resources[GPU].changes] == [10]
    assert read.resources[GPU].absences == ((11, None),)


def test_restarted_collector_does_not_make_a_resource_young() -> None:
    """What a new process knows is added to what was stored; the first sight stays."""
    stored = Presence(5, (LabelChange(5, {"job": "a", "team": "x"}),), ((8, None),))
    told = Presence(20, (LabelChange(20, {"job": "a"}), LabelChange(22, {"job": "b"})))

    known = merged(stored, told, 25)

    assert known.first == 5
    assert known.changes == (
        LabelChange(5, {"job": "a", "team": "x"}),
        LabelChange(22, {"job": "b", "team": "x"}),
    )
    assert known.absences == ((8, 20),)
    assert merged(known, told, 25) == known


def test_prune_forgets_old_slots_and_keeps_labels(store: SampleStore) -> None:
    """Old slots go; the labels that still hold, since when they do, and the first sight, stay."""
    whole = frame(10, 6)
    store.append(whole)
    store.prune(13)

    assert (store.first_slot, store.last_slot) == (13, 15)
    assert_same(whole.cut(13, 15), store.read(13, 15))
    assert not store.read(10, 12).planes["train.loss"].status.any()

    store.prune(100)
    assert (store.first_slot, store.last_slot) == (None, None)
    assert store.read(15, 15).resources[GPU].changes == (
        LabelChange(10, {"user": UNREADABLE}),
        LabelChange(15, whole.resources[GPU].changes[1].labels),
    )


def test_more_reasons_than_a_byte_holds_share_one(store: SampleStore) -> None:
    """Reasons beyond the limit of the store become one common reason."""
    for start in (0, 200):
        one = frame(10 + start, 1)
        names = tuple(f"reason {start + i}" for i in range(200))
        status = np.array([[BAD, BAD + 1, BAD + 199]], np.uint8)
        plane = replace(one.planes["train.loss"], status=status, values=np.full((1, 3), np.nan))
        store.append(replace(one, planes={"train.loss": plane}, reasons=names))

    read = store.read(210, 210)

    told = [read.reasons[code - BAD] for code in read.planes["train.loss"].status[0]]
    assert told == ["reason 200", "reason 201", "bad reading (other)"]


# --- trouble


def test_missing_store_is_not_created_by_a_reader(tmp_path: Path) -> None:
    """Reading where there is no store says so and leaves no file."""
    with pytest.raises(StoreError, match="run the daemon first"):
        open_store(f"sqlite:///{tmp_path}/none.db", read_only=True)

    assert list(tmp_path.iterdir()) == []


def test_reading_changes_no_file(store: SampleStore, tmp_path: Path) -> None:
    """A reader leaves the folder as it was."""
    store.append(frame(10, 2))
    store.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    reader = open_store(f"sqlite:///{tmp_path}/s.db", read_only=True, catalogue=CATALOGUE)
    reader.read(10, 11)
    with pytest.raises(StoreError, match="for reading only"):
        reader.append(frame(10, 2))
    reader.close()

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_reader_sees_what_another_program_appends(store: SampleStore, tmp_path: Path) -> None:
    """A store that is open for reading follows the one that writes."""
    store.append(frame(10, 1))
    reader = open_store(f"sqlite:///{tmp_path}/s.db", read_only=True, catalogue=CATALOGUE)
    store.append(frame(11, 1))

    assert reader.last_slot == 11
    assert reader.read(11, 11).planes["train.loss"].status.any()
    reader.close()


@pytest.mark.parametrize(
    "content", [b"this is no database, but long enough to be read as one" * 40, b"SQLite format 3\0"]
)
def test_damaged_store_is_told(tmp_path: Path, content: bytes) -> None:
    """A file that is no database is named, with what to do."""
    (tmp_path / "s.db").write_bytes(content)

    with pytest.raises(StoreError, match=r"s\.db: it is damaged.*move it away"):
        SampleStore(f"sqlite:///{tmp_path}/s.db", 60.0, catalogue=CATALOGUE)


def test_damaged_samples_are_told(store: SampleStore, tmp_path: Path) -> None:
    """Samples that cannot be unpacked are an error, never wrong numbers."""
    store.append(frame(10, 1))
    store.close()
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("update history_slots set data = x'00ff' where signal = 'train.loss'")
    connection.close()

    with pytest.raises(StoreError, match=r"samples of train\.loss are damaged"):
        store.read(10, 10)


def test_locked_store_is_told(store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that another program is writing to is an error with what to do, and works again afterwards."""
    monkeypatch.setattr(store_module, "BUSY_SECONDS", 0.05)
    second = SampleStore(f"sqlite:///{tmp_path}/s.db", 60.0, catalogue=CATALOGUE)
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreError, match="another program is writing"):
        second.append(frame(10, 1))

    other.execute("ROLLBACK")
    other.close()
    second.append(frame(10, 1))
    assert_same(frame(10, 1), second.read(10, 10))
    second.close()


def test_newer_store_is_left_alone(store: SampleStore, tmp_path: Path) -> None:
    """A store of a newer version says to upgrade."""
    store.close()
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("update history_meta set value = '99' where name = 'schema'")
    connection.close()

    with pytest.raises(StoreError, match=r"newer stoploss.*upgrade"):
        open_store(f"sqlite:///{tmp_path}/s.db", read_only=True, catalogue=CATALOGUE)


def test_another_resolution_is_refused(store: SampleStore, tmp_path: Path) -> None:
    """A store keeps the resolution it was made with."""
    assert open_store(f"sqlite:///{tmp_path}/s.db", read_only=True, catalogue=CATALOGUE).resolution == 60.0
    with pytest.raises(StoreError, match="slots of 60 s, not of 30 s"):
        SampleStore(f"sqlite:///{tmp_path}/s.db", 30.0, catalogue=CATALOGUE)
    with pytest.raises(StoreError, match="slots of 60 s, not of 30 s"):
        store.append(replace(frame(10, 1), resolution=30.0))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("stoploss.db", "is no database URL"),
        ("nosuch://user:secret@host/db", r"nosuch://user:\*\*\*@host"),
        ("sqlite:////no/such/folder/s.db", "its folder exists"),
    ],
)
def test_bad_urls_are_told(url: str, message: str) -> None:
    """A URL that cannot be used is an error that does not show a password."""
    with pytest.raises(StoreError, match=message):
        SampleStore(url, 60.0, catalogue=CATALOGUE)


CHILD = """
import importlib.util, os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
spec = importlib.util.spec_from_file_location("helper", sys.argv[1])
helper = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helper)
store = helper.SampleStore(f"sqlite:///{sys.argv[2]}/s.db", 60.0, catalogue=helper.CATALOGUE)
store.append(helper.frame(100, 5))
left = int(sys.argv[3])

@event.listens_for(Engine, "after_cursor_execute")
def count(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

store.append(helper.frame(103, 5, seed=1))
"""


@pytest.mark.parametrize("statements", [3, 8])
def test_kill_in_the_middle_of_an_append_leaves_what_was_there(tmp_path: Path, statements: int) -> None:
    """A process that is killed while it appends loses that append and nothing else."""
    command = [sys.executable, "-c", CHILD, __file__, str(tmp_path), str(statements)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert child.returncode == -signal.SIGKILL, child.stderr

    store = SampleStore(f"sqlite:///{tmp_path}/s.db", 60.0, catalogue=CATALOGUE)
    assert (store.first_slot, store.last_slot) == (100, 104)
    assert_same(frame(100, 5), store.read(100, 104))
    store.append(frame(103, 5, seed=1))
    assert store.last_slot == 107
    store.close()
