"""The table of collectors, and what other packages add to it.

The table holds import paths as text, so that naming a collector imports nothing. Another
package adds one through the entry-point group `stoploss.collectors`: the entry point's name
is the collector's, and it points at an `Entry` (or a tuple of its three texts) in a module
that is cheap to import.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from stoploss.collectors.contract import Collector, CollectorError, CollectorOptions, Context

GROUP = "stoploss.collectors"


class Entry(NamedTuple):
    """Where a collector is: its module, its options as `module:Class`, and a one-line summary."""

    module: str
    options: str
    summary: str


COLLECTORS: Mapping[str, Entry] = {
    "host": Entry(
        "stoploss.collectors.host",
        "stoploss.collectors.host_options:Options",
        "CPU, memory, pressure, disks and mounted volumes of this machine.",
    ),
    "network": Entry(
        "stoploss.collectors.network",
        "stoploss.collectors.network_options:Options",
        "Traffic, losses and round-trip times of this machine.",
    ),
    "process": Entry(
        "stoploss.collectors.process",
        "stoploss.collectors.process_options:Options",
        "Training processes of this machine, and the jobs that they belong to.",
    ),
    "gpu": Entry(
        "stoploss.collectors.gpu",
        "stoploss.collectors.gpu_options:Options",
        "NVIDIA GPUs of this machine and their MIG slices.",
    ),
    "storage": Entry(
        "stoploss.collectors.storage",
        "stoploss.collectors.storage_options:Options",
        "What folders hold: how much, how old, and when it was last written and read.",
    ),
    "checkpoints": Entry(
        "stoploss.collectors.checkpoints",
        "stoploss.collectors.checkpoints_options:Options",
        "Checkpoints on disk: which are whole, which is the newest, and how much work is at risk.",
    ),
    "training": Entry(
        "stoploss.collectors.training.collector",
        "stoploss.collectors.training.options:Options",
        "Training logs as they grow: losses, speeds and steps of each job, and how it goes.",
    ),
    "logs": Entry(
        "stoploss.collectors.logs",
        "stoploss.collectors.logs_options:Options",
        "How fast logs grow, what they repeat, and how long they are kept.",
    ),
    "aws": Entry(
        "stoploss.collectors.aws",
        "stoploss.collectors.aws_options:Options",
        "Instances, volumes, buckets, logs, training jobs and services of AWS accounts.",
    ),
    "slurm": Entry(
        "stoploss.collectors.slurm",
        "stoploss.collectors.slurm_options:Options",
        "Jobs of a Slurm cluster: where each stands, how it ended, and the GPUs that it holds.",
    ),
    "kubernetes": Entry(
        "stoploss.collectors.kubernetes",
        "stoploss.collectors.kubernetes_options:Options",
        "Jobs of a Kubernetes cluster that ask for GPUs, and the volumes that are claimed.",
    ),
    "prometheus": Entry(
        "stoploss.collectors.prometheus",
        "stoploss.collectors.prometheus_options:Options",
        "GPUs, hosts and jobs as a Prometheus server knows them, and signals by any query.",
    ),
}

DEFAULT_ON = ("host", "gpu", "network", "process")
"""Collectors that look without being named in a policy file."""


@dataclass(frozen=True, slots=True)
class Registry:
    """Every collector that can be used here.

    Attributes:
        entries: collector name -> where it is.
        options: collector name -> its options model.
        problems: plug-ins that cannot be used, each with the reason in words.
    """

    entries: Mapping[str, Entry]
    options: Mapping[str, type[CollectorOptions]]
    problems: tuple[str, ...] = field(default=())

    def build(self, name: str, options: Mapping[str, Any], context: Context) -> Collector:
        """The running collector `name` with validated options.

        Raises:
            KeyError: there is no such collector.
            pydantic.ValidationError: the options do not fit.
            CollectorError: its module cannot be loaded, or it refuses to be built.
        """
        validated = self.options[name].model_validate(dict(options))
        try:
            built: Collector = importlib.import_module(self.entries[name].module).build(validated, context)
        except CollectorError:
            raise
        except Exception as error:
            raise CollectorError(f"cannot be loaded: {type(error).__name__}: {error}") from error
        return built


def load() -> Registry:
    """The built-in collectors and those of other packages; a broken plug-in is a problem, never an error."""
    entries = dict(COLLECTORS)
    options = {name: _options_model(entry) for name, entry in COLLECTORS.items()}
    problems: list[str] = []
    for point in sorted(entry_points(group=GROUP), key=lambda item: item.name):
        if point.name in entries:
            problems.append(f"{_origin(point)}: a collector named {point.name} exists already")
            continue
        try:
            entry = _plug_in(point)
            options[point.name] = _options_model(entry)
        except Exception as error:
            problems.append(f"{_origin(point)}: {type(error).__name__}: {error}")
            continue
        entries[point.name] = entry
    return Registry(entries, options, tuple(problems))


def option_models() -> dict[str, type[CollectorOptions]]:
    """Collector name -> its options model; imports no collector."""
    return dict(load().options)


def _origin(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist else ""
    return f"plug-in collector {point.name}{package} ({point.value})"


def _plug_in(point: EntryPoint) -> Entry:
    loaded = point.load()
    if not (isinstance(loaded, tuple) and len(loaded) == 3 and all(isinstance(text, str) for text in loaded)):
        raise TypeError("the entry point must name a tuple of three texts: module, module:Options, summary")
    return Entry(*loaded)


def _options_model(entry: Entry) -> type[CollectorOptions]:
    module, _, name = entry.options.partition(":")
    model = getattr(importlib.import_module(module), name)
    if not (isinstance(model, type) and issubclass(model, CollectorOptions)):
        raise TypeError(f"{entry.options} is not derived from stoploss.collectors.contract.CollectorOptions")
    return model
