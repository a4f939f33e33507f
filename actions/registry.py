"""The table of actions: names and import paths, so that naming an action imports nothing heavy.

An action of another package is an entry point in the group `stoploss.actions` that names a
`stoploss.rules.options.ActionSpec` in a module without heavy imports.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import NamedTuple

from stoploss.rules.options import ActionClass, ActionSpec

GROUP = "stoploss.actions"


class Entry(NamedTuple):
    """An action: its class, its options as `module:Class`, and one line for people."""

    kind: ActionClass
    options: str
    summary: str
    harmless: tuple[str, ...] = ()


ACTIONS: dict[str, Entry] = {
    "alert": Entry("notify", "stoploss.actions.options:AlertOptions", "Tell somebody."),
    "snapshot": Entry("changing", "stoploss.actions.options:SnapshotOptions", "Keep the state of a job."),
    "tier": Entry("changing", "stoploss.actions.options:TierOptions", "Move data to cheaper storage."),
    "downscale": Entry(
        "destructive", "stoploss.actions.options:DownscaleOptions", "Give a resource less.", ("power-cap",)
    ),
    "terminate": Entry(
        "destructive", "stoploss.actions.options:TerminateOptions", "End a job or an instance."
    ),
    "prune": Entry(
        "destructive", "stoploss.actions.options:PruneOptions", "Delete checkpoints nobody needs."
    ),
    "retain": Entry(
        "destructive", "stoploss.actions.options:RetainOptions", "Keep logs shorter, or sample them."
    ),
    "release": Entry(
        "destructive", "stoploss.actions.options:ReleaseOptions", "Give back what is left over."
    ),
    "resume": Entry("changing", "stoploss.actions.options:ResumeOptions", "Start an interrupted job again."),
    "exec": Entry("destructive", "stoploss.actions.options:ExecOptions", "Run a program of yours."),
}


def action_options() -> dict[str, ActionSpec]:
    """Every action with its option model; a plug-in that cannot be loaded is left out."""
    specs = {name: _spec(name, entry) for name, entry in ACTIONS.items()}
    for point in sorted(entry_points(group=GROUP), key=lambda item: item.name):
        if point.name in specs:
            continue
        try:
            spec = point.load()
        except Exception:  # noqa: S112 - a policy that names it gets `unknown-action`
            continue
        if isinstance(spec, ActionSpec):
            specs[point.name] = spec
    return specs


def _spec(name: str, entry: Entry) -> ActionSpec:
    module, _, model = entry.options.partition(":")
    options = getattr(importlib.import_module(module), model)
    return ActionSpec(name, entry.kind, options, entry.summary, frozenset(entry.harmless))
