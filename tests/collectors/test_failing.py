"""One collector that fails half-way spoils itself only: the audit goes on, degraded, with exit 4."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import fake_driver
from support.fake_driver import LOST, MISMATCH, NO_PERMISSION, gpu, scenario

POLICIES = """
version: 1
collectors:
  storage: {{paths: [{folder}/data, {folder}/gone]}}
  checkpoints: {{paths: [{folder}/ckpt]}}
  logs: {{paths: ['{folder}/logs/*.log']}}
policies:
  - name: gpu-works
    each: gpu
    when: ['gpu.utilization > 50%']
  - name: host-lives
    each: host
    when: ['host.memory.utilization > 0%']
  - name: log-is-there
    each: log
    when: ['logs.size > 0 B']
  - name: checkpoint-is-there
    each: checkpoint
    when: ['checkpoint.step > 0']
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder, one Hugging Face checkpoint and one log."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.bin").write_bytes(b"x" * 100)
    checkpoint = tmp_path / "ckpt" / "run" / "checkpoint-100"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text('{"global_step": 100}')
    (checkpoint / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "run.log").write_text("step 1\n")
    return tmp_path


def audit(folder: Path, driver: str, **environment: str) -> tuple[dict[str, Any], int]:
    file = folder / "policies.yaml"
    file.write_text(POLICIES.format(folder=folder))
    done = subprocess.run(
        [sys.executable, "-m", "stoploss", "audit", str(file), "--format", "json"],
        env={**os.environ, **fake_driver.driver().environment(driver), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 4), done.stderr
    return json.loads(done.stdout), done.returncode


def found(result: Mapping[str, Any]) -> set[str]:
    return {finding["policy"] for finding in result["findings"]}


EVERYTHING = {"gpu-works", "host-lives", "log-is-there", "checkpoint-is-there"}


def test_nothing_fails_on_a_healthy_machine(folder: Path) -> None:
    """The scene itself: every policy finds what is there, and only the missing folder is told."""
    result, status = audit(folder, scenario(gpu()))

    assert found(result) == EVERYTHING
    assert status == 1
    assert all(item["ok"] for item in result["collectors"])


@pytest.mark.parametrize(
    "driver",
    [
        pytest.param(scenario(gpu(), init=MISMATCH), id="driver mismatch"),
        pytest.param(scenario(gpu(), init=NO_PERMISSION), id="permission denied"),
        # Takes the whole time limit of a look.
        pytest.param(scenario(gpu(), hang=30), id="hang", marks=pytest.mark.slow),
    ],
)
def test_a_driver_that_fails_leaves_the_others(folder: Path, driver: str) -> None:
    """The collector is named with its reason, its GPUs are unknown, the rest is found, exit 4."""
    result, status = audit(folder, driver)

    assert found(result) == EVERYTHING - {"gpu-works"}
    assert [item["name"] for item in result["collectors"] if not item["ok"]] == ["gpu"]
    assert [item["policy"] for item in result["unknown"]] == ["gpu-works"]
    assert (result["degraded"], status) == (True, 4)


def test_a_gpu_that_dies_leaves_its_neighbours_unknown_and_the_rest_alone(folder: Path) -> None:
    """One lost GPU: no verdict on any GPU of the host, every other policy decides, exit 4."""
    result, status = audit(folder, scenario(gpu(), gpu(1, handle=LOST)))

    assert found(result) == EVERYTHING - {"gpu-works"}
    assert {item["policy"] for item in result["unknown"]} == {"gpu-works"}
    assert status == 4


def test_files_that_cannot_be_read_spoil_only_themselves(folder: Path) -> None:
    """A truncated checkpoint, a log that is a dangling link and binary text: the good ones stay."""
    broken = folder / "ckpt" / "run" / "checkpoint-200"
    broken.mkdir()
    (broken / "trainer_state.json").write_text('{"global_step": 20')
    (broken / "model.safetensors").write_bytes(b"\x00\x01")
    (folder / "logs" / "dangling.log").symlink_to(folder / "nowhere")
    (folder / "logs" / "binary.log").write_bytes(os.urandom(5000))
    result, status = audit(folder, scenario(gpu()))

    assert found(result) == EVERYTHING
    assert status in (1, 4)
    logs = {f["resource"]["id"] for f in result["findings"] if f["policy"] == "log-is-there"}
    assert any(name.endswith("run.log") for name in logs)
