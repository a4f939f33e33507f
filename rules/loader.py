"""Loads policy files: every problem of all of them at once, and the set if there is no error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from stoploss.rules.catalogue import Catalogue
from stoploss.rules.diagnostics import Diagnostic, Diagnostics, Position, did_you_mean, suggestion
from stoploss.rules.lint import lint, lint_exemptions, lint_variables
from stoploss.rules.loading.build import Builder, Entry, given
from stoploss.rules.loading.collectors import known_collectors, read_collectors, read_notify
from stoploss.rules.loading.conditions import ConditionReader
from stoploss.rules.loading.cross import check_receivers, check_references, moneys, one_currency, unique
from stoploss.rules.loading.draft import Draft
from stoploss.rules.loading.files import Files, merge, read_files
from stoploss.rules.loading.structure import check, expect_mapping, keys_of, width
from stoploss.rules.models.base import Section
from stoploss.rules.models.fields import shown
from stoploss.rules.models.sections import FixedCost, PolicyFile, Prices, SettingsSection
from stoploss.rules.options import ActionOptions, CollectorOptions
from stoploss.rules.policy import PolicySet, Settings
from stoploss.rules.yaml import Broken, Mapping, Node, Scalar, plain
from stoploss.rules.yaml import Sequence as ListNode

DEFAULT_LIMITS: MappingType[str, Any] = {
    "actions-per-run": 10,
    "share-of-population": 0.2,
    "min-population": 10,
    "gpus-per-run": 64,
}


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load gave.

    Attributes:
        policies: the set; None if and only if there is an error.
        diagnostics: every problem, in the order of places, with its source line.
        files: the files that were read, packs among them.
    """

    policies: PolicySet | None
    diagnostics: tuple[Diagnostic, ...]
    files: tuple[str, ...] = ()


def load(
    paths: Sequence[str | Path],
    *,
    catalogue: Catalogue,
    collector_options: CollectorOptions,
    action_options: ActionOptions,
    today: date | None = None,
    environ: MappingType[str, str] | None = None,
) -> LoadResult:
    """Load policy files as one set.

    Args:
        paths: the files; what they include is read too.
        catalogue: the signals there are.
        collector_options: option model of each collector of this installation.
        action_options: every action there is.
        today: the day by which exemptions expire; None says nothing about that.
        environ: variables that `${NAME}` may name; None says nothing about unset ones.

    Nothing is raised: whatever the files hold becomes diagnostics.
    """
    diagnostics = Diagnostics()
    files = read_files(paths, diagnostics)
    loading = _Loading(files, catalogue, collector_options, action_options, diagnostics)
    policies = loading.read()
    loading.lint(today, environ)
    found = tuple(_with_line(item, files) for item in diagnostics.sorted())
    names = tuple(files.documents)
    return LoadResult(None if diagnostics.has_errors else policies, found, names)


def _with_line(item: Diagnostic, files: Files) -> Diagnostic:
    document = files.documents.get(item.position.file)
    if document is None or item.position.line > len(document.lines):
        return item
    return replace(item, source_line=document.lines[item.position.line - 1])


