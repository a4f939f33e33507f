"""An audit as JUnit XML: a suite per policy, a failure per firing finding."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC

from stoploss.engine.audit import Audit
from stoploss.engine.findings import Finding, UnknownFinding
from stoploss.reports.audit_table import evidence

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even escaped."""


@dataclass(frozen=True, slots=True)
class _Case:
    """One test case: its name, what it came to (None is passed), the kind of that, and its text."""

    name: str
    outcome: str | None = None
    type: str = ""
    message: str = ""
    text: str = ""


def render(audit: Audit) -> str:
    """Suites in the order of the policies, and one for collectors.

    A firing finding is a failure, an exempt finding or an unknown is skipped, a pending finding
    passes; a policy about which there is nothing to say is one case that passes. Elements and
    attributes keep to the schemas of Ant and of Jenkins, which demand some that say nothing here.
    """
    findings: dict[str, list[Finding]] = {}
    unknown: dict[str, list[UnknownFinding]] = {}
    for finding in audit.findings:
        findings.setdefault(finding.policy.name, []).append(finding)
    for item in audit.unknown:
        unknown.setdefault(item.policy.name, []).append(item)
    suites = [
        (policy.name, list(_cases(findings.get(policy.name, []), unknown.get(policy.name, []))))
        for policy in audit.policies
    ]
    if audit.collectors:
        suites.append(("collectors", list(_collectors(audit))))
    root = ET.Element("testsuites")
    when = f"{audit.at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
    for number, (name, cases) in enumerate(suites):
        _suite(root, number, name, cases, when)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _cases(findings: list[Finding], unknown: list[UnknownFinding]) -> Iterator[_Case]:
    for finding in findings:
        yield _finding(finding)
    told = {finding.resource for finding in findings}
    for item in unknown:
        if item.resource is None or item.resource not in told:
            name = str(item.resource) if item.resource else "no resource"
            yield _Case(name, "skipped", message=f"unknown: {item.reason}")
    if not findings and not unknown:
        yield _Case("nothing fires")


def _finding(finding: Finding) -> _Case:
    name = str(finding.resource) + (f" of {finding.owner}" if finding.owner else "")
    if finding.exemption is not None:
        until = f"exempt through {finding.exemption.expires}: {finding.exemption.reason}"
        return _Case(name, "skipped", message=until)
    if finding.state == "pending":
        return _Case(name)
    lines = [evidence(item) for item in finding.evidence]
    waste = finding.waste
    if waste is not None and waste.per_hour is not None:
        lines.append(f"{waste.per_hour:.2f} {waste.currency}/h: {waste.how}")
    summary = finding.policy.summary or finding.policy.name
    since = f"since {finding.since:%Y-%m-%d %H:%M} UTC"
    return _Case(name, "failure", finding.policy.severity, f"{summary} ({since})", "\n".join(lines))


def _collectors(audit: Audit) -> Iterator[_Case]:
    for status in audit.collectors:
        reason = status.reason or "no reason given"
        yield _Case(status.name) if status.ok else _Case(status.name, "error", "failed", reason)


def _suite(root: ET.Element, number: int, name: str, cases: list[_Case], when: str) -> None:
    outcomes = [case.outcome for case in cases]
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "id": str(number),
            "name": _clean(name),
            "package": "stoploss",
            "timestamp": when,
            "hostname": "localhost",
            "tests": str(len(cases)),
            "failures": str(outcomes.count("failure")),
            "errors": str(outcomes.count("error")),
            "skipped": str(outcomes.count("skipped")),
            "time": "0",
        },
    )
    ET.SubElement(suite, "properties")
    for case in cases:
        names = {"classname": f"stoploss.{_clean(name)}", "name": _clean(case.name), "time": "0"}
        element = ET.SubElement(suite, "testcase", names)
        if case.outcome is not None:
            said = {"message": _clean(case.message)} | ({"type": case.type} if case.type else {})
            ET.SubElement(element, case.outcome, said).text = _clean(case.text) or None
    ET.SubElement(suite, "system-out")
    ET.SubElement(suite, "system-err")


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("", text)
