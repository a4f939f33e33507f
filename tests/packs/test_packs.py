"""The packs: each policy fires where it should, keeps quiet elsewhere, and says what it does not know."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from packs.runner import EXAMPLES, PACKS, ROOT, Example, examples, load_here, loaded, policies, policy_names

from stoploss.actions.registry import action_options
from stoploss.cli.main import run
from stoploss.engine.model import UNREADABLE, LabelValue
from stoploss.rules.policy import Correlation, Policy

PAGES = ROOT / "docs" / "policies"
POLICIES = policies()
ACTIONS = action_options()
SILENT = {*policy_names("advice"), "checkpoint-in-progress"}
"""Policies that tell nobody: what they say is shown as advice, or speaks against an incident."""
WORKLOADS = ("job", "instance", "service", "process", "gpu", "host")
SECTIONS = ("Why", "Condition", "Thresholds", "Tune", "Exempt")


def named(kind: str) -> list[object]:
    """The examples of one kind, each under its own name."""
    return [pytest.param(example, id=example.name) for example in examples(kind)]


def acts(policy: Policy) -> bool:
    """Whether a policy does more than tell."""
    return any(ACTIONS[step.action].kind != "notify" for step in policy.steps)


def correlations() -> list[Correlation]:
    """Every correlation of every pack, once."""
    sets = [found for pack in PACKS if (found := loaded(pack).policies) is not None]
    return list({item.name: item for found in sets for item in found.correlations}.values())


def source(policy: Policy) -> str:
    """The lines of a policy in its pack."""
    pack = policy.position.file.removeprefix("pack:")
    text = (ROOT / "rules" / "packs" / f"{pack}.yaml").read_text(encoding="utf-8")
    _, _, rest = text.partition(f"  - name: {policy.name}\n")
    block, _, _ = rest.partition("\n\n")
    return f"  - name: {policy.name}\n{block.rstrip()}"


ACTING = [example for example in examples("firing") if acts(POLICIES[example.policy])]


@pytest.mark.parametrize("pack", PACKS)
def test_a_pack_loads_without_a_warning(pack: str) -> None:
    """All that may be said about a pack is which signals nothing provides yet."""
    result = loaded(pack)

    assert result.policies is not None
    assert [str(item) for item in result.diagnostics if item.severity != "info"] == []


def test_all_packs_load_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that includes every pack is valid, with warnings counting as mistakes."""
    file = tmp_path / "all.yaml"
    file.write_text(f"version: 1\ninclude: [{', '.join(f'pack:{name}' for name in PACKS)}]\n", "utf-8")

    assert run(["validate", str(file), "--strict"]) == 0
    assert f"ok: {len(POLICIES)} policies" in capsys.readouterr().out


