"""Readers of single values: each takes a core value and gives the typed one or one problem."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from stoploss.rules.diagnostics import suggestion
from stoploss.rules.environment import VariableError, references
from stoploss.rules.units import (
    NUMBER,
    SHARE,
    Dimension,
    Quantity,
    QuantityError,
    parse_duration,
    parse_quantity,
)

JsonSchema = dict[str, Any]

DURATION_SCHEMA: JsonSchema = {"type": ["string", "integer"], "examples": ["30s", "10m", "1h30m"]}
_TEMPLATE = re.compile(r"\{\{.*?\}\}")
_NAME = re.compile(r"[A-Za-z0-9][\w.:/-]*\Z")
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?")


def problem(code: str, message: str, fix: str | None = None, at: int | None = None) -> PydanticCustomError:
    """A validation error that carries a diagnostic code, a fix, and the entry of a list it is about."""
    context = {"message": message, "fix": fix, "at": at, "stoploss": True}
    return PydanticCustomError(code, "{message}", context)


def _each(values: list[Any], read: Callable[[Any], str]) -> tuple[str, ...]:
    found: list[str] = []
    for index, value in enumerate(values):
        try:
            found.append(read(value))
        except PydanticCustomError as error:
            context = error.context or {}
            raise problem(error.type, context["message"], context["fix"], index) from None
    return tuple(found)


@dataclass(frozen=True)
class Reads:
    """Annotation of a field: `function` reads the value, `schema` describes it to an editor.

    A single function in place of pydantic's unions, so that one mistake gives one error.
    """

    function: Callable[[Any], Any]
    schema: JsonSchema

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.function)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return dict(self.schema)


def shown(value: Any) -> str:
    """A core value as a person would call it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    return f"{value}"[:60]


def read_text(value: Any) -> str:
    """A text that is not empty and has no placeholder left in it."""
    if not isinstance(value, str):
        fix = f'quote it: "{value}"' if isinstance(value, int | float) else "write a text"
        raise problem("wrong-type", f"{shown(value)} stands where a text is expected", fix)
    if not value.strip():
        raise problem("bad-value", "the text is empty", "write something, or remove the key")
    template = _TEMPLATE.search(value)
    if template is not None:
        raise problem(
            "unexpanded-template",
            f"the placeholder {template[0]} was not filled in",
            "fill the placeholder in before loading; stoploss itself expands only ${NAME}",
        )
    return value


def read_name(value: Any) -> str:
    """A name: letters, digits and - _ . : / after a letter or digit."""
    name = read_text(value)
    if not _NAME.match(name) or len(name) > 100:
        near = re.sub(r"[^\w.:/-]+", "-", name).strip("-_.:/")[:100]
        fix = f"write {near}" if _NAME.match(near) else "use letters, digits and -"
        raise problem("bad-value", f"{shown(name)} cannot be a name", fix)
    return name


def read_expandable(value: Any) -> str:
    """A text in which `${NAME}` is expanded when it is used."""
    text = read_text(value)
    try:
        references(text)
    except VariableError as error:
        raise problem(
            "bad-value", str(error), "write ${NAME} or ${NAME:-default}; $$ is a dollar sign"
        ) from None
    return text


def read_place(value: Any) -> str:
    """Where a copy goes: a folder from the root, or a folder of a bucket in S3."""
    text = read_text(value)
    if not text.startswith("/") and not _BUCKET.fullmatch(text):
        fix = "write a folder from the root, such as /backup, or s3://BUCKET/FOLDER"
        raise problem("bad-value", f"{shown(text)} is no place for a copy", fix)
    return text


def read_texts(value: Any) -> tuple[str, ...]:
    """One text, or a list of texts."""
    return _each(value, read_text) if isinstance(value, list) else (read_text(value),)


def read_arguments(value: Any) -> tuple[str, ...]:
    """A program and its arguments; a single text would need a shell to be split."""
    if not isinstance(value, list) or not value:
        raise problem(
            "wrong-type",
            f"{shown(value)} stands where a list of arguments is expected",
            "write [program, argument]",
        )
    return _each(value, lambda item: read_expandable(str(item) if isinstance(item, int | float) else item))


def _quantity(value: Any, example: str) -> Quantity:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise problem("wrong-type", f"{shown(value)} stands where a quantity is expected", f"write {example}")
    try:
        return parse_quantity(str(value))
    except QuantityError as error:
        raise problem(error.code, error.message, error.fix) from None


def read_duration(value: Any) -> float:
    """A duration in seconds, 0 or more."""
    quantity = _quantity(value, "a duration such as 30m")
    if quantity.dimension == NUMBER and quantity.value != 0:
        raise problem(
            "wrong-unit", f"{value} has no unit", f"write {value}m for minutes or {value}s for seconds"
        )
    try:
        seconds = parse_duration(str(value))
    except QuantityError as error:
        raise problem(error.code, error.message, error.fix) from None
    if seconds < 0:
        raise problem("bad-value", f"{value} is negative", "write a duration of 0 or more")
    return seconds


def read_interval(value: Any) -> float:
    """A duration of at least one second."""
    seconds = read_duration(value)
    if seconds < 1:
        raise problem("bad-value", f"{value} is shorter than a second", "write a duration such as 30s or 1m")
    return seconds


def read_share(value: Any) -> float:
    """A share from 0% to 100%, as a fraction of one."""
    quantity = _quantity(value, "a share such as 20%")
    if quantity.dimension != SHARE:
        near = f"write {value}%" if quantity.dimension == NUMBER else "write a share such as 20%"
        code = "share-needs-percent" if quantity.dimension == NUMBER else "wrong-unit"
        raise problem(code, f"{value} is {quantity.dimension}, not a share", near)
    if not 0 <= quantity.value <= 1:
        raise problem("bad-value", f"{value} lies outside 0% to 100%", "write a share such as 20%")
    return quantity.value


