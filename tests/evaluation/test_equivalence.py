"""One whole recording = the same in pieces = tick by tick = the slow oracle."""

from __future__ import annotations

import itertools
import os
import random
from dataclasses import replace

import numpy as np
import pytest
from support import worlds
from support.oracle import Oracle

from stoploss.engine.evaluation import evaluator as module
from stoploss.engine.evaluation.evaluator import Evaluator
from stoploss.engine.evaluation.explain import Explainer
from stoploss.engine.evaluation.kleene import OUTSIDE, UNKNOWN
from stoploss.engine.evaluation.lifecycle import STATES

WORLDS = int(os.environ.get("STOPLOSS_WORLDS", "150"))


def prefix(frame, last):
    """The frame as it was known at slot `last`: later first sights and labels are not there yet."""
    cut = frame.cut(frame.first, last)
    resources = {}
    for resource, presence in frame.resources.items():
        if presence.first <= last:
            changes = tuple(change for change in presence.changes if change.slot <= last)
            absences = tuple(
                (a, None if b is None or b > last else b) for a, b in presence.absences if a <= last
            )
            resources[resource] = replace(presence, changes=changes, absences=absences)
    return replace(cut, resources=resources)


def run(policies, frames):
    """Truths and states per policy and row, gathered over the frames."""
    seen = {}

    def observe(number, first, truths, states):
        rows = evaluator.rows(number)
        for at, column in enumerate(rows):
            key = number, column.resource, column.start
            for row in range(len(truths)):
                state = STATES[states[at]] if row == len(truths) - 1 else None
                seen.setdefault(key, {})[first + row] = int(truths[row, at]), state

    evaluator = Evaluator(policies, worlds.CATALOGUE, observer=observe)
    episodes = []
    for frame in frames:
        episodes += evaluator.advance(frame)
    return seen, sorted((e.policy.name, e.column.resource, e.event, e.slot, e.since) for e in episodes)


def truths_of(result):
    """Truths and episodes; states are only told at the ends of blocks."""
    seen, episodes = result
    return {key: {slot: truth for slot, (truth, _) in row.items()} for key, row in seen.items()}, episodes


def pieces(frame, cuts):
    """The frame in pieces that begin at the cuts, each knowing only its past."""
    edges = [frame.first, *sorted(set(cuts)), frame.last + 1]
    for low, high in itertools.pairwise(edges):
        if low < high:
            yield prefix(frame, high - 1).cut(low, high - 1)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_whole_any_split_ticks_and_oracle_agree(seed):
    """Every truth and state of every row is the same by all four ways."""
    rng = random.Random(seed)
    frame = worlds.frame(rng)
    policies = [worlds.policy(rng, number) for number in range(6)]
    whole, episodes = run(policies, [frame])
    cuts = [rng.randint(frame.first, frame.last) for _ in range(rng.randint(1, 5))]
    split, split_episodes = run(policies, pieces(frame, cuts))
    ticks, tick_episodes = run(policies, pieces(frame, range(frame.first, frame.last + 1)))

    assert episodes == split_episodes == tick_episodes
    oracle = Oracle(frame)
    for number, policy in enumerate(policies):
        for (resource, start), (truths, states) in oracle.policy(policy).items():
            expected = dict(enumerate(zip(truths, states, strict=True), frame.first))
            assert whole[number, resource, start].keys() == expected.keys()
            for other in (whole, split, ticks):
                for slot, (truth, state) in other[number, resource, start].items():
                    assert truth == expected[slot][0], (slot, policy)
                    # States are told at the end of a block: at every slot of the ticks.
                    assert state in (None, expected[slot][1]), (slot, policy)


def test_small_blocks_change_nothing(monkeypatch):
    """The size of the internal blocks is not visible in the result."""
    rng = random.Random(4711)
    for _ in range(20):
        frame = worlds.frame(rng)
        policies = [worlds.policy(rng, number) for number in range(4)]
        whole = truths_of(run(policies, [frame]))
        monkeypatch.setattr(module, "BLOCK_ELEMENTS", rng.choice([1, 7, 13]))
        monkeypatch.setattr(module, "BLOCK_SLOTS", rng.choice([1, 2, 3]))

        assert truths_of(run(policies, [frame])) == whole
        monkeypatch.undo()


def test_slots_without_a_frame_are_slots_nobody_looked_in():
    """Down time equals the same slots empty, however it is cut."""
    rng = random.Random(99)
    for _ in range(30):
        frame = worlds.frame(rng)
        policies = [worlds.policy(rng, number) for number in range(4)]
        low, high = sorted(rng.sample(range(frame.first + 1, frame.last - 1), 2))
        holed = frame.cut(frame.first, frame.last)
        for plane in holed.planes.values():
            plane.values[low - frame.first : high - frame.first] = np.nan
            plane.status[low - frame.first : high - frame.first] = 0
            if plane.increase is not None:
                plane.increase[low - frame.first : high - frame.first] = 0
        for looks in holed.looks.values():
            looks[low - frame.first : high - frame.first] = 0
        parts = [holed.cut(holed.first, low - 1), holed.cut(high, holed.last)]

        assert truths_of(run(policies, parts)) == truths_of(run(policies, [holed]))


@pytest.mark.parametrize("seed", range(0, WORLDS, 3))
def test_the_explanation_of_a_row_has_the_truth_of_the_evaluator(seed):
    """For every row and slot the explained tree comes to the evaluator's truth, with a reason if unknown."""
    rng = random.Random(seed)
    frame = worlds.frame(rng)
    policies = [replace(worlds.policy(rng, number), where=None, min_age=0.0) for number in range(3)]
    evaluator = Evaluator(policies, worlds.CATALOGUE, observer=lambda *_: None)
    evaluator.advance(frame)
    seen, _ = run(policies, [frame])
    explainer = Explainer(frame, evaluator.world)
    for number, policy in enumerate(policies):
        for column in evaluator.rows(number):
            for slot in range(frame.first, frame.last + 1, 4):
                truth, _ = seen[number, column.resource, column.start][slot]
                if truth == OUTSIDE:
                    continue
                explained = explainer.explain(policy.when, column, slot)

                assert explained.truth == truth, (policy.when, column, slot)
                assert (explained.unknown is not None) == (truth == UNKNOWN)
