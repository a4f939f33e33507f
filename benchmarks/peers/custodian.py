"""Cloud Custodian's value filters over dicts in memory.

Imported, this module is the driver's side and needs nothing. Run by the peers' own
interpreter, as `custodian.py JOB`, it is the peer's side: JOB is a JSON file with `resources`
and `policies`, and one JSON line with its seconds and matches goes to stdout. No cloud is
called: the filters are parsed by the library's own registry and applied one after another,
each to what the one before it left, as its policies do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Unavailable(Exception):
    """The peer is not installed or did not run; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the peer reports: its version, its best time in seconds, and its matches over all policies."""

    version: str
    seconds: float
    matches: int


def less_than(limits: Sequence[tuple[str, float]]) -> list[dict[str, str | float]]:
    """The filters of one policy: each key below its limit."""
    return [{"type": "value", "key": key, "op": "lt", "value": limit} for key, limit in limits]


def measure(
    folder: Path,
    resources: list[dict[str, str | float]],
    policies: list[list[dict[str, str | float]]],
    repeat: int,
) -> Measured:
    """Run the peer on these resources and policies, best of `repeat`.

    Raises:
        Unavailable: its environment is missing, or it failed.
    """
    # The peer runs this file from where it lies, and finds no package `peers`.
    from peers.setup import PYTHON

    if not PYTHON.exists():
        raise Unavailable("c7n is not installed: python benchmarks/peers/setup.py")
    job = folder / "custodian.json"
    job.write_text(
        json.dumps({"resources": resources, "policies": policies, "repeat": repeat}), encoding="utf-8"
    )
    done = subprocess.run(
        [str(PYTHON), str(Path(__file__).resolve()), str(job)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"c7n failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    answer = json.loads(done.stdout)
    return Measured(answer["version"], answer["seconds"], answer["matches"])


def _run(job: dict[str, Any]) -> dict[str, str | float]:
    from importlib.metadata import version

    from c7n.filters import FilterRegistry  # type: ignore[import-not-found]

    registry = FilterRegistry("gpu.filters")
    best, matches = float("inf"), 0
    for _ in range(job["repeat"] + 1):
        # Filters write their marks into the resources, so each round gets fresh ones.
        resources = [dict(item) for item in job["resources"]]
        policies = [registry.parse(filters, None) for filters in job["policies"]]
        matches = 0
        start = time.perf_counter()
        for filters in policies:
            left = resources
            for item in filters:
                left = item.process(left)
                if not left:
                    break
            matches += len(left)
        best = min(best, time.perf_counter() - start)
    return {"version": version("c7n"), "seconds": best, "matches": matches}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))) + "\n")
