"""The audit's table: what stands in a row, and in the line of evidence below it."""

from __future__ import annotations

from support.scenes import Scene, policy, recording


def test_a_log_that_floods_is_named_with_its_dollars_per_day(scene: Scene) -> None:
    """2 MB/s are 168.8 GB, 157.2 GiB, $78.60 a day of ingest at $0.50/GiB; half of it is wasted."""
    values = {("log", "run.log", "logs.rate"): [2e6] * 60}
    file = scene.write("p.yaml", policy("avg(logs.rate, 30m) > 1 MB/s", each="log", waste="50%"))
    out = scene.run("audit", file, "--signals", scene.write("s.csv", recording(values)))

    per_day = 2e6 * 86400 / 2**30 * 0.5 * 0.5
    assert f"${per_day:.2f}/day · avg(logs.rate, 30m) > 1 MB/s: 2 MB/s" in out


def test_the_branch_that_is_true_stands_first(scene: Scene) -> None:
    """Of an any() the evidence shows what fired it."""
    values = {("gpu", "a", "gpu.utilization"): [0.5] * 3, ("gpu", "a", "gpu.power"): [700.0] * 3}
    text = policy("gpu.utilization > 90%").replace(
        "      - 'gpu.utilization > 90%'", "      - any: ['gpu.utilization > 90%', 'gpu.power > 600 W']"
    )
    file = scene.write("p.yaml", text)
    out = scene.run("audit", file, "--signals", scene.write("s.csv", recording(values)))

    assert "medium · gpu.power > 600 W: 700 W" in out
    assert "gpu.utilization" not in out.replace("next:", "")
