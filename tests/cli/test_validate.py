"""`stoploss validate` as a user meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stoploss.cli.main import run
from stoploss.rules.codes import CODES

TEN_MISTAKES = """\
version: 1
settings:
  timezone: Mars/Base
collectors:
  host: {every: 5m}
policies:
  - name: one
    each: host
    sevrity: low
    when: [host.cpu.utilizaton < 5%]
  - name: two
    each: host
    when: ['max(host.cpu.utilization, 30m) < 5%']
    for: 10GB
    hold: 5m
    hold: 6m
  - name: one
    each: host
    when: ['max(host.cpu.utilization, 1m) < 5%']
  - name: four
    each: host
    on: "07:00"
    active: {from: 22:30}
    for: 10m
    then:
      - terminate: {after: 10m}
"""
EXPECTED = [
    (3, 13, "unknown-zone"),
    (9, 5, "unknown-key"),
    (10, 12, "unknown-signal"),
    (14, 10, "wrong-unit"),
    (16, 5, "duplicate-key"),
    (17, 11, "duplicate-name"),
    (19, 13, "window-too-short"),
    (22, 5, "yaml-scalar"),
    (23, 20, "yaml-scalar"),
    (26, 9, "no-condition"),
]
GOOD = "version: 1\npolicies:\n- {name: a, each: host, when: 'max(host.cpu.utilization, 30m) < 5%'}\n"


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ten.yaml").write_text(TEN_MISTAKES, encoding="utf-8")
    Path("good.yaml").write_text(GOOD, encoding="utf-8")


def test_ten_mistakes_give_ten_diagnostics_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten different mistakes are told in one run, each once, at its place, with source, caret and fix."""
    status = run(["validate", "ten.yaml"])
    output = capsys.readouterr().out
    heads = re.findall(r"^ten\.yaml:(\d+):(\d+): .* \[([a-z-]+)\]$", output, re.MULTILINE)

    assert status == 2
    assert [(int(line), int(column), code) for line, column, code in heads] == EXPECTED
    assert output.count("  fix: ") == 10
    assert output.endswith("\n10 errors in 1 file\n")


def test_the_caret_stands_below_the_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """A block is the place, the line of the file, the caret and the fix."""
    run(["validate", "ten.yaml"])
    block = next(part for part in capsys.readouterr().out.split("\n\n") if "unknown-key" in part)

    assert block.splitlines() == [
        "ten.yaml:9:5: the key 'sevrity' does not exist here [unknown-key]",
        "        sevrity: low",
        "        ^^^^^^^",
        "  fix: did you mean severity?",
    ]


