"""What may be asked, and in which form it is answered."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from api.stubs import LOCAL, NOW, SECRET, Stub, client, request_of
from support.audits import AT, finding, waste

from stoploss.engine.ledger_schema import Entry
from stoploss.reports import audit_json

LISTS = ("findings", "incidents", "plan", "unknown", "ledger", "approvals", "keeps", "exemptions")


def names(service: Stub, path: str, key: str, **query: Any) -> list[str]:
    """The ids of a whole list, asked for in parts."""
    asker, found, cursor = client(service), [], None
    for _ in range(100):
        part = asker.get(path, params=query | ({"cursor": cursor} if cursor else {})).json()
        found += [item.get("id", item.get("seq")) for item in part[key]]
        cursor = part["next"]
        if cursor is None:
            return found
    raise AssertionError("the list does not end")


def test_the_audit_is_what_the_command_says(service: Stub) -> None:
    """`/v1/audit` answers the same JSON as `stoploss audit --format json`."""
    assert service.result is not None

    assert client(service).get("/v1/audit").json() == audit_json.as_dict(service.result)


@pytest.mark.parametrize("path", [*LISTS, "costs", "audit", "pause", "heat", "jobs", "overview"])
def test_every_answer_names_its_version(service: Stub, path: str) -> None:
    """Each answer is strict JSON with a version, and is kept nowhere."""
    answer = client(service).get(f"/v1/{path}")

    assert (answer.status_code, answer.json()["version"]) == (200, 1)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_a_list_in_parts_is_the_whole_list(service: Stub, limit: int) -> None:
    """However long the parts are, each thing is given once, in order."""
    assert names(service, "/v1/findings", "findings", limit=limit) == ["f-a", "f-b", "f-c"]
    assert names(service, "/v1/plan", "decisions", limit=limit) == ["d-f-a", "d-f-b", "d-f-c"]
    assert names(service, "/v1/ledger", "lines", limit=limit) == [4, 3, 2, 1]
    assert len(set(names(service, "/v1/approvals", "approvals", limit=limit))) == 3


def test_a_cursor_goes_on_after_its_item_when_the_list_has_changed(service: Stub) -> None:
    """What is new before the last item does not make one be given twice."""
    asker = client(service)
    first = asker.get("/v1/findings?limit=1").json()
    assert service.result is not None
    newest = finding("n0/0", service.policies.policies[0], id="f-new", waste=waste(99.0))
    service.result = replace(service.result, findings=(newest, *service.result.findings))

    second = asker.get("/v1/findings", params={"limit": 1, "cursor": first["next"]}).json()

    assert [item["id"] for item in (*first["findings"], *second["findings"])] == ["f-a", "f-b"]


def test_findings_can_be_chosen(service: Stub) -> None:
    """Findings are chosen by policy, state and severity."""
    asker = client(service)

    assert len(asker.get("/v1/findings?policy=idle-gpu&state=firing&severity=high").json()["findings"]) == 3
    assert asker.get("/v1/findings?severity=low").json()["findings"] == []
    assert len(asker.get("/v1/ledger?resource=job%204412").json()["lines"]) == 1
    assert len(asker.get("/v1/approvals?state=waiting").json()["approvals"]) == 3


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=x",
        "limit=1001",
        "cursor=%2B",
        "cursor=abc",
        "stat=firing",
        "limit=1&limit=2",
        "state=x",
    ],
)
def test_a_wrong_query_is_told(service: Stub, query: str) -> None:
    """A parameter that is unknown, wrong or twice there is refused, with what is right."""
    answer = client(service).get(f"/v1/findings?{query}")

    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"code", "message", "fix"}


def test_a_misspelt_parameter_is_recognised(service: Stub) -> None:
    """The nearest name is offered."""
    fix = client(service).get("/v1/findings?stat=firing").json()["error"]["fix"]

    assert fix == "did you mean state?"


def test_before_the_first_tick_nothing_is_said_to_be_found(service: Stub) -> None:
    """Without a result the answer is that there is none yet, never an empty list."""
    service.result = None
    asker = client(service)

    answer = asker.get("/v1/findings")

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not-ready")
    assert answer.headers["retry-after"] == "10"
    assert asker.get("/v1/overview").json()["ready"] is False


def test_no_secret_is_answered(service: Stub) -> None:
    """What holds a secret of the environment is answered without it, errors included."""
    assert service.result is not None
    service.result = replace(service.result, notes=(f"password is {SECRET}",))
    service.ledger.append(Entry(at=AT, kind="note", why=f"see {SECRET}"))
    asker = client(service)
    told = [asker.get(f"/v1/{path}").text for path in (*LISTS, "audit", "overview", "costs")]
    told.append(
        asker.post("/v1/keep", json={"job": "a", "for": "1h", "reason": "x", SECRET: 1}, headers=LOCAL).text
    )

    assert not any(SECRET in text for text in told)
    assert "***" in told[-1]


def test_curves_are_thinned_and_keep_what_is_not_finite(service: Stub) -> None:
    """A long curve keeps its extremes; what is not finite is null, and counted."""
    points = [(float(n), float(n % 7)) for n in range(10_000)]
    points[5000] = (5000.0, float("nan"))
    points[7001] = (7001.0, 99.0)
    service.lines = {"4412": {"train.loss": points}}

    told = client(service).get("/v1/curves?job=4412").json()["curves"]["train.loss"]

    assert len(told["times"]) < 450
    assert max(value for value in told["values"] if value is not None) == 99.0
    assert (told["points"], told["non_finite"], told["values"].count(None)) == (10_000, 1, 1)
    assert told["times"][-1] == 9999.0


def test_heat_tells_unknown_from_zero(service: Stub) -> None:
    """A cell that nobody saw is null."""
    rows = client(service).get("/v1/heat").json()["rows"]

    assert [row["cells"] for row in rows] == [[0.5, None], [0.9, 0.01], [0.2, 0.2]]


def test_the_overview_says_what_burns(service: Stub) -> None:
    """The page's texts hold the three figures, the findings by money and what waits for an answer."""
    said = client(service).get("/v1/overview").json()

    assert [item["value"] for item in said["figures"]] == ["$50.00/h", "$500.00", "75%"]
    assert [row["per_hour"] for row in said["findings"]] == ["$28.80", "$19.20", "$2.00"]
    assert said["waiting"] == 3
    assert {one["id"] for row in said["plan"] for one in row["asks"]} == {
        request_of(service, item) for item in ("f-a", "f-b", "f-c")
    }
    assert said["unread"] == ["checkpoints: permission denied: /ckpt/b"]


