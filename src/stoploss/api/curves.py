"""The curves of jobs for a page: thinned, with what is not finite told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stoploss.api.calls import Call
from stoploss.api.errors import missing
from stoploss.engine.findings import Finding

MOST = 400
"""Points of a curve; of more the lowest and highest of each stretch are kept."""
LOOKED = 24
"""Jobs that are looked at for curves."""
JOBS = 6
"""Jobs whose curves stand on the page."""

NAMES = ("train.loss", "eval.loss", "cost")


def curves(call: Call) -> dict[str, Any]:
    """The curves of one job."""
    job = call.query["job"]
    if not call.seen.mine(call.seen.whose.job(job)):
        raise missing(f"job {job}")
    return {"version": 1, "job": job, "curves": _told(call, job)}


def jobs(call: Call) -> list[dict[str, Any]]:
    """The jobs that cost most and have curves, with what was found on them."""
    audit = call.seen.audit
    found: dict[str, Finding | None] = {}
    for finding in sorted(audit.firing, key=_dearest):
        job = finding.resource.id if finding.resource.kind == "job" else finding.owner
        if job is not None:
            found.setdefault(job, finding)
    for row in audit.heat.rows if audit.heat else ():
        if row.job is not None:
            found.setdefault(row.job, None)
    told: list[dict[str, Any]] = []
    for job, item in list(found.items())[:LOOKED]:
        lines = _told(call, job)
        if not lines:
            continue
        told.append(
            {
                "job": job,
                "policy": None if item is None else item.policy.name,
                "since": None if item is None else item.since.timestamp(),
                "wastes": item is not None and item.waste is not None,
                "curves": lines,
            }
        )
        if len(told) == JOBS:
            break
    return told


def _dearest(finding: Finding) -> float:
    return -((finding.waste.per_hour if finding.waste else None) or 0.0)


def _told(call: Call, job: str) -> dict[str, Any]:
    given = call.service.curves(job)
    return {name: thinned(given[name]) for name in NAMES if given.get(name)}


def thinned(points: Sequence[tuple[float, float]], most: int = MOST) -> dict[str, Any]:
    """A curve as two lists; a value that is not finite is null, and counted."""
    size = max(1, -(-2 * len(points) // most))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        finite = [at for at, point in enumerate(stretch) if math.isfinite(point[1])]
        places = {at for at in range(len(stretch)) if not math.isfinite(stretch[at][1])}
        wanted = {min(places)} if places else set()
        if finite:
            wanted.add(min(finite, key=lambda at: stretch[at][1]))
            wanted.add(max(finite, key=lambda at: stretch[at][1]))
        if start + size >= len(points):
            wanted.add(len(stretch) - 1)
        kept += [stretch[at] for at in sorted(wanted)]
    return {
        "times": [time for time, _ in kept],
        "values": [value if math.isfinite(value) else None for _, value in kept],
        "points": len(points),
        "non_finite": sum(not math.isfinite(value) for _, value in points),
    }
