"""The OpenAPI description, made from the table of routes."""

from __future__ import annotations

import re
from typing import Any

from stoploss import __version__
from stoploss.api.endpoints import ENDPOINTS, ID, Endpoint

ERROR = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "fix"],
            "additionalProperties": False,
            "properties": {name: {"type": "string"} for name in ("code", "message", "fix")},
        }
    },
}

ERRORS = {
    "400": "The request is wrong.",
    "401": "There is no token, or it is none of ours.",
    "403": "The token may not do this, or the request came from elsewhere.",
    "404": "There is no such thing, or it is another team's.",
    "405": "The route knows another method.",
    "408": "The body did not come in time.",
    "409": "It cannot be decided so; the message says why.",
    "413": "The body is too large.",
    "415": "The body is no JSON, or is packed where that is not taken.",
    "421": "Without tokens, only this machine is answered.",
    "429": "Too many requests; Retry-After says when to go on.",
    "503": "Nothing was evaluated yet, or the state cannot be used; Retry-After says when to go on.",
}


def description(*, tokens: bool) -> dict[str, Any]:
    """The whole description; `tokens`: requests need one."""
    paths: dict[str, dict[str, Any]] = {}
    for item in ENDPOINTS:
        paths.setdefault(item.path, {})[item.method.lower()] = _operation(item, tokens=tokens)
    for path, summary in (
        ("/healthz", "Whether it ticks in time."),
        ("/readyz", "Whether it can answer."),
    ):
        paths[path] = {"get": _probe(summary)}
    said: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "stoploss", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }
    if tokens:
        said["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return said


def _operation(item: Endpoint, *, tokens: bool) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": ID}
        for name in re.findall(r"\{(\w+)\}", item.path)
    ]
    for name, schema in item.query.items():
        plain = {key: value for key, value in schema.items() if key != "required"}
        parameters.append({"name": name, "in": "query", "required": "required" in schema, "schema": plain})
    said: dict[str, Any] = {
        "operationId": "_".join([item.method.lower(), *re.findall(r"\w+", item.path)]),
        "summary": item.summary,
        "x-scope": item.scope,
        "responses": {
            str(item.status): {
                "description": "Done." if item.method == "POST" else "The answer.",
                "content": {"application/json": {"schema": item.result}},
            },
            **{status: _error(words) for status, words in ERRORS.items()},
        },
    }
    if tokens:
        said["security"] = [{"token": []}]
    elif item.method == "POST":
        header = {"type": "string", "enum": ["1"]}
        parameters.append({"name": "X-Stoploss", "in": "header", "required": True, "schema": header})
    if parameters:
        said["parameters"] = parameters
    if item.body is not None:
        content = {"application/json": {"schema": item.body}}
        said["requestBody"] = {"required": bool(item.body.get("required")), "content": content}
    return said


def _error(words: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def _probe(summary: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": ["version", "status", "why"],
        "properties": {"status": {"type": "string"}, "why": {"type": ["string", "null"]}},
    }
    content = {"application/json": {"schema": schema}}
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "It does.", "content": content},
            "503": {"description": "It does not; `why` says why.", "content": content},
            **{status: _error(ERRORS[status]) for status in ("400", "405", "421", "429")},
        },
    }