def read_count(value: Any) -> int:
    """A whole number, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise problem(
            "wrong-type",
            f"{shown(value)} stands where a whole number is expected",
            "write a number such as 10",
        )
    if value < 0:
        raise problem("bad-value", f"{value} is negative", "write 0 or more")
    return value


def is_money(dimension: Dimension, **powers: int) -> bool:
    """Whether a dimension is money of any currency, times the given powers."""
    currency = dimension.money
    return currency is not None and dimension == Dimension.of(**{currency: 1}, **powers)


def _positive(quantity: Quantity, value: Any) -> Quantity:
    if quantity.value < 0:
        raise problem("bad-value", f"{value} is negative", "write 0 or more")
    return quantity


def read_money_rate(value: Any) -> Quantity:
    """Money per time, such as $500/h."""
    quantity = _quantity(value, "money per time such as $500/h")
    if not is_money(quantity.dimension, time=-1):
        raise problem(
            "wrong-unit", f"{value} is {quantity.dimension}, not money per time", "write it like $500/h"
        )
    return _positive(quantity, value)


def read_gpu_price(value: Any) -> Quantity:
    """The price of a GPU-hour, such as $2.00/GPU-hour."""
    quantity = _quantity(value, "a price such as $2.00/GPU-hour")
    if not is_money(quantity.dimension, gpu=-1, time=-1):
        message = f"{value} is {quantity.dimension}, not money per GPU-hour"
        raise problem("wrong-unit", message, "write it like $2.00/GPU-hour")
    return _positive(quantity, value)


def read_waste(value: Any) -> Quantity:
    """What a finding wastes: a share of the resource's price, or money per time."""
    quantity = _quantity(value, "a share such as 100%, or money such as $3/h")
    if quantity.dimension == SHARE:
        read_share(value)
        return quantity
    if quantity.dimension == NUMBER:
        raise problem("share-needs-percent", f"{value} is a plain number, not a share", f"write {value}%")
    if not is_money(quantity.dimension, time=-1):
        message = f"{value} is {quantity.dimension}, neither a share nor money per time"
        raise problem("wrong-unit", message, "write 100%, or money such as $3/h")
    return _positive(quantity, value)


def read_budget_limit(value: Any) -> Quantity:
    """The limit of a budget: GPU time or money."""
    quantity = _quantity(value, "100 GPU-hours or $20000")
    if quantity.dimension != Dimension.of(gpu=1, time=1) and not is_money(quantity.dimension):
        message = f"{value} is {quantity.dimension}, neither GPU time nor money"
        raise problem("wrong-unit", message, "write 100 GPU-hours, or money such as $20000")
    if quantity.value <= 0:
        raise problem("bad-value", f"{value} is no limit", "write more than 0")
    return quantity


def read_power(value: Any) -> float:
    """A power in watts."""
    quantity = _quantity(value, "a power such as 300W")
    if quantity.dimension != Dimension.of(power=1):
        raise problem("wrong-unit", f"{value} is {quantity.dimension}, not a power", "write it like 300W")
    return _positive(quantity, value).value


def choice(*names: str) -> Reads:
    """One word of a closed list."""
    return Reads(_word_of(names), {"type": "string", "enum": list(names)})


def choices(*names: str) -> Reads:
    """A list of words of a closed list, or one of them."""
    word = _word_of(names)

    def read(value: Any) -> tuple[str, ...]:
        return _each(value, word) if isinstance(value, list) else (word(value),)

    return Reads(read, {"type": "array", "items": {"type": "string", "enum": list(names)}})


def _word_of(names: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        word = value if isinstance(value, str) else shown(value)
        if word not in names:
            raise problem("bad-value", f"{shown(value)} is not allowed here", suggestion(word, names))
        return word

    return read


def read_node(value: Any) -> Any:
    """A part that the loader reads itself, with its places."""
    return value


TEXT = Reads(read_text, {"type": "string", "minLength": 1})
PLACE = Reads(
    read_place, {"type": "string", "pattern": "^(/|s3://)", "examples": ["/backup", "s3://bucket/runs"]}
)
NAME = Reads(read_name, {"type": "string", "pattern": r"^[A-Za-z0-9][\w.:/-]*$"})
TEXTS = Reads(read_texts, {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
ARGUMENTS = Reads(read_arguments, {"type": "array", "items": {"type": "string"}, "minItems": 1})
EXPANDABLE = Reads(read_expandable, {"type": "string"})
DURATION = Reads(read_duration, DURATION_SCHEMA)
INTERVAL = Reads(read_interval, {"type": "string", "examples": ["15s", "1m", "5m"]})
SHARE_FIELD = Reads(read_share, {"type": "string", "examples": ["20%"]})
COUNT = Reads(read_count, {"type": "integer", "minimum": 0})
MONEY_RATE = Reads(read_money_rate, {"type": "string", "examples": ["$500/h"]})
GPU_PRICE = Reads(read_gpu_price, {"type": "string", "examples": ["$2.00/GPU-hour"]})
WASTE = Reads(read_waste, {"type": "string", "examples": ["100%", "$3/h"]})
BUDGET_LIMIT = Reads(read_budget_limit, {"type": "string", "examples": ["100 GPU-hours", "$20000"]})
POWER = Reads(read_power, {"type": "string", "examples": ["300W"]})
CONDITION = Reads(read_node, {"type": "string", "maxLength": 2000})
CONDITIONS = Reads(read_node, {"x-ref": "Conditions"})
STEPS = Reads(read_node, {"type": "array", "items": {"x-ref": "Step"}})
