"""What a policy must say before it may change or end anything."""

from __future__ import annotations

from collections.abc import Iterator

from stoploss.rules.catalogue import IDENTITY_LABELS
from stoploss.rules.conditions.typed import Condition, Fold, Has, Junction, Label, Not, TextTest
from stoploss.rules.diagnostics import Diagnostics
from stoploss.rules.loading.conditions import ConditionReader
from stoploss.rules.loading.draft import Draft, find


def check_safety(draft: Draft, reader: ConditionReader, diagnostics: Diagnostics) -> None:
    """Refuse a policy that acts without a condition, or that selects by what is absent."""
    kinds = dict(enumerate(draft.kinds, 1))
    # A step that follows a missing answer changes something unless it is an alert, too.
    acting = [
        step
        for number, step in draft.policy.numbered
        if kinds.get(number, "notify" if step.action == "alert" else "changing") != "notify"
    ]
    if acting and draft.policy.when is None and "when" not in draft.damaged:
        step = acting[0]
        diagnostics.add(
            "no-condition",
            f"the policy would {step.action} everything of kind {draft.policy.each}: it has no condition",
            step.position,
            fix="add `when:` with a condition",
            length=len(step.action),
        )
    if not draft.destructive or draft.where is None:
        return
    root = draft.where.condition.root
    asked = {node.label for node in _leaves(root) if isinstance(node, Has)}
    for label, test in dict(_selected_by_absence(root, negated=False)).items():
        if label in asked:
            continue
        place = find(draft.where, test.text, reader)
        diagnostics.add(
            "negated-label",
            f"this also selects every {draft.policy.each} without the label {label}",
            place.position,
            fix=f"put `has({_written(label)}) and` before it",
            length=place.length,
        )


def _written(label: str) -> str:
    if label in IDENTITY_LABELS:
        return label
    return f"label.{label}" if label.isidentifier() else f'label["{label}"]'


def _leaves(node: Condition) -> Iterator[Condition]:
    if isinstance(node, Junction):
        for item in node.items:
            yield from _leaves(item)
    elif isinstance(node, Not | Fold):
        yield from _leaves(node.inner)
    else:
        yield node


def _selected_by_absence(node: Condition, *, negated: bool) -> Iterator[tuple[str, TextTest]]:
    """Tests of a label that are true where the label is absent."""
    if isinstance(node, Junction):
        for item in node.items:
            yield from _selected_by_absence(item, negated=negated)
    elif isinstance(node, Not):
        yield from _selected_by_absence(node.inner, negated=not negated)
    elif isinstance(node, Fold):
        yield from _selected_by_absence(node.inner, negated=negated)
    elif isinstance(node, TextTest) and isinstance(node.operand, Label):
        # On an absent label != is true and every other test false.
        by_absence = (node.op == "!=") != negated
        if by_absence and node.operand.name not in ("kind", "id"):
            yield node.operand.name, node
