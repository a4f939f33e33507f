"""What nodes see, taken by a centre: each machine's word counts for what it told of, once, late or not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.toys import BEGIN

from stoploss.actions.registry import action_options
from stoploss.api.contract import BusyError
from stoploss.collectors.registry import option_models
from stoploss.daemon.history import LATEST, History, Needs
from stoploss.daemon.nodes import Nodes
from stoploss.engine.audit import Audit, audit
from stoploss.engine.history.frame import LOOKED, Frame
from stoploss.engine.history.looks import Kept, LookStore, plain
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.history.store import open_store
from stoploss.engine.model import UNREADABLE, Bad, Look, Reading, ResourceId, Sample
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load
from stoploss.rules.policy import PolicySet

SPOOL = "0123456789abcdef"
NEEDS = Needs(60.0, {60.0: 7200.0, 300.0: 7200.0})
NOW = datetime.fromtimestamp(BEGIN, UTC)

POLICIES = """
version: 1
policies:
  - name: no-process
    summary: Nobody looks at this GPU.
    each: gpu
    when: ['absent(gpu.memory.used, 5m)']
  - name: old
    summary: It has not been seen for long.
    each: gpu
    when: ['age(gpu.utilization) > 2m']
  - name: idle
    summary: It does nothing.
    each: gpu
    when: ['max(gpu.utilization, 5m) < 5%']
"""


def seen(gpus: Mapping[str, Reading], *, listed: bool = False, **labels: Any) -> Look:
    """A look at some GPUs."""
    return Look(
        tuple(
            Sample(0.0, ResourceId("gpu", name), "gpu.utilization", value, labels or None)
            for name, value in gpus.items()
        ),
        frozenset({"gpu"}) if listed else frozenset(),
    )


def policies(folder: Path, text: str = POLICIES) -> PolicySet:
    """A policy set."""
    file = folder / "policies.yaml"
    file.write_text(text, "utf-8")
    read = load(
        [file], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
    )
    assert read.policies is not None, read.diagnostics
    return read.policies


def judged(folder: Path, frame: Frame) -> Audit:
    """What is found in a frame."""
    now = datetime.fromtimestamp(frame.time_of(frame.last), UTC)
    return audit(policies(folder), lambda resolution: frame, catalogue(), now=now)


def told(result: Audit, gpu: str) -> dict[str, str]:
    """Policy -> what it says of a GPU, in words."""
    found = {f.policy.name: f.state for f in result.findings if f.resource.id == gpu}
    return found | {u.policy.name: u.reason for u in result.unknown if u.resource and u.resource.id == gpu}


# ---- whose look it is ----------------------------------------------------------------------


def cells(frame: Frame, mine: Callable[[ResourceId], bool]) -> dict[object, object]:
    """What a frame says of some resources, without the numbers of columns and words."""
    found: dict[object, object] = {}
    for name, plane in frame.planes.items():
        for at, resource in enumerate(plane.series):
            if not mine(resource):
                continue
            for row in np.flatnonzero(plane.status[:, at]).tolist():
                gained = None if plane.increase is None else plane.increase[row, at]
                state = int(plane.status[row, at])
                why = frame.reasons[state - 16] if state >= 16 else state
                value = plane.values[row, at]
                said = plane.words[int(value)] if plane.words and value == value else repr(float(value))
                found[name, resource, frame.first + row] = said, why, gained, int(plane.cadence[at])
    found |= {resource: presence for resource, presence in frame.resources.items() if mine(resource)}
    return found


LOOKS = st.lists(
    st.tuples(
        st.sampled_from(["gpu", "process"]),
        st.dictionaries(st.sampled_from("xyz"), st.sampled_from([0.0, 0.5, "no answer"]), max_size=3),
        st.booleans(),
        st.sampled_from([None, "driver mismatch"]),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(LOOKS, LOOKS, LOOKS, st.randoms(use_true_random=False))
def test_looks_of_machines_in_any_order_are_each_alone(
    one: Any, other: Any, here: Any, chance: random.Random
) -> None:
    """However the looks of machines come between each other, each one's resources are as if it were alone."""
    streams: dict[str, list[Kept]] = {"a": [], "b": [], "": []}
    for node, looks in (("a", one), ("b", other), ("", here)):
        for at, (collector, gpus, listed, failure) in enumerate(looks):
            gpus = {f"{node}/{name}": Bad(v) if isinstance(v, str) else v for name, v in gpus.items()}
            look = None if failure else seen(gpus, listed=listed, host=node or "centre")
            every = 60.0 if node else None
            streams[node].append(Kept(collector, BEGIN + 60.0 * at, look, failure, node, every))

    def frame(looks: Iterable[Kept]) -> Frame:
        buffer = SampleBuffer(catalogue(), {"gpu": 60.0, "process": 60.0})
        for kept in looks:
            if kept.look is None:
                buffer.add_failure(kept.collector, kept.at, "failed", node=kept.node, every=kept.every)
            else:
                buffer.add(kept.collector, kept.look, slot_time=kept.at, node=kept.node, every=kept.every)
        return buffer.frame(60.0, BEGIN + 600.0)

    left = deepcopy(streams)
    mixed = []
    while any(left.values()):
        mixed.append(left[chance.choice([node for node in left if left[node]])].pop(0))
    together = frame(mixed)

    for node, looks in streams.items():
        alone = frame(looks)
        assert cells(together, lambda r, node=node: r.id.startswith(f"{node}/")) == cells(  # type: ignore[misc]
            alone,
            lambda r, node=node: r.id.startswith(f"{node}/"),  # type: ignore[misc]
        )
        rows = {
            key: [together.first + at for at in np.flatnonzero(row).tolist()]
            for key, row in together.looks.items()
            if key.rpartition("/")[0] == node and row.any()
        }
        assert rows == {
            key: [alone.first + at for at in np.flatnonzero(row).tolist()]
            for key, row in alone.looks.items()
            if row.any()
        }


