"""The chart: rendered where Helm is here, and read for what can be told without it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stoploss.cli import loading
from stoploss.cli.run import run

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "stoploss"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
RIGHTS: dict[str, Any] = yaml.safe_load((CHART / "files" / "rights.yaml").read_text("utf-8"))
TEMPLATES = {path.name: path.read_text("utf-8") for path in sorted((CHART / "templates").iterdir())}
ACTIONS = ("terminate", "downscale", "release", "resume")

Right = tuple[str, str, str]


def rights(rules: list[dict[str, Any]]) -> set[Right]:
    """Each verb of each resource of each group."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def documented() -> set[Right]:
    """The rights that the page of Kubernetes names."""
    page = (ROOT / "docs" / "actions" / "kubernetes.md").read_text("utf-8")
    role = next(text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "ClusterRole" in text)
    return rights(yaml.safe_load(role)["rules"])


def tags(text: str) -> Iterator[str]:
    """What stands between double braces."""
    yield from re.findall(r"\{\{-?\s*(.*?)\s*-?\}\}", text, re.DOTALL)


@pytest.mark.parametrize("name", TEMPLATES)
def test_braces_and_blocks_are_balanced(name: str) -> None:
    """Each opening brace has its end, and each block, too."""
    text, depth = TEMPLATES[name], 0
    assert text.count("{{") == text.count("}}") == len(list(tags(text)))
    for tag in tags(text):
        word = tag.split()[0]
        depth += 1 if word in ("if", "range", "with", "define", "block") else -1 if word == "end" else 0
        assert depth >= 0

    assert depth == 0


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_value_that_is_used_is_one(name: str) -> None:
    """A path below .Values exists in values.yaml."""
    for path in re.findall(r"\.Values((?:\.\w+)+)", TEMPLATES[name]):
        value: Any = VALUES
        for part in path.strip(".").split("."):
            assert part in value, path
            value = value[part]


def test_every_value_is_used() -> None:
    """No value stands in values.yaml that no template reads."""
    whole = "".join(TEMPLATES.values())
    groups = [
        name for name in VALUES if isinstance(VALUES[name], dict) and name not in ("policies", "resources")
    ]
    paths = [f".Values.{name}.{part}" for name in groups for part in VALUES[name]]

    assert [path for path in paths if path not in whole] == []
    assert [name for name in VALUES if f".Values.{name}" not in whole] == []


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_part_that_is_included_is_defined(name: str) -> None:
    """What a template includes stands in the helpers."""
    defined = set(re.findall(r'define "([^"]+)"', TEMPLATES["_helpers.tpl"]))

    assert set(re.findall(r'include "([^"]+)"', TEMPLATES[name])) <= defined


def test_the_rights_of_all_actions_are_those_of_the_page() -> None:
    """What the actions ask of a cluster is what the page of Kubernetes says, no less and no more."""
    given = set().union(*(rights(RIGHTS[name]) for name in ("read", *ACTIONS)))

    assert set(RIGHTS) == {"collector", "read", *ACTIONS}
    assert given == documented()


def test_the_collector_changes_nothing() -> None:
    """Its rights are to list what it lists, and no secrets."""
    given = rights(RIGHTS["collector"])

    assert {verb for _, _, verb in given} == {"list"}
    assert {"pods", "jobs", "replicasets", "persistentvolumeclaims"} <= {what for _, what, _ in given}


@pytest.mark.parametrize("name", ["downscale", "resume"])
def test_what_deletes_nothing_may_not_delete(name: str) -> None:
    """Only terminate and release may delete."""
    assert "delete" not in {verb for _, _, verb in rights(RIGHTS[name])}


@pytest.mark.parametrize("name", ["centre.yaml", "node.yaml"])
def test_its_arguments_are_options(name: str) -> None:
    """Every option that a pod is given is one of the command."""
    known = {option for parameter in run.params for option in parameter.opts}
    given = set(re.findall(r"^\s+- (--[\w-]+)$", TEMPLATES[name], re.MULTILINE))

    assert "--listen" in given
    assert given <= known


@pytest.mark.parametrize("name", ["centre.yaml", "node.yaml"])
def test_it_is_asked_whether_it_lives(name: str) -> None:
    """Pods are probed by the routes that need no token, and have no more rights than they say."""
    assert set(re.findall(r"path: (/\w+z)\b", TEMPLATES[name])) == {"/healthz", "/readyz"}
    assert "drop: [ALL]" in TEMPLATES[name]
    assert "allowPrivilegeEscalation: false" in TEMPLATES[name]
    assert "readOnlyRootFilesystem: true" in TEMPLATES[name]


def test_the_policies_of_the_chart_are_valid(tmp_path: Path) -> None:
    """The file that is there without any value of one's own can be loaded."""
    file = tmp_path / "policies.yaml"
    file.write_text(VALUES["policies"]["policies.yaml"], "utf-8")

    assert loading.load_files([str(file)]).policies is not None


def rendered(*values: str) -> list[dict[str, Any]]:
    """The objects that Helm makes."""
    program = shutil.which("helm")
    if program is None:
        pytest.skip("helm is not installed")
    arguments = [program, "template", "r", str(CHART), *(part for text in values for part in ("--set", text))]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


@pytest.mark.real
def test_helm_renders_a_centre() -> None:
    """One pod with its state, its rights and who may ask."""
    kinds = [item["kind"] for item in rendered("tokens.file=x", "rights.actions={terminate,resume}")]

    access = {"Secret", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    assert set(kinds) == {"ConfigMap", "PersistentVolumeClaim", "Service", "Deployment"} | access


@pytest.mark.real
def test_helm_renders_nodes() -> None:
    """A pod on each node, without rights in the cluster."""
    kinds = [item["kind"] for item in rendered("mode=node", "node.folders[0].path=/runs")]

    assert sorted(kinds) == ["ConfigMap", "DaemonSet", "ServiceAccount"]
