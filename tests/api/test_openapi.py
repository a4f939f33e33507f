"""The description of the API: complete, and true."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
from api.stubs import ADMIN, WIDE, Stub, bearer, client, tokens
from hypothesis.errors import Unsatisfiable

from stoploss.api.app import build
from stoploss.api.endpoints import ENDPOINTS


def test_every_route_is_described(service: Stub) -> None:
    """Each route of the application has its operation, and each operation its route."""
    said = client(service).get("/openapi.json").json()

    described = {(method.upper(), path) for path, item in said["paths"].items() for method in item}
    assert described == {(item.method, item.path) for item in ENDPOINTS} | {
        ("GET", "/healthz"),
        ("GET", "/readyz"),
    }
    names = [
        item["operationId"] for path in said["paths"].values() for item in path.values() if "x-scope" in item
    ]
    assert len(set(names)) == len(ENDPOINTS)


def test_the_description_names_what_lets_one_in(service: Stub) -> None:
    """With tokens a bearer token is asked for, without the header that no form can send."""
    with_tokens = client(service, tokens()).get("/openapi.json").json()["paths"]["/v1/pause"]["post"]
    without = client(service).get("/openapi.json").json()["paths"]["/v1/pause"]["post"]

    assert with_tokens["security"] == [{"token": []}]
    assert [item["name"] for item in without["parameters"]] == ["X-Stoploss"]


def test_the_page_of_the_documentation_names_every_route() -> None:
    """docs/api.md tells each route, and no other."""
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")
    told = set(re.findall(r"`(GET|POST) (/v1/[^`\s]*)`", text))

    assert told == {(item.method, item.path) for item in ENDPOINTS}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_whatever_is_asked_is_answered_as_described(service: Stub, mode: str) -> None:
    """Requests made from the description, right and wrong ones, get answers that it tells of, never a 5xx."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.specs.openapi import checks

    application = build(service, tokens(), now=lambda: service.moment, limits=WIDE)
    schema = schemathesis.openapi.from_asgi("/openapi.json", application)
    told = [
        schemathesis.checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    tried = 0

    def ask(case: Any) -> None:
        nonlocal tried
        tried += 1
        case.call_and_validate(headers=bearer(ADMIN), checks=told)

    for operation in schema.get_all_operations():
        wanted = operation.ok().as_strategy(generation_mode=schemathesis.GenerationMode(mode))
        checked = settings(
            max_examples=30,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        with contextlib.suppress(Unsatisfiable):
            checked(given(case=wanted)(ask))()
    assert tried > 200
