"""An audit of all slots, and one of the newest slots with the carry of those before, are the same."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.toys import BEGIN, CHAIN

from stoploss.actions.registry import action_options
from stoploss.collectors.registry import option_models
from stoploss.engine.audit import Audit, audit
from stoploss.engine.carry import Carry
from stoploss.engine.history.frame import Frame
from stoploss.engine.history.presences import lasting
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.history.store import SampleStore
from stoploss.engine.history.window import Window
from stoploss.engine.model import Bad, Look, ResourceId, Sample
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load
from stoploss.rules.policy import PolicySet

MINUTES = 240
HELD = 80
"""Slots before the carry that frames hold: a hole of up to an hour is still billed when it closes."""
TEXT = (
    CHAIN.replace("terminate: {after: 4m}", "terminate: {after: 2h}")
    + """
  - name: hot
    each: gpu
    waste: $1/h
    for: 3m
    hold: 2m
    when: ['avg(gpu.utilization, 10m) > 50%', 'not age(gpu.power) > 5m']
    then: [{alert: {}}]
  - name: spent
    each: job
    when: ['budget.used >= 40% or cost.total > $3 or cost.gpu_hours > 2 GPU-hours']
    then: [{alert: {}}]
  - name: team-spent
    each: team
    when: ['budget.used >= 80%']
    then: [{alert: {}}]
budgets:
  - {name: hours, each: job, limit: 3 GPU-hours}
  - {name: daily, each: team, limit: $4, per: day}
"""
)


def policies(folder: Path) -> PolicySet:
    """The policy set."""
    file = folder / "p.yaml"
    file.write_text(TEXT, "utf-8")
    read = load(
        [file], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
    )
    assert read.policies is not None, read.diagnostics
    return read.policies


def look(draw: random.Random, minute: int, state: dict[str, float]) -> Look:
    """Five jobs of two GPUs that turn busy and idle, come late, go, and are unreadable now and then."""
    at, samples = BEGIN + minute * 60.0, []
    for job in "abcde":
        begin, end = state.setdefault(f"{job}0", draw.randint(0, 120)), state.setdefault(f"{job}1", 1e9)
        if draw.random() < 0.004:
            state[f"{job}1"] = minute
        if draw.random() < 0.02:
            state[job] = draw.choice([0.0, 0.0, 0.9])
        if not begin <= minute < end or draw.random() < 0.03:
            continue
        for gpu in (f"{job}/0", f"{job}/1"):
            resource = ResourceId("gpu", gpu)
            reading = Bad("lost") if draw.random() < 0.02 else state.get(job, 0.0)
            labels = {"job": job, "class": "train", "team": draw.choice(["x"] * 50 + ["y"])}
            samples += [
                Sample(at, resource, "gpu.utilization", reading, labels),
                Sample(at, resource, "gpu.power", 100.0),
                Sample(at, resource, "gpu.model", "H100"),
            ]
    return Look(tuple(samples), frozenset({"gpu"}) if draw.random() < 0.5 else frozenset())


def whole(seed: int) -> Frame:
    """All minutes as one frame."""
    draw, state = random.Random(seed), dict[str, float]()
    buffer = SampleBuffer(catalogue(), {"gpu": 60.0})
    for minute in range(MINUTES):
        if draw.random() < 0.97:
            buffer.add("gpu", look(draw, minute, state), slot_time=BEGIN + minute * 60.0)
    return buffer.frame(60.0)


def said(result: Audit) -> object:
    """All that an audit says, but for rounding."""
    return (
        [
            (f.id, f.state, f.since, f.stale_since, f.labels, f.waste and round(f.waste.so_far or 0, 6))
            for f in result.findings
        ],
        [(u.policy.name, u.resource, u.reason) for u in result.unknown],
        [(d.id, d.verdict, d.due, d.whys) for d in result.decisions],
        {kind: round(amount.so_far, 6) for kind, amount in result.totals.by_kind.items()},
    )


@pytest.mark.parametrize("seed", range(12))
def test_whole_equals_carry_and_rest(tmp_path: Path, seed: int) -> None:
    """Cut at two places, with the carry written as JSON between, all findings and money stay the same."""
    loaded, frame = policies(tmp_path), whole(seed)
    draw = random.Random(seed + 1000)
    first, second = sorted(draw.sample(range(frame.first + 20, frame.last - 1), 2))
    now = datetime.fromtimestamp(frame.time_of(frame.last), UTC)
    carry = Carry()
    for slot in (first, second):
        begin = max(frame.first, carry.slots.get(60.0, 0) - HELD)
        part = audit(loaded, lambda r, b=begin, s=slot: frame.cut(b, s), catalogue(), now=now, carry=carry)  # type: ignore[misc]
        carry = Carry.from_json(json.loads(json.dumps(part.carried().as_json())))
    rest = audit(
        loaded,
        lambda r: frame.cut(max(frame.first, second - HELD), frame.last),
        catalogue(),
        now=now,
        carry=carry,
    )
    all_ = audit(loaded, lambda r: frame, catalogue(), now=now)

    assert said(rest) == said(all_)
    assert all_.findings or all_.unknown


@pytest.mark.parametrize("seed", range(4))
def test_a_window_grows_to_what_the_store_holds(tmp_path: Path, seed: int) -> None:
    """Appended slot by slot, with new series on the way, a window is the frame that the store reads back,
    but for what was over before it."""
    frame = whole(seed)
    store = SampleStore(f"sqlite:///{tmp_path}/s.db", 60.0)
    window = Window(store, 50)
    at = frame.first
    draw = random.Random(seed)
    while at <= frame.last:
        end = min(frame.last, at + draw.randint(0, 9))
        window.append(frame.cut(at, end))
        at = end + 1
    held = window.frame
    assert held is not None
    read = store.read(held.first, held.last)

    assert held.last == frame.last
    assert 50 <= held.slots <= 50 * 5 // 4 + 26
    there = lasting(read.resources, read.last, read.first)
    assert lasting(held.resources, held.last, held.first) == there
    for name, plane in read.planes.items():
        mine = held.planes[name]
        columns = [plane.series.index(resource) for resource in mine.series]
        assert set(mine.series) >= set(plane.series) & there.keys()
        assert mine.values.tobytes() == plane.values[:, columns].tobytes()
        assert mine.status.tobytes() == plane.status[:, columns].tobytes()
        assert plane.status.any() == mine.status.any()
    assert Window(store, 50).frame is not None
