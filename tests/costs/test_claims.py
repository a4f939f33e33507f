"""Claims are settled so that nothing is counted twice, whatever overlaps and nests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoploss.engine.costs.claims import Claim, settle, total
from stoploss.engine.model import ResourceId

INSTANCE = ResourceId("instance", "i")
GPUS = [ResourceId("gpu", f"g{n}") for n in range(3)]
SLICE = ResourceId("gpu", "g0/slice")
ALONE = ResourceId("volume", "v")
PARENTS = {**dict.fromkeys(GPUS, INSTANCE), SLICE: GPUS[0]}
PRICES = {INSTANCE: 24.0, **dict.fromkeys(GPUS, 8.0), SLICE: 2.0, ALONE: 1.0}
HOUR = 3600.0
HOURS = 12


def claim(leaf: ResourceId, share: float, span: tuple[int, int], *, now: bool = False) -> Claim:
    """A share of a leaf's price over whole hours."""
    rate = PRICES[leaf] * share
    return Claim(leaf, rate, ((span[0] * HOUR, span[1] * HOUR),), rate if now else 0.0)


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    """Any claim on any leaf."""
    start = draw(st.integers(0, HOURS - 1))
    end = draw(st.integers(start + 1, HOURS))
    share = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    return claim(draw(st.sampled_from(list(PRICES))), share, (start, end), now=draw(st.booleans()))


def worth(leaf: ResourceId, claimed: Mapping[ResourceId, float]) -> float:
    """The larger of the claim on a leaf and what its parts come to."""
    parts = sum(worth(part, claimed) for part, whole in PARENTS.items() if whole == leaf)
    return max(claimed.get(leaf, 0.0), parts)


def slowly(items: Sequence[Claim]) -> tuple[float, float]:
    """Money now and so far, hour by hour."""
    roots = [leaf for leaf in PRICES if leaf not in PARENTS]

    def at(rates: list[tuple[ResourceId, float]]) -> float:
        claimed: dict[ResourceId, float] = {}
        for leaf, rate in rates:
            claimed[leaf] = max(claimed.get(leaf, 0.0), rate)
        return sum(worth(root, claimed) for root in roots)

    hours = [
        at([(c.leaf, c.per_hour) for c in items if c.spans[0][0] <= h * HOUR < c.spans[0][1]])
        for h in range(HOURS)
    ]
    return at([(c.leaf, c.now) for c in items]), sum(hours)


@given(st.lists(claims(), max_size=8))
def test_settled_claims_agree_with_an_hour_by_hour_sum(items: list[Claim]) -> None:
    """What all claims are granted together is the slow sum of the largest ones."""
    granted = total(settle(items, PARENTS))

    assert (granted.now, granted.so_far) == pytest.approx(slowly(items))


@given(st.lists(claims(), max_size=8))
def test_claims_never_add_up_beyond_the_price(items: list[Claim]) -> None:
    """However many findings there are, no root is charged more than it costs."""
    granted = total(settle(items, PARENTS))

    assert granted.now <= PRICES[INSTANCE] + PRICES[ALONE] + 1e-9
    assert granted.so_far <= HOURS * (PRICES[INSTANCE] + PRICES[ALONE]) + 1e-9


@given(st.lists(claims(), max_size=8))
def test_no_claim_is_granted_more_than_it_asked_for(items: list[Claim]) -> None:
    """A part of the whole goes to a claim only as far as that claim says."""
    for item, part in zip(items, settle(items, PARENTS), strict=True):
        assert part.now <= item.now + 1e-9
        assert part.so_far <= item.per_hour * (item.spans[0][1] - item.spans[0][0]) / HOUR + 1e-9


def test_an_instance_is_not_added_to_its_gpus() -> None:
    """Half the instance against three whole GPUs: the GPUs win, and the instance gets nothing."""
    items = [claim(INSTANCE, 0.5, (0, 2), now=True), *(claim(gpu, 1.0, (0, 2), now=True) for gpu in GPUS)]
    whole, *parts = settle(items, PARENTS)

    assert (whole.now, whole.so_far) == (0.0, 0.0)
    assert [part.so_far for part in parts] == [16.0, 16.0, 16.0]


def test_labels_that_go_in_a_circle_do_not_hang() -> None:
    """Two resources that each say they lie in the other are still settled."""
    a, b = GPUS[:2]
    granted = settle([claim(a, 1.0, (0, 1), now=True)], {a: b, b: a})

    assert total(granted).now == 8.0
