"""The one table of routes: the application and its OpenAPI description are both made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stoploss.api import curves, overview, reads, writes
from stoploss.api.bodies import Schema
from stoploss.api.calls import Call
from stoploss.api.listing import CURSOR, LIMIT
from stoploss.engine.ledger_schema import KINDS
from stoploss.rules.models.sections import SEVERITIES

ID = {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9-]+$"}
NAME: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 300}
REASON: dict[str, Any] = {**NAME, "maxLength": 1000, "description": "Why; it is written into the ledger."}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route.

    Attributes:
        method, path: what is asked; parts in braces are ids.
        scope: what a token has to have for it.
        answers: what answers it.
        summary: for people.
        query: its parameters -> schema.
        body: the schema of its body; None where it takes none.
        result: the schema of its answer.
        status: of an answer that is well.
        steady: its answer is the same until the next tick.
        samples: its body may be as large as a batch of samples.
    """

    method: str
    path: str
    scope: str
    answers: Callable[[Call], dict[str, Any]]
    summary: str
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    result: Schema = field(default_factory=lambda: _result())
    status: int = 200
    steady: bool = False
    samples: bool = False


def _result(**properties: Schema) -> dict[str, Any]:
    said: dict[str, Schema] = {"version": {"type": "integer", "enum": [1]}, **properties}
    return {"type": "object", "required": list(said), "properties": said}


def _list(key: str, **more: Schema) -> dict[str, Any]:
    items: Schema = {"type": "array", "items": {"type": "object"}}
    return _result(**{key: items}, next={"type": ["string", "null"]}, **more)


