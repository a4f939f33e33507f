"""Signals of services that training leans on: databases, queues, trackers, caches."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_SERVICE = Family(("service",), "prometheus")

SIGNALS = (
    _SERVICE.gauge("service.connections", "1", "Open connections."),
    _SERVICE.gauge("service.queue_depth", "1", "Requests or messages that wait."),
    _SERVICE.gauge("service.latency", "s", "Time per request."),
    _SERVICE.counter("service.requests", "1", "Requests answered."),
    _SERVICE.gauge("service.error_share", "share", "Share of requests that failed."),
    _SERVICE.gauge("service.utilization", "share", "Share of the service's capacity in use."),
    _SERVICE.gauge("service.last_used", "s", "Time since the newest request."),
)
