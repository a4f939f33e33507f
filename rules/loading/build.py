"""Builds policies, budgets, exemptions and correlations from their nodes."""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from dataclasses import dataclass
from typing import Any, TypeVar

from stoploss.rules.conditions.typed import CheckedCondition
from stoploss.rules.diagnostics import Diagnostics, Position
from stoploss.rules.loading.conditions import ConditionReader, Leaf, When
from stoploss.rules.loading.draft import Draft, is_empty
from stoploss.rules.loading.safety import check_safety
from stoploss.rules.loading.steps import Steps, read_steps
from stoploss.rules.loading.structure import Checked, check, expect_mapping
from stoploss.rules.models.base import Section
from stoploss.rules.models.sections import (
    Active,
    BudgetSection,
    CorrelationSection,
    ExemptionSection,
    Limits,
    PolicySection,
)
from stoploss.rules.options import ActionOptions
from stoploss.rules.policy import Budget, Correlation, Exemption, Policy, Settings
from stoploss.rules.yaml import Mapping, Node

S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True)
class Entry:
    """A named thing with the place of its name; `value` is as right as its file."""

    name: str
    place: Position
    value: Any
    node: Mapping
    damaged: frozenset[str] = frozenset()


class Builder:
    """Turns nodes into the frozen values of `rules/policy.py`, saying every problem on the way."""

    def __init__(
        self, reader: ConditionReader, actions: ActionOptions, settings: Settings, diagnostics: Diagnostics
    ) -> None:
        self._reader = reader
        self._actions = actions
        self._settings = settings
        self._diagnostics = diagnostics
        self.leaves: list[Leaf] = []

    def policy(self, node: Node) -> Draft | None:
        """One entry of `policies:`."""
        found = self._section(PolicySection, node, "a policy")
        if found is None:
            return None
        mapping, section, checked = found
        damaged = set(checked.damaged)
        when, where = When(damaged=True), None
        if "each" not in damaged:
            when = self._reader.when(mapping.get("when"), section.each)
            where = self._labels(mapping, "where", section.each, damaged)
        if when.damaged:
            damaged.add("when")
        then = read_steps(mapping.get("then"), self._actions, self._diagnostics)
        if then.damaged:
            damaged.add("then")
        self.leaves += when.leaves
        policy = self._policy(section, mapping, when, where, then)
        draft = Draft(policy, frozenset(damaged), mapping, when.leaves, then.kinds, where)
        check_safety(draft, self._reader, self._diagnostics)
        return draft

    def _policy(
        self, section: PolicySection, node: Mapping, when: When, where: Leaf | None, then: Steps
    ) -> Policy:
        return Policy(
            name=section.name,
            each=section.each,
            position=node.position,
            summary=section.summary,
            where=_checked(where),
            when=when.root,
            conditions=tuple(leaf.condition for leaf in when.leaves),
            canonical=when.canonical,
            for_seconds=section.for_,
            hold_seconds=section.hold,
            severity=section.severity,
            cause=section.cause,
            mode=section.mode or self._settings.mode,
            resolution=section.resolution or self._settings.resolution,
            on_unknown=section.on_unknown,
            min_age=section.min_age,
            except_phase=section.except_phase,
            active=given(section.active),
            waste=section.waste,
            limits=given(section.limits) or {},
            budget=section.budget,
            runbook=section.runbook,
            contact=section.contact,
            steps=then.steps,
        )

    def budget(self, node: Node) -> Entry | None:
        """One entry of `budgets:`."""
        found = self._section(BudgetSection, node, "a budget")
        if found is None:
            return None
        mapping, section, checked = found
        damaged = set(checked.damaged)
        where = None if "each" in damaged else self._labels(mapping, "where", section.each, damaged)
        budget = Budget(
            section.name, section.each, section.limit, mapping.position, _checked(where), section.per
        )
        return _entry(section.name, mapping, budget, damaged)

    def exemption(self, node: Node, policies: MappingType[str, Draft]) -> Entry | None:
        """One entry of `exemptions:`; its `where` is read for the kind of its policy."""
        found = self._section(ExemptionSection, node, "an exemption")
        if found is None:
            return None
        mapping, section, checked = found
        damaged = set(checked.damaged)
        draft = policies.get(section.policy)
        each = draft.policy.each if draft is not None and "each" not in draft.damaged else None
        leaf = None if "where" in damaged else self._labels(mapping, "where", each, damaged, required=True)
        if leaf is None:
            # Without its `where` nothing can be kept; the set is not used anyway.
            return _entry(section.policy, mapping, None, damaged | {"where"}, key="policy")
        exemption = Exemption(
            policy=section.policy,
            where=leaf.condition,
            reason=section.reason,
            owner=section.owner,
            expires=section.expires,
            position=mapping.position,
        )
        return _entry(section.policy, mapping, exemption, damaged, key="policy")

    def correlation(self, node: Node) -> Entry | None:
        """One entry of `correlate:`."""
        found = self._section(CorrelationSection, node, "a correlation")
        if found is None:
            return None
        mapping, section, checked = found
        then = read_steps(mapping.get("then"), self._actions, self._diagnostics)
        correlation = Correlation(
            name=section.name,
            cause=section.cause,
            join=section.join,
            all=section.all,
            none=section.none,
            within=section.within,
            steps=then.steps,
            position=mapping.position,
        )
        self._no_ending(then, mapping)
        return _entry(section.name, mapping, correlation, set(checked.damaged))

    def protection(self, node: Node) -> CheckedCondition | None:
        """One entry of `protect:`, for resources of any kind."""
        leaf = self._reader.condition(node, each=None, labels_only=True)
        if leaf is None:
            return None
        self.leaves.append(leaf)
        return leaf.condition

    def _no_ending(self, then: Steps, node: Mapping) -> None:
        """An incident joins findings; what it would act on is not one resource."""
        for step, kind in zip(then.steps, then.kinds, strict=True):
            if kind != "notify":
                self._diagnostics.add(
                    "bad-value",
                    f"a correlation cannot {step.action}: an incident is not a resource",
                    step.position,
                    fix="use alert here, and put the step into a policy",
                    length=len(step.action),
                )

    def _section(self, model: type[S], node: Node, what: str) -> tuple[Mapping, S, Checked[S]] | None:
        mapping = expect_mapping(node, what, self._diagnostics)
        if mapping is None:
            return None
        checked = check(model, mapping, self._diagnostics)
        return (mapping, checked.value, checked) if checked.value is not None else None

    def _labels(
        self, node: Mapping, key: str, each: str | None, damaged: set[str], *, required: bool = False
    ) -> Leaf | None:
        value = node.get(key)
        if value is None or (is_empty(value) and not required):
            return None
        leaf = self._reader.condition(value, each=each, labels_only=True)
        if leaf is None:
            damaged.add(key)
        else:
            self.leaves.append(leaf)
        return leaf


def _checked(leaf: Leaf | None) -> CheckedCondition | None:
    return leaf.condition if leaf is not None else None


def _entry(name: str, node: Mapping, value: Any, damaged: set[str], key: str = "name") -> Entry:
    found = node.get(key)
    place = found.position if found is not None else node.position
    return Entry(name, place, value, node, frozenset(damaged))


def given(section: Limits | Active | Section | None) -> dict[str, Any] | None:
    """The keys of a section that have a value, as they are written; None for no section."""
    if section is None:
        return None
    fields = type(section).model_fields.items()
    return {
        field.alias or name: value for name, field in fields if (value := getattr(section, name)) is not None
    }
