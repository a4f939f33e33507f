"""What a Prometheus may ask: findings, money and how the program itself is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stoploss.api.contract import Health, Service
from stoploss.engine.audit import Audit

MEDIA = "text/plain; version=0.0.4; charset=utf-8"


def text(service: Service) -> bytes:
    """All metrics in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(service))
    return generate_latest(registry)


class _Metrics(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        audit = self._service.latest()
        if audit is not None:
            yield from _audit(audit)
        saved, currency = self._service.saved(), self._service.policies.currency
        if audit is not None:
            currency = audit.totals.currency
        total = CounterMetricFamily(
            "stoploss_saved", "Money that was saved so far, by kind of price.", labels=("currency", "kind")
        )
        for kind, amount in saved.items():
            total.add_metric((currency or "USD", kind), amount)
        yield total
        ratio = goodput(self._service.costs())
        if ratio is not None:
            yield GaugeMetricFamily("stoploss_goodput_ratio", "Useful of paid GPU-hours.", value=ratio)
        yield from _health(self._service.health())


def goodput(costs: Mapping[str, Any]) -> float | None:
    """Useful of paid GPU-hours; None where it is not known."""
    total = costs.get("total") or {}
    paid, useful = total.get("gpu_hours"), total.get("useful_gpu_hours")
    return useful / paid if paid and useful is not None else None


def _audit(audit: Audit) -> Iterator[Metric]:
    yield _counted(
        "stoploss_findings",
        "Findings of the newest tick; exempt ones have the state exempt.",
        ("policy", "state", "severity"),
        (
            (item.policy.name, "exempt" if item.exemption is not None else item.state, item.policy.severity)
            for item in audit.findings
        ),
    )
    yield _counted(
        "stoploss_unknown",
        "Checks that could not be decided.",
        ("policy", "why"),
        ((item.policy.name, item.why.value) for item in audit.unknown),
    )
    yield _counted(
        "stoploss_decisions",
        "Steps of the plan.",
        ("verdict",),
        ((item.verdict,) for item in audit.decisions),
    )
    waste = GaugeMetricFamily(
        "stoploss_waste_per_hour",
        "Money per hour that is wasted now; kinds of price are never added up.",
        labels=("currency", "kind"),
    )
    for kind, amount in audit.totals.by_kind.items():
        waste.add_metric((audit.totals.currency, kind), amount.per_hour)
    yield waste
    yield GaugeMetricFamily(
        "stoploss_findings_without_price",
        "Firing findings whose waste is not known.",
        value=audit.totals.without_price,
    )


def _counted(
    name: str, words: str, labels: tuple[str, ...], items: Iterable[tuple[str, ...]]
) -> GaugeMetricFamily:
    metric = GaugeMetricFamily(name, words, labels=labels)
    for values, number in sorted(Counter(items).items()):
        metric.add_metric(values, number)
    return metric


def _health(health: Health) -> Iterator[Metric]:
    if health.tick_seconds is not None:
        yield GaugeMetricFamily(
            "stoploss_tick_seconds", "How long the newest tick took.", value=health.tick_seconds
        )
    yield CounterMetricFamily("stoploss_ticks", "Ticks that were done.", value=health.ticks)
    yield CounterMetricFamily("stoploss_ticks_missed", "Ticks that were skipped.", value=health.missed)
    yield GaugeMetricFamily(
        "stoploss_standby", "1 while another one ticks and this one waits.", value=int(health.standby)
    )
    success = GaugeMetricFamily(
        "stoploss_collector_success", "Whether the newest look succeeded.", labels=("collector",)
    )
    age = GaugeMetricFamily(
        "stoploss_collector_age_seconds", "Seconds since the newest look.", labels=("collector",)
    )
    for name, item in sorted(health.collectors.items()):
        success.add_metric((name,), int(item.ok))
        if item.age_seconds is not None:
            age.add_metric((name,), item.age_seconds)
    yield success
    yield age
