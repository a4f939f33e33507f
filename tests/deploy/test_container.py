"""The image: what it is made from, and as whom it runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from stoploss.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "container" / "Containerfile"
LINES = re.sub(r"\\\n\s*", "", FILE.read_text("utf-8")).splitlines()
WORDS = [(line.split()[0], line.partition(" ")[2].strip()) for line in LINES if line and line[0] not in "# "]


def told(word: str) -> list[str]:
    """Arguments of each instruction of a name."""
    return [text for name, text in WORDS if name == word]


def copied() -> list[str]:
    """What is copied from the sources."""
    own = [text.split() for text in told("COPY") if not text.startswith("--from")]
    return [path for paths in own for path in paths[:-1]]


def test_images_are_pinned() -> None:
    """Every base has a tag, and none is `latest`."""
    for text in told("FROM"):
        image = text.split()[0]
        assert ":" in image.rpartition("/")[2]
        assert not image.endswith(":latest")


def test_it_does_not_run_as_root() -> None:
    """The last user is a number that is not root's."""
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", told("USER")[-1])


def test_what_is_copied_is_there() -> None:
    """Every path exists, and none of them is the whole folder."""
    assert copied()
    assert [path for path in copied() if not (ROOT / path).exists()] == []
    assert "." not in copied()


def test_the_ignore_file_lets_through_what_is_copied() -> None:
    """Each path that is copied is excepted from what is ignored."""
    lines = (FILE.parent / "Containerfile.dockerignore").read_text("utf-8").splitlines()

    assert "*" in lines
    assert {f"!{path}" for path in copied()} <= set(lines)


def test_the_wheel_can_be_made_of_what_is_copied(tmp_path: Path) -> None:
    """A folder with these paths alone makes a wheel with all four folders and the faces."""
    for path in copied():
        source, target = ROOT / path, tmp_path / path
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    build = "import hatchling.build as b; print(b.build_wheel('out'))"
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr
    names = zipfile.ZipFile(next((tmp_path / "out").glob("*.whl"))).namelist()
    for name in ("__main__", "cli/main", "rules/loader", "engine/ledger", "collectors/gpu", "actions/alert"):
        assert f"stoploss/{name}.py" in names


def test_extras_exist() -> None:
    """What is installed beside the core is named by the project."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    lists = re.findall(r"\[([\w,]+)\]'", " ".join(told("RUN")))
    named = {extra for text in lists for extra in text.split(",")}

    assert named
    assert named <= set(known)


def test_it_says_whether_it_is_well() -> None:
    """The health check and what is started are commands of stoploss; none needs a shell or curl."""
    check = json.loads(told("HEALTHCHECK")[0].partition("CMD ")[2])

    assert check[0] == "stoploss"
    assert check[1] in COMMANDS
    assert json.loads(told("ENTRYPOINT")[0]) == ["stoploss"]
    assert json.loads(told("CMD")[0])[0] in COMMANDS


@pytest.mark.slow
@pytest.mark.real
def test_it_can_be_built() -> None:
    """Podman or Buildah makes an image that says its version."""
    program = next((found for name in ("podman", "buildah") if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("neither podman nor buildah is installed")
    arguments = [program, "build", "-f", str(FILE), "-t", "stoploss:test", str(ROOT)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=900, check=False)
    if "initializing source docker://" in done.stderr:
        pytest.skip("no registry gives the image that it is built on")

    assert done.returncode == 0, done.stderr[-2000:]
