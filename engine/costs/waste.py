"""What a finding wastes: the policy's `waste:` times the price of what its resource bills."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from stoploss.engine.costs.billing import GROUPS, Billing, Charge, told
from stoploss.engine.costs.book import NoPrice
from stoploss.engine.costs.claims import Claim, Parents, settle, total
from stoploss.engine.costs.model import Waste
from stoploss.engine.costs.money import money, price_text
from stoploss.engine.costs.priced import Prices
from stoploss.engine.evaluation.columns import Column, World
from stoploss.engine.evaluation.evaluator import RowStatus
from stoploss.engine.evaluation.kleene import TRUE, UNKNOWN, Bools, Truths
from stoploss.engine.model import ResourceId
from stoploss.rules.policy import Policy
from stoploss.rules.units import SHARE, format_duration, format_value

SAVING = frozenset({"terminate", "downscale", "release", "prune", "retain"})
"""Actions after which what was wasted is no longer paid for."""


class TrueSlots:
    """In which slots the rows of policies with a `waste:` or steps were true, for an evaluator to tell."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self._wanted = {number: p.name for number, p in enumerate(policies) if p.waste is not None or p.steps}
        self._blocks: dict[str, list[tuple[int, int, npt.NDArray[np.uint8]]]] = {}

    def __call__(self, number: int, first: int, truths: Truths, states: Truths) -> None:
        """Take the truths of a block."""
        if number in self._wanted:
            # A bit a slot: a week of a large fleet fits into memory.
            packed = np.packbits(truths == TRUE, axis=0)
            self._blocks.setdefault(self._wanted[number], []).append((first, len(truths), packed))

    def of(self, policy: str, row: int, first: int, slots: int) -> Bools:
        """Per slot from `first` on: the row was true."""
        out = np.zeros(slots, dtype=np.bool_)
        for begin, length, packed in self._blocks.get(policy, ()):
            if row < packed.shape[1]:
                bits = np.unpackbits(packed[:, row], count=length).astype(np.bool_)
                low, high = max(begin, first), min(begin + length, first + slots)
                if low < high:
                    out[low - first : high - first] = bits[low - begin : high - begin]
        return out


@dataclass(frozen=True, slots=True)
class Assessment:
    """The waste of one finding and its claims.

    `parents` says which leaf holds which, `months` of when the prices of the book are.
    """

    waste: Waste
    claims: tuple[Claim, ...] = ()
    parents: Parents = field(default_factory=dict)
    months: tuple[str, ...] = ()


