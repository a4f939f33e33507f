"""What is answered where something is wrong, and the one way in which JSON is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response


class Problem(Exception):
    """A request that is not carried out.

    Attributes:
        status: the HTTP status.
        code: one word for programs.
        message: what is wrong, for people.
        fix: what to do.
        headers: of the answer.
    """

    def __init__(
        self, status: int, code: str, message: str, fix: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.fix = status, code, message, fix
        self.headers = dict(headers or {})

    def said(self) -> dict[str, Any]:
        """The body of the answer."""
        return {"error": {"code": self.code, "message": self.message, "fix": self.fix}}


def bad(message: str, fix: str) -> Problem:
    """The request itself is wrong."""
    return Problem(400, "bad-request", message, fix)


def missing(what: str) -> Problem:
    """There is no such thing, or it is not the caller's to see."""
    return Problem(404, "not-found", f"there is no {what}", "look at /openapi.json, or at the list of them")


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in strict JSON."""
    return Response(encoded(value), status, dict(headers or {}), media_type="application/json")


def encoded(value: Any) -> bytes:
    """Strict JSON in UTF-8."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
