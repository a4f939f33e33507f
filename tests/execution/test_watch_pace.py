"""What a step has brought, held against an account that anybody could keep on paper."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stoploss.engine.execution.watch import _worse
from stoploss.engine.execution.watch_pace import SEEN, judge, pace_of, said
from stoploss.engine.execution.watching import Watching
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import ResourceId
from stoploss.engine.planning.pace import Pace
from stoploss.engine.planning.watched import Sighted

AT = datetime(2026, 12, 1, 14, tzinfo=UTC)
MONEY = st.floats(0.01, 1e4)
SPEED = st.floats(1.0, 1e6)
NOISE = st.floats(0.0, 0.5)
MIRRORED = {"better": "worse", "worse": "better", "same": "same"}


def pace(per_hour: float = 4.0, speed: float = 6000.0, noise: float = 0.0) -> Pace:
    """A pace of which everything is known, over many hours of steps."""
    return Pace("j", AT, 3600.0, "USD", per_hour, speed, noise, 1e9, counted=True)


def account(of: Pace, steps: float = 1000.0) -> float:
    """Money for some steps: the hours that they take, at the price of an hour."""
    assert of.steps_per_hour
    assert of.per_hour is not None
    return steps / of.steps_per_hour * of.per_hour


paces = st.builds(pace, MONEY, SPEED, NOISE)


@given(paces, paces)
def test_it_is_never_worse_where_the_account_is_not_dearer(before: Pace, after: Pace) -> None:
    """Slower or not, noisy or not: what costs no more per step has not backfired; nor is a loss better."""
    found = judge(before, after, None)

    if account(after) <= account(before):
        assert found.state != "worse"
    if account(after) >= account(before):
        assert found.state != "better"


@given(st.builds(pace, MONEY, SPEED), st.builds(pace, MONEY, SPEED))
def test_without_noise_it_is_the_account(before: Pace, after: Pace) -> None:
    """More than 5 % dearer is worse, and what an hour saves is what its steps would have cost before."""
    found = judge(before, after, 1.0)
    dearer = account(after) / account(before)
    assume(min(abs(dearer - 1.05), abs(dearer - 1 / 1.05)) > 1e-9)
    speed, per_hour = after.steps_per_hour or 0.0, after.per_hour or 0.0

    assert found.state == ("worse" if dearer > 1.05 else "better" if dearer < 1 / 1.05 else "same")
    assert found.got == pytest.approx(account(before, speed) - per_hour, rel=1e-6, abs=1e-6 * per_hour)


@given(paces, paces)
def test_seen_the_other_way_round_it_is_the_other_way_round(before: Pace, after: Pace) -> None:
    """What one way is worse is better the other way, and what one saves the other loses."""
    one, other = judge(before, after, None), judge(after, before, None)

    assert other.state == MIRRORED[one.state]
    assert (one.got or 0.0) * (other.got or 0.0) <= 0.0


LACKING = (
    {"per_hour": None, "missing": "no price"},
    {"steps_per_hour": None, "noise": None, "seen": None, "missing": "stale"},
    {"noise": None},
    {"currency": "EUR"},
)


@given(paces, paces, st.sampled_from(LACKING), st.booleans())
def test_what_is_not_known_is_never_worse_nor_better(
    before: Pace, after: Pace, lacking: dict[str, object], first: bool
) -> None:
    """A bill, steps or their spread is missing before or since, or the currency is another."""
    changed = replace(before if first else after, **lacking)  # type: ignore[arg-type]
    found = judge(changed if first else before, after if first else changed, 2.0)

    assert (found.state, found.got) == ("unknown", None)
    assert judge(None, after, None).state == judge(before, None, None).state == "unknown"


@given(paces, paces, st.floats(0.0, 1.0))
def test_too_few_steps_since_say_nothing(before: Pace, after: Pace, share: float) -> None:
    """Fewer than a fifth of the steps of an hour before."""
    few = replace(after, seen=share * SEEN * 0.999 * (before.steps_per_hour or 0.0))

    assert judge(before, few, None).state == "unknown"


@given(paces, paces, st.sampled_from([None, 0.0]))
def test_without_steps_before_there_is_only_money_per_hour(
    before: Pace, after: Pace, steps: float | None
) -> None:
    """It is said so, and it is neither worse nor better."""
    still = replace(before, steps_per_hour=steps, noise=None, seen=steps, counted=steps is not None)
    found = judge(still, after, None)

    assert found.state == "hours"
    assert found.got == pytest.approx((before.per_hour or 0.0) - (after.per_hour or 0.0))
    assert "money per hour alone" in found.words


@given(paces, st.sampled_from(LACKING))
def test_a_line_of_the_ledger_holds_a_pace_whole(one: Pace, lacking: dict[str, object]) -> None:
    """Written as JSON and read back it is the same."""
    import json

    for item in (one, replace(one, **lacking)):  # type: ignore[arg-type]
        assert pace_of(json.loads(json.dumps(said(item)))) == item
    assert (pace_of(None), said(None)) == (None, None)


def test_the_words_say_what_was_promised_and_got() -> None:
    """With the figures of both, and the speed."""
    assert judge(pace(), pace(4.0, 2400.0), 2.0).words == (
        "promised $2.00/h, got -$2.40/h: 0.0006667 a step before, 0.001667 a step now, at 2,400 steps an hour"
    )
    assert judge(pace(), None, None).words == "promised no figure, got no figure: its pace since is not known"


@pytest.mark.parametrize(
    ("minutes", "now", "earlier", "agree"),
    [
        (35, 2400.0, 2400.0, True),
        (34, 2400.0, 2400.0, False),
        (60, 2400.0, 6000.0, False),
        (60, 6000.0, 2400.0, False),
        (60, 2400.0, None, False),
    ],
)
def test_two_looks_must_agree(minutes: int, now: float, earlier: float | None, agree: bool) -> None:
    """One look, or one that comes too soon, decides nothing."""
    evidence = {"pace": said(pace())}
    line = Entry(at=AT, kind="intent", resource=ResourceId("job", "j"), evidence=evidence)
    item = Watching(line, AT)
    seen = Sighted(pace(speed=now), None if earlier is None else pace(speed=earlier))
    found = judge(item.before, seen.now, None)

    assert _worse(item, seen, found, timedelta(minutes=minutes)) is agree
