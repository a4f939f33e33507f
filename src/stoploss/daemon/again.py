"""Evaluates the stored slots once more, where what was carried on is damaged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from stoploss.daemon.history import DAY, Needs
from stoploss.engine.audit import audit
from stoploss.engine.carry import Carry
from stoploss.engine.history.frame import Frame
from stoploss.rules.catalogue import catalogue

if TYPE_CHECKING:
    from stoploss.daemon.history import History
    from stoploss.rules.policy import PolicySet


def again(policies: PolicySet, history: History) -> tuple[Carry | None, datetime | None]:
    """What is carried on after all slots that are stored, and since when there are any; else None.

    Day by day, so that no more than a day and the longest window is held at the same time.

    Raises:
        StoreError: the slots cannot be read.
    """
    back, end = Needs.of(policies).back, history.last()
    firsts = {r: first for r in back if (first := history.store(r).first_slot) is not None}
    if end is None or not firsts:
        return None, None
    begin = min((slot - 1) * resolution for resolution, slot in firsts.items())
    carry, at = Carry(), begin
    while at < end:
        at = min(at + DAY, end)

        def frames(resolution: float, until: float = at, known: Carry = carry) -> Frame:
            last = int(until // resolution)
            if resolution not in firsts or last < firsts[resolution]:
                return Frame(resolution, 1, 0, {}, {})
            begun = known.slots.get(resolution, 0) - int(back[resolution] // resolution)
            return history.store(resolution).read(max(firsts[resolution], begun), last)

        now = datetime.fromtimestamp(at, UTC)
        carry = audit(policies, frames, catalogue(), now=now, carry=carry).carried()
    return (carry if carry.slots else None), datetime.fromtimestamp(begin, UTC)
