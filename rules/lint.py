"""Says what is allowed and yet is probably not meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingType
from dataclasses import dataclass
from datetime import date

from stoploss.rules.conditions.typed import Absent, Age, Bare, Node, Share, TextSignal, Window, children
from stoploss.rules.diagnostics import Diagnostics
from stoploss.rules.environment import VariableError, unset
from stoploss.rules.lint_constant import decided
from stoploss.rules.loading.collectors import DERIVED
from stoploss.rules.loading.conditions import ConditionReader, Leaf
from stoploss.rules.loading.draft import Draft, find, items
from stoploss.rules.options import DEFAULT_COLLECTORS, CollectorOptions, default_every
from stoploss.rules.policy import Exemption, PolicySet
from stoploss.rules.units import format_duration
from stoploss.rules.yaml import Mapping, scalars

MAX_SLOTS = 1440
"""Slots in a window above which lint proposes a coarser resolution."""

_ENDS_ITSELF = frozenset({"job", "instance", "service", "volume", "bucket"})
_URGENT = ("high", "critical")


@dataclass(frozen=True, slots=True)
class WindowUse:
    """A window in a condition: the signal, its length in seconds, and the text it was written as."""

    signal: str
    collector: str
    seconds: float
    text: str
    quantile: int = 0


def lint(
    drafts: Sequence[Draft],
    policies: PolicySet,
    reader: ConditionReader,
    collectors: CollectorOptions,
    diagnostics: Diagnostics,
) -> None:
    """Lint the policies that could be read; parts that are wrong are passed over."""
    named = {setting.name: setting.every for setting in policies.collectors}
    providing = {name for name in (*DEFAULT_COLLECTORS, *named) if name in collectors} | {DERIVED}
    defaults = {name: every for name, model in collectors.items() if (every := default_every(model))}
    intervals = {**defaults, **named}
    for draft in drafts:
        _lint_steps(draft, diagnostics)
        _lint_contact(draft, diagnostics)
        _lint_providers(draft, providing, collectors, reader, diagnostics)
        for leaf in draft.leaves:
            _lint_windows(draft, leaf, intervals, reader, diagnostics)
            _lint_constant(leaf, diagnostics)


def windows(node: Node) -> Iterator[WindowUse]:
    """Every window below a node of a condition."""
    match node:
        case Window():
            yield WindowUse(node.signal.name, node.signal.collector, node.seconds, node.text, node.quantile)
        case Share():
            for signal in _bare_signals(node.condition):
                yield WindowUse(signal.signal.name, signal.signal.collector, node.seconds, node.text)
        case Absent():
            yield WindowUse(node.signal.name, node.signal.collector, node.seconds, node.text)
        case TextSignal(seconds=float() as seconds):
            yield WindowUse(node.signal.name, node.signal.collector, seconds, node.signal.name)
        case _:
            for child in children(node):
                yield from windows(child)


def _bare_signals(node: Node) -> Iterator[Bare | TextSignal | Age]:
    if isinstance(node, Bare | TextSignal | Age):
        yield node
    for child in children(node):
        yield from _bare_signals(child)


def _lint_steps(draft: Draft, diagnostics: Diagnostics) -> None:
    policy = draft.policy
    if policy.when is None or draft.damaged & {"for", "then", "each"}:
        return
    immediate = [step for step in policy.steps if step.destructive and step.after == 0]
    if immediate and policy.for_seconds == 0:
        step = immediate[0]
        diagnostics.add(
            "destructive-without-for",
            f"{step.action} follows at the first slot in which the condition is true",
            step.position,
            fix="add for: 10m or longer",
            length=len(step.action),
        )
    for _, step in policy.numbered:
        if step.action == "terminate" and policy.each not in _ENDS_ITSELF:
            diagnostics.add(
                "ends-job-from-below",
                f"terminate would end what a single {policy.each} belongs to",
                step.position,
                fix="use each: job, where every member has to agree",
                length=len(step.action),
            )


def _lint_contact(draft: Draft, diagnostics: Diagnostics) -> None:
    policy = draft.policy
    if policy.severity not in _URGENT or draft.damaged & {"severity", "contact", "runbook"}:
        return
    missing = [key for key, value in (("contact", policy.contact), ("runbook", policy.runbook)) if not value]
    if missing:
        diagnostics.add(
            "no-runbook",
            f"severity {policy.severity} without {' and '.join(missing)}",
            draft.place("severity"),
            fix=f"add {' and '.join(f'{key}:' for key in missing)}",
            length=len(policy.severity),
        )


def _lint_providers(
    draft: Draft,
    providing: set[str],
    built: CollectorOptions,
    reader: ConditionReader,
    diagnostics: Diagnostics,
) -> None:
    told: set[str] = set()
    for leaf in draft.leaves:
        for signal in leaf.condition.signals:
            if signal.collector in providing or signal.name in told:
                continue
            told.add(signal.name)
            found = find(leaf, signal.name, reader)
            source = signal.collector
            diagnostics.add(
                "no-collector",
                f"no collector that is in use provides {signal.name}; it comes from {source}",
                found.position,
                fix=f"name {source} under collectors:"
                if source in built
                else f"this version has no collector {source}; pass recorded signals",
                length=found.length,
            )


def _lint_windows(
    draft: Draft,
    leaf: Leaf,
    intervals: MappingType[str, float],
    reader: ConditionReader,
    diagnostics: Diagnostics,
) -> None:
    resolution = draft.policy.resolution
    for use in dict.fromkeys(windows(leaf.condition.root)):
        found = find(leaf, use.text, reader)
        every = intervals.get(use.collector, resolution)
        slots = round(use.seconds / resolution)
        window = format_duration(use.seconds)
        if use.seconds < every:
            diagnostics.add(
                "window-too-short",
                f"the window of {window} is shorter than the {format_duration(every)} between two looks "
                f"of {use.collector}",
                found.position,
                fix=f"use a window of {format_duration(2 * every).replace(' ', '')} or longer",
                length=found.length,
            )
        elif slots > MAX_SLOTS and "resolution" not in draft.damaged:
            diagnostics.add(
                "window-too-long",
                f"the window of {window} has {slots:,} slots of {format_duration(resolution)}, "
                f"more than {MAX_SLOTS:,}",
                found.position,
                fix="add a coarser resolution: to the policy, such as 1h",
                length=found.length,
            )
        elif use.quantile and slots * (1000 - use.quantile) < 1000:
            diagnostics.add(
                "quantile-is-max",
                f"over {slots} slots p{use.quantile / 10:g} is the maximum",
                found.position,
                fix="use max, or a longer window",
                length=found.length,
            )


def _lint_constant(leaf: Leaf, diagnostics: Diagnostics) -> None:
    truth = decided(leaf.condition.root)
    if truth is None:
        return
    diagnostics.add(
        "always-true" if truth else "always-false",
        f"{leaf.condition.text!r} is {'always' if truth else 'never'} true",
        leaf.scalar.position,
        fix="compare with a value that the signal can cross",
        length=len(leaf.condition.text),
    )


def lint_exemptions(
    entries: Iterable[tuple[Exemption, Mapping]], today: date, diagnostics: Diagnostics
) -> None:
    """Say which exemptions have expired; the day itself still counts."""
    for exemption, node in entries:
        value = node.get("expires")
        if value is not None and exemption.expires < today.isoformat():
            diagnostics.add(
                "expired-exemption",
                f"the exemption from {exemption.policy} expired on {exemption.expires}",
                value.position,
                fix="renew it with a new day, or remove it",
                length=len(exemption.expires),
            )


def lint_variables(
    roots: Iterable[Mapping], environ: MappingType[str, str], diagnostics: Diagnostics
) -> None:
    """Say which `${NAME}` are not set, where variables are expanded; conditions hold none."""
    for root in roots:
        steps = [item.get("then") for item in items(root.get("policies")) if isinstance(item, Mapping)]
        for node in (root.get("settings"), root.get("collectors"), root.get("notify"), *steps):
            for scalar in scalars(node) if node is not None else ():
                try:
                    missing = unset(scalar.text, environ)
                except VariableError:
                    continue  # said where the text was read
                for reference in missing:
                    diagnostics.add(
                        "unset-variable",
                        f"the variable {reference.name} is not set",
                        scalar.position,
                        fix=f"set it, or write ${{{reference.name}:-default}}",
                        length=max(1, len(scalar.text)),
                    )
