"""Commands on machines with GPUs: processes of their own that find the fake driver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import fake_driver
from support.fake_driver import (
    LOST,
    MIB,
    MISMATCH,
    gpu,
    idle,
    scenario,
    split,
)


def child(text: str, *arguments: str, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own that sees the fake driver: stoploss with arguments, or some Python."""
    command = ["-c", code] if code else ["-m", "stoploss", *arguments]
    return subprocess.run(
        [sys.executable, *command],
        env={**fake_driver.driver().environment(text), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_G_22_a_driver_that_hangs_is_left_behind() -> None:
    """A driver that never answers fails this collector within its time limit and holds up no other."""
    code = """
import time
from stoploss.collectors import registry, runner
from stoploss.collectors.contract import Context
known = registry.load()
both = {name: known.build(name, {}, Context()) for name in ("gpu", "host")}
for run in runner.run_collectors(both, at=60.0, monotonic=time.monotonic, time_limit=1.0):
    print(run.name, run.ok, run.reason)
"""
    done = child(scenario(gpu(), hang=30), code=code)

    assert done.stdout.splitlines() == ["gpu False no answer within 1s", "host True None"]


def test_a_broken_library_is_no_driver(tmp_path: Path) -> None:
    """A library that cannot be loaded is the same as none."""
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    code = f"""
from pathlib import Path
from stoploss.collectors import gpu
from stoploss.collectors.contract import NotHere
try:
    gpu.GpuCollector("n1", print, Path({str(tmp_path)!r})).look(60.0)
except NotHere as error:
    print(error.reason)
"""
    done = child("", code=code, LD_LIBRARY_PATH=str(tmp_path))

    assert done.stdout == "no GPU here: no driver library (libnvidia-ml.so.1)\n"


POLICY = """version: 1
policies:
  - name: idle
    each: gpu
    when:
      - 'gpu.utilization < 5%'
      - 'gpu.power < 35% * gpu.power_limit'
"""


def audit(text: str, folder: Path, *options: str) -> tuple[dict[str, Any], int]:
    """What `stoploss audit` finds on a machine with this driver, and its exit status."""
    (folder / "policies.yaml").write_text(POLICY, "utf-8")
    done = child(text, "audit", str(folder / "policies.yaml"), "--format", "json", *options)
    assert done.returncode in (0, 1, 4), done.stderr
    return json.loads(done.stdout), done.returncode


def test_an_idle_gpu_is_found_without_any_setup(tmp_path: Path) -> None:
    """The collector looks by default: of an idle and a busy GPU the idle one is found."""
    result, status = audit(scenario(idle(0), gpu(1)), tmp_path)

    assert [finding["resource"]["id"].split("/")[1] for finding in result["findings"]] == ["gpu0"]
    assert result["unknown"] == []
    assert status == 1


def test_G_15_without_gpu_metrics_nothing_is_idle(tmp_path: Path) -> None:
    """A machine whose CPU is read and whose GPUs are not has no idle GPU: the policy is unknown."""
    result, _ = audit(scenario(init="!12"), tmp_path)

    assert result["findings"] == []
    assert result["unknown"]


def test_G_22_a_mismatch_decides_nothing_and_is_told(tmp_path: Path) -> None:
    """With a driver that does not fit its library no policy decides, and the exit status says so."""
    result, status = audit(scenario(gpu(), init=MISMATCH), tmp_path)

    assert result["findings"] == []
    assert {item["name"]: item["reason"] for item in result["collectors"]}["gpu"] == (
        "NVML cannot be opened: driver/library version mismatch"
    )
    assert status == 4


def test_G_21_a_lost_gpu_leaves_no_finding_on_its_host(tmp_path: Path) -> None:
    """Eight idle GPUs of which one is lost: eight unknowns with their reasons, no finding."""
    gpus = [idle(number) for number in range(8)]
    gpus[3] = {"handle": LOST}

    result, status = audit(scenario(*gpus), tmp_path)

    why = {item["resource"]["id"].split("/")[1]: item["reason"] for item in result["unknown"]}
    assert result["findings"] == []
    assert len(why) == 8
    assert "GPU is lost" in why["gpu3"]
    assert "another GPU of this host is lost: gpu3" in why["gpu0"]
    assert status == 4


def test_signals_now_shows_a_node_with_a_split_and_a_lost_gpu() -> None:
    """The command lists eight GPUs and the slices of one, each unknown with its reason, and exits well."""
    gpus = [idle(number) for number in range(8)]
    gpus[3] = {"handle": LOST}
    gpus[5] = split(uuid="GPU-5")

    done = child(scenario(*gpus), "signals", "gpu", "--now", "--format", "json")

    told = {
        (resource["id"].partition("/")[2], signal["name"]): signal.get("reason") or signal["value"]
        for resource in json.loads(done.stdout)["resources"]
        for signal in resource["signals"]
    }
    assert done.returncode == 0
    assert {name for name, _ in told} == {*(f"gpu{number}" for number in range(8)), "gpu5/mig0", "gpu5/mig1"}
    assert told["gpu3", "gpu.memory.used"] == "GPU is lost"
    assert told["gpu0", "gpu.utilization"] == "another GPU of this host is lost: gpu3"
    assert told["gpu0", "gpu.memory.used"] == 0.0
    assert told["gpu5/mig0", "gpu.utilization"] == "not supported on MIG"
    assert told["gpu5/mig0", "gpu.memory.used"] == 26.0 * MIB
