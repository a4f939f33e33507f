"""What is allowed and yet is probably not meant."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

from stoploss.actions.registry import action_options
from stoploss.rules.catalogue import catalogue
from stoploss.rules.diagnostics import Diagnostic, Severity
from stoploss.rules.environment import VariableError, expand, references
from stoploss.rules.loader import load


class GpuOptions(BaseModel):
    """A collector that looks every 15 s unless told otherwise."""

    default_every: ClassVar[float] = 15.0


Lint = Callable[..., list[Diagnostic]]


@pytest.fixture(name="lint")
def lint_fixture(tmp_path: Path) -> Lint:
    """Loads a file with one policy of a condition and some more keys, and gives what is said."""

    def run(
        when: str = "max(gpu.utilization, 30m) < 5%",
        body: str = "",
        *,
        each: str = "job",
        more: str = "",
        today: date | None = None,
        environ: dict[str, str] | None = None,
    ) -> list[Diagnostic]:
        text = f"version: 1\npolicies:\n  - name: one\n    each: {each}\n    when:\n      - {when}\n"
        text += textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n" + more
        path = tmp_path / "a.yaml"
        path.write_text(text, encoding="utf-8")
        result = load(
            [path],
            catalogue=catalogue(),
            collector_options={"gpu": GpuOptions},
            action_options=action_options(),
            today=today,
            environ=environ,
        )
        return list(result.diagnostics)

    return run


def codes(found: list[Diagnostic]) -> list[str]:
    """The codes, in order of places."""
    return [item.code for item in found]


def test_a_plain_policy_has_nothing_to_be_said_about(lint: Lint) -> None:
    """A policy with `for`, sane windows and a collector is clean."""
    assert lint(body="for: 10m\nthen: [terminate: {after: 5m}]") == []


def test_destructive_without_for(lint: Lint) -> None:
    """A destructive step that would follow at once is a warning; with `for` or `after` it is not."""
    assert codes(lint(body="then: [terminate: {}]")) == ["destructive-without-for"]
    assert codes(lint(body="then: [alert: {}]")) == []
    assert codes(lint(body="then: [terminate: {after: 10m}]")) == []


def test_window_shorter_than_the_interval(lint: Lint) -> None:
    """A window is measured against the collector's interval of the file, else its default, else a slot."""
    configured = lint("max(gpu.utilization, 1m) < 5%", more="collectors: {gpu: {every: 5m}}\n")

    assert codes(configured) == ["window-too-short"]
    assert configured[0].severity is Severity.ERROR
    assert (configured[0].position.line, configured[0].position.column, configured[0].length) == (6, 9, 24)
    assert configured[0].fix == "use a window of 10m or longer"
    assert codes(lint("max(gpu.utilization, 10s) < 5%")) == ["window-too-short"]
    assert codes(lint("max(gpu.utilization, 15s) < 5%")) == []
    assert codes(lint("share(gpu.utilization < 5%, 10s) > 50%")) == ["window-too-short"]
    assert codes(lint("absent(gpu.utilization, 10s)")) == ["window-too-short"]


def test_window_of_too_many_slots(lint: Lint) -> None:
    """More than 1,440 slots of the policy's resolution are a warning."""
    assert codes(lint("max(gpu.utilization, 1d) < 5%")) == []
    assert codes(lint("max(gpu.utilization, 2d) < 5%")) == ["window-too-long"]
    assert codes(lint("max(gpu.utilization, 2d) < 5%", "resolution: 5m")) == []


def test_quantile_over_few_slots_is_the_maximum(lint: Lint) -> None:
    """p99 over fewer than 100 slots equals the maximum, over 100 it does not."""
    assert codes(lint("p99(gpu.utilization, 99m) < 5%")) == ["quantile-is-max"]
    assert codes(lint("p99(gpu.utilization, 100m) < 5%")) == []
    assert codes(lint("p50(gpu.utilization, 2m) < 5%")) == []


