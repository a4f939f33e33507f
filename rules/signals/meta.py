"""Signals about looking itself: what is there, and whether collectors could see."""

from __future__ import annotations

from stoploss.rules.catalogue import KINDS
from stoploss.rules.signals.family import Family

_ANY = Family(KINDS, "inventory")
_COLLECTOR = Family(("collector",), "runner")

SIGNALS = (
    _ANY.gauge("resource.present", "1", "0: an inventory was read that did not hold it."),
    _COLLECTOR.gauge("collector.success", "1", "1 when the look succeeded, 0 when it failed."),
    _COLLECTOR.gauge("collector.duration", "s", "Time that the look took."),
)
