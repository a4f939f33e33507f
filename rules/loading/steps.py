"""Reads `then:`: a list of steps, each an action with its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stoploss.rules.diagnostics import Diagnostics, suggestion
from stoploss.rules.loading.draft import is_empty
from stoploss.rules.loading.structure import check, keys_of, width
from stoploss.rules.models.fields import shown
from stoploss.rules.models.steps import COMMON_KEYS, StepOptions
from stoploss.rules.options import ActionClass, ActionOptions, ActionSpec
from stoploss.rules.policy import Step
from stoploss.rules.yaml import Broken, Mapping, Node, Scalar, Sequence, plain


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps that could be read, the class of each, and whether some could not."""

    steps: tuple[Step, ...] = ()
    kinds: tuple[ActionClass, ...] = ()
    damaged: bool = False


def read_steps(node: Node | None, actions: ActionOptions, diagnostics: Diagnostics) -> Steps:
    """Read a list of steps; every problem goes to `diagnostics`."""
    if node is None or is_empty(node):
        return Steps()
    if not isinstance(node, Sequence):
        if not isinstance(node, Broken):
            message = f"{shown(plain(node))} stands where a list of steps is expected"
            fix = "write one step per line, such as - alert: {to: owner}"
            diagnostics.add("wrong-type", message, node.position, fix=fix, length=width(node))
        return Steps(damaged=True)
    steps: list[Step] = []
    kinds: list[ActionClass] = []
    before = len(diagnostics.items)
    damaged = False
    for item in node.items:
        read = _step(item, actions, diagnostics)
        if read is None:
            damaged = True
            continue
        steps.append(read[0])
        kinds.append(read[1])
    return Steps(tuple(steps), tuple(kinds), damaged or len(diagnostics.items) > before)


def _step(node: Node, actions: ActionOptions, diagnostics: Diagnostics) -> tuple[Step, ActionClass] | None:
    found = _action(node, actions, diagnostics)
    if found is None:
        return None
    key, body, spec = found
    if isinstance(body, Broken):
        return None
    if is_empty(body):
        body = Mapping((), key.position)
    if not isinstance(body, Mapping):
        message = f"{shown(plain(body))} stands where the options of {key.text} are expected"
        fix = f"write {key.text}: {{after: 20m}}, or {key.text}: {{}} for none"
        diagnostics.add("wrong-type", message, body.position, fix=fix, length=width(body))
        return None
    checked = check(spec.options, body, diagnostics, unknown="unknown-option")
    own = frozenset(name.text for name, _ in body.pairs if name.text.replace("-", "_") not in COMMON_KEYS)
    kind = spec.kind_of(own)
    if checked.value is None:
        # The class is known even where the options are not, and the safety checks need it.
        return Step(spec.name, {}, key.position, destructive=kind == "destructive"), kind
    return _built(spec, checked.value, key, kind, _answer(body, actions, diagnostics)), kind


def _answer(body: Mapping, actions: ActionOptions, diagnostics: Diagnostics) -> tuple[Step, ...]:
    nested = body.get("require-ack")
    return read_steps(nested.get("then"), actions, diagnostics).steps if isinstance(nested, Mapping) else ()


def _built(
    spec: ActionSpec, options: StepOptions, key: Scalar, kind: ActionClass, answer: tuple[Step, ...]
) -> Step:
    own: dict[str, Any] = {
        field.alias or name: value
        for name, field in type(options).model_fields.items()
        if name not in COMMON_KEYS and (value := getattr(options, name)) is not None
    }
    ack = options.require_ack
    return Step(
        action=spec.name,
        options=own,
        position=key.position,
        after=options.after,
        repeat=getattr(options, "repeat", None),
        approve=getattr(options, "approve", None),
        snapshot=getattr(options, "snapshot", None),
        require_ack=None if ack is None else {"within": ack.within, "then": answer},
        on_failure=options.on_failure,
        to=options.to,
        destructive=kind == "destructive",
    )


def _action(
    node: Node, actions: ActionOptions, diagnostics: Diagnostics
) -> tuple[Scalar, Node, ActionSpec] | None:
    """The action's key, its options and its description."""
    if isinstance(node, Broken):
        return None
    if not isinstance(node, Mapping) or not node.pairs:
        word = node.text if isinstance(node, Scalar) and node.text in actions else "alert"
        message = f"{shown(plain(node))} stands where a step is expected"
        diagnostics.add("wrong-type", message, node.position, fix=f"write {word}: {{}}", length=width(node))
        return None
    named = [(key, body) for key, body in node.pairs if key.text in actions]
    if not named:
        key = node.pairs[0][0]
        diagnostics.add(
            "unknown-action",
            f"there is no action {key.text!r}",
            key.position,
            fix=suggestion(key.text, actions, listing=20),
            length=max(1, len(key.text)),
        )
        return None
    key, body = named[0]
    for extra, _ in node.pairs:
        if extra is not key:
            _extra(extra, key, actions, diagnostics)
    return key, body, actions[key.text]


def _extra(extra: Scalar, action: Scalar, actions: ActionOptions, diagnostics: Diagnostics) -> None:
    if extra.text in actions:
        fix = f"begin a step of its own: - {extra.text}:"
    elif extra.text in keys_of(actions[action.text].options):
        fix = f"indent it below {action.text}:"
    else:
        fix = "a step holds one action; its options stand below it"
    message = f"{extra.text!r} stands beside {action.text} in one step"
    diagnostics.add("unknown-key", message, extra.position, fix=fix, length=max(1, len(extra.text)))
