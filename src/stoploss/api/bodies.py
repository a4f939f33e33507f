"""Strict JSON, and the few words of JSON Schema that routes are described with."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from stoploss.api.errors import Problem, bad
from stoploss.rules.diagnostics import suggestion

Schema = Mapping[str, Any]
DEEPEST = 64
"""Levels of a body."""


def parsed(body: bytes) -> Any:
    """A body as JSON values: no name twice, no number that is not finite, no half of a character.

    Raises:
        Problem: it is no such JSON.
    """
    try:
        value = json.loads(
            body.decode("utf-8"), object_pairs_hook=_once, parse_constant=_constant, parse_float=_finite
        )
    except UnicodeDecodeError:
        raise bad("the body is no UTF-8", "send JSON in UTF-8") from None
    except RecursionError:
        raise bad("the body is nested too deeply", f"nest at most {DEEPEST} levels") from None
    except ValueError as error:
        raise bad(f"the body is no strict JSON: {error}", "see /openapi.json for what is taken") from None
    for text in _texts(value, 0):
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise bad("a text holds half of a character", "send whole characters")
    return value


def unpacked(body: bytes, most: int) -> bytes:
    """A body that was packed by gzip (RFC 1952), never more of it than is taken.

    Raises:
        Problem: it is cut off, damaged, or holds more than `most` bytes.
    """
    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        plain = stream.decompress(body, most + 1)
    except zlib.error:
        raise bad("the body is no gzip", "send what gzip made, or plain JSON") from None
    if len(plain) > most:
        told = f"unpacked, the body has more than {most:,} bytes"
        raise Problem(413, "too-large", told, "send less at once")
    if not stream.eof or stream.unused_data:
        raise bad("the body is no whole gzip", "send it whole, in one part")
    return plain


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _texts(value: Any, depth: int) -> Iterator[str]:
    if depth > DEEPEST:
        raise bad("the body is nested too deeply", f"nest at most {DEEPEST} levels")
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _texts(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, depth + 1)


def query(given: list[tuple[str, str]], known: Mapping[str, Schema]) -> dict[str, Any]:
    """The parameters of a query as values, defaults included.

    Raises:
        Problem: one is unknown, twice there, or wrong.
    """
    found: dict[str, Any] = {}
    for name, text in given:
        if name not in known:
            raise bad(
                f"there is no parameter {name[:80]}", suggestion(name, known) if known else "leave it out"
            )
        if name in found:
            raise bad(f"{name} stands twice", "give it once")
        whole = known[name].get("type") == "integer"
        number = re.fullmatch(r"-?[0-9]{1,12}", text, re.ASCII)
        found[name] = int(text) if whole and number else text
        checked(found[name], known[name], name)
    for name, schema in known.items():
        if schema.get("required") and name not in found:
            raise bad(f"{name} is not given", f"give ?{name}=…")
    return {name: schema["default"] for name, schema in known.items() if "default" in schema} | found


def checked(value: Any, schema: Schema, where: str) -> None:
    """Check a value.

    Raises:
        Problem: it does not fit; the first mistake is told.
    """
    wrong = next(_wrong(value, schema, where), None)
    if wrong is not None:
        raise wrong


_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}


def _wrong(value: Any, schema: Schema, where: str) -> Iterator[Problem]:
    kind = schema.get("type")
    if kind is not None and (
        not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")
    ):
        yield bad(f"{where} is no {kind}", f"give {_article(kind)} {kind}")
    elif "enum" in schema and value not in schema["enum"]:
        yield bad(f"{where} is none of its words", f"one of: {', '.join(map(str, schema['enum']))}")
    elif isinstance(value, str):
        yield from _text(value, schema, where)
    elif isinstance(value, dict):
        yield from _object(value, schema, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        if not low <= value <= high:
            yield bad(f"{where} is out of its range", f"give a number from {low} to {high}")


def _article(kind: str) -> str:
    return "an" if kind[0] in "aio" else "a"


def _text(value: str, schema: Schema, where: str) -> Iterator[Problem]:
    low, high = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    if not low <= len(value) <= high:
        yield bad(f"{where} has {len(value):,} characters", f"give {low} to {high:,} of them")
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        told = schema.get("description", "see /openapi.json")
        yield bad(f"{where} is not of the right form", str(told))


def _object(value: dict[str, Any], schema: Schema, where: str) -> Iterator[Problem]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield bad(f"{where} lacks {name}", f"give {name}")
    for name, item in value.items():
        if name in known:
            yield from _wrong(item, known[name], name)
        elif schema.get("additionalProperties") is False:
            fix = suggestion(name, known) if known else "leave it out"
            yield bad(f"{where} has no key {name[:80]!r}", fix)
