"""A real trace of five pods: a ghost, three that are bursty, and one with a hole in its data."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.oracle import lifecycle
from support.scenes import Scene, policy, reasons, states

from stoploss.engine.history.recorded import read_recorded
from stoploss.rules.catalogue import catalogue

TRACE = Path(__file__).parents[3] / "shared" / "data" / "gpu" / "duty" / "pods.csv"
SCRIPT = Path(__file__).parents[2] / "examples" / "pods_to_signals.py"
GHOST = policy("p99(gpu.utilization, 6h) < 5%", **{"for": "1h"})

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not TRACE.exists(), reason=f"needs the real trace {TRACE}"),
]


@pytest.fixture(scope="module")
def signals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace as recorded signals; its first sample lies at midnight, in slot 0."""
    target = tmp_path_factory.mktemp("pods") / "pods.csv"
    subprocess.run([sys.executable, str(SCRIPT), str(TRACE), str(target)], check=True)
    return target


def at_slot(slot: int) -> str:
    return f"2026-01-01T{slot // 60:02}:{slot % 60:02}:00Z"


def obvious(path: Path) -> Iterator[tuple[str, list[int], list[str]]]:
    """Per pod: truths and states of every slot, worked out one slot at a time from the samples."""
    frame = read_recorded([path], catalogue=catalogue(), timezone="UTC").frame(60.0)
    plane = frame.planes["gpu.utilization"]
    for column, resource in enumerate(plane.series):
        values = plane.values[:, column]
        valid = ~np.isnan(values)
        begins = frame.resources[resource].first - frame.first
        truths = []
        for slot in range(begins, frame.slots):
            window = slice(max(0, slot - 359), slot + 1)
            known = valid[slot] and slot - begins >= 359 and valid[window].sum() >= 288
            ordered = sorted(values[window][valid[window]])
            truths.append(1 if not known else 2 * (ordered[-(-99 * len(ordered) // 100) - 1] < 0.05))
        pod = type("P", (), {"for_seconds": 3600.0, "hold_seconds": 0.0})()
        yield resource.id, truths, lifecycle(pod, truths)


def test_G_4_the_ghost_fires_once_and_stays_for_950_minutes(signals: Path) -> None:
    """pod04 from slot 419 to the end; the bursty pods and the one with the hole never."""
    firing = {
        pod: [at for at, state in enumerate(states) if state == "firing"]
        for pod, _, states in obvious(signals)
    }

    assert firing["pod04"] == list(range(419, 419 + 950))
    assert [pod for pod, slots in firing.items() if slots] == ["pod04"]


def test_the_audit_agrees_with_the_obvious_loop_at_any_time(scene: Scene, signals: Path) -> None:
    """State and truth of every pod, at fifty instants of the day."""
    expected = {pod: (truths, states) for pod, truths, states in obvious(signals)}
    begins = {pod: 1369 - len(truths) for pod, (truths, _) in expected.items()}
    file = scene.write("p.yaml", GHOST)
    for slot in [*range(7, 1369, 29), 358, 359, 418, 419, 1368]:
        result = scene.json("audit", file, "--signals", str(signals), "--at", at_slot(slot))
        seen = states(result)
        for pod, (truths, history) in expected.items():
            at = slot - begins[pod]
            if at >= 0:
                assert seen.get(pod, "inactive") == history[at], (pod, slot)
                assert (pod in reasons(result)) == (truths[at] == 1), (pod, slot)


def test_G_6_the_pod_with_the_hole_is_young_and_then_unknown(scene: Scene, signals: Path) -> None:
    """Young for 359 minutes; unknown from the start of its 4.8 h hole to the end; never fires."""
    frame = read_recorded([signals], catalogue=catalogue(), timezone="UTC").frame(60.0)
    plane = frame.planes["gpu.utilization"]
    pod = next(at for at, resource in enumerate(plane.series) if resource.id == "pod07")
    read = np.flatnonzero(plane.status[:, pod])
    begins, hole = int(read[0]), int(read[np.argmax(np.diff(read))]) + 1
    file = scene.write("p.yaml", GHOST)

    for slot, reason in (
        (begins + 358, "gpu.utilization: young, 359 of 360 samples"),
        (begins + 359, None),
        (hole - 1, None),
        (hole, "gpu.utilization: stale since"),
        (hole + 200, "gpu.utilization: stale since"),
        (1368, "gpu.utilization: 70 of 360 samples, needs 288"),
    ):
        result = scene.json("audit", file, "--signals", str(signals), "--at", at_slot(slot))
        assert (reasons(result).get("pod07") or "").startswith(reason or ""), slot
        assert (reason is None) == ("pod07" not in reasons(result)), slot
        assert "pod07" not in states(result)


@pytest.mark.parametrize("share", [0.0003, 0.2, 0.5, 0.77, 0.999])
def test_the_trace_cut_in_two_gives_the_same_findings(scene: Scene, signals: Path, share: float) -> None:
    """Two files, cut at any row, given together in any order."""
    head, *rows = signals.read_text().splitlines(keepends=True)
    cut = int(share * len(rows))
    file = scene.write("p.yaml", GHOST)
    first = scene.write("first.csv", "".join([head, *rows[:cut]]))
    second = scene.write("second.csv", "".join([head, *rows[cut:]]))
    for slot in (500, 1368):
        whole = scene.json("audit", file, "--signals", str(signals), "--at", at_slot(slot))

        assert (
            scene.json("audit", file, "--signals", second, "--signals", first, "--at", at_slot(slot)) == whole
        )
