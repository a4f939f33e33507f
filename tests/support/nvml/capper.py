"""Lets power caps act where the fake driver is their library: one JSON request a line.

A request is {"scenario": TEXT or null, "target": CLASS, "calls": [NAME, ...], "order": FIELDS, "found":
FIELDS or null}; null leaves the driver as it is. The answer has what each call gave back, or its refusal.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from stoploss.actions.contract import Means
from stoploss.actions.targets import power_cap
from stoploss.engine.model import Found, Order, Refused, ResourceId

SCENARIO = Path(os.environ["FAKE_NVML"])
VERSIONS = count(1)


def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What the calls gave back, one after the other; what one found the next ones are given."""
    if request["scenario"] is not None:
        SCENARIO.write_text(request["scenario"], "utf-8")
        version = next(VERSIONS)
        os.utime(SCENARIO, (version, version))
    power_cap.LIMIT = request["limit"]
    target = getattr(power_cap, request["target"])(Means("n1", float, float, float, {}))
    given = request["order"]
    order = Order(**given | {"resource": ResourceId(*given["resource"])})
    found = Found(**request["found"]) if request["found"] else None
    results = []
    for name in request["calls"]:
        try:
            if name == "find":
                found = target.find(order)
                results.append(asdict(found))
            else:
                results.append(asdict(getattr(target, name)(order, found)))
        except Refused as refused:
            results.append({"refused": refused.words, "gone": refused.gone})
            break
    return results


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
