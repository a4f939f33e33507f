"""Checks a node against a model, and says each error at its place in the file."""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from stoploss.rules.codes import CODES
from stoploss.rules.diagnostics import Diagnostics, did_you_mean, suggestion
from stoploss.rules.models.fields import shown
from stoploss.rules.yaml import Broken, Mapping, Node, Scalar, Sequence, plain
from stoploss.rules.yaml_errors import PLACEHOLDER_FIX

M = TypeVar("M", bound=BaseModel)

_EXPECTED = {
    "model_type": "keys with values are",
    "model_attributes_type": "keys with values are",
    "dict_type": "keys with values are",
    "list_type": "a list is",
    "tuple_type": "a list is",
    "set_type": "a list is",
    "string_type": "a text is",
    "int_type": "a whole number is",
    "int_parsing": "a whole number is",
    "int_from_float": "a whole number is",
    "float_type": "a number is",
    "float_parsing": "a number is",
    "bool_type": "true or false is",
    "bool_parsing": "true or false is",
}


@dataclass(frozen=True, slots=True)
class Checked(Generic[M]):
    """A section as far as it is right.

    Attributes:
        value: the model; None where not even the right part can be kept.
        damaged: keys that are missing or wrong; their values in `value` are not the user's.
    """

    value: M | None
    damaged: frozenset[str]


def check(
    model: type[M], node: Mapping, diagnostics: Diagnostics, *, unknown: str = "unknown-key"
) -> Checked[M]:
    """Validate a mapping; every error becomes one diagnostic, with `unknown` as the code for extra keys."""
    data = plain(node)
    damaged: set[str] = set()
    # The second round has only right keys and stand-ins; a third is needed by no model of ours.
    for _ in range(3):
        try:
            return Checked(model.model_validate(data), frozenset(damaged))
        except ValidationError as error:
            errors: list[Any] = error.errors(include_url=False, include_input=False)
        except RecursionError:
            break
        fresh = [item for item in errors if not item["loc"] or str(item["loc"][0]) not in damaged]
        _report(fresh, model, node, diagnostics, unknown)
        wrong = {str(item["loc"][0]) for item in fresh if item["loc"]}
        wrong |= {str(loc[0]) for loc in _meant(fresh, model)}
        if not wrong:
            break
        damaged |= wrong
        stand_ins: dict[str, str] = getattr(model, "placeholders", {})
        data = {key: value for key, value in data.items() if key not in damaged}
        data |= {key: text for key, text in stand_ins.items() if key in damaged}
    return Checked(None, frozenset(damaged))


def expect_mapping(node: Node, what: str, diagnostics: Diagnostics) -> Mapping | None:
    """The node if it is a mapping; else None, and a diagnostic unless one was made."""
    if isinstance(node, Mapping):
        if node.placeholder is not None:
            _placeholder(node, diagnostics)
            return None
        return node
    if not isinstance(node, Broken):
        message = f"{shown(plain(node))} stands where {what} is expected"
        diagnostics.add(
            "wrong-type", message, node.position, fix="write keys with values", length=width(node)
        )
    return None


def width(node: Node) -> int:
    """How many characters the caret underlines."""
    if isinstance(node, Scalar) and node.position.line == node.end.line:
        return max(1, node.end.column - node.position.column)
    return 1


def _placeholder(node: Mapping, diagnostics: Diagnostics) -> None:
    text = f"{{{node.placeholder}}}"
    diagnostics.add(
        "unexpanded-template",
        f"the placeholder {text} was not filled in",
        node.position,
        fix=PLACEHOLDER_FIX,
        length=len(text),
    )


