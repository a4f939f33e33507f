"""What is different between two policy sets, in words, for whoever reloads them."""

from __future__ import annotations

from stoploss.engine.ledger_schema import policy_hash
from stoploss.rules.policy import PolicySet

SECTIONS = (
    "settings",
    "collectors",
    "budgets",
    "exemptions",
    "protect",
    "correlations",
    "notify",
    "prices",
    "fixed_costs",
)


def changes(old: PolicySet, new: PolicySet) -> tuple[str, ...]:
    """One line for each thing that came, went or changed; empty where nothing did."""
    before = {policy.name: policy for policy in old.policies}
    after = {policy.name: policy for policy in new.policies}
    told = [f"policy {name} is gone" for name in before.keys() - after.keys()]
    for name, policy in after.items():
        if name not in before:
            told.append(f"policy {name} is new (mode {policy.mode})")
        elif policy_hash(policy) != policy_hash(before[name]):
            was, now = before[name].mode, policy.mode
            told.append(f"policy {name} has changed" + (f": mode {was} -> {now}" if was != now else ""))
    for name in (
        "settings",
        "collectors",
        "budgets",
        "exemptions",
        "protect",
        "correlations",
        "notify",
        "prices",
    ):
        if _plain(getattr(old, name)) != _plain(getattr(new, name)):
            told.append(f"{name} have changed")
    return tuple(sorted(told))


def _plain(value: object) -> str:
    """A section without the places at which its parts stand in their files."""
    import re

    return re.sub(r"Position\([^)]*\)", "", repr(value))