def test_a_pack_beside_a_copy_of_its_policies_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy is included or copied, never both: the second of one name is an error."""
    file = tmp_path / "both.yaml"
    file.write_text(f"version: 1\ninclude: [pack:gpu, {ROOT / 'policies.example.yaml'}]\n", "utf-8")

    assert run(["validate", str(file), "--format", "json"]) == 2
    codes = {item["code"] for item in json.loads(capsys.readouterr().out)["diagnostics"]}
    assert "duplicate-name" in codes


@pytest.mark.parametrize("example", named("firing"))
def test_it_fires(example: Example) -> None:
    """On its firing example the policy fires on exactly one resource."""
    result = example.audit()

    assert [finding.state for finding in result.findings] == ["firing"]
    assert result.findings[0].policy.name == example.policy


@pytest.mark.parametrize("example", named("quiet"))
def test_it_keeps_quiet(example: Example) -> None:
    """With the change of a quiet example the policy is known to be false."""
    result = example.audit()

    assert [(finding.state, str(finding.resource)) for finding in result.findings] == []
    assert [item.reason for item in result.unknown] == []


@pytest.mark.parametrize("example", named("unknown"))
def test_it_says_that_it_does_not_know(example: Example) -> None:
    """With the change of an unknown example the policy is unknown, with its reason, and does not fire."""
    result = example.audit()

    assert not any(finding.state == "firing" and finding.stale_since is None for finding in result.findings)
    assert len(result.unknown) == 1
    assert example.says
    assert example.says in result.unknown[0].reason


@pytest.mark.parametrize(
    "value", ["serve", "interactive", UNREADABLE], ids=["serve", "interactive", "unreadable"]
)
@pytest.mark.parametrize("example", ACTING, ids=lambda example: example.name)
def test_what_is_no_training_is_never_touched(example: Example, value: LabelValue) -> None:
    """A policy that does more than tell selects nothing that serves, is interactive, or cannot be read."""
    assert example.with_class(value).audit().findings == ()


@pytest.mark.parametrize(
    "example",
    [item for item in ACTING if POLICIES[item.policy].each in WORKLOADS],
    ids=lambda example: example.name,
)
def test_a_workload_of_unknown_class_is_never_touched(example: Example) -> None:
    """A policy that does more than tell selects no workload that nobody has classed."""
    assert example.with_class(None).audit().findings == ()


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
def test_a_policy_is_careful(policy: Policy) -> None:
    """It only audits, names whom to ask and what to do, tells first, and asks before it changes anything."""
    assert policy.mode == "audit"
    assert policy.summary.endswith(".")
    assert policy.contact
    assert policy.runbook == f"docs/policies/{policy.name}.md"
    assert policy.conditions
    if policy.name in SILENT:
        assert policy.severity == "low"
        assert policy.steps == ()
        return
    assert policy.steps[0].action == "alert"
    assert [step.to for step in policy.steps if step.action == "alert"] == [("owner",)]
    unasked = [step.action for step in policy.steps if step.action not in ("alert", "snapshot")]
    assert [step.action for step in policy.steps if step.approve == "required"] == unasked
    if acts(policy):
        assert policy.where is not None
        assert "class" in policy.where.text


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_has_its_examples(name: str) -> None:
    """Each policy has an example in which it fires, one in which it does not, and one unknown."""
    entry = EXAMPLES[name]

    assert entry["firing"]
    assert entry["quiet"]
    assert entry["unknown"]


def test_no_example_is_of_a_policy_that_is_not_there() -> None:
    """Examples name policies of the packs."""
    assert set(EXAMPLES) <= set(POLICIES)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
def test_a_policy_has_its_page(policy: Policy) -> None:
    """The page has every section, shows the policy as the pack has it, and the index links it."""
    text = (PAGES / f"{policy.name}.md").read_text(encoding="utf-8")

    assert text.startswith(f"# {policy.name}\n\n{policy.summary}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(SECTIONS)
    assert f"```yaml\n{source(policy)}\n```" in text
    assert f"[{policy.name}]({policy.name}.md)" in (PAGES / "README.md").read_text(encoding="utf-8")


def test_the_exemptions_of_the_pages_load(tmp_path: Path) -> None:
    """Every page's example of an exemption is one that the loader takes."""
    entries = []
    for name in POLICIES:
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        entries.append(text.rpartition("```yaml\nexemptions:\n")[2].removesuffix("```\n"))
    file = tmp_path / "exempt.yaml"
    packs = ", ".join(f"pack:{name}" for name in PACKS)
    file.write_text(f"version: 1\ninclude: [{packs}]\nexemptions:\n{''.join(entries)}", "utf-8")
    result = load_here(file)

    assert [str(item) for item in result.diagnostics if item.severity != "info"] == []
    assert result.policies is not None
    assert [item.policy for item in result.policies.exemptions] == list(POLICIES)


def test_no_page_is_of_a_policy_that_is_not_there() -> None:
    """The pages are those of the policies, and the index."""
    assert {path.stem for path in PAGES.glob("*.md")} == {*POLICIES, "README"}


@pytest.mark.parametrize("correlation", correlations(), ids=lambda item: item.name)
def test_a_correlation_is_described(correlation: Correlation) -> None:
    """The index of the policies has a row for each correlation: what it joins, and the cause."""
    text = (PAGES / "README.md").read_text(encoding="utf-8")
    joined = " + ".join(f"[{name}]({name}.md)" for name in correlation.all)

    assert f"| {correlation.name} | {joined} | {correlation.join} | {correlation.cause} |" in text
