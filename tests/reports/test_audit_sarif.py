"""The audit as SARIF."""

from __future__ import annotations

import json
from typing import Any

from support.audits import NASTY, audit, exemption, finding, policy, unknown, waste
from support.scenes import Scene, recording
from support.scenes import policy as policy_text

from stoploss.engine.audit import CollectorStatus
from stoploss.reports.audit_sarif import render


def run_of(*arguments: Any, **keys: Any) -> dict[str, Any]:
    """The one run of an audit's log."""
    log = json.loads(render(audit(*arguments, **keys)))
    assert log["version"] == "2.1.0"
    [only] = log["runs"]
    assert isinstance(only, dict)
    return only


def test_policies_are_rules_and_firing_findings_are_results() -> None:
    """A result names its rule, its level, its resource, the policy's line and the lasting id."""
    run = run_of([finding(of=policy(severity="high", summary="Idle.", runbook="r.md"), waste=waste(4.1))])

    [rule] = run["tool"]["driver"]["rules"]
    assert rule["id"] == "idle-gpu"
    assert rule["shortDescription"] == {"text": "Idle."}
    assert rule["fullDescription"] == {"text": "max(gpu.utilization, 30m) < 5%"}
    [result] = run["results"]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("idle-gpu", 0, "error")
    assert result["message"]["text"] == (
        "gpu n1/0 since 2026-12-01T04:00:00Z: max(gpu.utilization, 30m) < 5%: 1%"
    )
    assert result["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "team%20a/policies.yaml"},
                "region": {"startLine": 7, "startColumn": 5},
            },
            "logicalLocations": [{"name": "n1/0", "fullyQualifiedName": "gpu/n1/0", "kind": "resource"}],
        }
    ]
    assert result["partialFingerprints"] == {"findingId/v1": "f-n1/0"}
    assert (result["properties"]["perHour"], result["properties"]["currency"]) == (4.1, "USD")


def test_levels_follow_severities() -> None:
    """Critical and high are errors, medium a warning, low a note, in the rule and in the result."""
    words = ("critical", "high", "medium", "low")
    run = run_of([finding(of=policy(word, severity=word)) for word in words])

    levels = ["error", "error", "warning", "note"]
    assert [result["level"] for result in run["results"]] == levels
    assert [rule["defaultConfiguration"]["level"] for rule in run["tool"]["driver"]["rules"]] == levels
    assert [result["ruleIndex"] for result in run["results"]] == [0, 1, 2, 3]


def test_pending_is_no_result_and_exempt_is_a_suppressed_one() -> None:
    """What does not fire yet is left out; what is exempt carries the reason."""
    run = run_of([finding("a", state="pending"), finding("b", exemption=exemption("by design"))])

    [result] = run["results"]
    assert result["suppressions"] == [{"kind": "external", "justification": "by design"}]


def test_unknowns_and_failed_collectors_are_notifications() -> None:
    """What could not be decided is told, and the run did not succeed."""
    failed = CollectorStatus("checkpoints", ok=False, reason="permission denied")
    run = run_of([], [unknown("a", reason="not supported on MIG"), unknown(None)], collectors=(failed,))

    [invocation] = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert [note["message"]["text"] for note in invocation["toolExecutionNotifications"]] == [
        "unknown: gpu a: not supported on MIG (max(gpu.utilization, 30m) < 5%)",
        "unknown: N/A (max(gpu.utilization, 30m) < 5%)",
        "collector checkpoints failed: permission denied",
    ]
    assert run["results"] == []


def test_any_name_is_a_text_of_json() -> None:
    """Quotes and control characters come back as they were."""
    run = run_of([finding(NASTY)])

    assert run["results"][0]["locations"][0]["logicalLocations"][0]["name"] == NASTY


def test_the_command_picks_it_by_suffix(scene: Scene) -> None:
    """A recording's finding lands in the file, placed in the policy file that was named."""
    signals = scene.write("s.csv", recording({("gpu", "a", "gpu.utilization"): [0] * 40}))
    file, out = scene.write("p.yaml", policy_text("max(gpu.utilization, 30m) < 5%")), scene.folder / "o.sarif"
    scene.run("audit", file, "--signals", signals, "--out", str(out))

    [result] = json.loads(out.read_text())["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("/p.yaml")
    assert place["region"]["startLine"] == 3
