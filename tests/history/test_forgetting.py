"""What lies before the slots that are kept is forgotten, and nothing else changes by it."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from stoploss.engine.evaluation.columns import World
from stoploss.engine.history import store_schema
from stoploss.engine.history.frame import Frame, LabelChange, Presence
from stoploss.engine.history.presences import lasting, without
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.history.store import SampleStore, open_store
from stoploss.engine.history.store_known import SEEN_EVERY
from stoploss.engine.history.window import Window
from stoploss.engine.model import UNREADABLE, LabelValue, Look, ResourceId, Sample
from stoploss.rules.catalogue import catalogue

STEP = 3600.0
FIRST = 500_000
LATER = round(SEEN_EVERY / STEP)
"""Slots after the end of retention in which what was not seen is still known."""
SIGNALS = ("gpu.utilization", "gpu.energy", "gpu.model")


def look(slot: int, jobs: list[str]) -> Look:
    """A GPU of its own for each job; all that is there is listed."""
    samples = []
    for job in jobs:
        gpu, labels = ResourceId("gpu", f"gpu of {job}"), {"job": job, "team": "vision"}
        samples.append(Sample(slot * STEP, gpu, "gpu.utilization", slot % 7 / 10, labels))
        samples.append(Sample(slot * STEP, gpu, "gpu.energy", 1e6 + slot))
        samples.append(Sample(slot * STEP, gpu, "gpu.model", f"model of {job}"))
    return Look(tuple(samples), frozenset({"gpu"}))


def generations(slots: int, life: int, seed: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Slot and jobs: three at a time, each of which lasts about `life` slots."""
    draw, jobs, count = random.Random(seed), list[str](), 0
    for slot in range(FIRST, FIRST + slots):
        jobs = [job for job in jobs if draw.random() > 1 / life]
        while len(jobs) < 3:
            count += 1
            jobs.append(f"j{count}")
        yield slot, jobs


def lived(store: SampleStore, slots: int, kept: int, life: int = 3) -> Window:
    """A window over slots of many jobs, of which the store keeps the last ones."""
    window, buffer = Window(store, 8), SampleBuffer(catalogue(), {"gpu": STEP})
    for slot, jobs in generations(slots, life):
        buffer.add("gpu", look(slot, jobs), slot_time=slot * STEP)
        frame = buffer.frame(STEP, slot * STEP)
        window.append(frame.cut(max(frame.first, slot), slot))
        buffer.forget((slot - 3) * STEP)
        window.prune(slot - kept)
    return window


def held(store: SampleStore, window: Window) -> dict[str, int]:
    """How much is held, in memory and on disk."""
    known, frame = store._tables(), window.frame
    assert frame is not None
    with store._engine.begin() as connection:
        rows = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar() or 0
            for table in store_schema.METADATA.sorted_tables
            if table.name not in ("history_words", "history_reasons")
        }
    return {
        **{f"rows of {name}": number for name, number in rows.items()},
        "columns": max(map(len, known.cadence.values())),
        "resources": len(known.resources),
        "series of the window": max(len(plane.series) for plane in frame.planes.values()),
        "resources of the window": len(frame.resources),
    }


def test_what_is_held_depends_on_what_is_kept_not_on_what_was(tmp_path: Path) -> None:
    """After four times as many jobs a store holds no more columns, resources and rows than before."""
    early = SampleStore(f"sqlite:///{tmp_path}/early.db", STEP)
    late = SampleStore(f"sqlite:///{tmp_path}/late.db", STEP)
    first = held(early, lived(early, 40, 10))
    second = held(late, lived(late, 160, 10))

    assert all(number <= 1.5 * first[name] + 5 for name, number in second.items()), (first, second)


def test_a_window_holds_fewer_series_than_the_store(tmp_path: Path) -> None:
    """What was over before the slots in memory is still on disk, and takes no place in memory."""
    store = SampleStore(f"sqlite:///{tmp_path}/s.db", STEP)
    found = held(store, lived(store, 120, 100))

    assert found["resources"] > 2 * found["resources of the window"]
    assert found["columns"] > 2 * found["series of the window"]


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32))
def test_a_column_that_was_given_away_shows_nothing_of_who_had_it(seed: int) -> None:
    """Over prunes and restarts every slot that is kept reads as it was seen, and no other reading appears."""
    draw, oracle = random.Random(seed), dict[tuple[str, ResourceId, int], float]()
    with tempfile.TemporaryDirectory() as folder:
        url, kept = f"sqlite:///{folder}/s.db", draw.randint(1, 12)
        store = SampleStore(url, STEP)
        for slot, jobs in generations(60, draw.randint(1, 6), seed):
            buffer = SampleBuffer(catalogue(), {"gpu": STEP})
            buffer.add("gpu", look(slot, jobs), slot_time=slot * STEP)
            store.append(buffer.frame(STEP))
            for job in jobs:
                oracle["gpu.utilization", ResourceId("gpu", f"gpu of {job}"), slot] = slot % 7 / 10
            if draw.random() < 0.3:
                store.prune(slot - kept)
            if draw.random() < 0.1:
                store.close()
                store = SampleStore(url, STEP)
        first, last = store.first_slot, store.last_slot
        assert first is not None
        assert last is not None
        for reader in (store, open_store(url, read_only=True)):
            read = reader.read(first, last)
            plane = read.planes["gpu.utilization"]
            found = {
                ("gpu.utilization", plane.series[at], first + int(row)): float(plane.values[row, at])
                for row, at in np.argwhere(plane.status > 0).tolist()
            }

            assert found == {key: value for key, value in oracle.items() if key[2] >= first}
            assert np.isnan(plane.values[plane.status == 0]).all()
            for name in SIGNALS:
                assert len(set(read.planes[name].series)) == len(read.planes[name].series)
            reader.close()


