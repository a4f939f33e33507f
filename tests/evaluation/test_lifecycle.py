"""pending, firing, holding, resolved: counted in slots, unknown skipped."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracle
from support.worlds import HERE

from stoploss.engine.evaluation.kleene import FALSE, OUTSIDE, TRUE, UNKNOWN
from stoploss.engine.evaluation.lifecycle import STATES, Lifecycle
from stoploss.rules.policy import Policy

POLICY = Policy("p", "gpu", HERE)
T, F, U, O = TRUE, FALSE, UNKNOWN, OUTSIDE  # noqa: E741


def run(truths, *, pending=0, hold=0, lost=1440, cuts=()):
    """States per slot (told at the end of each piece) and transitions of rows of truths."""
    truths = np.array(truths, dtype=np.int8).T
    life = Lifecycle.empty(pending, hold, lost)
    life.widen(truths.shape[1], 100)
    edges = [0, *sorted(set(cuts)), len(truths)]
    states, transitions = {}, []
    for low, high in itertools.pairwise(edges):
        if low < high:
            transitions += life.advance(100 + low, truths[low:high])
            states[high - 1] = [STATES[state] for state in life.states()]
    return states, sorted((t.row, t.slot, t.event, t.since) for t in transitions)


def by_slot(truths, **options):
    """The states of one row at every slot."""
    states, transitions = run([truths], cuts=range(len(truths)), **options)
    return [states[slot][0] for slot in range(len(truths))], transitions


@settings(max_examples=600, deadline=None)
@given(
    rows=st.integers(1, 40).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from([T, T, F, U, O]), min_size=n, max_size=n), min_size=1, max_size=4
        )
    ),
    pending=st.integers(0, 6),
    hold=st.integers(0, 4),
    cuts=st.sets(st.integers(1, 39)),
)
def test_any_split_gives_the_states_and_episodes_of_the_obvious_loop(rows, pending, hold, cuts):
    """Blocks of any length agree with a loop over single slots."""
    cuts = {cut for cut in cuts if cut < len(rows[0])}
    policy = replace(POLICY, for_seconds=60.0 * pending, hold_seconds=60.0 * hold)
    expected = [oracle.lifecycle(policy, row) for row in rows]
    states, transitions = run(rows, pending=pending, hold=hold, cuts=cuts)
    ticks, tick_transitions = run(rows, pending=pending, hold=hold, cuts=range(len(rows[0])))

    for slot, seen in {**ticks, **states}.items():
        assert seen == [row[slot] for row in expected]
    assert transitions == tick_transitions


def test_for_of_ten_slots_fires_at_the_eleventh_true_one():
    """`for: 10m` at 1m fires when the condition was true for more than ten minutes."""
    states, transitions = by_slot([T] * 12, pending=10)

    assert states == ["pending"] * 10 + ["firing"] * 2
    assert transitions == [(0, 110, "fired", 100)]


def test_unknown_slots_neither_count_nor_reset():
    """A gap while pending costs time and nothing else."""
    states, _ = by_slot([T, T, U, U, T], pending=2)

    assert states == ["pending", "pending", "pending", "pending", "firing"]


def test_a_false_slot_resets_what_is_pending():
    """Pending starts anew after a false slot."""
    states, _ = by_slot([T, T, F, T, T, T], pending=2)

    assert states == ["pending", "pending", "inactive", "pending", "pending", "firing"]


def test_hold_of_five_slots_resolves_at_the_sixth_false_one():
    """`hold: 5m` keeps an episode firing for five false minutes."""
    states, transitions = by_slot([T] + [F] * 7, hold=5)

    assert states == ["firing"] + ["holding"] * 5 + ["inactive"] * 2
    assert transitions[-1] == (0, 106, "resolved", 100)


def test_what_becomes_true_again_within_hold_is_one_episode():
    """No flapping: the episode keeps its beginning."""
    states, transitions = by_slot([T, F, T, F, F], hold=1)

    assert states == ["firing", "holding", "firing", "holding", "inactive"]
    assert [(event, since) for _, _, event, since in transitions] == [("fired", 100), ("resolved", 100)]


def test_a_row_that_leaves_resolves_at_once_whatever_hold_says():
    """Owner changed, gone or no longer selected: the episode ends with the row."""
    states, transitions = by_slot([T, T, O, O], hold=5)

    assert states == ["firing", "firing", "inactive", "inactive"]
    assert transitions[-1][2] == "left"


@pytest.mark.parametrize("cuts", [(), range(1, 9)])
def test_a_row_unknown_for_a_day_is_lost_from_sight(cuts):
    """After a day of unknown (here six slots) the episode ends as lost, and begins anew later."""
    truths = [T, U, U, U, U, U, U, T, T]
    _, transitions = run([truths], pending=1, lost=6, cuts=cuts)
    assert transitions == [(0, 108, "fired", 107)]

    _, transitions = run([truths], lost=6, cuts=cuts)
    assert transitions == [(0, 100, "fired", 100), (0, 106, "lost", 100), (0, 107, "fired", 107)]


def test_P_A11_a_gap_while_firing_is_one_episode():
    """Firing, five slots without data, still true: nothing resolves, nothing fires twice."""
    states, transitions = by_slot([T, T, U, U, U, U, U, T], pending=1)

    assert states[1:] == ["firing"] * 7
    assert [event for _, _, event, _ in transitions] == ["fired"]