def test_a_list_of_one_node_says_nothing_of_others() -> None:
    """What is not in a node's list is gone only if it was that node that told of it."""
    buffer = SampleBuffer(catalogue())
    buffer.add("gpu", seen({"a0": 0.0, "a1": 0.0}, listed=True), slot_time=BEGIN, node="a", every=60.0)
    buffer.add("gpu", seen({"b0": 0.0}, listed=True), slot_time=BEGIN, node="b", every=60.0)
    buffer.add("gpu", seen({"c0": 0.0}, listed=True), slot_time=BEGIN)
    buffer.add("gpu", seen({"a0": 0.0}, listed=True), slot_time=BEGIN + 60.0, node="a", every=60.0)

    gone = {r.id for r, presence in buffer.frame(60.0).resources.items() if presence.absences}
    assert gone == {"a1"}


def test_what_two_nodes_tell_of_is_gone_when_neither_lists_it() -> None:
    """A shared resource stays while one machine still tells of it."""
    buffer, shared = SampleBuffer(catalogue()), ResourceId("gpu", "s")
    for at, node, there in ((0, "a", 1), (0, "b", 1), (1, "a", 0), (1, "b", 1), (2, "a", 0), (2, "b", 0)):
        look = seen({"s": 0.0} if there else {}, listed=True)
        buffer.add("gpu", look, slot_time=BEGIN + 60.0 * at, node=node, every=60.0)

    presence = buffer.frame(60.0).resources[shared]
    assert presence.absences == ((round(BEGIN / 60) + 2, None),)
    assert presence.nodes == ("a", "b")


def test_a_silent_node_is_unknown_and_not_idle(tmp_path: Path) -> None:
    """Its GPUs are neither idle nor gone, nor was anybody looking at them; those of others are known."""
    buffer = SampleBuffer(catalogue(), {"gpu": 60.0})
    for minute in range(20):
        for node in ("a", "b", ""):
            if node != "a" or minute < 10:
                look = seen({f"gpu-{node}": 0.0}, listed=True)
                every = 60.0 if node else None
                buffer.add("gpu", look, slot_time=BEGIN + 60.0 * minute, node=node, every=every)

    result = judged(tmp_path, buffer.frame(60.0))

    assert "collector a/gpu did not look" in told(result, "gpu-a")["no-process"]
    assert "stale since" in told(result, "gpu-a")["idle"]
    assert "did not look" in told(result, "gpu-a")["old"]
    for known in ("gpu-b", "gpu-"):
        assert told(result, known) == {"no-process": "firing", "idle": "firing"}


