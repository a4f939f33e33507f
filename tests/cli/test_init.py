"""`stoploss init`: a first policy file that is valid, and never written over another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.scenes import Scene

from stoploss.cli.init import starter
from stoploss.collectors import registry


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_is_written_validates_and_audits(scene: Scene) -> None:
    """The file has neither errors nor warnings, and an audit of this machine runs with it."""
    said = scene.run("init")

    assert scene.status == 0
    assert "wrote policies.yaml" in said
    assert said.endswith("next: stoploss audit\n")
    scene.run("validate", "--strict")
    assert scene.status == 0
    result = scene.json("audit")
    assert "host" in result["summary"]["resources"]
    assert "host-memory-pressure" in {item["policy"] for item in result["unknown"]}


@pytest.mark.parametrize(("gpu", "packs"), [(True, {"gpu", "lifecycle", "storage"}), (False, {"storage"})])
def test_packs_follow_what_was_seen(scene: Scene, gpu: bool, packs: set[str]) -> None:
    """Where there is a GPU its packs are included; either way the file is valid."""
    text = starter(gpu=gpu, folder=scene.folder, known=("host",))
    scene.run("validate", "--strict", scene.write("p.yaml", text))

    assert scene.status == 0
    [include] = re.findall(r"^include: \[(.+)\]$", text, re.MULTILINE)
    assert {name.removeprefix("pack:") for name in include.split(", ")} == packs


def test_suggestions_are_valid_once_they_are_no_comments(scene: Scene) -> None:
    """Collectors, budgets, receivers and exemptions that stand as comments load without the marks."""
    (scene.folder / "checkpoints").mkdir()
    known = tuple(registry.load().entries)
    text = starter(gpu=True, folder=scene.folder, known=known)
    head, version, rest = text.partition("version: 1\n")
    rest = re.sub(r"^# ((?:notify|budgets|exemptions):|  )", r"\1", rest, flags=re.MULTILINE)
    rest = re.sub(rf"^  # ({'|'.join(known)}): ", r"  \1: ", rest, flags=re.MULTILINE)
    scene.run("validate", "--strict", scene.write("p.yaml", head + version + rest))

    assert len(re.findall(r"^(?:notify|budgets|exemptions):", rest, re.MULTILINE)) == 3
    assert scene.status == 0


@pytest.mark.parametrize("name", ["checkpoints", "odd: [name]\n#x"])
def test_folders_are_suggested_and_not_used(scene: Scene, name: str) -> None:
    """A common folder shows up in a comment only, whatever the path above it is called."""
    (scene.folder / name / "checkpoints").mkdir(parents=True)
    text = starter(gpu=False, folder=scene.folder / name, known=("host",))
    scene.run("validate", "--strict", scene.write("p.yaml", text))

    [line] = [line for line in text.splitlines() if "# checkpoints: {paths: [" in line]
    assert "checkpoints" in line.partition("paths:")[2]
    assert line.startswith("  # ")
    assert scene.status == 0


def test_an_existing_file_stays_as_it_is(scene: Scene) -> None:
    """A second run changes nothing and names what to do instead."""
    scene.write("policies.yaml", "mine\n")
    scene.run("init")

    assert scene.status == 2
    assert "stays as it is" in scene.stderr
    assert "stoploss validate" in scene.stderr
    assert (scene.folder / "policies.yaml").read_text(encoding="utf-8") == "mine\n"


def test_a_link_is_not_written_through(scene: Scene) -> None:
    """A link that leads nowhere counts as a file that exists."""
    (scene.folder / "policies.yaml").symlink_to(scene.folder / "elsewhere.yaml")
    scene.run("init")

    assert scene.status == 2
    assert not (scene.folder / "elsewhere.yaml").exists()


def test_another_folder(scene: Scene) -> None:
    """--dir says where, and the next command names the file."""
    (scene.folder / "sub").mkdir()
    said = scene.run("init", "--dir", "sub")

    assert scene.status == 0
    assert (scene.folder / "sub" / "policies.yaml").is_file()
    assert "next: stoploss audit sub/policies.yaml" in said


def test_a_folder_that_is_not_there(scene: Scene) -> None:
    """A missing folder is bad input, and is not made."""
    scene.run("init", "--dir", "none")

    assert scene.status == 2
    assert "cannot write none/policies.yaml" in scene.stderr
    assert not (scene.folder / "none").exists()


def test_a_command_without_a_file_points_here(scene: Scene) -> None:
    """An audit in a folder without policies names init."""
    scene.run("audit")

    assert scene.status == 2
    assert "stoploss init" in scene.stderr
