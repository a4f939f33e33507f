"""`stoploss explain`: words, and the tree of one policy on one resource."""

from __future__ import annotations

import json

import pytest
from support.scenes import Scene, policy, recording

UTIL = "gpu.utilization"
IDLE = f"max({UTIL}, 30m) < 5%"


def explain(scene: Scene, resource: str, *extra: str, each: str = "gpu", when: str = IDLE) -> str:
    values = {("gpu", "a", UTIL): [0] * 60, ("gpu", "b", UTIL): [0.9] * 60, ("gpu", "c", UTIL): [0] * 20}
    labels = {"a": {"job": "j"}, "b": {"job": "j"}, "c": {"job": ""}}
    file = scene.write("p.yaml", policy(when, each=each, **{"for": "10m"}))
    signals = scene.write("s.csv", recording(values, labels=labels))
    arguments = ["explain", "--policy", "p", "--resource", resource, "--file", file, "--signals", signals]
    return scene.run(*arguments, *extra)


def test_a_finding_is_explained_by_its_values_and_history(scene: Scene) -> None:
    """The tree names the value, the samples, since when, and when it fired."""
    lines = explain(scene, "gpu a").splitlines()

    assert lines[0] == "p on gpu a at 2026-01-01 01:00 UTC: firing for 30m"
    assert f"  true    {IDLE}   is 0%, from 30 of 30 samples" in lines
    assert lines[-1] == "  2026-01-01 00:40  fired     true since 2026-01-01 00:30"


@pytest.mark.parametrize("resource", ["a", "gpu a", "gpu/a"])
def test_a_resource_is_named_with_or_without_its_kind(scene: Scene, resource: str) -> None:
    """An id, kind and id, or kind/id."""
    assert explain(scene, resource).startswith("p on gpu a ")


def test_what_does_not_fire_names_the_member_that_disagrees_first(scene: Scene) -> None:
    """Under a job the busy GPU stands above the idle one."""
    lines = [line.strip() for line in explain(scene, "j", each="job").splitlines()]
    members = [line for line in lines if "gpu a" in line or "gpu b" in line]

    assert members == [
        "false   gpu b   is 90%, from 30 of 30 samples",
        "true    gpu a   is 0%, from 30 of 30 samples",
    ]


def test_what_is_unknown_says_what_is_missing(scene: Scene) -> None:
    """The reason and the counts stand beside the condition; the json carries them too."""
    tree = json.loads(explain(scene, "c", "--format", "json"))["when"]

    assert tree["truth"] == "unknown"
    assert tree["reason"].startswith("gpu.utilization: stale since 2026-01-01 00:20 UTC, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "--policy", "q", "--resource", "a"], "no policy 'q' in "),
        (["explain", "--policy", "p", "--resource", "zz"], "no gpu 'zz' under policy p; one of: a, b, c"),
        (["explain", "--policy", "p"], "--policy and --resource go together"),
        (["explain", "gpu.power", "--policy", "p"], "either a WORD"),
        (["explain"], "explain needs a WORD"),
        (["explain", "gpu.utilisation"], "did you mean gpu.utilization?"),
    ],
)
def test_what_cannot_be_explained_is_told_with_the_fix(
    scene: Scene, arguments: list[str], message: str
) -> None:
    """One line, status 2."""
    explain(scene, "a")
    extra = ["--file", str(scene.folder / "p.yaml"), "--signals", str(scene.folder / "s.csv")]
    scene.run(*arguments, *(extra if "--resource" in arguments else []))

    assert scene.status == 2
    assert message in scene.stderr
    assert len(scene.stderr.splitlines()) == 1
