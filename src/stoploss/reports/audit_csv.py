"""An audit as CSV (RFC 4180): one row per finding, all of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from stoploss.engine.audit import Audit
from stoploss.engine.findings import Finding
from stoploss.reports.audit_json import instant
from stoploss.reports.audit_table import evidence

COLUMNS = (
    "id",
    "policy",
    "severity",
    "state",
    "kind",
    "resource",
    "owner",
    "team",
    "since",
    "per_hour",
    "so_far",
    "currency",
    "price_kind",
    "cause",
    "evidence",
    "exempt",
)


def render(audit: Audit) -> str:
    """A head and a row per finding; an empty cell is unknown, or there is none."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    writer.writerows(list(_row(finding)) for finding in audit.findings)
    return out.getvalue()


def _row(finding: Finding) -> Iterator[str]:
    waste = finding.waste
    known = waste is not None and (waste.per_hour is not None or waste.so_far is not None)
    yield from map(
        plain,
        (
            finding.id,
            finding.policy.name,
            finding.policy.severity,
            finding.state,
            finding.resource.kind,
            finding.resource.id,
            finding.owner or "",
            finding.labels.get("team", ""),
            instant(finding.since),
        ),
    )
    yield _amount(waste.per_hour if waste else None)
    yield _amount(waste.so_far if waste else None)
    yield waste.currency if waste and known else ""
    yield plain((waste.kind or "") if waste else "")
    yield plain(finding.cause or "")
    yield plain(" · ".join(evidence(item) for item in finding.evidence))
    yield plain(finding.exemption.reason if finding.exemption else "")


def plain(text: str) -> str:
    """A text that no spreadsheet takes for a formula: one that looks like it gets a quote in front."""
    return "'" + text if text.lstrip()[:1] in {"=", "+", "-", "@"} or text[:1] in {"\t", "\r", "\n"} else text


def _amount(value: float | None) -> str:
    return "" if value is None else repr(round(value, 6))