def test_what_fails_on_one_node_fails_there(tmp_path: Path) -> None:
    """A collector that fails on a node is named with it, and says nothing of other machines."""
    buffer = SampleBuffer(catalogue(), {"gpu": 60.0})
    for minute in range(20):
        at = BEGIN + 60.0 * minute
        if minute < 10:
            buffer.add("gpu", seen({"gpu-a": 0.0}), slot_time=at, node="a", every=60.0)
        else:
            buffer.add_failure("gpu", at, "driver mismatch", node="a", every=60.0)
            success = Sample(at, ResourceId("collector", "gpu"), "collector.success", 0.0)
            buffer.add("runner", Look((success,)), slot_time=at, node="a")
        buffer.add("gpu", seen({"gpu-b": 0.0}), slot_time=at, node="b", every=60.0)

    result = judged(tmp_path, buffer.frame(60.0))

    assert told(result, "gpu-a")["idle"] == "collector a/gpu failed: driver mismatch"
    assert told(result, "gpu-b") == {"no-process": "firing", "idle": "firing"}
    assert [status.name for status in result.collectors] == ["a/gpu"]


def test_a_job_of_two_nodes_was_looked_at_by_both(tmp_path: Path) -> None:
    """What is absent of a job is known only where every node of the job looked for it."""
    text = """
version: 1
policies:
  - {name: no-steps, summary: It logs nothing., each: job, when: ['absent(train.step, 5m)']}
"""
    for silent, expected in ((False, 1), (True, 0)):
        buffer = SampleBuffer(catalogue())
        for minute in range(20):
            for node in ("a", "b"):
                at = BEGIN + 60.0 * minute
                buffer.add("gpu", seen({f"gpu-{node}": 0.9}, job="j"), slot_time=at, node=node, every=60.0)
                if not (silent and node == "b" and minute > 2):
                    buffer.add("training", Look(()), slot_time=at, node=node, every=60.0)
        frame = buffer.frame(60.0)
        result = audit(policies(tmp_path, text), lambda r, f=frame: f, catalogue(), now=NOW)  # type: ignore[misc]

        assert (len(result.firing), len(result.unknown)) == (expected, 1 - expected)


# ---- taking batches ------------------------------------------------------------------------


def batch(looks: Iterable[tuple[int, Kept]], node: str = "a", spool: str = SPOOL) -> dict[str, Any]:
    """A batch as a node sends it."""
    said = [
        {"number": number, "collector": kept.collector, "at": kept.at, "every": kept.every, **plain(kept)}
        for number, kept in looks
    ]
    return {"version": 1, "node": node, "spool": spool, "looks": said}


def kept(minute: float, value: Reading = 0.5, node: str = "a", **labels: Any) -> Kept:
    """A node's look at its GPU."""
    at = BEGIN + 60.0 * minute
    gpu = ResourceId("gpu", f"{node}/0")
    samples = (
        Sample(at, gpu, "gpu.utilization", value, labels or None),
        Sample(at, gpu, "gpu.energy", 1000.0 * minute),
        Sample(at, gpu, "gpu.model", f"H{round(minute) // 30}"),
    )
    return Kept("gpu", at, Look(samples, frozenset({"gpu"})), None, node, 60.0)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """An empty one."""
    made = History(f"sqlite:///{tmp_path}/state.db", NEEDS, {"gpu": 60.0})
    yield made
    made.close()


def test_every_look_is_taken_once(history: History) -> None:
    """A batch whose answer was lost, or part of which was taken, adds only what is new."""
    nodes = Nodes(history)
    looks = [(number, kept(number - 5)) for number in range(1, 6)]

    assert nodes.take("a", batch(looks[:3]), NOW) == 9
    assert nodes.take("a", batch(looks[:3]), NOW) == 0
    assert nodes.take("a", batch(looks[2:]), NOW) == 6
    assert nodes.take("a", batch(looks[:1], spool="f" * 16), NOW) == 3
    assert nodes.take("b", batch([(1, kept(0, node="b"))], node="b"), NOW) == 3


