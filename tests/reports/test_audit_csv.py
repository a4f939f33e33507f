"""The audit as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.audits import NASTY, audit, exemption, finding, policy, unknown, waste
from support.scenes import Scene, recording
from support.scenes import policy as policy_text

from stoploss.reports.audit_csv import COLUMNS, render


def read(text: str) -> list[dict[str, str]]:
    """The rows as a spreadsheet would read them."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_row_holds_all_of_a_finding() -> None:
    """Every column is filled from the finding, in the documented order."""
    said = audit([finding(owner="4412", of=policy(cause="waste", severity="low"), waste=waste(4.1))])
    head, row, end = render(said).split("\r\n")

    assert head == ",".join(COLUMNS)
    assert row == (
        "f-n1/0,idle-gpu,low,firing,gpu,n1/0,4412,vision,2026-12-01T04:00:00Z,"
        '4.1,41.0,USD,on-demand,waste,"max(gpu.utilization, 30m) < 5%: 1%",'
    )
    assert end == ""


def test_what_is_not_known_is_an_empty_cell() -> None:
    """No price and no waste leave amount and currency empty; they are never 0."""
    rows = read(render(audit([finding(waste=waste(None, missing="no price")), finding(waste=None)])))

    assert [(row["per_hour"], row["so_far"], row["currency"]) for row in rows] == [("", "", "")] * 2


def test_pending_and_exempt_findings_are_rows_too() -> None:
    """The state and the reason of the exemption tell them apart."""
    rows = read(
        render(audit([finding("a", state="pending"), finding("b", exemption=exemption())], [unknown()]))
    )

    assert [(row["resource"], row["state"], row["exempt"]) for row in rows] == [
        ("a", "pending", ""),
        ("b", "firing", "by design"),
    ]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\r1"])
def test_no_cell_is_a_formula(text: str) -> None:
    """What a spreadsheet would compute gets a quote in front, wherever a user's text stands."""
    label = {"team": text}
    row = read(render(audit([finding(text, policy(), owner=text, labels=label, exemption=exemption(text))])))[
        0
    ]

    assert {row[name] for name in ("resource", "owner", "team", "exempt")} == {"'" + text}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_name_survives(name: str) -> None:
    """Quotes, commas, line ends and control characters come back as they were."""
    row = read(render(audit([finding(name), finding(NASTY)])))[0]

    assert row["resource"] in (name, "'" + name)
    assert None not in row


def test_the_command_writes_it_to_a_file_and_to_stdout(scene: Scene) -> None:
    """Both hold the same bytes, with the line ends of the standard."""
    signals = scene.write("s.csv", recording({("gpu", "a", "gpu.utilization"): [0] * 40}))
    file, out = scene.write("p.yaml", policy_text("max(gpu.utilization, 30m) < 5%")), scene.folder / "o.csv"
    table = scene.run("audit", file, "--signals", signals, "--out", str(out))
    printed = scene.run("audit", file, "--signals", signals, "--format", "csv")

    assert scene.status == 1
    assert "BURNING NOW" in table
    assert out.read_bytes() == printed.encode()
    assert out.read_bytes().endswith(b",\r\n")


def test_rows_are_those_of_the_audit_in_its_order() -> None:
    """Nothing is left out and nothing is sorted anew."""
    names = [f"n{n}" for n in (3, 1, 2)]
    said = replace(audit([finding(name) for name in names]), samples=3)

    assert [row["resource"] for row in read(render(said))] == names
