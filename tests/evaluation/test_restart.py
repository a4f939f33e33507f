"""Carried state: a restart or a reload forgets nothing, and a changed condition starts anew."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from support.scenes import policy, recording

from stoploss.actions.registry import action_options
from stoploss.engine.evaluation.evaluator import Evaluator
from stoploss.engine.history.frame import Frame, LabelChange, Presence
from stoploss.engine.history.recorded import read_recorded
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load
from stoploss.rules.policy import Policy

UTIL = "gpu.utilization"
IDLE = f"max({UTIL}, 10m) < 5%"


def one_policy(folder: Path, text: str) -> Policy:
    path = folder / "p.yaml"
    path.write_text(text)
    result = load([path], catalogue=catalogue(), collector_options={}, action_options=action_options())
    assert result.policies is not None, result.diagnostics
    return result.policies.policies[0]


def one_frame(folder: Path, values: Iterable[object]) -> Frame:
    path = folder / "s.csv"
    path.write_text(recording({("gpu", "a", UTIL): values, ("gpu", "b", UTIL): values}))
    return read_recorded([path], catalogue=catalogue(), timezone="UTC").frame(60.0)


def carried_over(old: Evaluator, policies: list[Policy], past: Frame) -> Evaluator:
    """A new process: its windows warmed from stored samples, its lifecycles from JSON."""
    fresh = Evaluator(policies, catalogue())
    fresh.restore(json.loads(json.dumps(old.carry())))
    fresh.warm(past)
    return fresh


def states(evaluator: Evaluator) -> set[str]:
    return {row.state for row in evaluator.status()}


def test_P_B1_a_restart_keeps_what_for_had_counted(tmp_path: Path) -> None:
    """6 h pending for 5 h 50 m, 3 m down: it fires 10 m after, and down time is not counted."""
    rule = one_policy(tmp_path, policy(f"{UTIL} < 5%", **{"for": "6h"}))
    down = range(350, 353)
    frame = one_frame(tmp_path, [None if at in down else 0 for at in range(400)])
    before = Evaluator([rule], catalogue())
    past = frame.cut(frame.first, frame.first + 349)
    assert before.advance(past) == []

    after = carried_over(before, [rule], past)
    episodes = after.advance(frame.cut(frame.first + 353, frame.last))

    # Slots 0-349 were 350 true ones; the 361st is the 11th after the restart.
    assert {episode.slot - frame.first for episode in episodes} == {363}
    assert {episode.since for episode in episodes} == {frame.first}


def test_P_B2_a_restart_keeps_firing_with_a_short_for(tmp_path: Path) -> None:
    """An episode goes on under the same beginning; nothing fires a second time."""
    rule = one_policy(tmp_path, policy(f"{UTIL} < 5%", **{"for": "5m"}))
    frame = one_frame(tmp_path, [0] * 30)
    before = Evaluator([rule], catalogue())
    past = frame.cut(frame.first, frame.first + 19)
    assert [episode.event for episode in before.advance(past)] == ["fired", "fired"]

    after = carried_over(before, [rule], past)

    assert after.advance(frame.cut(frame.first + 20, frame.last)) == []
    assert states(after) == {"firing"}


@pytest.mark.parametrize(
    ("edit", "kept"),
    [
        ({}, True),
        ({"summary": "other words"}, True),
        ({"severity": "low", "contact": "me"}, True),
        ({"for": "20m"}, True),
        ({"when": f"max({UTIL},   600s) < 5.0%"}, True),
        ({"when": f"max({UTIL}, 10m) < 6%"}, False),
        ({"each": "host"}, False),
        ({"where": 'team == "x"'}, False),
    ],
)
def test_P_B4_a_reload_keeps_state_unless_the_condition_changed(
    tmp_path: Path, edit: dict[str, str], kept: bool
) -> None:
    """State is kept under each, where and the canonical condition; other edits do not touch it."""
    rule = one_policy(tmp_path, policy(IDLE, **{"for": "15m"}))
    frame = one_frame(tmp_path, [0] * 40)
    before = Evaluator([rule], catalogue())
    before.advance(frame)
    assert states(before) == {"firing"}

    when, each = edit.pop("when", IDLE), edit.pop("each", "gpu")
    edited = one_policy(tmp_path, policy(when, each=each, **{"for": "15m", **edit}))
    after = carried_over(before, [edited], frame)

    assert ("firing" in states(after)) is kept
    # A condition that was dropped is forgotten: bringing it back begins anew.
    again = carried_over(after, [rule], frame)
    assert ("firing" in states(again)) is kept


def test_what_is_forgotten_of_the_past_ends_no_episode(tmp_path: Path) -> None:
    """A row that seems to begin later, as its beginning is not known any more, goes on; its id stays."""
    rule = one_policy(tmp_path, policy(IDLE, **{"for": "5m"}))
    frame = one_frame(tmp_path, [0] * 60)
    before = Evaluator([rule], catalogue())
    before.advance(frame.cut(frame.first, frame.first + 39))
    since = {row.since for row in before.status()}

    late = frame.first + 20
    known = {r: Presence(late, (LabelChange(late, {}),)) for r in frame.resources}
    frame = replace(frame, resources=known)
    after = carried_over(before, [rule], frame.cut(late, frame.first + 39))

    assert after.advance(frame.cut(frame.first + 40, frame.last)) == []
    assert states(after) == {"firing"}
    assert {row.since for row in after.status()} == since


def test_a_new_tenant_takes_over_nothing_from_before_a_restart(tmp_path: Path) -> None:
    """A job that is new on a GPU does not go on with the episode of the one before, which has ended."""
    rule = one_policy(tmp_path, policy(IDLE, **{"for": "5m"}))
    frame = one_frame(tmp_path, [0] * 60)
    begin, change = frame.first, frame.first + 40

    def owned(*changes: tuple[int, str]) -> Frame:
        said = tuple(LabelChange(slot, {"job": job}) for slot, job in changes)
        return replace(frame, resources={r: Presence(begin, said) for r in frame.resources})

    before = Evaluator([rule], catalogue())
    before.advance(owned((begin, "a")).cut(begin, change - 1))
    assert states(before) == {"firing"}

    both = owned((begin, "a"), (change, "b"))
    after = carried_over(before, [rule], both.cut(begin, change - 1))
    episodes = after.advance(both.cut(change, change))

    assert {episode.event for episode in episodes} == {"left"}
    assert "firing" not in states(after)


def test_rows_that_are_over_are_not_carried(tmp_path: Path) -> None:
    """What ended before the newest slot takes no place in what is carried on."""
    rule = one_policy(tmp_path, policy(IDLE))
    frame = one_frame(tmp_path, [0] * 40)
    gone = {
        r: replace(presence, absences=((frame.first + 10, None),))
        for r, presence in frame.resources.items()
        if r.id == "b"
    }
    evaluator = Evaluator([rule], catalogue())
    evaluator.advance(replace(frame, resources={**frame.resources, **gone}))

    (rows,) = evaluator.carry()["policies"].values()
    assert [row[:2] for row in rows] == [["gpu", "a"]]


def test_state_of_another_version_or_resolution_is_refused(tmp_path: Path) -> None:
    """What cannot be continued is an error and not a silent new start."""
    rule = one_policy(tmp_path, policy(IDLE))
    state = Evaluator([rule], catalogue()).carry()

    with pytest.raises(ValueError, match="version"):
        Evaluator([rule], catalogue()).restore({**state, "version": 99})
    with pytest.raises(ValueError, match=r"60\.0 s"):
        Evaluator([rule], catalogue(), resolution=300.0).restore(state)