def test_a_store_that_is_opened_anew_forgets_as_well(tmp_path: Path) -> None:
    """What was seen when is on disk: a daemon that is started again every day holds no more than another."""
    url = f"sqlite:///{tmp_path}/s.db"
    for slot, jobs in generations(80, 2):
        buffer = SampleBuffer(catalogue(), {"gpu": STEP})
        buffer.add("gpu", look(slot, jobs), slot_time=slot * STEP)
        store = SampleStore(url, STEP)
        store.append(buffer.frame(STEP))
        store.prune(slot - 10)
        store.close()
    store = open_store(url, read_only=True)
    known = store._tables()

    assert len(known.resources) <= 3 * (10 + 2 * LATER) / 2 + 5
    assert max(map(len, known.cadence.values())) <= 3 * (10 + 2 * LATER) / 2 + 10
    store.close()


def test_a_store_of_an_earlier_version_forgets_as_well(tmp_path: Path) -> None:
    """A store without a word about what was seen when is taken up; what is in it is forgotten in its time."""
    url = f"sqlite:///{tmp_path}/s.db"
    store = SampleStore(url, STEP)
    lived(store, 20, 100)
    store.close()
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("drop table history_seen")
        connection.execute("update history_meta set value = '1' where name = 'schema'")
    connection.close()
    store = SampleStore(url, STEP)
    before = len(store._tables().resources)
    for slot in range(FIRST + 20, FIRST + 60):
        buffer = SampleBuffer(catalogue(), {"gpu": STEP})
        buffer.add("gpu", look(slot, ["last"]), slot_time=slot * STEP)
        store.append(buffer.frame(STEP))
        store.prune(slot - 10)
        assert slot > FIRST + 28 or len(store._tables().resources) == before + 1

    assert list(store._tables().resources) == [ResourceId("gpu", "gpu of last")]
    assert store._tables().meta["schema"] == str(store_schema.SCHEMA)
    store.close()


def test_what_something_names_is_kept(tmp_path: Path) -> None:
    """A job of which nothing is read any more is known for as long as a GPU says that it works for it."""
    store = SampleStore(f"sqlite:///{tmp_path}/s.db", STEP)
    gpu, job = ResourceId("gpu", "g"), ResourceId("job", "j")
    for slot in range(FIRST, FIRST + 60):
        buffer = SampleBuffer(catalogue(), {"gpu": STEP})
        samples = [
            Sample(slot * STEP, gpu, "gpu.utilization", 0.5, {"job": "j"} if slot < FIRST + 50 else {})
        ]
        if slot == FIRST:
            samples.append(Sample(slot * STEP, job, "train.step", 1.0, {"team": "vision"}))
        buffer.add("gpu", Look(tuple(samples)), slot_time=slot * STEP)
        store.append(buffer.frame(STEP))
        store.prune(slot - 10)

    assert store.presence(job) is not None
    assert store.read(FIRST + 55, FIRST + 59).resources[job].changes[-1].labels == {"team": "vision"}


def test_a_collector_that_looks_no_more_is_forgotten(tmp_path: Path) -> None:
    """The collectors of a machine that is gone for good are not held for ever."""
    store = SampleStore(f"sqlite:///{tmp_path}/s.db", STEP)
    for slot in range(FIRST, FIRST + 60):
        buffer = SampleBuffer(catalogue(), {"gpu": STEP})
        buffer.add("gpu", look(slot, ["j"]), slot_time=slot * STEP, node=f"n{(slot - FIRST) // 5}")
        store.append(buffer.frame(STEP))
        store.prune(slot - 10)

    assert len(store.read(FIRST + 55, FIRST + 59).looks) <= (10 + 2 * LATER) / 5 + 2