def _body(required: tuple[str, ...] = (), **properties: Schema) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT = {"type": "string"}
PAGED: dict[str, Schema] = {"limit": LIMIT, "cursor": CURSOR}
PAUSED = _result(paused={"type": "boolean"}, reason={"type": ["string", "null"]})
OBJECT = {"type": "object"}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/audit",
        "read",
        reads.audit,
        "The newest result, as `stoploss audit --format json` says it.",
        result=_result(at=TEXT, mode=TEXT, findings={"type": "array"}, totals=OBJECT),
        steady=True,
    ),
    Endpoint(
        "GET",
        "/v1/findings",
        "read",
        reads.findings,
        "Findings.",
        {
            **PAGED,
            "policy": NAME,
            "state": {"type": "string", "enum": ["pending", "firing", "holding"]},
            "severity": {"type": "string", "enum": list(SEVERITIES)},
        },
        result=_list("findings", at=TEXT, mode=TEXT),
    ),
    Endpoint(
        "GET",
        "/v1/incidents",
        "read",
        reads.incidents,
        "Findings that are one fact, with their cause.",
        PAGED,
        result=_list("incidents", at=TEXT, mode=TEXT),
    ),
    Endpoint(
        "GET",
        "/v1/plan",
        "read",
        reads.plan,
        "What will be done, when, and what stops it.",
        {
            **PAGED,
            "policy": NAME,
            "verdict": {
                "type": "string",
                "enum": ["would", "done", "blocked", "held", "failed", "skipped"],
            },
        },
        result=_list("decisions", at=TEXT, mode=TEXT, totals=OBJECT),
    ),
    Endpoint(
        "GET",
        "/v1/unknown",
        "read",
        reads.unknown,
        "What could not be decided, and why.",
        {**PAGED, "policy": NAME, "code": NAME},
        result=_list("unknown", at=TEXT, mode=TEXT),
    ),
    Endpoint(
        "GET",
        "/v1/ledger",
        "read",
        reads.ledger,
        "What was decided and done, the newest first.",
        {
            **PAGED,
            "kind": {"type": "string", "enum": list(KINDS)},
            "episode": NAME,
            "policy": NAME,
            "resource": {**NAME, "description": "Such as `job 4412`."},
        },
        result=_list("lines"),
    ),
    Endpoint(
        "GET",
        "/v1/costs",
        "read",
        reads.costs,
        "What was used and paid, as `stoploss costs --format json` says it; `total` is null without any.",
        result=_result(total={"type": ["object", "null"]}),
    ),
    Endpoint(
        "GET",
        "/v1/curves",
        "read",
        curves.curves,
        "Loss and cumulative cost of one job over time.",
        {"job": {**NAME, "required": True}},
        result=_result(job=TEXT, curves=OBJECT),
    ),
    Endpoint(
        "GET",
        "/v1/heat",
        "read",
        overview.heat,
        "The use of every GPU over time; null is not known.",
        result=_result(at=TEXT, groups={"type": "array"}, rows={"type": "array"}),
        steady=True,
    ),
    Endpoint(
        "GET",
        "/v1/overview",
        "read",
        overview.overview,
        "What the page shows, as texts.",
        result=_result(ready={"type": "boolean"}, you=OBJECT),
    ),
    Endpoint(
        "GET",
        "/v1/jobs",
        "read",
        overview.jobs,
        "The jobs that cost most, with their curves.",
        result=_result(at=TEXT, jobs={"type": "array"}),
        steady=True,
    ),
    Endpoint(
        "GET",
        "/v1/approvals",
        "read",
        reads.approvals,
        "Requests to people, the newest first.",
        {**PAGED, "state": {"type": "string", "enum": ["waiting", "approved", "rejected", "expired"]}},
        result=_list("approvals"),
    ),
    Endpoint(
        "POST",
        "/v1/approvals/{id}/approve",
        "approve",
        writes.approve,
        "Let one step be done, for 24 h; all is checked again first.",
        body=_body(reason=REASON),
        result=_result(approval=OBJECT),
    ),
    Endpoint(
        "POST",
        "/v1/approvals/{id}/reject",
        "approve",
        writes.reject,
        "Do not let one step be done, or take an approval back.",
        body=_body(("reason",), reason=REASON),
        result=_result(approval=OBJECT),
    ),
    Endpoint(
        "GET",
        "/v1/keeps",
        "read",
        reads.keeps,
        "Jobs that are kept now.",
        PAGED,
        result=_list("keeps"),
    ),
    Endpoint(
        "POST",
        "/v1/keep",
        "approve",
        writes.keep,
        "Let nothing end or shrink a job for a while.",
        body=_body(
            ("job", "for", "reason"),
            job=NAME,
            reason=REASON,
            **{"for": {**NAME, "maxLength": 40, "description": "Such as 4h; 24h at most."}},
        ),
        result=_result(keep=OBJECT),
    ),
    Endpoint(
        "GET",
        "/v1/exemptions",
        "read",
        reads.exemptions,
        "Exemptions, those that have expired included.",
        PAGED,
        result=_list("exemptions"),
    ),
    Endpoint(
        "POST",
        "/v1/exempt",
        "approve",
        writes.exempt,
        "A policy does not apply to some resources, through a day.",
        body=_body(
            ("policy", "where", "until", "reason", "owner"),
            policy=NAME,
            where={**NAME, "maxLength": 2000, "description": "A condition over labels."},
            until={**NAME, "maxLength": 10, "description": "The last day: 2027-01-31."},
            reason=REASON,
            owner=NAME,
        ),
        result=_result(exemption=OBJECT),
    ),
    Endpoint("GET", "/v1/pause", "read", reads.pause, "Whether anything is carried out.", result=PAUSED),
    Endpoint(
        "POST",
        "/v1/pause",
        "admin",
        writes.pause,
        "Carry out nothing from now on.",
        body=_body(("reason",), reason=REASON),
        result=PAUSED,
    ),
    Endpoint(
        "POST",
        "/v1/resume",
        "admin",
        writes.resume,
        "Take a pause back.",
        body=_body(reason=REASON),
        result=PAUSED,
    ),
    Endpoint(
        "POST",
        "/v1/samples",
        "ingest",
        writes.samples,
        "Take the samples of a node.",
        body={"type": "object", "required": ["node"], "properties": {"node": NAME}},
        result=_result(taken={"type": "integer"}),
        status=202,
        samples=True,
    ),
)