def test_ending_a_job_from_one_of_its_gpus(lint: Lint) -> None:
    """A terminate from `each: gpu` is a warning."""
    body = "for: 10m\nthen: [terminate: {}]"

    assert codes(lint(body=body, each="gpu")) == ["ends-job-from-below"]
    assert codes(lint(body=body, each="job")) == []


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("max(gpu.utilization, 30m) > 100%", "always-false"),
        ("gpu.utilization >= 0%", "always-true"),
        ("gpu.utilization < 0%", "always-false"),
        ("gpu.utilization == 150%", "always-false"),
        ("share(gpu.power < 50W, 30m) <= 100%", "always-true"),
        ("2 > 1", "always-true"),
        ("1h < 30m or gpu.utilization > 100%", "always-false"),
        ("not gpu.utilization > 100%", "always-true"),
        ("gpu.utilization > 99%", None),
        ("gpu.utilization >= 100%", None),
        ("gpu.utilization == 0%", None),
        ("budget.used >= 120%", None),
        ("gpu.power < 5W or gpu.utilization > 100%", None),
    ],
)
def test_conditions_that_do_not_depend_on_readings(lint: Lint, condition: str, code: str | None) -> None:
    """A condition that no reading can change is told; a share of a budget may exceed 100%."""
    assert codes(lint(condition)) == ([code] if code else [])


def test_signals_that_nobody_provides(lint: Lint) -> None:
    """A signal without a collector in use is an information, once per policy and signal."""
    found = lint("increase(train.step, 30m) == 0 or absent(train.step, 30m)")

    assert codes(found) == ["no-collector"]
    assert found[0].severity is Severity.INFO
    assert "training" in found[0].message


def test_high_severity_names_contact_and_runbook(lint: Lint) -> None:
    """high and critical need contact and runbook; the warning names what is missing."""
    found = lint(body="severity: critical\ncontact: ml")

    assert codes(found) == ["no-runbook"]
    assert found[0].fix == "add runbook:"
    assert codes(lint(body="severity: high\ncontact: ml\nrunbook: x.md")) == []


def test_unset_variables_are_named_and_never_shown(lint: Lint) -> None:
    """A variable that is not set is a warning with its name; a default or `$$` is none."""
    more = 'notify: {a: "${STOPLOSS_A}", b: "${STOPLOSS_B:-x}", c: "$${STOPLOSS_C}", d: "${STOPLOSS_D}"}\n'
    found = lint(more=more, environ={"STOPLOSS_D": "top-secret"})

    assert codes(found) == ["unset-variable"]
    assert "STOPLOSS_A" in found[0].message
    assert "top-secret" not in repr(found)


def test_expired_exemptions(lint: Lint) -> None:
    """An exemption is told from the day after its last day on."""
    more = "exemptions: [{policy: one, where: 'job == \"a\"', reason: r, owner: o, expires: 2027-01-31}]\n"

    assert codes(lint(more=more, today=date(2027, 1, 31))) == []
    assert codes(lint(more=more, today=date(2027, 2, 1))) == ["expired-exemption"]
    assert codes(lint(more=more)) == []


def test_nothing_is_said_about_what_is_wrong_already(lint: Lint) -> None:
    """A `for` that cannot be read is one error, without the warning that there is none."""
    assert codes(lint(body="for: 5\nthen: [terminate: {}]")) == ["wrong-unit"]
    assert codes(lint("gpu.utl < 5%", "then: [terminate: {}]")) == ["unknown-signal"]


def test_variables_are_expanded_once() -> None:
    """What a variable holds is not parsed again, and a missing one is named."""
    assert expand("${A}/${B:-b}/$${A}", {"A": "${B}"}) == "${B}/b/${A}"
    assert expand("${A:-x}", {"A": ""}) == "x"
    assert [item.name for item in references("${A} ${B:-}")] == ["A", "B"]
    with pytest.raises(VariableError, match="A, B"):
        expand("${B}${A}", {})
    with pytest.raises(VariableError, match="character 3"):
        references("x ${9}")