class _Loading:
    """One load: the sections of all files, read in the order in which they need each other."""

    def __init__(
        self,
        files: Files,
        catalogue: Catalogue,
        collectors: CollectorOptions,
        actions: ActionOptions,
        diagnostics: Diagnostics,
    ) -> None:
        self._files = files
        self._catalogue = catalogue
        self._collectors = collectors
        self._actions = actions
        self._diagnostics = diagnostics
        self._reader = ConditionReader(catalogue, files.documents, diagnostics)
        self._roots = [root for document in files.documents.values() if (root := self._root(document.root))]
        self._drafts: list[Draft] = []
        self._exemptions: list[Entry] = []
        self._set = PolicySet(())

    def _root(self, node: Node | None) -> Mapping | None:
        """The keys of a file, with its version and its closed list of keys checked."""
        if node is None:
            return None
        root = expect_mapping(node, "a policy file", self._diagnostics)
        if root is None:
            self._files.incomplete = True
            return None
        self._version(root)
        for key, _ in root.pairs:
            if key.text not in keys_of(PolicyFile):
                self._diagnostics.add(
                    "unknown-key",
                    f"the key {key.text!r} does not exist here",
                    key.position,
                    fix=suggestion(key.text, keys_of(PolicyFile)),
                    length=max(1, len(key.text)),
                )
                # What it was meant to hold is missing elsewhere, which is not a second mistake.
                self._files.incomplete = True
        return root

    def _version(self, root: Mapping) -> None:
        value = root.get("version")
        if value is None and any(did_you_mean(key.text, ("version",)) for key, _ in root.pairs):
            return  # misspelt, which is told as an unknown key
        if value is None:
            start = Position(root.position.file)
            self._diagnostics.add(
                "missing-key", "the key 'version' is missing", start, fix="begin with version: 1"
            )
        elif isinstance(value, Scalar) and (type(value.value) is not int or value.value != 1):
            message = f"version {shown(value.value)} is not one that this program reads"
            self._diagnostics.add(
                "unsupported-version", message, value.position, fix="write version: 1", length=width(value)
            )
        elif not isinstance(value, Scalar | Broken):
            message = f"{shown(plain(value))} stands where a version is expected"
            self._diagnostics.add("wrong-type", message, value.position, fix="write version: 1")

    def _merged(self, key: str) -> Mapping | None:
        return merge([node for root in self._roots if (node := root.get(key))], key, self._diagnostics)

    def _entries(self, key: str, example: str) -> list[Node]:
        """The entries of a list that every file may add to."""
        entries: list[Node] = []
        for root in self._roots:
            node = root.get(key)
            if isinstance(node, ListNode):
                entries += node.items
                continue
            if isinstance(node, Broken):
                self._files.incomplete = True
            elif node is not None and not (isinstance(node, Scalar) and node.value is None):
                message = f"{shown(plain(node))} stands where the list of {key} is expected"
                fix = f"write a list below {key}:, such as - {example}"
                self._diagnostics.add("wrong-type", message, node.position, fix=fix, length=width(node))
                self._files.incomplete = True
        return entries

    def read(self) -> PolicySet:
        """The set; meaningless parts have stand-ins where there are errors."""
        settings = self._settings()
        builder = Builder(self._reader, self._actions, settings, self._diagnostics)
        nodes = {key: self._merged(key) for key in ("collectors", "prices", "notify")}
        collectors = read_collectors(
            nodes["collectors"],
            self._collectors,
            known_collectors(self._catalogue, self._collectors),
            settings.resolution,
            self._diagnostics,
        )
        self._read_policies(builder)
        budgets = _present(builder.budget(node) for node in self._entries("budgets", "name: vision"))
        self._exemptions = self._read_exemptions(builder)
        correlations = _present(
            builder.correlation(node) for node in self._entries("correlate", "name: stall")
        )
        protect = [builder.protection(node) for node in self._entries("protect", "'label.keep == \"true\"'")]
        fixed = self._sections(FixedCost, self._entries("fixed-costs", "name: cluster"))
        notify = read_notify(nodes["notify"], self._diagnostics)
        self._cross(budgets, correlations, tuple(notify))
        self._set = PolicySet(
            files=tuple(self._files.documents),
            settings=settings,
            collectors=collectors,
            policies=tuple(draft.policy for draft in self._drafts),
            budgets=tuple(entry.value for entry in budgets),
            exemptions=tuple(entry.value for entry in self._exemptions if entry.value is not None),
            protect=tuple(condition for condition in protect if condition is not None),
            correlations=tuple(entry.value for entry in correlations),
            notify=notify,
            prices=self._prices(nodes["prices"]),
            fixed_costs=tuple(fixed),
            currency=self._currency(builder, nodes["prices"]),
        )
        return self._set

    def _settings(self) -> Settings:
        node = self._merged("settings")
        checked = check(SettingsSection, node, self._diagnostics).value if node is not None else None
        section = checked or SettingsSection()
        return Settings(
            mode=section.mode,
            timezone=section.timezone,
            resolution=section.resolution,
            state=section.state,
            limits={**DEFAULT_LIMITS, **(given(section.limits) or {})},
            retention=section.retention,
            heartbeat=section.heartbeat,
            maintenance=tuple(given(window) or {} for window in section.maintenance),
        )

    def _prices(self, node: Mapping | None) -> dict[str, Any]:
        checked = check(Prices, node, self._diagnostics).value if node is not None else None
        return given(checked) or {}

    def _sections(self, model: type[Section], nodes: list[Node]) -> list[dict[str, Any]]:
        mappings = [expect_mapping(node, "a mapping", self._diagnostics) for node in nodes]
        checked = [check(model, node, self._diagnostics).value for node in mappings if node is not None]
        return [given(section) or {} for section in checked if section is not None]

    def _read_policies(self, builder: Builder) -> None:
        nodes = self._entries("policies", "name: idle-gpu")
        if not nodes and self._roots and not self._files.incomplete:
            root = self._roots[0]
            self._diagnostics.add(
                "file-empty",
                "there are no policies",
                root.place("policies"),
                fix="add an entry under policies:",
            )
        drafts = [builder.policy(node) for node in nodes]
        self._drafts = [draft for draft in drafts if draft is not None]
        if len(self._drafts) < len(nodes) or any("name" in draft.damaged for draft in self._drafts):
            self._files.incomplete = True

    def _read_exemptions(self, builder: Builder) -> list[Entry]:
        known = {draft.policy.name: draft for draft in self._drafts}
        entries = self._entries("exemptions", "policy: idle-gpu")
        return _present(builder.exemption(node, known) for node in entries)

    def _cross(self, budgets: list[Entry], correlations: list[Entry], receivers: Sequence[str]) -> None:
        named = [draft for draft in self._drafts if "name" not in draft.damaged]
        unique([(d.policy.name, d.place("name")) for d in named], "a policy", self._diagnostics)
        for entries, what in ((budgets, "a budget"), (correlations, "a correlation")):
            unique([(e.name, e.place) for e in entries if "name" not in e.damaged], what, self._diagnostics)
        unnamed = any("name" in entry.damaged for entry in budgets)
        if not (self._files.incomplete or unnamed):
            names = {entry.name for entry in budgets}
            check_references(self._drafts, self._exemptions, correlations, names, self._diagnostics)
            steps = [draft.node.get("then") for draft in self._drafts]
            steps += [entry.node.get("then") for entry in correlations]
            check_receivers([node for node in steps if node is not None], receivers, self._diagnostics)

    def _currency(self, builder: Builder, prices: Mapping | None) -> str | None:
        nodes: list[Node | None] = [prices]
        nodes += [root.get(key) for root in self._roots for key in ("budgets", "fixed-costs", "settings")]
        nodes += [draft.node.get(key) for draft in self._drafts for key in ("waste", "limits")]
        return one_currency(moneys(nodes, builder.leaves, self._reader), self._diagnostics)

    def lint(self, today: date | None, environ: MappingType[str, str] | None) -> None:
        """Say what is allowed and yet is probably not meant."""
        lint(self._drafts, self._set, self._reader, self._collectors, self._diagnostics)
        if today is not None:
            lint_exemptions(
                [(e.value, e.node) for e in self._exemptions if e.value], today, self._diagnostics
            )
        if environ is not None:
            lint_variables(self._roots, environ, self._diagnostics)


def _present(entries: Iterable[Entry | None]) -> list[Entry]:
    return [entry for entry in entries if entry is not None]
