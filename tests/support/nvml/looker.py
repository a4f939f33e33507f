"""Lets the gpu collector look where the fake driver is its library: one JSON request a line.

A request is {"scenarios": [TEXT, ...], "root": FOLDER}: the same collector looks once at each
scenario. The answer is what each look saw, or the exception that it raised.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count
from pathlib import Path
from typing import Any

from stoploss.collectors.contract import CollectorError, NotHere
from stoploss.collectors.gpu import GpuCollector
from stoploss.engine.model import Bad, Look, Unreadable

SCENARIO = Path(os.environ["FAKE_NVML"])
VERSIONS = count(1)


def plain(value: object) -> object:
    """A reading or label as JSON."""
    if isinstance(value, Bad):
        return {"bad": value.reason}
    return {"unreadable": True} if isinstance(value, Unreadable) else value


def told(look: Look) -> dict[str, Any]:
    """A look as JSON; the labels of a resource are those of its samples."""
    samples = [
        [item.time, item.resource.kind, item.resource.id, item.signal, plain(item.reading)]
        for item in look.samples
    ]
    labels = {
        item.resource.id: {k: plain(v) for k, v in (item.labels or {}).items()} for item in look.samples
    }
    return {
        "samples": samples,
        "labels": labels,
        "notes": look.notes,
        "inventories": sorted(look.inventories),
    }


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What the looks of one collector saw."""
    slept: list[float] = []
    collector = GpuCollector("n1", slept.append, Path(request["root"]))
    looks: list[dict[str, Any]] = []
    for number, scenario in enumerate(request["scenarios"]):
        SCENARIO.write_text(scenario, "utf-8")
        # Two versions written within one tick of the kernel's clock differ all the same.
        version = next(VERSIONS)
        os.utime(SCENARIO, (version, version))
        try:
            looks.append(told(collector.look(60.0 * number)))
        except (CollectorError, NotHere) as error:
            looks.append({"error": type(error).__name__, "reason": error.reason})
    collector.close()
    return {"looks": looks, "slept": slept}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
