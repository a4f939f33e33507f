"""What the parts of a set say about each other: unique names, references, one currency."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Mapping as MappingType
from dataclasses import dataclass

from stoploss.rules.diagnostics import Diagnostics, Position, Related, suggestion
from stoploss.rules.loading.build import Entry
from stoploss.rules.loading.conditions import ConditionReader, Leaf
from stoploss.rules.loading.draft import Draft, items
from stoploss.rules.loading.files import PACK
from stoploss.rules.units import CURRENCIES, SYMBOLS
from stoploss.rules.yaml import Mapping, Node, Scalar, scalars
from stoploss.rules.yaml import Sequence as ListNode

_MONEY = re.compile(r"[-+]?([$€£])\s*\d")
OWNER = "owner"
"""The receiver that every set has: whoever the resource's labels name."""


@dataclass(frozen=True, slots=True)
class Money:
    """A currency that is named somewhere."""

    currency: str
    place: Position
    text: str


def unique(names: Iterable[tuple[str, Position]], what: str, diagnostics: Diagnostics) -> None:
    """Refuse a name that stands twice, with both places."""
    first: dict[str, Position] = {}
    for name, place in names:
        known = first.setdefault(name, place)
        if known is not place:
            diagnostics.add(
                "duplicate-name",
                f"{what} {name!r} exists already at {known.file}:{known.line}",
                place,
                fix="rename one of the two",
                length=len(name),
                related=(Related("the first one", known),),
            )


def check_references(
    drafts: Sequence[Draft],
    exemptions: Sequence[Entry],
    correlations: Sequence[Entry],
    budgets: Collection[str],
    diagnostics: Diagnostics,
) -> None:
    """Refuse exemptions and correlations of unknown policies, and unknown budgets."""
    policies = {draft.policy.name for draft in drafts}
    for draft in drafts:
        name = draft.policy.budget
        if name is not None and "budget" not in draft.damaged and name not in budgets:
            fix = suggestion(name, budgets) if budgets else "add it under budgets:"
            diagnostics.add(
                "unknown-budget",
                f"there is no budget {name!r}",
                draft.place("budget"),
                fix=fix,
                length=len(name),
            )
    for entry in exemptions:
        if "policy" not in entry.damaged:
            _known(entry.name, entry.place, policies, diagnostics)
    for entry in correlations:
        for key in ("all", "none"):
            value = entry.node.get(key)
            for item in items(value) or ((value,) if isinstance(value, Scalar) else ()):
                if isinstance(item, Scalar) and key not in entry.damaged:
                    _known(item.text, item.position, policies, diagnostics)


def _known(name: str, place: Position, policies: Collection[str], diagnostics: Diagnostics) -> None:
    if name not in policies:
        fix = suggestion(name, policies) if policies else "this set has no policies"
        diagnostics.add(
            "unknown-policy", f"there is no policy {name!r}", place, fix=fix, length=max(1, len(name))
        )


def check_receivers(nodes: Iterable[Node], receivers: Collection[str], diagnostics: Diagnostics) -> None:
    """Refuse a step that speaks to nobody; without `notify:` a set is only for looking at."""
    if not receivers:
        return
    for node in nodes:
        if node.position.file.startswith(PACK):
            continue
        for scalar in _receivers(node):
            if scalar.text != OWNER and scalar.text not in receivers:
                diagnostics.add(
                    "bad-value",
                    f"there is no receiver {scalar.text!r} under notify:",
                    scalar.position,
                    fix=suggestion(scalar.text, {*receivers, OWNER}),
                    length=max(1, len(scalar.text)),
                )


def _receivers(then: Node) -> Iterable[Scalar]:
    for step in items(then):
        if not isinstance(step, Mapping):
            continue
        for _, body in step.pairs:
            if not isinstance(body, Mapping):
                continue
            to = body.get("to")
            for item in to.items if isinstance(to, ListNode) else (to,):
                if isinstance(item, Scalar) and isinstance(item.value, str):
                    yield item
            answer = body.get("require-ack")
            nested = answer.get("then") if isinstance(answer, Mapping) else None
            if nested is not None:
                yield from _receivers(nested)


def moneys(nodes: Iterable[Node | None], leaves: Iterable[Leaf], reader: ConditionReader) -> list[Money]:
    """Every currency that is named, in quantities and in conditions."""
    found = [
        Money(CURRENCIES[match[1]], scalar.position, scalar.text)
        for node in nodes
        if node is not None
        for scalar in scalars(node)
        if (match := _MONEY.match(scalar.text.strip()))
    ]
    for leaf in leaves:
        for currency in sorted(leaf.condition.currencies):
            symbol = SYMBOLS.get(currency, currency)
            offset = max(0, leaf.condition.text.find(symbol))
            found.append(Money(currency, reader.place(leaf.scalar, offset), symbol))
    return found


def one_currency(found: Sequence[Money], diagnostics: Diagnostics) -> str | None:
    """The currency of the set; each further one is refused once, with both places."""
    firsts: MappingType[str, Money] = {
        item.currency: item for item in sorted(found, key=lambda money: money.place, reverse=True)
    }
    ordered = sorted(firsts.values(), key=lambda item: item.place)
    for other in ordered[1:]:
        first = ordered[0]
        diagnostics.add(
            "mixed-currency",
            f"{other.currency} stands here, and {first.currency} at {first.place.file}:{first.place.line}",
            other.place,
            fix=f"use {first.currency} throughout",
            length=len(other.text),
            related=(Related("the other currency", first.place),),
        )
    return ordered[0].currency if ordered else None
