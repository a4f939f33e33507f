"""What one look saw, resource by resource, and why something was not seen."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stoploss.engine.model import UNREADABLE, Bad, LabelValue, Reading, ResourceId

if TYPE_CHECKING:
    from stoploss.collectors.runner import CollectorRun
    from stoploss.engine.audit import CollectorStatus
    from stoploss.rules.catalogue import Signal

OURS = ("runner", "inventory")
"""Providers that are no collectors: what they say is about looking itself."""


@dataclass(frozen=True, slots=True)
class SeenSignal:
    """One signal of one resource: its reading in the catalogue unit, or why there is none."""

    signal: Signal
    reading: Reading


@dataclass(frozen=True, slots=True)
class SeenResource:
    """One resource with its labels and all that was asked of it."""

    resource: ResourceId
    labels: Mapping[str, LabelValue]
    signals: tuple[SeenSignal, ...]


@dataclass(frozen=True, slots=True)
class SeenCollector:
    """How the look of a collector went: `state` is ok, not here, or failed."""

    name: str
    state: str
    reason: str | None = None
    seconds: float | None = None
    readings: int = 0
    bad: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Unseen:
    """Signals that were seen of nothing, with the one reason they share."""

    collector: str
    reason: str
    signals: tuple[Signal, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """All that one look has to say; `at` is its instant."""

    at: datetime
    resources: tuple[SeenResource, ...]
    collectors: tuple[SeenCollector, ...]
    unseen: tuple[Unseen, ...]
    notes: tuple[str, ...]


def seen(
    runs: Sequence[CollectorRun],
    signals: Sequence[Signal],
    *,
    at: float,
    unbuilt: Sequence[CollectorStatus] = (),
    known: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Seen:
    """Sort the samples of some runs by resource, as far as they are of `signals`.

    Args:
        runs: one run a collector.
        signals: what is asked for.
        at: the instant of the look, in seconds since the epoch.
        unbuilt: collectors that could not start.
        known: every collector of this installation.
        notes: what else is to be said.
    """
    asked = {signal.name: signal for signal in signals}
    found: dict[ResourceId, dict[str, SeenSignal]] = {}
    labels: dict[ResourceId, dict[str, LabelValue]] = {}
    for run in runs:
        for sample in run.look.samples if run.look else ():
            if sample.signal in asked:
                entry = SeenSignal(asked[sample.signal], sample.reading)
                found.setdefault(sample.resource, {})[sample.signal] = entry
                labels.setdefault(sample.resource, {}).update(sample.labels or {})
    order = {name: number for number, name in enumerate(asked)}
    resources = tuple(
        SeenResource(
            resource, labels[resource], tuple(sorted(said.values(), key=lambda s: order[s.signal.name]))
        )
        for resource, said in sorted(found.items())
        if resource.kind != "collector"
    )
    collectors = collector_states(runs, unbuilt)
    given = {name for said in found.values() for name in said}
    missing = [signal for signal in signals if signal.name not in given and signal.collector not in OURS]
    when = datetime.fromtimestamp(at, UTC)
    return Seen(when, resources, collectors, tuple(_unseen(missing, collectors, known)), tuple(notes))


def collector_states(
    runs: Iterable[CollectorRun], unbuilt: Iterable[CollectorStatus]
) -> tuple[SeenCollector, ...]:
    """How each look went, with its bad readings by reason."""
    told = [SeenCollector(item.name, "failed", item.reason) for item in unbuilt]
    for run in runs:
        state = "not here" if run.not_here else "ok" if run.ok else "failed"
        samples = [s for s in run.look.samples if s.resource.kind != "collector"] if run.look else []
        bad: dict[str, dict[str, None]] = {}
        for sample in samples:
            if isinstance(sample.reading, Bad):
                bad.setdefault(sample.reading.reason, {})[sample.signal] = None
        reasons = {reason: tuple(names) for reason, names in bad.items()}
        told.append(SeenCollector(run.name, state, run.reason, run.duration_s, len(samples), reasons))
    return tuple(told)


def _unseen(
    missing: Iterable[Signal], collectors: Sequence[SeenCollector], known: Sequence[str]
) -> Iterable[Unseen]:
    by_collector: dict[str, list[Signal]] = {}
    for signal in missing:
        by_collector.setdefault(signal.collector, []).append(signal)
    states = {item.name: item for item in collectors}
    for name, signals in by_collector.items():
        yield Unseen(name, _why(name, states.get(name), known), tuple(signals))


def _why(name: str, state: SeenCollector | None, known: Sequence[str]) -> str:
    if name == "derived":
        return "worked out by the engine, not looked at"
    if state is None:
        return "not named under collectors:" if name in known else "no such collector in this version"
    if state.state == "ok":
        return "looked, and found none"
    return f"{state.state}: {state.reason}"


def as_json(told: Seen) -> str:
    """Everything for programs; a reading that is no number is null with its reason."""
    value = {
        "version": 1,
        "at": f"{told.at:%Y-%m-%dT%H:%M:%SZ}",
        "resources": [
            {
                "kind": item.resource.kind,
                "id": item.resource.id,
                "labels": {
                    name: "?" if label is UNREADABLE else label for name, label in sorted(item.labels.items())
                },
                "signals": [_reading(entry) for entry in item.signals],
            }
            for item in told.resources
        ],
        "collectors": [
            {
                "name": item.name,
                "state": item.state,
                "reason": item.reason,
                "seconds": None if item.seconds is None else round(item.seconds, 3),
                "readings": item.readings,
                "bad": {reason: list(names) for reason, names in (item.bad or {}).items()},
            }
            for item in told.collectors
        ],
        "unseen": [
            {
                "collector": item.collector,
                "reason": item.reason,
                "signals": [signal.name for signal in item.signals],
            }
            for item in told.unseen
        ],
        "notes": list(told.notes),
    }
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _reading(entry: SeenSignal) -> dict[str, Any]:
    reading = entry.reading
    told: dict[str, Any] = {"name": entry.signal.name, "value": None, "unit": entry.signal.unit}
    if isinstance(reading, Bad):
        told["reason"] = reading.reason
    elif isinstance(reading, float | int) and not math.isfinite(reading):
        told["non_finite"] = str(reading)
    else:
        told["value"] = reading
    return told
