"""What is shipped: sdist, the wheel built from it, and the wheel installed without the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("rules", "engine", "collectors", "actions")
LEFT_OUT = (".git", ".venv*", "dist", "build", "__pycache__", ".*_cache", ".hypothesis", "out", "*.db")

POLICIES = """\
version: 1
policies:
  - name: busy-host
    each: host
    when: ["avg(host.cpu.utilization, 10m) > 90%"]
    for: 10m
"""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without this checkout on its import path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def shipped_sources() -> dict[str, bytes]:
    """Name in the wheel -> bytes, of everything the package consists of."""
    places = [(ROOT / folder, f"stoploss/{folder}") for folder in FOLDERS]
    sources = {}
    for base, prefix in [*places, (ROOT / "src" / "stoploss", "stoploss")]:
        for path in base.rglob("*"):
            inside = path.relative_to(base)
            linked = prefix == "stoploss" and inside.parts[0] in FOLDERS
            if path.is_file() and not linked and "__pycache__" not in inside.parts and path.suffix != ".pyc":
                sources[f"{prefix}/{inside}"] = path.read_bytes()
    return sources


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of a copy of this checkout and the wheel built from that sdist."""
    base = tmp_path_factory.mktemp("build")
    shutil.copytree(ROOT, base / "checkout", symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", base, cwd=base / "checkout")
    assert done.returncode == 0, done.stdout + done.stderr
    return base


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel."""
    (path,) = built.glob("*.whl")
    return path


def test_the_wheel_holds_exactly_the_package(wheel: Path) -> None:
    """Beside its metadata the wheel holds every file of the package with its bytes, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}

    assert found == shipped_sources()


def test_no_member_stands_twice(wheel: Path) -> None:
    """Nothing is shipped twice, neither in the wheel nor under a second name of the links."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert len(names) == len(set(names))
    assert not any(name.startswith(("src/", "rules/", "engine/")) for name in names)


def test_data_files_are_in_the_wheel(wheel: Path) -> None:
    """The type marker, the grammar and the packs come along."""
    names = set(zipfile.ZipFile(wheel).namelist())
    packs = {f"stoploss/rules/packs/{path.name}" for path in (ROOT / "rules" / "packs").glob("*.yaml")}

    assert "stoploss/py.typed" in names
    assert any(name.startswith("stoploss/rules/") and name.endswith("grammar.lark") for name in names)
    assert packs <= names


def test_the_sdist_is_whole(built: Path) -> None:
    """The source archive holds the package, its tests, and what the build needs."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "rules/catalogue.py",
        "src/stoploss/py.typed",
    } <= names
    assert "tests/packaging/test_wheel.py" in names


@pytest.mark.slow
def test_the_installed_wheel_runs_without_the_sources(wheel: Path, tmp_path: Path) -> None:
    """Installed into an environment of its own, the command shows help and validates a policy file."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path).check_returncode()
    python = tmp_path / "env" / "bin" / "python"
    site = Path(
        run(
            python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
        ).stdout.strip()
    )
    # The dependencies are those of this environment. Links of editable installs are not followed from here.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    done = run(sys.executable, *install, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "policies.yaml").write_text(POLICIES)

    where = run(python, "-c", "import stoploss.rules as r; print(r.__file__)", cwd=tmp_path)
    shown = run(tmp_path / "env" / "bin" / "stoploss", "--help", cwd=tmp_path)
    valid = run(tmp_path / "env" / "bin" / "stoploss", "validate", "policies.yaml", cwd=tmp_path)

    assert Path(where.stdout.strip()) == site / "stoploss" / "rules" / "__init__.py"
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "validate" in shown.stdout
    assert valid.returncode == 0, valid.stdout + valid.stderr
