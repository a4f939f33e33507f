"""The signal catalogue: every signal a policy can name, with its unit and meaning.

The table itself lies in `rules/signals/`, one module per family; this module holds its
types. A signal stands here even where no collector of this version feeds it, so that the
language, the lint and the tests know it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from stoploss.rules.units import Dimension, unit

KINDS = (
    "gpu",
    "host",
    "instance",
    "job",
    "experiment",
    "volume",
    "bucket",
    "checkpoint",
    "log",
    "service",
    "team",
    "process",
    "collector",
)
"""Kinds of resources. `process` and `collector` are ours: what runs, and what looks."""

PARENTS: Mapping[str, tuple[str, ...]] = {
    "process": ("job", "gpu", "host"),
    "gpu": ("job", "host"),
    "checkpoint": ("job",),
    "log": ("job",),
    "volume": ("job", "instance"),
    "host": ("job", "instance"),
    "instance": ("job",),
    "job": ("experiment", "team"),
    "experiment": ("team",),
    "bucket": ("team",),
    "service": ("team",),
}
"""Kind -> the kinds that can own it, through the label of that name."""

IDENTITY_LABELS = ("job", "host", "instance", "team", "user", "env", "class", "stage")
"""Labels that conditions name bare; every other label is written label.NAME."""


class SignalKind(StrEnum):
    """How samples of a signal meet in a slot and which functions fit."""

    GAUGE = "gauge"
    COUNTER = "counter"
    EVENT = "event"
    STATE = "state"
    TEXT = "text"
    CURVE = "curve"
    ATTRIBUTE = "attribute"


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal.

    Attributes:
        name: dotted name.
        kind: how it is folded into slots.
        unit: unit of recorded values and samples (`share`, `1`, `B`, `W`, `s`, `GPU-hours`, …);
            `text` for STATE, TEXT and textual attributes.
        resources: kinds of resources that carry it, the most usual first.
        meaning: one line for people.
        collector: name of the collector that provides it, or `derived` where the engine does.
        values: the closed list of a STATE; empty elsewhere.
        rewinds: a COUNTER that may legally go back (a resumed run's step): going back adds nothing.
        better: `lower` or `higher` for a CURVE, else None.
        otel: the OpenTelemetry metric that means the same, where there is one.
    """

    name: str
    kind: SignalKind
    unit: str
    resources: tuple[str, ...]
    meaning: str
    collector: str
    values: tuple[str, ...] = ()
    rewinds: bool = False
    better: str | None = None
    otel: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether values are words rather than numbers."""
        return self.unit == "text"

    @property
    def factor(self) -> float:
        """Base units per catalogue unit."""
        return 1.0 if self.is_text else unit(self.unit)[0]

    @property
    def dimension(self) -> Dimension:
        """The dimension of its values; a plain number for text."""
        return Dimension() if self.is_text else unit(self.unit)[1]

    @property
    def is_attribute(self) -> bool:
        """Whether it has no age and no windows."""
        return self.kind is SignalKind.ATTRIBUTE


class Catalogue(Mapping[str, Signal]):
    """Signals by name; iteration is in order of names."""

    def __init__(self, signals: tuple[Signal, ...]) -> None:
        self._signals: dict[str, Signal] = {}
        for signal in sorted(signals, key=lambda item: item.name):
            if signal.name in self._signals:
                raise ValueError(f"signal {signal.name} stands twice in the catalogue")
            self._signals[signal.name] = signal

    def __getitem__(self, name: str) -> Signal:
        return self._signals[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._signals)

    def __len__(self) -> int:
        return len(self._signals)

    def of_collector(self, collector: str) -> tuple[Signal, ...]:
        """The signals that a collector provides."""
        return tuple(signal for signal in self._signals.values() if signal.collector == collector)


@cache
def catalogue() -> Catalogue:
    """The catalogue of this version."""
    from stoploss.rules.signals import SIGNALS

    return Catalogue(SIGNALS)


@cache
def path(below: str, above: str) -> tuple[str, ...] | None:
    """The shortest chain of kinds from `below` up to `above`, both included, or None.

    `path("gpu", "team")` is `("gpu", "job", "team")`; a kind reaches itself.
    """
    frontier: list[tuple[str, ...]] = [(below,)]
    seen = {below}
    while frontier:
        chain = frontier.pop(0)
        if chain[-1] == above:
            return chain
        for parent in PARENTS.get(chain[-1], ()):
            if parent not in seen:
                seen.add(parent)
                frontier.append((*chain, parent))
    return None
