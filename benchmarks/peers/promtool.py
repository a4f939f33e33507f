"""`promtool test rules`: an alert replayed by Prometheus' own engine over given series.

Every sample is written out, as in a recorded file, and the alerts expected at the end of the day
are listed, so that a run that succeeds has also found what we find.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from peers.custodian import Unavailable

if TYPE_CHECKING:
    from data import Array

RULES = """\
groups:
  - name: idle
    interval: 1m
    rules:
      - alert: Idle
        expr: >-
          max_over_time(gpu_utilization[30m]) < 0.05
          and avg_over_time(gpu_power[30m]) < 100
          and quantile_over_time(0.95, gpu_memory_utilization[1h]) < 0.2
        for: 10m
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """The version that ran, its best time in seconds, and whether it found the expected alerts."""

    version: str
    seconds: float
    agrees: bool


def write(folder: Path, day: Mapping[str, Array], firing: Sequence[int]) -> Path:
    """Write the rules and the test over `day`, arrays of slots x series; return the test file."""
    (folder / "rules.yml").write_text(RULES, encoding="utf-8")
    test = folder / "test.yml"
    with test.open("w", encoding="utf-8") as file:
        file.write("rule_files: [rules.yml]\nevaluation_interval: 1m\n")
        file.write("tests:\n  - interval: 1m\n    input_series:\n")
        for name, array in day.items():
            metric = name.replace(".", "_")
            for i, values in enumerate(array.T.tolist()):
                file.write(f"      - series: '{metric}{{gpu=\"gpu-{i:06d}\"}}'\n")
                file.write(f"        values: '{' '.join(map(repr, values))}'\n")
        end = len(next(iter(day.values()))) - 1
        file.write(f"    alert_rule_test:\n      - eval_time: {end}m\n        alertname: Idle\n")
        file.write("        exp_alerts:\n" if firing else "        exp_alerts: []\n")
        file.writelines(f"          - exp_labels: {{gpu: gpu-{i:06d}}}\n" for i in firing)
    return test


def measure(folder: Path, day: Mapping[str, Array], firing: Sequence[int], rounds: int) -> Measured:
    """Run promtool over the day, best of `rounds`.

    Raises:
        Unavailable: promtool is not installed, or could not read what we wrote.
    """
    program = shutil.which("promtool")
    if program is None:
        raise Unavailable("promtool is not installed: apt-get install prometheus")
    test = write(folder, day, firing)
    shortest, agrees = float("inf"), True
    for _ in range(rounds):
        start = time.perf_counter()
        done = subprocess.run(
            [program, "test", "rules", str(test)], capture_output=True, text=True, check=False
        )
        shortest = min(shortest, time.perf_counter() - start)
        output = done.stdout + done.stderr
        agrees = agrees and done.returncode == 0
        if done.returncode and "exp:" not in output:
            raise Unavailable(f"promtool failed: {(output.strip().splitlines() or ['no message'])[-1]}")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    words = (said.stdout + said.stderr).split()
    version = words[2] if len(words) > 2 else "of unknown version"
    return Measured(version, shortest, agrees)
