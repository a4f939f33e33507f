"""What one look at a Prometheus server is about: targets, ages, names, and what was told."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stoploss.collectors.prometheus_calls import Answer, Series
from stoploss.collectors.prometheus_options import Options
from stoploss.engine.model import Bad, LabelValue, Reading, ResourceId
from stoploss.rules.units import format_duration

METRIC = "stoploss_metric"
"""Label that says which metric a value without a name comes from."""

Target = tuple[str, str]
"""The labels `job` and `instance` of what is scraped."""

NOT_A_NUMBER = Bad("not a number")


@dataclass(frozen=True, slots=True)
class Told:
    """One reading of one signal, and who told it.

    Attributes:
        resource, signal, reading, labels: as in a sample.
        source: the series in words.
        target: what was scraped; None where a query does not say.
    """

    resource: ResourceId
    signal: str
    reading: Reading
    labels: Mapping[str, LabelValue]
    source: str
    target: Target | None


@dataclass(frozen=True, slots=True)
class Metric:
    """The newest value of a series, which is bad where it is old or no number."""

    name: str
    labels: Mapping[str, str]
    value: float | Bad

    @property
    def target(self) -> Target:
        """What was scraped for it."""
        return target_of(self.labels)


@dataclass(slots=True)
class Scene:
    """One look: its instant, the targets, and what people are to be told beside the readings.

    Attributes:
        at: the instant, in seconds since the epoch.
        options: what the policy file says.
        targets: target -> whether it answered, and its labels.
        notes: words for people, without doubles.
    """

    at: float
    options: Options
    targets: Mapping[Target, tuple[bool, Mapping[str, str]]]
    notes: dict[str, None] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Tell people something, once."""
        self.notes[text] = None

    @property
    def old(self) -> Bad:
        """What a value is that is too old."""
        return Bad(f"the newest sample is older than {format_duration(self.options.oldest)}")

    def fresh(self, values: Answer, ages: Answer) -> list[Metric]:
        """Every value with its age looked up, of the same metric and labels."""
        times = {
            (item.labels.get(METRIC, ""), _without(item.key, METRIC)): item.value for item in ages.series
        }
        return [
            Metric(item.name, item.labels, self.judged(item.value, times.get((item.name, item.key))))
            for item in values.series
        ]

    def judged(self, value: float, newest: float | None) -> float | Bad:
        """A value whose newest sample is of the time `newest`."""
        if newest is None or not math.isfinite(newest):
            return Bad("its age cannot be told")
        if self.at - newest > self.options.oldest:
            return self.old
        return value

    def pod(self, labels: Mapping[str, str]) -> tuple[str, str] | None:
        """Namespace and pod that an exporter speaks of, not those that it runs in itself.

        A server that does not honour an exporter's labels keeps them as `exported_pod`; where the
        exporter gives none, only that of its own pod is left.
        """
        pod = labels.get("exported_pod")
        if not pod:
            pod = labels.get("pod")
            _, of_target = self.targets.get(target_of(labels), (False, {}))
            if not pod or of_target.get("pod") == pod:
                return None
        return exported(labels, "namespace"), pod

    def host(self, labels: Mapping[str, str]) -> str | None:
        """The host that a series is of, where its labels say so."""
        return next((labels[name] for name in self.options.host if labels.get(name)), None)


def _without(key: tuple[tuple[str, str], ...], name: str) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in key if pair[0] != name)


def target_of(labels: Mapping[str, str]) -> Target:
    """What was scraped for a series."""
    return labels.get("job", ""), labels.get("instance", "")


@dataclass(frozen=True, slots=True)
class Selector:
    """Writes selectors of series that all carry the labels of the option `match`."""

    match: Mapping[str, str]

    def of(self, name: str, *matchers: str) -> str:
        """Series of one metric."""
        return f"{name}{{{','.join((*matchers, *self._common()))}}}"

    def any_of(self, names: Iterable[str]) -> str:
        """Series of several metrics."""
        return self.of("", f'__name__=~"{"|".join(names)}"')

    def ages(self, names: Iterable[str]) -> str:
        """When the newest sample of each series was taken, with the metric as a label."""
        return any_of({name: f"timestamp({self.of(name)})" for name in names})

    def _common(self) -> Iterable[str]:
        return (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.match.items())


def any_of(queries: Mapping[str, str]) -> str:
    """One query for several, whose values carry the name of theirs as a label."""
    return " or ".join(f'label_replace({query},"{METRIC}","{name}","","")' for name, query in queries.items())


def settled(told: Sequence[Told]) -> list[Told]:
    """One reading of each signal of each resource; where several series tell it, none is right."""
    found: dict[tuple[ResourceId, str], list[Told]] = {}
    for item in told:
        found.setdefault((item.resource, item.signal), []).append(item)
    return [items[0] if len(items) == 1 else _disputed(items) for items in found.values()]


def _disputed(items: Sequence[Told]) -> Told:
    first = items[0]
    sources = sorted({item.source for item in items})
    if len(sources) == 1:
        sources = [f"{len(items)} series of {sources[0]}"]
    shown = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
    return Told(first.resource, first.signal, Bad(f"told twice: {shown}"), first.labels, shown, first.target)


def exported(labels: Mapping[str, str], name: str) -> str:
    """A label that the exporter gives always, whether the server honours it or not."""
    return labels.get(f"exported_{name}") or labels.get(name, "")


def words(series: Series | Metric) -> str:
    """A series for people: where it was scraped."""
    job, instance = target_of(series.labels)
    name = series.name or series.labels.get(METRIC, "")
    return f"{name} of {job or '?'} at {instance or '?'}"
