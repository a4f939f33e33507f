"""Exemptions that people made while the policies run, joined to those of the policy files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stoploss.engine.people_schema import DecisionError, RuntimeExemption
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.conditions.check import check_condition
from stoploss.rules.conditions.typed import CheckedCondition
from stoploss.rules.diagnostics import Position
from stoploss.rules.policy import Exemption, PolicySet


def with_exemptions(policies: PolicySet, made: Iterable[RuntimeExemption], catalogue: Catalogue) -> PolicySet:
    """A policy set that also exempts what people exempted since.

    Exemptions of policies that are no longer in the set are left out; those that have expired are
    not, so that a finding can say that its exemption is over.

    Raises:
        DecisionError: a condition can no longer be read; then nothing may be ended.
    """
    place = Position(policies.settings.state)
    extra = [
        Exemption(item.policy, where, item.reason, item.owner, item.expires, place)
        for item in made
        if (where := selection(item.where, item.policy, policies, catalogue)) is not None
    ]
    return replace(policies, exemptions=(*policies.exemptions, *extra))


def selection(where: str, policy: str, policies: PolicySet, catalogue: Catalogue) -> CheckedCondition | None:
    """The condition by which resources of a policy are selected; None where there is no such policy.

    Raises:
        DecisionError: the condition is wrong; every mistake is told.
    """
    found = next((item for item in policies.policies if item.name == policy), None)
    if found is None:
        return None
    checked, problems = check_condition(where, each=found.each, catalogue=catalogue, labels_only=True)
    if checked is None or problems:
        told = "; ".join(item.message + (f" ({item.fix})" if item.fix else "") for item in problems)
        raise DecisionError(f"{where!r}: {told}")
    return checked
