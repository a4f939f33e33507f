"""budget-80 says how near the loss is, and whether it gets there within the budget."""

from __future__ import annotations

from support.scenes import Scene, policy, recording

MINUTES = 120


def scene_of(scene: Scene, limit: str) -> list[dict[str, object]]:
    """One GPU for two hours; a metric that climbs from 0.50 by 0.002 every five minutes, target 0.60."""
    steps = [10 * minute for minute in range(MINUTES)]
    metric = [0.50 + 0.002 * (minute // 5) if minute % 5 == 0 else None for minute in range(MINUTES)]
    loss = [2.0 - 0.004 * minute for minute in range(MINUTES)]
    values: dict[tuple[str, str, str], list[object]] = {
        ("gpu", "g", "gpu.utilization"): [0.9] * MINUTES,
        ("job", "j", "train.step"): list(steps),
        ("job", "j", "train.loss"): list(loss),
        ("job", "j", "eval.metric"): list(metric),
    }
    labels = {"g": {"job": "j"}, "j": {"target": "0.6", "better": "higher"}}
    text = policy(["budget.used >= 80%", 'not loss.verdict == "converged"'], each="job")
    text += f"budgets:\n  - {{name: mine, each: job, limit: {limit}}}\n"
    result = scene.audit(text, recording(values, labels=labels))
    return [item for finding in result["findings"] for item in finding["evidence"]]


def test_at_eighty_percent_the_finding_tells_the_distance(scene: Scene) -> None:
    """The evidence names the budget, what is left, what the target needs, and how far the metric is."""
    notes = {str(item["condition"]): str(item["note"]) for item in scene_of(scene, "2.1 GPU-hours")}

    assert notes["budget.used >= 80%"].startswith("budget mine: 2 of 2.1 GPU-hours; ")
    assert notes["budget.used >= 80%"].endswith(" GPU-hours to its target, 0.1 left: will not get there")
    assert notes['not loss.verdict == "converged"'].startswith(
        "best 0.546 at step 1,150, 0.054 from the target 0.6: about "
    )


def test_below_eighty_percent_nothing_fires(scene: Scene) -> None:
    """Two hours of ten are no reason to say anything."""
    assert scene_of(scene, "10 GPU-hours") == []