class Assessor:
    """Waste of the rows of one frame."""

    def __init__(self, world: World, prices: Prices, slots: TrueSlots) -> None:
        self._world, self._prices, self._slots = world, prices, slots
        self._billing = Billing(world, prices)
        self._before: tuple[Claim, ...] = ()

    def assess(self, row: RowStatus, before: Sequence[Claim] = ()) -> Assessment | None:
        """What a row loses; None where its policy names no waste or it is in no episode.

        `before` is what it claimed in slots that the frame does not hold any more.
        """
        policy, frame = row.policy, self._prices.frame
        if policy.waste is None or row.since is None:
            return None
        at = self._world.tables[policy.each].index[(row.column.resource, row.column.start)]
        true = self._slots.of(policy.name, at, frame.first, frame.slots)
        true[: max(0, row.since - frame.first)] = False
        # What was lost then is not being lost now.
        self._before = tuple(replace(claim, now=0.0) for claim in before)
        if policy.waste.dimension == SHARE:
            return self._share(row, true, policy.waste.value)
        return self._amount(row, true, policy.waste.value * 3600.0)

    def _share(self, row: RowStatus, true: Bools, share: float) -> Assessment:
        """A share of the price of what is billed."""
        currency = self._prices.book.currency
        assert row.since is not None
        charges = self._billing.charges(row.column, row.since, true)
        if isinstance(charges, NoPrice) and self._before and self._billing.is_bare(row.column, row.since):
            # What it held is not known any more; what was lost of it stays.
            charges = []
        if isinstance(charges, NoPrice):
            return Assessment(Waste(None, None, currency, missing=charges.reason))
        sources = dict.fromkeys(charge.price.told for charge in charges)
        kinds = dict.fromkeys(charge.price.kind for charge in charges)
        how = f"{told(charges, self._prices.frame.last)} x {format_value(share, 'share')}"
        claims = [
            self._claim(row, true, charge, (charge.per_hour * share, charge.past * share))
            for charge in charges
        ]
        known = Waste(None, None, currency, "; ".join(sources), " and ".join(kinds), how)
        months = dict.fromkeys(charge.price.month for charge in charges if charge.price.month)
        return replace(self._settled(row, true, claims, known), months=tuple(months))

    def _amount(self, row: RowStatus, true: Bools, per_hour: float) -> Assessment:
        """An amount that the policy names, spread over what the resource bills."""
        assert row.policy.waste is not None
        kind, currency = self._prices.book.own_kind, self._prices.book.currency
        leaves = list(self._leaves(row.column)) or [row.column.resource]
        rate = per_hour / len(leaves)
        spans = tuple(self._spans(true, 0, self._prices.frame.last + 1))
        now = rate if row.truth == TRUE else 0.0
        claims = [Claim(leaf, rate, spans, now, kind) for leaf in leaves]
        how = f"{price_text(per_hour, 'h', currency)} as the policy says"
        known = Waste(None, None, currency, "waste: in the policy", kind, how)
        return self._settled(row, true, claims, known)

    def _leaves(self, column: Column) -> Iterator[ResourceId]:
        if column.resource.kind in GROUPS | {"host"}:
            last = self._prices.frame.last
            for gpu, start, end in self._billing.members("gpu", column, last):
                if start <= last < end:
                    yield gpu

    def _claim(self, row: RowStatus, true: Bools, charge: Charge, rates: tuple[float, float]) -> Claim:
        now, past = rates
        present = charge.start <= self._prices.frame.last < charge.end
        spans = tuple(self._spans(true, charge.start, charge.end))
        return Claim(
            charge.leaf, past, spans, now if present and row.truth == TRUE else 0.0, charge.price.kind
        )

    def _spans(self, true: Bools, start: int, end: int) -> Iterator[tuple[float, float]]:
        """The stretches of true slots within [start, end), in seconds since the epoch."""
        frame = self._prices.frame
        edges = np.flatnonzero(np.diff(np.concatenate([[False], true, [False]]).astype(np.int8)))
        for low, high in edges.reshape(-1, 2).tolist():
            begin, until = max(start, low + frame.first), min(end, high + frame.first)
            if begin < until:
                # Slot k covers (k-1, k].
                yield frame.time_of(begin - 1), frame.time_of(until - 1)

    def _settled(self, row: RowStatus, true: Bools, claims: list[Claim], known: Waste) -> Assessment:
        claims = [*self._before, *claims]
        parents = self._parents(claims)
        sums = total(settle(claims, parents))
        earlier = max((_seconds(claim) for claim in self._before), default=0.0)
        seconds = int(true.sum()) * self._prices.frame.resolution + earlier
        how = known.how
        if row.column.resource.kind == "log":
            # A log's budget is thought of by the day, as retention and ingest bills are.
            how += f" = {money(sums.now * 24, known.currency)}/day"
        known = replace(known, so_far=sums.so_far, how=f"{how}; true for {format_duration(seconds)}")
        if row.truth == UNKNOWN:
            waste = replace(known, missing="whether it still holds is unknown")
        else:
            saves = sums.now if any(step.action in SAVING for _, step in row.policy.numbered) else None
            waste = replace(known, per_hour=sums.now, saves_per_hour=saves)
        return Assessment(waste, tuple(claims), parents)

    def _parents(self, claims: list[Claim]) -> dict[ResourceId, ResourceId]:
        parents: dict[ResourceId, ResourceId] = {}
        for claim in claims:
            leaf, whole = claim.leaf, self._billing.parent(claim.leaf)
            while whole is not None and leaf not in parents:
                parents[leaf] = whole
                leaf, whole = whole, self._billing.parent(whole)
        return parents


def _seconds(claim: Claim) -> float:
    return sum(end - begin for begin, end in claim.spans)