def test_metrics_are_prometheus_text(service: Stub) -> None:
    """The metrics have their names, labels and numbers."""
    answer = client(service).get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        'stoploss_findings{policy="idle-gpu",severity="high",state="firing"} 3.0',
        'stoploss_unknown{policy="idle-gpu",why="bad"} 3.0',
        'stoploss_waste_per_hour{currency="USD",kind="on-demand"} 50.0',
        'stoploss_saved_total{currency="USD",kind="on-demand"} 1234.5',
        "stoploss_goodput_ratio 0.75",
        "stoploss_tick_seconds 0.4",
        "stoploss_ticks_total 1440.0",
        "stoploss_ticks_missed_total 2.0",
        'stoploss_collector_success{collector="checkpoints"} 0.0',
        'stoploss_collector_age_seconds{collector="gpu"} 12.0',
        'stoploss_decisions{verdict="held"} 3.0',
    ):
        assert line in answer.text.splitlines()


@pytest.mark.parametrize(
    ("changes", "status", "word"),
    [
        ({}, 200, "ok"),
        ({"last_tick": NOW - timedelta(minutes=10)}, 503, "late"),
        ({"last_tick": None}, 503, "late"),
        ({"last_tick": None, "started": NOW}, 200, "ok"),
        ({"last_tick": None, "standby": True}, 200, "standby"),
    ],
)
def test_healthz_tells_whether_it_ticks(
    service: Stub, changes: dict[str, Any], status: int, word: str
) -> None:
    """It is well while it ticks in time, or waits for another that does."""
    service.wellness = replace(service.health(), **changes)

    answer = client(service).get("/healthz")

    assert (answer.status_code, answer.json()["status"]) == (status, word)


def test_readyz_tells_whether_it_can_answer(service: Stub) -> None:
    """It is ready when the service says so."""
    asker = client(service)
    assert asker.get("/readyz").status_code == 200
    service.wellness = replace(service.health(), ready=False)

    assert asker.get("/readyz").status_code == 503


def test_a_broken_state_is_told_without_a_traceback(service: Stub) -> None:
    """When the ledger cannot be read the answer says so, and what does not need it is still answered."""
    with service.ledger.writing() as connection:
        connection.exec_driver_sql("DROP TABLE people_requests")
    asker = client(service)

    answer = asker.get("/v1/approvals")

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "state")
    assert "Traceback" not in answer.text
    assert asker.get("/v1/findings").status_code == 200


def test_a_mistake_of_ours_is_said_to_be_one(service: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw is an answer in the one form, with the headers of all others."""

    def broken() -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(service, "costs", broken)

    answer = client(service).get("/v1/costs")

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert SECRET not in answer.text
    assert "content-security-policy" in answer.headers


def test_other_pages_and_methods_are_answered_in_the_one_form(service: Stub) -> None:
    """What is not there, and what is not known there, are told as JSON."""
    asker = client(service)

    assert asker.get("/nothing").json()["error"]["code"] == "not-found"
    wrong = asker.delete("/v1/pause", headers=LOCAL)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method")
    assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


def test_json_is_strict(service: Stub) -> None:
    """No number that is not finite leaves, whatever was found."""
    service.lines = {"4412": {"cost": [(1.0, float("inf"))], "train.loss": [(1.0, float("nan"))]}}

    def refused(name: str) -> None:
        raise AssertionError(name)

    for path in ("jobs", "curves?job=4412"):
        json.loads(client(service).get(f"/v1/{path}").text, parse_constant=refused)
