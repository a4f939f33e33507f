"""Signals by queries of the user's own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from stoploss.collectors.contract import CollectorError
from stoploss.collectors.prometheus_calls import Answer, Series
from stoploss.collectors.prometheus_options import Query
from stoploss.collectors.prometheus_scene import NOT_A_NUMBER, Scene, Told, target_of
from stoploss.collectors.prometheus_scene import words as source_of
from stoploss.engine.model import Bad, LabelValue, Reading, ResourceId
from stoploss.rules.catalogue import Signal, SignalKind, catalogue
from stoploss.rules.diagnostics import suggestion

_SELECTOR = re.compile(r'\s*[A-Za-z_:][\w:]*\s*(\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\})?\s*', re.ASCII)
_NAMED = re.compile(r"\{(\w+)\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Custom:
    """One query, with the signal that it tells and the kind of its resources."""

    place: str
    query: Query
    signal: Signal
    kind: str

    @property
    def alone(self) -> bool:
        """Whether the query is a series as it was scraped, of which the server knows the age."""
        return _SELECTOR.fullmatch(self.query.query) is not None

    def questions(self) -> dict[str, str]:
        """What the server is asked."""
        asked = {self.place: self.query.query}
        newest = self.query.newest or (f"timestamp({self.query.query})" if self.alone else None)
        return asked | ({f"{self.place} ages": newest} if newest else {})

    def told(self, values: Answer, ages: Answer | None, scene: Scene) -> Iterator[Told]:
        """Every reading that the query gives."""
        times: dict[object, float] = {}
        for item in ages.series if ages else ():
            key = item.key if self.query.newest is None else self._id(item)
            # Of several the oldest: what is made of it is no younger.
            times[key] = min(item.value, times.get(key, math.inf))
        unnamed: set[str] = set()
        for item in values.series:
            name = self._id(item)
            if name is None:
                unnamed |= {part for part in _NAMED.findall(self.query.id) if not item.labels.get(part)}
                continue
            reading: Reading = self._reading(item.value)
            if ages is not None:
                newest = times.get(item.key if self.query.newest is None else name)
                judged = scene.judged(item.value, newest)
                reading = judged if isinstance(judged, Bad) else reading
            if values.partial and not self.alone:
                reading = Bad("the server's answer is partial")
            labels: dict[str, LabelValue] = {
                label: item.labels.get(source) or None for label, source in self.query.labels.items()
            }
            target = target_of(item.labels)
            source = f"{self.place} ({source_of(item)})" if all(target) else self.place
            resource = ResourceId(self.kind, name)
            yield Told(resource, self.signal.name, reading, labels, source, target if all(target) else None)
        if unnamed:
            scene.note(f"{self.place}: series without {', '.join(sorted(unnamed))} are left out")

    def _id(self, item: Series) -> str | None:
        named = _NAMED.findall(self.query.id)
        if not all(item.labels.get(part) for part in named):
            return None
        return _NAMED.sub(lambda match: item.labels[match[1]], self.query.id)

    def _reading(self, value: float) -> Reading:
        value *= self.query.times
        # Of a loss that is not finite the loss verdict wants to know.
        return value if math.isfinite(value) or self.signal.kind is SignalKind.CURVE else NOT_A_NUMBER


def custom(number: int, query: Query) -> Custom:
    """A query that fits the catalogue; `number` counts from 1.

    Raises:
        CollectorError: its signal or kind does not.
    """
    known = catalogue()
    place = f"query {number} ({query.signal})"
    signal = known.get(query.signal)
    if signal is None:
        raise CollectorError(
            f"query {number}: there is no signal {query.signal!r}; {suggestion(query.signal, known)}"
        )
    if signal.is_text:
        raise CollectorError(f"{place}: the signal is a word, which a query cannot give")
    if signal.collector in ("derived", "runner"):
        raise CollectorError(f"{place}: stoploss works this signal out itself")
    if "money" in signal.unit:
        raise CollectorError(f"{place}: the signal is money, whose currency a query cannot give")
    kind = query.kind or signal.resources[0]
    if kind not in signal.resources:
        raise CollectorError(f"{place}: it is a signal of {' or '.join(signal.resources)}, not of {kind}")
    return Custom(place, query, signal, kind)
