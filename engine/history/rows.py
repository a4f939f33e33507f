"""Readings of many series as growing columns, one row per reading.

Recorded files and live looks both fill these columns.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from stoploss.engine.history.frame import (
    BAD,
    MINUS_INFINITY,
    NOT_A_NUMBER,
    PLUS_INFINITY,
    VALID,
    Floats,
    Ints,
)
from stoploss.engine.history.labels import LabelSet
from stoploss.engine.model import Bad, LabelValue, Reading, ResourceId
from stoploss.rules.catalogue import Signal, SignalKind

OTHER = "bad reading (other)"
"""The reason of bad readings beyond the number of distinct reasons that a frame can hold."""
_REASON_LENGTH = 80
_MANY_REASONS = 20_000


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows: time, series, value, state, label set (-1: nothing said), seconds to the next look.

    A state is a status of a frame, or BAD + the number of a reason, without the limit of a byte.
    """

    times: Floats
    series: Ints
    values: Floats
    states: Ints
    sets: Ints
    every: Floats | None


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows that are still being gathered; see `Block`."""

    series: array[int]
    values: array[float]
    states: array[int]
    sets: array[int]


class Rows:
    """Columns of readings, with numbers for the series, words, reasons and label sets in them."""

    def __init__(self) -> None:
        self.resources: dict[ResourceId, int] = {}
        self.signal_of: list[Signal] = []
        self.resource_of: list[int] = []
        self._series: dict[tuple[str, int], int] = {}
        self.words: dict[tuple[str, str], int] = {}
        self.reasons: dict[str, int] = {}
        self.label_sets: dict[LabelSet, int] = {}

    def series(self, signal: Signal, resource: ResourceId) -> int:
        """The number of a series."""
        owner = self.resources.setdefault(resource, len(self.resources))
        number = self._series.setdefault((signal.name, owner), len(self._series))
        if number == len(self.signal_of):
            self.signal_of.append(signal)
            self.resource_of.append(owner)
        return number

    def only(self, columns: Columns, others: Iterable[ResourceId]) -> Rows:
        """The numbers that columns use, given anew in the same order, with some more resources."""
        rows, resources = Rows(), list(self.resources)
        kept = set(others) | {resources[self.resource_of[number]] for number in set(columns.series)}
        rows.resources = {name: at for at, name in enumerate(name for name in resources if name in kept)}
        series = {
            number: rows.series(self.signal_of[number], resources[self.resource_of[number]])
            for number in sorted(set(columns.series))
        }
        sets, states = list(self.label_sets), list(self.reasons)
        label_sets = {at: rows.label_set(sets[at]) for at in sorted(set(columns.sets)) if at >= 0}
        reasons = {at: rows.reason(states[at - BAD]) for at in sorted(set(columns.states)) if at >= BAD}
        words = list(self.words)
        for at, number in enumerate(columns.series):
            if columns.states[at] == VALID and self.signal_of[number].is_text:
                word = words[int(columns.values[at])]
                columns.values[at] = float(rows.words.setdefault(word, len(rows.words)))
            columns.series[at] = series[number]
            columns.sets[at] = label_sets.get(columns.sets[at], -1)
            columns.states[at] = reasons.get(columns.states[at], columns.states[at])
        return rows

    @property
    def size(self) -> int:
        """How much is numbered."""
        return sum(map(len, (self.resources, self.signal_of, self.words, self.reasons, self.label_sets)))

    def label_set(self, labels: Iterable[tuple[str, LabelValue]]) -> int:
        """The number of what a row said about labels; -1 where it said nothing."""
        key = tuple(sorted(labels, key=lambda pair: pair[0]))
        return self.label_sets.setdefault(key, len(self.label_sets)) if key else -1

    def reason(self, text: str) -> int:
        """The state of a bad reading."""
        text = text.strip()[:_REASON_LENGTH] or "blank"
        if text not in self.reasons and len(self.reasons) >= _MANY_REASONS:
            text = OTHER
        return BAD + self.reasons.setdefault(text, len(self.reasons))

    def encode(self, signal: Signal, reading: Reading) -> tuple[float, int]:
        """Value and state of one reading; a reading that does not fit its signal is a bad one."""
        if isinstance(reading, Bad):
            return math.nan, self.reason(reading.reason)
        if signal.is_text:
            return self._encode_text(signal, reading if isinstance(reading, str) else f"{reading:g}")
        try:
            number = float(reading)
        except (ValueError, OverflowError):
            return math.nan, self.reason(str(reading))
        if math.isfinite(number):
            return number, VALID
        if signal.kind is not SignalKind.CURVE:
            return math.nan, self.reason("not a number")
        worst = -math.inf if signal.better == "higher" else math.inf
        if math.isnan(number):
            return worst, NOT_A_NUMBER
        return worst, PLUS_INFINITY if number > 0 else MINUS_INFINITY

    def _encode_text(self, signal: Signal, text: str) -> tuple[float, int]:
        text = text.strip()
        if not text:
            return math.nan, self.reason("blank")
        if signal.values and text not in signal.values:
            return math.nan, self.reason(f"unknown value {text}")
        return float(self.words.setdefault((signal.name, text), len(self.words))), VALID
