"""The audit as JUnit XML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st
from support.audits import NASTY, audit, exemption, finding, policy, unknown, waste
from support.scenes import Scene, recording
from support.scenes import policy as policy_text

from stoploss.engine.audit import Audit, CollectorStatus
from stoploss.reports.audit_junit import render

SUITE = ["id", "name", "package", "timestamp", "hostname", "tests", "failures", "errors", "skipped", "time"]


def suites(of: Audit) -> list[ET.Element]:
    """The suites of an audit."""
    root = ET.fromstring(render(of))  # noqa: S314
    assert root.tag == "testsuites"
    return list(root)


def outcomes(suite: ET.Element) -> dict[str, tuple[str, str] | None]:
    """Case name -> what it came to and its message."""
    return {
        case.get("name", ""): next(((item.tag, item.get("message", "")) for item in case), None)
        for case in suite.iter("testcase")
    }


def test_a_policy_is_a_suite_and_a_firing_finding_a_failure() -> None:
    """The failure says since when, on what evidence and at what cost."""
    [suite] = suites(audit([finding(of=policy(severity="high", summary="Idle."), waste=waste(4.1))]))

    assert suite.get("name") == "idle-gpu"
    assert outcomes(suite) == {"gpu n1/0": ("failure", "Idle. (since 2026-12-01 04:00 UTC)")}
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "high"
    assert failure.text == "max(gpu.utilization, 30m) < 5%: 1%\n4.10 USD/h: 2 GPUs x 100%"


def test_unknown_and_exempt_are_skipped_and_pending_passes() -> None:
    """Each says why; a resource that fires although its newest slot is unknown is a failure once."""
    findings = [finding("a"), finding("b", exemption=exemption()), finding("c", state="pending")]
    [suite] = suites(audit(findings, [unknown("a"), unknown("d"), unknown(None, reason="no gpu was seen")]))

    assert outcomes(suite) == {
        "gpu a": ("failure", "idle-gpu (since 2026-12-01 04:00 UTC)"),
        "gpu b": ("skipped", "exempt through 2027-01-31: by design"),
        "gpu c": None,
        "gpu d": ("skipped", "unknown: N/A"),
        "no resource": ("skipped", "unknown: no gpu was seen"),
    }


def test_a_policy_with_nothing_to_say_passes() -> None:
    """It still stands in the report, so that its absence is noticed."""
    [suite] = suites(audit())

    assert outcomes(suite) == {"nothing fires": None}


def test_a_failed_collector_is_an_error() -> None:
    """Collectors have a suite of their own."""
    looked = (CollectorStatus("gpu", ok=True), CollectorStatus("checkpoints", ok=False, reason="denied"))
    suite = suites(audit(collectors=looked))[-1]

    assert suite.get("name") == "collectors"
    assert outcomes(suite) == {"gpu": None, "checkpoints": ("error", "denied")}


def test_it_keeps_to_the_schemas() -> None:
    """Attributes and elements that Ant and Jenkins demand are there, in order, and the counts agree."""
    failed = CollectorStatus("x", ok=False, reason="denied")
    said = audit([finding("a"), finding("b", exemption=exemption())], [unknown("c")], collectors=(failed,))
    for number, suite in enumerate(suites(said)):
        cases = suite.findall("testcase")
        assert list(suite.attrib) == SUITE
        assert suite.get("id") == str(number)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
        assert [item.tag for item in suite] == [
            "properties",
            *["testcase"] * len(cases),
            "system-out",
            "system-err",
        ]
        assert all(set(case.attrib) == {"name", "classname", "time"} for case in cases)
        assert all(len(case) <= 1 for case in cases)
        assert all(item.get("type") for tag in ("failure", "error") for item in suite.iter(tag))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert suite.get(name) == str(len(list(suite.iter(tag))))
        assert suite.get("tests") == str(len(cases))


@given(st.text(min_size=1))
def test_any_name_is_well_formed_xml(name: str) -> None:
    """Markup is escaped, and what XML cannot hold is left out."""
    [suite] = suites(audit([finding(name + NASTY, of=policy(summary=name))], [unknown("d", reason=name)]))

    assert "<b>\"x\"&'y'</b>[31m" in next(iter(outcomes(suite)))


def test_the_command_picks_it_by_suffix(scene: Scene) -> None:
    """A recording's finding is a failure in the file."""
    signals = scene.write("s.csv", recording({("gpu", "a", "gpu.utilization"): [0] * 40}))
    file, out = scene.write("p.yaml", policy_text("max(gpu.utilization, 30m) < 5%")), scene.folder / "o.xml"
    scene.run("audit", file, "--signals", signals, "--out", str(out))

    root = ET.fromstring(out.read_text())  # noqa: S314
    assert [item.get("failures") for item in root] == ["1"]
