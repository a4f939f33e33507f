"""`stoploss completion`: lines that a real shell can read, and what they complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.scenes import Scene

from stoploss.cli.completion import SHELLS
from stoploss.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]


def completed(folder: Path, lines: str, *words: str) -> list[str]:
    """What bash offers for the last of some words."""
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("bash is not installed")
    program = folder / "stoploss"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stoploss "$@"\n', "utf-8")
    program.chmod(0o755)
    quoted = " ".join(f"'{word}'" for word in ("stoploss", *words))
    script = f"{lines}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words)}\n_stoploss_completion stoploss\n"
    script += 'printf "%s\\n" "${COMPREPLY[@]}"\n'
    done = subprocess.run(
        [shell, "--norc", "--noprofile", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=folder,
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_its_lines(scene: Scene, shell: str) -> None:
    """Each shell's lines name the command and the variable by which it asks."""
    text = scene.run("completion", shell)

    assert scene.status == 0
    assert "_STOPLOSS_COMPLETE" in text
    assert "stoploss" in text


def test_an_unknown_shell_is_refused(scene: Scene) -> None:
    """Another shell is bad usage, and those that are known are named."""
    scene.run("completion", "csh")

    assert scene.status == 2
    assert "bash" in scene.stderr


def test_bash_completes_commands(scene: Scene) -> None:
    """The beginning of a command becomes the commands that begin so."""
    lines = scene.run("completion", "bash")

    assert completed(scene.folder, lines, "sta") == ["status"]
    assert set(completed(scene.folder, lines, "")) == set(COMMANDS)


def test_bash_completes_options_and_values(scene: Scene) -> None:
    """Options of a command are completed, and so are the values of a choice."""
    lines = scene.run("completion", "bash")

    assert completed(scene.folder, lines, "audit", "--sig") == ["--signals"]
    assert completed(scene.folder, lines, "costs", "--by", "te") == ["team"]
