"""The example policies load without a word of complaint, and fit the simulated fleet."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoploss.actions.registry import action_options
from stoploss.collectors.registry import option_models
from stoploss.engine.evaluation.evaluator import Evaluator
from stoploss.engine.history.recorded import Recording, read_recorded
from stoploss.rules.catalogue import catalogue
from stoploss.rules.conditions.typed import Absent, Share, Window
from stoploss.rules.loader import LoadResult, load
from stoploss.rules.policy import PolicySet

ROOT = Path(__file__).parents[2]
FILE = ROOT / "policies.example.yaml"


@pytest.fixture(scope="module")
def result() -> LoadResult:
    """The example file, loaded."""
    return load(
        [FILE], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
    )


@pytest.fixture(scope="module")
def policies(result: LoadResult) -> PolicySet:
    """The policy set of the example file."""
    assert result.policies is not None, "\n".join(map(str, result.diagnostics))
    return result.policies


def test_the_file_has_neither_errors_nor_warnings(result: LoadResult) -> None:
    """All that may be said about the file is which signals no collector provides yet."""
    assert [str(item) for item in result.diagnostics if item.code != "no-collector"] == []


def test_the_named_policies_are_there(policies: PolicySet) -> None:
    """The four policies that everybody asks for are among at least fourteen."""
    names = {policy.name for policy in policies.policies}

    assert {"idle-gpu", "oversized-instance", "stale-checkpoint", "budget-80"} <= names
    assert len(names) >= 14


def test_nothing_is_done_by_the_example(policies: PolicySet) -> None:
    """Every policy is in mode audit, tells somebody first, and asks before it ends anything."""
    assert policies.settings.mode == "audit"
    for policy in policies.policies:
        assert policy.mode == "audit"
        assert policy.steps[0].action == "alert"
        assert all(step.approve == "required" for step in policy.steps if step.destructive)
        assert policy.conditions


def windows(node: object) -> Iterator[float]:
    """The seconds of every window in a checked condition."""
    if isinstance(node, Window | Share | Absent):
        yield node.seconds
    if dataclasses.is_dataclass(node):
        for field in dataclasses.fields(node):
            yield from windows(getattr(node, field.name))
    if isinstance(node, tuple):
        for item in node:
            yield from windows(item)


def test_windows_fit_slots_of_five_minutes(policies: PolicySet) -> None:
    """Every window holds at least six whole slots, and every `for` whole ones."""
    seconds = [length for policy in policies.policies for length in windows(policy.when)]

    assert len(seconds) > 10
    assert {policy.resolution for policy in policies.policies} == {300}
    assert [length for length in seconds if length < 1800 or length % 300] == []
    assert [policy.name for policy in policies.policies if policy.for_seconds % 300] == []


def test_each_policy_is_introduced_by_a_comment() -> None:
    """Every policy holds a comment that teaches something."""
    _, _, text = FILE.read_text(encoding="utf-8").partition("\npolicies:\n")
    parts = text.partition("\ncorrelate:\n")[0].split("  - name: ")[1:]

    assert [part.splitlines()[0] for part in parts if "    # " not in part and "\n      # " not in part] == []


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The simulated week."""
    out = tmp_path_factory.mktemp("fleet")
    script = ROOT / "examples" / "fleet" / "generate.py"
    subprocess.run(
        [sys.executable, str(script), "--out", str(out)], check=True, capture_output=True, timeout=60
    )
    recorded = read_recorded([out], catalogue=catalogue(), timezone="UTC")
    assert list(recorded.problems) == []
    return recorded


def test_the_fleet_records_every_signal_of_the_policies(policies: PolicySet, recording: Recording) -> None:
    """No condition asks for a signal that the simulated fleet lacks."""
    recorded = set(recording.frame(300.0).planes)
    asked = {
        signal.name for policy in policies.policies for item in policy.conditions for signal in item.signals
    }

    assert asked - recorded == set()


def test_each_scene_is_found_and_nothing_else(policies: PolicySet, recording: Recording) -> None:
    """Over the week exactly these policies fire, once each, apart from slices that work now and then."""
    evaluator = Evaluator(policies.policies, catalogue(), resolution=300.0)
    episodes = evaluator.advance(recording.frame(300.0))
    fired = [(item.policy.name, item.column.resource.id) for item in episodes if item.event == "fired"]

    assert sorted(set(fired)) == [
        ("budget-80", "llm-pretrain"),
        ("diverged", "audio-gan"),
        ("finished-not-released", "bert-finetune"),
        ("gpu-partly-idle", "segmenter"),
        ("hung-collective", "moe-allreduce"),
        ("idle-gpu", "bert-finetune"),
        ("idle-gpu", "vit-search"),
        ("idle-mig-slice", "n4-g6"),
        ("idle-mig-slice", "n4-g7"),
        ("log-flood", "audio-gan.log"),
        ("noisy-neighbour", "n2"),
        ("orphan-volume", "vol-old-scratch"),
        ("oversized-instance", "i-0ab3"),
        ("packet-loss", "n3"),
        ("progress-at-risk", "moe-allreduce"),
        ("progress-at-risk", "vit-search"),
        ("single-zone-progress", "llm-pretrain/step-30000"),
        ("space-or-inodes-full", "vol-samples"),
        ("stale-checkpoint", "vit-search/step-2000"),
    ]
    assert {name for name, resource in fired if fired.count((name, resource)) > 1} == {"idle-mig-slice"}