def test_what_was_taken_is_known_after_a_restart(tmp_path: Path) -> None:
    """Killed right after it took a batch, the centre does not take it again, and has it."""
    url = f"sqlite:///{tmp_path}/state.db"
    first = History(url, NEEDS, {})
    Nodes(first).take("a", batch([(1, kept(0))]), NOW)
    second = History(url, NEEDS, {})

    assert Nodes(second).take("a", batch([(1, kept(0)), (2, kept(1))]), NOW) == 3
    assert second.frame(60.0).planes["gpu.utilization"].status.tolist() == [[1], [1]]


def test_labels_bad_readings_and_curves_arrive_as_they_were(history: History) -> None:
    """Whatever a look may hold comes through."""
    job = ResourceId("job", "j")
    look = Look(
        (
            Sample(BEGIN, job, "train.loss", float("nan"), {"team": UNREADABLE, "user": None, "host": "ü"}),
            Sample(BEGIN, job, "train.step", Bad("not there")),
            Sample(BEGIN, job, "job.state", "running"),
        ),
        notes=("a note",),
    )
    Nodes(history).take("a", batch([(1, Kept("training", BEGIN, look, None, "a", 30.0))]), NOW)
    alone = SampleBuffer(catalogue())
    alone.add("training", look, slot_time=BEGIN, node="a", every=30.0)

    assert cells(history.frame(60.0), lambda r: True) == cells(alone.frame(60.0), lambda r: True)


def changed(**more: Any) -> dict[str, Any]:
    """A batch of one look with something else in that look; `at` is in seconds from now."""
    out = batch([(1, kept(0))])
    out["looks"][0] |= more
    return out


def sampled(*samples: Any) -> dict[str, Any]:
    """A batch of one look with other samples."""
    return changed(samples=list(samples))


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("no name of a node", batch([(1, kept(0))], node="a/b")),
    ("no name of a node", batch([(1, kept(0))], node="")),
    ("version", {**batch([(1, kept(0))]), "version": 2}),
    ("has no key", {**batch([(1, kept(0))]), "more": 1}),
    ("lacks spool", {k: v for k, v in batch([(1, kept(0))]).items() if k != "spool"}),
    ("spool", {**batch([(1, kept(0))]), "spool": "../x"}),
    ("no list", {**batch([(1, kept(0))]), "looks": {}}),
    ("no list", batch([])),
    ("number does not rise", batch([(2, kept(0)), (2, kept(1))])),
    ("number does not rise", batch([(0, kept(0))])),
    ("is the clock of a right", changed(at=BEGIN + 121.0)),
    ("is the clock of a right", changed(at=BEGIN - LATEST - 1.0)),
    ("is the clock of a right", changed(at=float("nan"))),
    ("is the clock of a right", changed(at=True)),
    ("every", changed(every=0)),
    ("collector", changed(collector="b/gpu")),
    ("inventories", changed(inventories=["planet"])),
    ("notes", changed(notes=[1])),
    ("kind of resource", sampled(["planet", "x", None, []])),
    ("has no name", sampled(["gpu", "", None, []])),
    ("has no name", sampled(["gpu", "a\n", None, []])),
    ("labels", sampled(["gpu", "x", {"team": 1}, []])),
    ("labels", sampled(["gpu", "x", {"team": True}, []])),
    ("samples", sampled(["gpu", "x", None])),
    ("not of the right form", sampled(["gpu", "x", None, [["gpu.utilization"]]])),
    ("no signal 'gpu.utilisation'", sampled(["gpu", "x", None, [["gpu.utilisation", 0.5]]])),
    ("not finite", sampled(["gpu", "x", None, [["gpu.utilization", {"n": "inf"}]]])),
    ("not finite", sampled(["gpu", "x", None, [["gpu.utilization", 10**400]]])),
    ("too long", sampled(["gpu", "x", None, [["gpu.model", "x" * 5000]]])),
    ("in its readings", sampled(["gpu", "x", None, [["gpu.utilization", None]]])),
    ("in its readings", sampled(["gpu", "x", None, [["gpu.utilization", True]]])),
    ("in its readings", sampled(["gpu", "x", None, [["gpu.utilization", []]]])),
    ("in its readings", sampled(["gpu", "x", None, [["gpu.utilization", {"m": 1}]]])),
]


