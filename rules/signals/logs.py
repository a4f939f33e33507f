"""Signals of logs and metrics: what observing costs."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_LOG = Family(("log",), "logs")
_METRICS = Family(("job",), "prometheus")

SIGNALS = (
    _LOG.counter("logs.bytes", "B", "Size written to the log."),
    _LOG.counter("logs.lines", "1", "Lines written to the log."),
    _LOG.gauge("logs.rate", "B/s", "Speed at which the log grows."),
    _LOG.gauge("logs.size", "B", "Size of what is kept."),
    _LOG.gauge("logs.debug_share", "share", "Share of lines at debug level or below."),
    _LOG.gauge("logs.error_share", "share", "Share of lines at error level or above."),
    _LOG.gauge(
        "logs.repeat_ratio", "share", "Share of lines that repeat an earlier one but for its numbers."
    ),
    _LOG.gauge("logs.retention", "s", "Time for which the log is kept; without an end it is very long."),
    _LOG.gauge("logs.last_written", "s", "Time since the newest line."),
    _METRICS.gauge("metrics.active_series", "1", "Metric series that the job keeps alive."),
    _METRICS.gauge("metrics.interval", "s", "Time between two samples of the job's metrics."),
)
