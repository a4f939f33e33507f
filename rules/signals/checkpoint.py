"""Signals of checkpoints, and of a job's way of making them."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_ONE = Family(("checkpoint",), "checkpoints")
_JOB = Family(("job",), "checkpoints")

SIGNALS = (
    _ONE.gauge("checkpoint.step", "1", "Training step that it holds."),
    _ONE.gauge("checkpoint.size", "B", "Size of its files."),
    _ONE.gauge("checkpoint.complete", "1", "1 when its files are whole and steady, else 0."),
    _ONE.gauge("checkpoint.newest", "1", "1 for the newest complete one of its job, else 0."),
    _ONE.gauge("checkpoint.best", "1", "1 for the one with the best evaluation of its job, else 0."),
    _ONE.gauge("checkpoint.references", "1", "Runs and models that refer to it."),
    _ONE.gauge("checkpoint.age", "s", "Time since its newest write."),
    _ONE.state(
        "checkpoint.failure_domain",
        "The smallest thing whose loss takes the checkpoint with it.",
        ("process", "host", "rack", "zone", "region"),
    ),
    _JOB.gauge(
        "checkpoint.since_last", "s", "Time since the job's newest complete checkpoint: the work at risk."
    ),
    _JOB.gauge("checkpoint.interval", "s", "Time between the job's checkpoints."),
    _JOB.gauge("checkpoint.save_time", "s", "Time that saving one takes."),
    _JOB.gauge("checkpoint.count", "1", "Complete checkpoints that the job keeps."),
    _JOB.gauge("checkpoint.total_size", "B", "Size of all checkpoints that the job keeps."),
    _JOB.gauge(
        "checkpoint.steps_at_risk", "1", "Steps since the newest complete checkpoint outside the host."
    ),
)
