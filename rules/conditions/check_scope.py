"""Where a part of a condition stands: what may be named there, and which resource it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from stoploss.rules.catalogue import Catalogue, Signal, path
from stoploss.rules.conditions import ast
from stoploss.rules.conditions.canonical import BARE_LABELS, label_name
from stoploss.rules.conditions.functions import FOLDS, FUNCTIONS, NUMBER_FOLDS
from stoploss.rules.conditions.syntax import Problem
from stoploss.rules.conditions.typed import Condition
from stoploss.rules.diagnostics import did_you_mean

ANYWHERE = "any"
"""The level of a condition that selects resources of every kind."""


@dataclass(slots=True)
class Notes:
    """What the checker gathers on its way through one condition."""

    problems: list[Problem] = field(default_factory=list)
    signals: dict[str, Signal] = field(default_factory=dict)
    currencies: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scope:
    """The place of a part of a condition.

    Attributes:
        text: the whole condition.
        each: the policy's kind, or `any`.
        at: the kind that conditions here are judged on: `each`, or the members' within a fold.
        catalogue: the signals there are.
        labels_only: whether only labels and attributes may stand here.
        inside: the function around this part that limits what may stand in it, or None.
        notes: shared by all scopes of one condition.
        condition: checks a condition; numbers need it in turn, for share(…).
    """

    text: str
    each: str
    at: str
    catalogue: Catalogue
    labels_only: bool
    notes: Notes
    condition: Callable[[Scope, ast.Expr], Condition | None]
    inside: str | None = None

    def within(self, function: str, at: str) -> Scope:
        """The scope of the argument of `function`, judged on resources of kind `at`."""
        return replace(self, inside=function, at=at)

    def slice(self, node: ast.Expr) -> str:
        """The text of a node as it was written."""
        return self.text[node.start : node.end]

    def problem(self, code: str, message: str, fix: str | None, node: ast.Expr) -> None:
        """Note a mistake at a node; returns None, which is also what a broken node becomes."""
        self.notes.problems.append(Problem(code, message, fix, node.start, node.end - node.start))

    def note_currency(self, code: str, node: ast.Expr) -> None:
        """Gather a literal's currency; a second one is a mistake."""
        known = self.notes.currencies
        if known and code not in known:
            self.problem(
                "mixed-currency",
                f"{self.slice(node)} is in {code}, but the condition already uses {next(iter(known))}",
                "use one currency; nothing is converted",
                node,
            )
        known[code] = None

    def signal(self, node: ast.Name) -> Signal | None:
        """The signal that a name means here; what does not exist or may not stand here is noted."""
        signal = self.catalogue.get(node.name)
        if signal is None:
            self._unknown(node)
            return None
        self.notes.signals[signal.name] = signal
        if self.labels_only and not signal.is_attribute:
            self.problem(
                "labels-only",
                f"{node.name} is a signal; only labels and attributes may stand here",
                "move the comparison to when:",
                node,
            )
            return None
        return signal

    def _unknown(self, node: ast.Name) -> None:
        name = node.name
        if name in FUNCTIONS:
            self.problem("unknown-name", f"{name} is a function", f"write {FUNCTIONS[name].usage}", node)
        elif "." in name:
            near = did_you_mean(name, self.catalogue)
            fix = (
                f"did you mean {near}?"
                if near
                else "`stoploss signals` lists them; a label is written label.NAME"
            )
            self.problem("unknown-signal", f"there is no signal {name}", fix, node)
        else:
            near = did_you_mean(name, BARE_LABELS) or did_you_mean(name.replace("_", "."), self.catalogue)
            fix = f"did you mean {near}?" if near else f'a label is written label.{name}, a text "{name}"'
            self.problem("unknown-name", f"{name} is neither a signal nor a label", fix, node)

    def level_of(self, signal: Signal, node: ast.Expr) -> str | None:
        """The kind whose series of the signal are meant here; none within reach is noted."""
        level = self.nearest(signal)
        if level is None:
            kinds = " or ".join(signal.resources)
            self.problem(
                "no-path",
                f"{signal.name} belongs to {_a(kinds)}, which has no relation to {_a(self.each)}",
                f"use a signal of {_a(self.each)}, or write the policy for each: {signal.resources[0]}",
                node,
            )
        return level

    def nearest(self, signal: Signal) -> str | None:
        """The kind among the signal's that is nearest to the policy's, or None."""
        if self.each == ANYWHERE:
            return ANYWHERE
        distances = (
            (len(chain), order, kind)
            for order, kind in enumerate(signal.resources)
            for chain in (path(kind, self.each), path(self.each, kind))
            if chain is not None
        )
        return min(distances, default=(0, 0, None))[2]

    def below_each(self, level: str | None) -> bool:
        """Whether resources of that kind are members of the policy's kind."""
        return level is not None and level not in (self.each, ANYWHERE) and path(level, self.each) is not None

    def kinds_in(self, node: ast.Expr) -> set[str]:
        """The kinds whose signals a condition names; numbers folded within it do not count."""
        return {kind for signal in self.signals_in(node) if (kind := self.nearest(signal)) is not None}

    def signals_in(self, node: ast.Expr) -> tuple[Signal, ...]:
        """The signals that a condition names, apart from those within folded numbers."""
        if isinstance(node, ast.Name):
            signal = self.catalogue.get(node.name)
            return () if signal is None else (signal,)
        if isinstance(node, ast.Call) and node.name in NUMBER_FOLDS:
            return ()
        return tuple(signal for child in ast.children(node) for signal in self.signals_in(child))

    def strangers(self, kinds: Iterable[str | None], node: ast.Expr) -> None:
        """Note that values of unrelated kinds meet."""
        named = " and ".join(
            _a(kind) for kind in sorted(kind for kind in kinds if kind and kind != self.each)
        )
        self.problem(
            "no-path",
            f"values of {named} meet, and neither belongs to the other",
            f"fold each to the {self.each} first with mean, total, lowest or highest",
            node,
        )


def lowest_kind(kinds: Iterable[str]) -> str | None:
    """The kind from which all of the kinds can be reached upwards, or None."""
    every = tuple(kinds)
    return next((kind for kind in every if all(path(kind, other) is not None for other in every)), None)


def resolve_label(scope: Scope, node: ast.Name | ast.Subscript) -> str | None:
    """The label that a node names, or None; a misspelt `label[…]` is noted."""
    label = label_name(node)
    if label is None and isinstance(node, ast.Subscript):
        fix = f'write label["{node.key}"]'
        scope.problem("unknown-name", f"{node.name}[…] is no label", fix, node)
    return label


def is_condition(node: ast.Expr) -> bool:
    """Whether a node is true or false rather than a value."""
    if isinstance(node, ast.Call):
        return node.name in (*FOLDS, "absent", "has")
    return isinstance(node, ast.Comparison | ast.Negation | ast.Junction)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