def _report(
    errors: list[Any], model: type[BaseModel], node: Mapping, diagnostics: Diagnostics, unknown: str
) -> None:
    told: set[object] = set()
    meant = _meant(errors, model)
    for error in errors:
        loc: tuple[int | str, ...] = error["loc"]
        if error["type"] in ("extra_forbidden", "missing"):
            parent = _locate(node, loc[:-1])
            if isinstance(parent, Mapping) and loc not in meant:
                about = model_at(model, loc[:-1])
                _key_error(error, parent, about, diagnostics, unknown)
            continue
        target = _locate(node, loc)
        context: MappingType[str, Any] = error.get("ctx") or {}
        if isinstance(target, Sequence) and isinstance(context.get("at"), int):
            target = target.items[context["at"]]
        # A union of a plug-in gives one error per branch; the first is enough.
        if isinstance(target, Broken) or target.position in told:
            continue
        told.add(target.position)
        _wrong(error, context, target, diagnostics)


def _meant(errors: list[Any], model: type[BaseModel]) -> set[tuple[int | str, ...]]:
    """Places of keys that are only misspelt: that they are missing is not a second mistake."""
    meant: set[tuple[int | str, ...]] = set()
    for error in errors:
        if error["type"] == "extra_forbidden":
            *above, key = error["loc"]
            near = did_you_mean(str(key), keys_of(model_at(model, tuple(above))))
            if near is not None:
                meant.add((*above, near))
    return meant


def _key_error(
    error: Any, parent: Mapping, model: type[BaseModel] | None, diagnostics: Diagnostics, unknown: str
) -> None:
    key = str(error["loc"][-1])
    if error["type"] == "missing":
        _missing(key, parent, model, diagnostics)
    elif parent.placeholder is not None:
        _placeholder(parent, diagnostics)
    else:
        _unknown(key, parent, model, diagnostics, unknown)


def _locate(node: Node, loc: tuple[int | str, ...]) -> Node:
    for part in loc:
        below: Node | None = None
        if isinstance(node, Mapping) and isinstance(part, str):
            below = node.get(part)
        elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            below = node.items[part]
        if below is None:
            return node
        node = below
    return node


def model_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The model that describes the mapping at a place inside of `model`."""
    current: type[BaseModel] | None = model
    for part in loc:
        if current is None or not isinstance(part, str):
            continue
        field = next((f for name, f in current.model_fields.items() if part in (f.alias, name)), None)
        current = _model_in(field.annotation) if field is not None else None
    return current


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def keys_of(model: type[BaseModel] | None) -> tuple[str, ...]:
    """The keys of a model as they are written."""
    fields = model.model_fields.items() if model is not None else ()
    return tuple(field.alias or name for name, field in fields)


def _missing(key: str, parent: Mapping, model: type[BaseModel] | None, diagnostics: Diagnostics) -> None:
    fields = model.model_fields.items() if model is not None else ()
    about = next((f.description for name, f in fields if key in (f.alias, name)), None)
    code = "missing-grace" if key in ("expires", "within") else "missing-key"
    fix = f"add `{key}:` ({about.rstrip('.')})" if about else f"add `{key}:`"
    diagnostics.add(code, f"the key {key!r} is missing", parent.position, fix=fix)


def _unknown(
    key: str, parent: Mapping, model: type[BaseModel] | None, diagnostics: Diagnostics, code: str
) -> None:
    diagnostics.add(
        code,
        f"the key {key!r} does not exist here",
        parent.place(key),
        fix=suggestion(key, keys_of(model), listing=30),
        length=max(1, len(key)),
    )


def _wrong(error: Any, context: MappingType[str, Any], node: Node, diagnostics: Diagnostics) -> None:
    kind = error["type"]
    if isinstance(node, Mapping) and node.placeholder is not None:
        _placeholder(node, diagnostics)
        return
    cause = context.get("error")
    if context.get("stoploss"):
        code, message, fix = kind, context["message"], context["fix"]
    elif isinstance(getattr(cause, "code", None), str) and getattr(cause, "code", None) in CODES:
        code, message, fix = cause.code, str(cause), getattr(cause, "fix", None)  # type: ignore[union-attr]
    elif kind in _EXPECTED:
        code, fix = "wrong-type", None
        message = f"{shown(plain(node))} stands where {_EXPECTED[kind]} expected"
    else:
        code, fix = "bad-value", None
        message = f"{shown(plain(node))}: {cause if cause is not None else error['msg']}"
    diagnostics.add(code, message, node.position, fix=fix, length=width(node))
