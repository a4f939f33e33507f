"""A short way to write signals that share their resources and their collector."""

from __future__ import annotations

from dataclasses import dataclass

from stoploss.rules.catalogue import Signal, SignalKind


@dataclass(frozen=True, slots=True)
class Family:
    """Signals of the same resources, provided by the same collector."""

    resources: tuple[str, ...]
    collector: str

    def _signal(
        self, kind: SignalKind, name: str, unit: str, meaning: str, otel: str | None = None
    ) -> Signal:
        return Signal(name, kind, unit, self.resources, meaning, self.collector, otel=otel)

    def gauge(self, name: str, unit: str, meaning: str, otel: str | None = None) -> Signal:
        """A level that goes up and down."""
        return self._signal(SignalKind.GAUGE, name, unit, meaning, otel)

    def counter(
        self, name: str, unit: str, meaning: str, otel: str | None = None, *, rewinds: bool = False
    ) -> Signal:
        """A total that only grows, apart from resets; `rewinds`: it may legally go back."""
        return Signal(
            name,
            SignalKind.COUNTER,
            unit,
            self.resources,
            meaning,
            self.collector,
            rewinds=rewinds,
            otel=otel,
        )

    def event(self, name: str, meaning: str) -> Signal:
        """How often something happened since the look before."""
        return self._signal(SignalKind.EVENT, name, "1", meaning)

    def state(self, name: str, meaning: str, values: tuple[str, ...]) -> Signal:
        """A word out of a closed list."""
        return Signal(name, SignalKind.STATE, "text", self.resources, meaning, self.collector, values)

    def text(self, name: str, meaning: str) -> Signal:
        """A word out of an open list."""
        return self._signal(SignalKind.TEXT, name, "text", meaning)

    def curve(self, name: str, meaning: str, *, better: str) -> Signal:
        """A figure over training steps, of which non-finite values are kept."""
        return Signal(name, SignalKind.CURVE, "1", self.resources, meaning, self.collector, better=better)

    def attribute(self, name: str, unit: str, meaning: str, otel: str | None = None) -> Signal:
        """A property without an age."""
        return self._signal(SignalKind.ATTRIBUTE, name, unit, meaning, otel)
