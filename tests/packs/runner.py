"""Short series written as tables, audited through the real loader, history and evaluator."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from stoploss.actions.registry import action_options
from stoploss.collectors.registry import option_models
from stoploss.engine.audit import Audit, audit
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.model import UNREADABLE, Bad, LabelValue, Look, Reading, ResourceId, Sample
from stoploss.rules.catalogue import Signal, catalogue
from stoploss.rules.loader import LoadResult, load
from stoploss.rules.policy import Policy
from stoploss.rules.units import parse_duration, parse_quantity

ROOT = Path(__file__).parents[2]
PACKS = tuple(sorted(path.stem for path in (ROOT / "rules" / "packs").glob("*.yaml")))
START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
_PIECE = re.compile(r"(?P<start>.+?)(?:\+(?P<step>[\d.]+))?x(?P<count>\d+)\Z")

_WORDS = re.compile(r"[\w-]+x\d+(?: [\w-]+x\d+)+")

Table = Mapping[str, Mapping[str, Any]]


@cache
def loaded(pack: str) -> LoadResult:
    """One pack through the loader."""
    return load_here(f"pack:{pack}")


def load_here(path: str | Path) -> LoadResult:
    """A file through the loader, with the collectors and actions of this version."""
    return load(
        [path],
        catalogue=catalogue(),
        collector_options=option_models(),
        action_options=action_options(),
    )


def policies() -> dict[str, Policy]:
    """Every policy of every pack, by name."""
    sets = [result.policies for pack in PACKS if (result := loaded(pack)).policies is not None]
    return {policy.name: policy for found in sets for policy in found.policies}


EXAMPLES: dict[str, dict[str, Any]] = {
    policy: entry
    for file in sorted(Path(__file__).parent.glob("examples*.yaml"))
    for policy, entry in yaml.safe_load(file.read_text(encoding="utf-8")).items()
}


@dataclass(frozen=True, slots=True)
class Example:
    """One policy on one series."""

    policy: str
    name: str
    series: Table
    labels: Mapping[str, Mapping[str, str]]
    looks: int
    interval: float
    says: str = ""

    def with_class(self, value: LabelValue) -> Example:
        """The same with another class (None: without) on whatever has one."""
        word = "unreadable" if value is UNREADABLE else value
        labels = {
            resource: {name: text for name, text in said.items() if name != "class"}
            | ({"class": word} if isinstance(word, str) else {})
            for resource, said in self.labels.items()
        }
        return replace(self, labels=labels)

    def audit(self) -> Audit:
        """What the policy says after the last look."""
        # A pack may bring another one with it.
        found = next(loaded(pack).policies for pack in PACKS if self.policy in policy_names(pack))
        assert found is not None
        chosen = replace(found, policies=(policies()[self.policy],))
        buffer = SampleBuffer(catalogue(), dict.fromkeys(self._by_collector(), self.interval))
        for collector, series in self._by_collector().items():
            for look in range(self.looks):
                at = START + (look + 1) * self.interval
                samples = [
                    Sample(at, resource, signal, readings[look], self._said(resource))
                    for resource, signal, readings in series
                    if readings[look] is not None
                ]
                buffer.add(collector, Look(tuple(samples)), slot_time=at)
        now = datetime.fromtimestamp(START + self.looks * self.interval, UTC)
        return audit(chosen, lambda resolution: buffer.frame(resolution), catalogue(), now=now)

    def _said(self, resource: ResourceId) -> dict[str, LabelValue]:
        said = self.labels.get(str(resource), {})
        return {name: UNREADABLE if text == "unreadable" else text for name, text in said.items()}

    def _by_collector(self) -> dict[str, list[tuple[ResourceId, str, list[Any]]]]:
        found: dict[str, list[tuple[ResourceId, str, list[Any]]]] = {}
        for name, signals in self.series.items():
            kind, _, identity = name.partition(" ")
            for signal_name, value in signals.items():
                signal = catalogue()[signal_name]
                assert kind in signal.resources, f"{signal_name} is not a signal of a {kind}"
                if value is not None:
                    readings = _readings(signal, str(value), self.looks)
                    row = (ResourceId(kind, identity), signal_name, readings)
                    found.setdefault(signal.collector, []).append(row)
        return found


def policy_names(pack: str) -> set[str]:
    """The policies that a pack holds or brings with it."""
    found = loaded(pack).policies
    return set() if found is None else {policy.name for policy in found.policies}


def _readings(signal: Signal, text: str, looks: int) -> list[Reading | None]:
    if text.startswith("?"):
        return [Bad(text[1:])] * looks
    if signal.is_text:
        pieces = _WORDS.fullmatch(text) and [piece.rpartition("x") for piece in text.split(" ")]
        return [word for word, _, n in pieces for _ in range(int(n))] if pieces else [text] * looks
    readings: list[Reading | None] = []
    for piece in text.split(" ") if "x" in text else [f"{text}x{looks}"]:
        match = _PIECE.match(piece)
        assert match is not None, f"{piece!r} is no piece of a series"
        count = int(match["count"])
        if match["start"] == "_":
            readings += [None] * count
        else:
            start, step = _number(signal, match["start"]), float(match["step"] or 0)
            readings += [start + step * number for number in range(count)]
    assert len(readings) == looks, f"{text!r} has {len(readings)} readings, not {looks}"
    return readings


def _number(signal: Signal, text: str) -> float:
    quantity = parse_quantity(text)
    plain = text.replace(".", "").isdigit()
    assert plain or quantity.dimension == signal.dimension or "$" in text, f"{text!r} does not fit {signal}"
    return quantity.value if plain else quantity.value / signal.factor


def examples(kind: str) -> Iterator[Example]:
    """The examples of one kind (firing, quiet, unknown) of all policies."""
    for name, entry in EXAMPLES.items():
        interval = parse_duration(entry.get("interval", "1m"))
        base = Example(name, name, entry["firing"], entry["labels"], entry["looks"], interval)
        if kind == "firing":
            yield base
        for change in entry.get("also" if kind == "firing" else kind, ()):
            changed = {key: value for key, value in change.items() if key not in ("name", "says", "labels")}
            series = {
                resource: {**base.series.get(resource, {}), **changed.get(resource, {})}
                for resource in {**base.series, **changed}
            }
            yield replace(
                base,
                name=f"{name}: {change['name']}",
                series=series,
                labels={**base.labels, **change.get("labels", {})},
                says=change.get("says", ""),
            )
