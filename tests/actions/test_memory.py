"""Who is told what, and how often."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoploss.engine.alert_memory import (
    GIVE_UP,
    INTERVAL,
    PUSH_BACK,
    Group,
    Memory,
    Wanted,
    failed,
    step,
    told,
)

MINUTE = 60.0


def wanted(
    finding: str = "f-1", to: str = "ml", repeat: float | None = None, resource: str = "job 1"
) -> Wanted:
    return Wanted(finding, to, "idle-gpu", resource, repeat)


class Told:
    """Steps a memory that is written and read back each time, and delivers everything."""

    def __init__(self) -> None:
        self.memory, self.now = Memory(), 0.0
        self.sent: list[tuple[float, Group]] = []

    def tick(self, *items: Wanted, minutes: float = 1.0) -> tuple[Group, ...]:
        self.now += minutes * MINUTE
        memory = Memory.from_json(json.loads(json.dumps(self.memory.as_json())))
        memory, groups = step(memory, items, self.now)
        for group in groups:
            memory = told(memory, group, self.now)
            self.sent.append((self.now, group))
        self.memory = memory
        return groups

    def minutes(self) -> list[tuple[float, int, int]]:
        """Minute, firing and resolved of each message."""
        return [(at / MINUTE, len(group.firing), len(group.resolved)) for at, group in self.sent]


def test_P_D21_one_notice_then_at_the_repeat_interval() -> None:
    """A finding that fires every minute is told once, and again when `repeat` has passed."""
    run = Told()
    for _ in range(125):
        run.tick(wanted(repeat=3600.0))

    assert run.minutes() == [(1, 1, 0), (61, 1, 0), (121, 1, 0)]


def test_P_D21_without_repeat_it_is_told_once() -> None:
    """A step without `repeat` is told once for as long as it lasts."""
    run = Told()
    for _ in range(500):
        run.tick(wanted())

    assert run.minutes() == [(1, 1, 0)]


def test_P_D21_resolved_once() -> None:
    """That it is over is told once, also over many steps."""
    run = Told()
    run.tick(wanted())
    for _ in range(200):
        run.tick()

    assert run.minutes() == [(1, 1, 0), (2, 0, 1)]
    assert run.memory == Memory()


def test_P_D21_flapping_is_folded() -> None:
    """What comes and goes each minute is told once per interval, with how often it came back."""
    run = Told()
    for number in range(70):
        run.tick(*([wanted(f"f-{number}")] if number % 2 == 0 else []))

    assert run.minutes() == [(1, 1, 0), (2, 0, 1), (61, 1, 0), (62, 0, 1)]
    assert run.sent[2][1].returns == 30


def test_P_D21_a_restart_resends_nothing() -> None:
    """A memory that was written down and read back tells nothing again."""
    memory, groups = step(Memory(), [wanted()], 60.0)
    memory = told(memory, groups[0], 60.0)
    again = Memory.from_json(json.loads(json.dumps(memory.as_json())))

    assert again == memory
    assert step(again, [wanted()], 120.0)[1] == ()


def test_one_message_per_recipient_and_policy() -> None:
    """What is due together for one recipient is one message; another recipient has their own."""
    items = [wanted("f-1"), wanted("f-2", resource="job 2"), wanted("f-1", to="owner (user alice)")]
    groups = step(Memory(), items, 60.0)[1]

    assert [(item.recipient, item.firing) for item in groups] == [
        ("ml", ("f-1", "f-2")),
        ("owner (user alice)", ("f-1",)),
    ]
    assert groups[0].key != groups[1].key


def test_a_group_names_those_that_still_fire() -> None:
    """The end of one finding says which others of the group go on."""
    run = Told()
    run.tick(wanted("f-1"), wanted("f-2", resource="job 2"))
    (group,) = run.tick(wanted("f-2", resource="job 2"))

    assert (group.firing, group.resolved, group.lasting) == ((), ("f-1",), ("f-2",))


def test_what_was_never_told_has_no_end() -> None:
    """A finding that could not be told of and is over is forgotten."""
    memory, groups = step(Memory(), [wanted()], 60.0)
    memory = failed(memory, groups[0], 60.0, retry=True)

    assert step(memory, [], 120.0) == (Memory(), ())


@pytest.mark.parametrize(("retry", "after"), [(True, MINUTE), (False, PUSH_BACK)])
def test_what_was_not_delivered_is_due_again(retry: bool, after: float) -> None:
    """A passing failure is tried at the next step, a lasting one an hour later."""
    memory, groups = step(Memory(), [wanted()], 0.0)
    memory = failed(memory, groups[0], 0.0, retry=retry)

    assert step(memory, [wanted()], after)[1] == groups
    if not retry:
        assert step(memory, [wanted()], after - 1)[1] == ()


def test_an_end_is_given_up_after_a_day() -> None:
    """An end that cannot be delivered is tried for a day and then forgotten."""
    run = Told()
    run.tick(wanted())
    memory, groups = step(run.memory, [], 120.0)
    assert groups[0].resolved == ("f-1",)

    memory, groups = step(memory, [], 120.0 + GIVE_UP)
    assert groups[0].resolved == ("f-1",)
    assert step(memory, [], 121.0 + GIVE_UP) == (Memory(), ())


@pytest.mark.parametrize("rows", [[{}], [{"wanted": {}}], [{"wanted": {"finding": "f"}, "x": 1}], [3]])
def test_a_memory_that_cannot_be_read_is_an_error(rows: list[dict[str, object]]) -> None:
    """A damaged memory is refused, since an empty one would tell everything again."""
    with pytest.raises(ValueError, match="not a memory of alerts"):
        Memory.from_json(rows)


def episodes(fires: Iterable[bool]) -> list[list[Wanted]]:
    """What fires in each minute; each episode has an id of its own."""
    ticks: list[list[Wanted]] = []
    number, before = 0, False
    for now in fires:
        number += now and not before
        ticks.append([wanted(f"f-{number}")] if now else [])
        before = now
    return ticks


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), max_size=150), st.booleans())
def test_however_it_flaps_messages_are_few_and_end_true(fires: list[bool], last: bool) -> None:
    """Messages that it fires are an interval apart, ends are no more, and the last message is true."""
    run = Told()
    quiet = [last] * int(INTERVAL / MINUTE + 2)
    for items in episodes([*fires, *quiet]):
        run.tick(*items)

    starts = [at for at, group in run.sent if group.firing]
    assert all(b - a >= INTERVAL for a, b in pairwise(starts))
    told_firing = [bool(group.firing) for _, group in run.sent]
    assert told_firing == [number % 2 == 0 for number in range(len(told_firing))]
    assert (told_firing[-1] if told_firing else False) == last
