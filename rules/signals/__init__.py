"""The signal catalogue's table, one module per family."""

from __future__ import annotations

from stoploss.rules.catalogue import Signal
from stoploss.rules.signals import (
    checkpoint,
    cost,
    data,
    gpu,
    host,
    instance,
    job,
    logs,
    meta,
    network,
    service,
    storage,
    training,
)

FAMILIES: dict[str, tuple[Signal, ...]] = {
    "GPU": gpu.SIGNALS,
    "Host": host.SIGNALS,
    "Job and process": job.SIGNALS,
    "Training and loss": training.SIGNALS,
    "Data": data.SIGNALS,
    "Network": network.SIGNALS,
    "Storage": storage.SIGNALS,
    "Checkpoint": checkpoint.SIGNALS,
    "Logs and metrics": logs.SIGNALS,
    "Instance": instance.SIGNALS,
    "Service": service.SIGNALS,
    "Cost and budget": cost.SIGNALS,
    "Resources and collectors": meta.SIGNALS,
}
"""Title of a family -> its signals, in the order of the reference."""

SIGNALS: tuple[Signal, ...] = tuple(signal for family in FAMILIES.values() for signal in family)
"""Every signal."""