@pytest.mark.parametrize(("words", "wrong"), WRONG, ids=[f"{n}-{w[:20]}" for n, (w, _) in enumerate(WRONG)])
def test_a_wrong_batch_is_refused_in_words(history: History, words: str, wrong: dict[str, Any]) -> None:
    """Nothing of it is taken, and the text says what is wrong."""
    with pytest.raises(ValueError, match=words):
        Nodes(history).take(wrong["node"], wrong, NOW)

    assert history.nodes == {}
    assert history.frame(60.0).slots == 0


def test_a_batch_speaks_for_its_sender_only(history: History) -> None:
    """The name in the batch is the one that sends."""
    with pytest.raises(ValueError, match="no name"):
        Nodes(history).take("b", batch([(1, kept(0))]), NOW)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_is_broken_is_told_in_words(data: st.DataObject) -> None:
    """A batch in which anything was replaced by anything is taken or refused, and breaks nothing."""
    out = batch([(1, kept(0, team="x")), (2, Kept("gpu", BEGIN, None, "failed", "a", 60.0))])
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            places.append((value, key))
            if isinstance(item, dict | list):
                walk(item)

    walk(out)
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    )
    where, key = data.draw(st.sampled_from(places))
    where[key] = data.draw(values)

    class Nowhere:
        waiting = 0

        def receive(self, node: str, spool: str, looks: list[tuple[int, Kept]], heard: float) -> int:
            buffer = SampleBuffer(catalogue())
            for _, item in looks:
                if item.look is not None:
                    buffer.add(item.collector, item.look, slot_time=item.at, node=node, every=item.every)
            buffer.frame(60.0)
            return len(looks)

    with suppress(ValueError):
        assert Nodes(Nowhere()).take("a", out, NOW) in (1, 2)  # type: ignore[arg-type]


def test_too_much_at_once_has_to_wait(history: History) -> None:
    """Beyond what may wait a batch is put off until slots were sealed, and is taken then."""
    nodes = Nodes(history, most=5)
    nodes.take("a", batch([(1, kept(0))]), NOW)

    with pytest.raises(BusyError):
        nodes.take("a", batch([(2, kept(1))]), NOW)
    history.seal(BEGIN + 70.0)
    assert nodes.take("a", batch([(2, kept(1))]), NOW) == 3


def test_a_silent_node_is_told_of(history: History) -> None:
    """A node that sends no more is named, until it is lost sight of."""
    nodes = Nodes(history)
    nodes.take("a", batch([(1, kept(0))]), NOW)

    def after(seconds: float) -> str:
        return nodes.silent(datetime.fromtimestamp(BEGIN + seconds, UTC))

    assert after(200.0) == ""
    assert after(300.0) == "a is silent since 2026-12-01 14:00 UTC, what it tells of is unknown"
    assert after(86401.0) == ""


# ---- what comes late -----------------------------------------------------------------------


def stored(folder: Path, mine: Callable[[ResourceId], bool]) -> dict[object, object]:
    """All that lies on disk of some resources."""
    found: dict[object, object] = {}
    for name in ("state.db", "state-300s.db"):
        store = open_store(f"sqlite:///{folder / name}", read_only=True)
        frame = store.read(store.first_slot or 0, store.last_slot or 0)
        found |= {(name, key): value for key, value in cells(frame, mine).items()}
        looks = {key: np.flatnonzero(row == LOOKED) + frame.first for key, row in frame.looks.items()}
        found |= {(name, key): row.tolist() for key, row in looks.items() if key.startswith("a/")}
        store.close()
    return found