LABELS: tuple[LabelValue, ...] = ("a", "b", None, UNREADABLE)


@st.composite
def presences(draw: st.DrawFn) -> Presence:
    """A resource whose labels change, and that is away now and then."""
    slots = sorted(draw(st.sets(st.integers(1, 30), max_size=8)))
    labels: dict[str, LabelValue] = {}
    changes = []
    for slot in [0, *slots]:
        labels = {**labels, draw(st.sampled_from(["job", "team", "host"])): draw(st.sampled_from(LABELS))}
        changes.append(LabelChange(slot, labels))
    bounds = sorted(draw(st.sets(st.integers(1, 30), max_size=5)))
    spans = [(a, b) for a, b in zip(bounds[::2], bounds[1::2], strict=False)]
    if len(bounds) % 2:
        spans.append((bounds[-1], None))  # type: ignore[arg-type]
    return Presence(0, tuple(changes), tuple(spans))


def world_of(resources: dict[ResourceId, Presence]) -> World:
    """The world of some resources."""
    world = World()
    world.update(Frame(STEP, 0, 40, {}, resources))
    return world


def said(*labels: str) -> Presence:
    """What a GPU said in slots from 0 on: job and team by a letter, `-` for none, `?` for unreadable."""
    names: dict[str, LabelValue] = {"-": None, "?": UNREADABLE}
    pairs = [{"job": names.get(word[0], word[0]), "team": names.get(word[1], word[1])} for word in labels]
    return Presence(0, tuple(LabelChange(slot, pair) for slot, pair in enumerate(pairs)))


@settings(max_examples=200, deadline=None)
@given(st.lists(presences(), min_size=1, max_size=4), st.integers(0, 30))
@example([said("a-", "aa", "a-", "a-", "a-", "aa")], 2)
@example([said("a-", "a-", "a-", "a-", "aa", "ba", "aa"), said("a-", "a-", "a-", "a-", "b-", "bb", "bb")], 6)
@example([said("aa", "a?", "aa"), said("a-", "ab", "ab")], 2)
@example([said("a-"), replace(said("a-", "a-", "aa"), absences=((1, None),))], 2)
def test_who_is_there_and_whose_is_the_same_with_and_without_the_past(
    found: list[Presence], before: int
) -> None:
    """From the slot on before which all was forgotten every row, owner and label is what it was."""
    all_ = {ResourceId("gpu", f"g{at}"): presence for at, presence in enumerate(found)}
    whole, part = world_of(all_), world_of(lasting(all_, 40, before))
    for kind in ("gpu", "job", "team", "host"):
        for slot in range(before, 40):
            there = [
                {
                    (
                        column.resource,
                        column.owner,
                        column.end,
                        *(
                            str(world.label_at(column.resource, name, slot))
                            for name in ("job", "team", "host")
                        ),
                    )
                    for column in world.tables[kind].columns
                    if column.start <= slot < column.end
                }
                for world in (whole, part)
            ]
            assert there[0] == there[1], (kind, slot)


@settings(max_examples=200, deadline=None)
@given(presences(), st.integers(0, 30), st.integers(0, 30))
def test_forgetting_twice_is_forgetting_once(presence: Presence, one: int, other: int) -> None:
    """What is forgotten bit by bit is what is forgotten at once, and there are few changes left."""
    early, late = sorted((one, other))
    twice = without(without(presence, early), late)

    assert twice == without(presence, late)
    assert len([change for change in twice.changes if change.slot <= late]) <= 1 + 2 * 3


@pytest.mark.parametrize("life", [1, 5])
def test_a_buffer_forgets_names(life: int) -> None:
    """Of what no sample is left a buffer knows nothing but what may be missed on a list."""
    buffer, frames = SampleBuffer(catalogue(), {"gpu": STEP}), list[Frame]()
    other = SampleBuffer(catalogue(), {"gpu": STEP})
    for slot, jobs in generations(600, life):
        buffer.add("gpu", look(slot, jobs), slot_time=slot * STEP)
        buffer.forget((slot - 3) * STEP)
        other.add("gpu", look(slot, jobs), slot_time=slot * STEP)
    frames = [part.frame(STEP) for part in (buffer, other)]
    frames[1] = frames[1].cut(frames[0].first, frames[0].last)

    assert len(buffer.resources) <= 400
    assert len(other.resources) >= 600 / life
    for name, plane in frames[0].planes.items():
        twin = frames[1].planes[name]
        columns = [twin.series.index(resource) for resource in plane.series]
        assert (plane.status == twin.status[:, columns]).all()
        if name == "gpu.model":
            told = [plane.words[int(value)] for value in plane.values[plane.status > 0]]
            assert told == [twin.words[int(v)] for v in twin.values[:, columns][plane.status > 0]]