def test_ten_mistakes_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON holds the same ten with their places, and counts by severity."""
    status = run(["validate", "--format", "json", "ten.yaml"])
    document = json.loads(capsys.readouterr().out)

    assert status == 2
    assert {key: document[key] for key in ("version", "errors", "warnings", "infos")} == {
        "version": 1,
        "errors": 10,
        "warnings": 0,
        "infos": 0,
    }
    assert [(item["line"], item["column"], item["code"]) for item in document["diagnostics"]] == EXPECTED
    assert document["diagnostics"][4]["related"][0]["line"] == 15


def test_ten_mistakes_in_sarif(capsys: pytest.CaptureFixture[str]) -> None:
    """The SARIF run has one result per mistake, each naming its rule by id and index."""
    status = run(["validate", "--format", "sarif", "ten.yaml"])
    document = json.loads(capsys.readouterr().out)
    (only_run,) = document["runs"]
    rules = only_run["tool"]["driver"]["rules"]
    places = [item["locations"][0]["physicalLocation"] for item in only_run["results"]]

    assert status == 2
    assert document["version"] == "2.1.0"
    assert [rule["id"] for rule in rules] == list(CODES)
    assert [item["ruleId"] for item in only_run["results"]] == [code for _, _, code in EXPECTED]
    assert all(rules[item["ruleIndex"]]["id"] == item["ruleId"] for item in only_run["results"])
    assert [(p["region"]["startLine"], p["region"]["startColumn"]) for p in places] == [
        e[:2] for e in EXPECTED
    ]
    assert {place["artifactLocation"]["uri"] for place in places} == {"ten.yaml"}


def test_ten_mistakes_as_github_annotations(capsys: pytest.CaptureFixture[str]) -> None:
    """Each mistake is one workflow command, with commas and colons of its properties escaped."""
    Path("a,b.yaml").write_text(TEN_MISTAKES, encoding="utf-8")

    assert run(["validate", "--format", "github", "a,b.yaml"]) == 2
    lines = capsys.readouterr().out.splitlines()

    assert len(lines) == 10
    assert lines[0].startswith("::error file=a%2Cb.yaml,line=3,col=13,endColumn=22,title=unknown-zone::")


def test_a_good_file_says_so_and_what_its_windows_cost(capsys: pytest.CaptureFixture[str]) -> None:
    """Without mistakes there are the count of policies and the memory of the largest window."""
    assert run(["validate", "good.yaml"]) == 0
    assert capsys.readouterr().out == (
        "ok: 1 policy in 1 file\n"
        "largest window: host.cpu.utilization 30m = 30 slots, 2.4 MB per 10,000 series\n"
    )


def test_the_example_of_the_manual_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    """The policy file that the manual begins with has no mistake and no warning."""
    page = Path(__file__).parents[2] / "docs" / "language" / "policies.md"
    example = page.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    Path("manual.yaml").write_text(example, encoding="utf-8")

    assert run(["validate", "--strict", "manual.yaml"]) == 0
    assert capsys.readouterr().out.startswith("ok: 1 policy in 1 file\n")


def test_warnings_fail_only_with_strict(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning is told and does not fail, unless --strict is given."""
    Path("warn.yaml").write_text(GOOD.replace("}\n", ", severity: high}\n"), encoding="utf-8")

    assert run(["validate", "warn.yaml"]) == 0
    output = capsys.readouterr().out
    assert "warning: severity high without contact and runbook [no-runbook]" in output
    assert "1 warning in 1 file\nok: 1 policy in 1 file\n" in output
    assert run(["validate", "--strict", "warn.yaml"]) == 2


def test_without_files_it_takes_policies_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    """./policies.yaml is the default; where there is none the user is told what to name."""
    assert run(["validate"]) == 2
    assert "no ./policies.yaml" in capsys.readouterr().err
    Path("good.yaml").rename("policies.yaml")
    assert run(["validate"]) == 0


@pytest.mark.parametrize("text", ["", "version: 1\n", "version: 1\npolicies: []\n"])
def test_P_C8_nothing_to_check_is_no_success(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A file without policies exits with 2."""
    Path("empty.yaml").write_text(text, encoding="utf-8")

    assert run(["validate", "empty.yaml"]) == 2
    assert "[file-empty]" in capsys.readouterr().out


def test_a_missing_file_is_a_diagnostic(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that does not exist is told like any mistake, beside those of other files."""
    assert run(["validate", "gone.yaml", "ten.yaml"]) == 2
    output = capsys.readouterr().out

    assert "gone.yaml:1:1: gone.yaml does not exist [file-unreadable]" in output
    assert output.endswith("\n11 errors in 2 files\n")


def test_out_writes_by_suffix_and_keeps_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--out picks the format by suffix; the screen still shows the text."""
    assert run(["validate", "--out", "x.sarif", "ten.yaml"]) == 2
    assert json.loads(Path("x.sarif").read_text(encoding="utf-8"))["version"] == "2.1.0"
    assert capsys.readouterr().out.endswith("10 errors in 1 file\n")
    assert run(["validate", "--out", str(tmp_path / "no" / "x.json"), "ten.yaml"]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_wide_characters_and_tabs_keep_the_caret_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    """The caret counts a wide character as two columns and copies tabs."""
    Path("wide.yaml").write_text(
        "version: 1\npolicies:\n- {name: a, each: job, summary: '日本',\tfoo: 1}\n", encoding="utf-8"
    )
    run(["validate", "wide.yaml"])
    lines = capsys.readouterr().out.splitlines()

    assert lines[1].strip("\n").endswith("日本',\tfoo: 1}")
    assert lines[2] == " " * (4 + len("- {name: a, each: job, summary: '") + 4 + 2) + "\t^^^"