def lived(folder: Path, cut: range, halves: int, *, restart: bool = False) -> History:
    """Minutes of two nodes, one cut off for a while; what it saw comes in parts when it is back."""
    url = f"sqlite:///{folder}/state.db"
    history, waiting = History(url, NEEDS, {"gpu": 60.0}), list[tuple[int, Kept]]()
    number = itertools.count(1)
    for half in range(halves):
        minute = half / 2
        now = datetime.fromtimestamp(BEGIN + 60.0 * minute + 11.0, UTC)
        # Two looks a slot, so that it is cut off in the middle of one.
        waiting.append((next(number), kept(minute, 0.1 * (half % 7), job="j" if half < 90 else "k")))
        history.receive("b", SPOOL, [(half + 1, kept(minute, node="b"))], now.timestamp())
        if half not in cut:
            part, waiting = waiting[:40], waiting[40:]
            Nodes(history).take("a", batch(part), now)
            # Its answer was lost.
            Nodes(history).take("a", batch(part), now)
        if half % 2 == 0:
            sealed = history.seal(now.timestamp())
            if half % 30 == 0 and half:
                history.fill(sealed)
        if restart and half % 17 == 0:
            history.close()
            history = History(url, NEEDS, {"gpu": 60.0})
    history.fill(history.seal(BEGIN + 30.0 * halves + 9.0))
    assert waiting == []
    return history


LONG = [
    pytest.param(cut, 240, restart, marks=pytest.mark.slow)
    for cut in (range(31, 150), range(60, 61), range(11, 215))
    for restart in (False, True)
]


@pytest.mark.parametrize(("cut", "halves", "restart"), [(range(11, 35), 60, True), *LONG])
def test_what_came_late_lies_where_it_belongs(tmp_path: Path, cut: range, halves: int, restart: bool) -> None:
    """A node that was cut off and comes back: every cell on disk is as if it had never been away."""
    folders = tmp_path / "whole", tmp_path / "cut"
    for folder, away in zip(folders, (range(0), cut), strict=True):
        folder.mkdir()
        history = lived(folder, away, halves, restart=restart and away == cut)
        frame = history.frame(60.0)
        history.close()
        assert frame.planes["gpu.utilization"].status.all()

    mine = stored(folders[0], lambda r: True), stored(folders[1], lambda r: True)
    assert mine[1] == mine[0]
    assert len(mine[0]) > 3 * halves


def test_what_was_found_without_it_stays(tmp_path: Path) -> None:
    """Before it is told that nothing is evaluated again, late looks change no slot; then they are there."""
    history = History(f"sqlite:///{tmp_path}/state.db", NEEDS, {"gpu": 60.0})
    nodes = Nodes(history)
    nodes.take("a", batch([(1, kept(0))]), NOW)
    nodes.take("b", batch([(1, kept(0, node="b"))], node="b"), NOW)
    for minute in range(1, 10):
        history.receive("b", SPOOL, [(minute + 1, kept(minute, node="b"))], BEGIN + 60.0 * minute)
        sealed = history.seal(BEGIN + 60.0 * minute + 11.0)
    late = datetime.fromtimestamp(BEGIN + 9 * 60.0 + 12.0, UTC)
    nodes.take("a", batch([(n + 1, kept(n)) for n in range(1, 9)]), late)
    history.seal(BEGIN + 9 * 60.0 + 13.0)

    def known() -> int:
        plane = history.frame(60.0).planes["gpu.utilization"]
        return int((plane.status[:, plane.series.index(ResourceId("gpu", "a/0"))] == 1).sum())

    before = known()
    history.fill(sealed)

    assert (before, known()) == (1, 9)


def test_a_start_reads_no_look_of_a_node_that_no_open_slot_needs(tmp_path: Path) -> None:
    """What a node saw before an instant is left out as it lies there; what this machine saw is not."""
    store = LookStore(f"sqlite:///{tmp_path}/state.db")
    looks = [Kept("gpu", at, Look(()), None, node) for at in (100.0, 200.0) for node in ("", "n1", "n2")]
    store.append(looks)

    found = [(kept.node, kept.at) for kept in store.read(nodes_since=150.0)]
    of_one = [(kept.node, kept.at) for kept in store.read(node="n1", nodes_since=150.0)]
    store.close()

    assert found == [("", 100.0), ("", 200.0), ("n1", 200.0), ("n2", 200.0)]
    assert of_one == [("n1", 200.0)]
