"""Signals of cost and budgets, reckoned by the engine from use and the price book."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_COST = Family(("job", "team", "experiment"), "derived")
_JOB = Family(("job",), "derived")
_RATE = Family(("job", "team", "experiment", "instance"), "derived")

SIGNALS = (
    _COST.gauge("budget.used", "share", "Highest share used among the budgets that hold for it."),
    _COST.gauge(
        "budget.projected", "share", "Share of the budget that will be used at the end, as things go."
    ),
    _COST.gauge("budget.limit", "money", "Limit of the budget behind budget.used, where it is in money."),
    _COST.gauge("budget.count", "1", "Budgets that hold for it; 0 means that nothing limits it."),
    _RATE.gauge("cost.per_hour", "money/h", "What it costs per hour now."),
    _COST.counter("cost.total", "money", "What it has cost so far, in all six categories."),
    _COST.counter("cost.compute", "money", "Cost of GPUs and instances, without what is hidden."),
    _COST.counter("cost.storage", "money", "Cost of volumes, buckets and checkpoints."),
    _COST.counter("cost.network", "money", "Cost of data sent between zones, regions and to the internet."),
    _COST.counter("cost.logs", "money", "Cost of logs and metrics."),
    _COST.counter("cost.services", "money", "Cost of databases, queues and other services."),
    _COST.counter(
        "cost.hidden",
        "money",
        "Cost of computing that bought nothing: idle, redone, failed, starting, waits.",
    ),
    _COST.counter("cost.idle", "money", "Cost of GPUs that did no work."),
    _COST.counter("cost.failed", "money", "Cost of attempts that failed."),
    _COST.counter("cost.startup", "money", "Cost of the time before the first step."),
    _COST.counter("cost.redone", "money", "Cost of steps done a second time."),
    _COST.counter("cost.waiting", "money", "Cost of waiting for data or the network."),
    _COST.counter(
        "cost.gpu_hours", "GPU-hours", "GPU-hours allocated so far, idle and redone work included."
    ),
    _COST.gauge("cost.goodput", "share", "Share of the paid GPU-hours that moved the training on."),
    _COST.gauge("cost.projected", "money", "What it will have cost at the planned end, as things go."),
    _JOB.gauge("cost.per_epoch", "money", "Cost of the newest epoch."),
    _JOB.gauge("cost.per_step", "money", "Cost of one step at the present speed."),
    _JOB.gauge("cost.since_best", "money", "Cost since the best evaluation."),
    _JOB.gauge("cost.per_improvement", "money", "Cost of the newest 1% by which the loss improved."),
    _JOB.gauge("cost.to_target", "money", "Cost until the declared target is met, if the trend holds."),
)
