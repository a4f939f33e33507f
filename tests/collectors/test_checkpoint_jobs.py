"""Whose a checkpoint is, by folders and by files, and what it would be lost with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.checkpoints import AT, collector, hugging_face, labels, of, put

from stoploss.collectors.checkpoint_jobs import failure_domain
from stoploss.engine.model import Bad


@pytest.mark.parametrize(
    ("template", "path", "name"),
    [
        (None, "vision/run7/ckpt/step-5/a.pt", "vision/run7/ckpt/step-5"),
        ("{team}/{job}", "vision/run7/ckpt/step-5/a.pt", "run7/ckpt/step-5"),
        ("*/{job}", "vision/run7/step-5/a.pt", "run7/step-5"),
        ("*/run{job}", "vision/run7/step-5/a.pt", "7/step-5"),
        ("{team}/{job}", "model_5.pt", "ROOT/model_5.pt"),
        (None, "step-5/a.pt", "ROOT/step-5"),
    ],
)
def test_folders_name_the_job(tmp_path: Path, template: str | None, path: str, name: str) -> None:
    """The job is the first folder below the path, or what the option says; else the path itself."""
    put(tmp_path / path)
    options = {"job": template} if template else {}

    look = collector(tmp_path, **options).look(AT)

    name = name.replace("ROOT", tmp_path.name)
    [found] = {item.resource.id for item in look.samples if item.resource.kind == "checkpoint"}
    assert found == name
    assert labels(look, found)["job"] == name.split("/")[0]
    if template == "{team}/{job}" and "vision" in path:
        assert labels(look, found)["team"] == "vision"


def test_a_template_can_be_absolute(tmp_path: Path) -> None:
    """A template that begins at the root is held against the whole path."""
    put(tmp_path / "a/run9/step-1/m.pt")

    look = collector(tmp_path, job=f"{tmp_path}/*/{{job}}").look(AT)

    assert {item.resource.id for item in look.samples} == {"run9", "run9/step-1"}


def test_files_name_the_job_and_its_labels(tmp_path: Path) -> None:
    """STOPLOSS_JOB beats run.json, which beats folders; a run.json gives further labels."""
    put(tmp_path / "a/deep/step-1/m.pt")
    put(tmp_path / "a/STOPLOSS_JOB", "job-a\n")
    put(tmp_path / "a/run.json", json.dumps({"job": "other", "user": "ann", "owner": "ml", "n": 3}))
    put(tmp_path / "b/step-1/m.pt")
    put(tmp_path / "b/run.json", json.dumps({"job": "job-b", "class": "train"}))
    put(tmp_path / "c/step-1/m.pt")
    put(tmp_path / "c/run.json", "{broken")

    look = collector(tmp_path).look(AT)

    assert {item.resource.id for item in look.samples if item.resource.kind == "job"} == {
        "job-a",
        "job-b",
        "c",
    }
    assert labels(look, "job-a/deep/step-1")["user"] == "ann"
    assert labels(look, "job-a/deep/step-1")["owner"] == "ml"
    assert labels(look, "job-b/step-1")["class"] == "train"
    assert labels(look, "job-b")["class"] == "train"
    assert any("c/run.json (no JSON object)" in note for note in look.notes)


def test_two_copies_of_one_name_are_two_checkpoints(tmp_path: Path) -> None:
    """The same job and name under another path is another checkpoint of the same job."""
    for name in "ab":
        hugging_face(tmp_path / name / "run", 5)

    look = collector(tmp_path / "a", tmp_path / "b").look(AT)

    names = {item.resource.id for item in look.samples if item.resource.kind == "checkpoint"}
    assert names == {"run/checkpoint-5", f"run/checkpoint-5@{tmp_path}/b"}
    assert of(look, "run")["checkpoint.count"] == 2.0


def test_failure_domains() -> None:
    """A local disk is lost with its host; of a network file system only the options can tell."""
    assert failure_domain(None, "ext4") == "host"
    assert failure_domain("zone", "nfs4") == "zone"
    assert failure_domain(None, "nfs4") == Bad("nfs4 may lie elsewhere: name its failure-domain")


def test_the_option_failure_domain_is_for_all_paths_or_one(tmp_path: Path) -> None:
    """What stands at a path wins over what stands beside all of them."""
    for name in "ab":
        put(tmp_path / name / "run" / f"{name}_1.pt")

    look = collector(
        tmp_path / "a",
        {"path": str(tmp_path / "b"), "failure-domain": "region"},
        **{"failure-domain": "zone"},
    ).look(AT)

    assert of(look, "run/a_1.pt")["checkpoint.failure_domain"] == "zone"
    assert of(look, "run/b_1.pt")["checkpoint.failure_domain"] == "region"
