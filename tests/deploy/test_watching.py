"""Alert rules and the dashboard: over metrics that are there, and accepted by those who read them."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
GROUPS = yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
BOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "stoploss.json").read_text("utf-8"))
QUERIES = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]


def metrics() -> set[str]:
    """The metrics that /metrics gives, with the ending that counters get."""
    tree = ast.parse((ROOT / "src" / "stoploss" / "api" / "metrics.py").read_text("utf-8"))
    found = set()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant) and str(first.value).startswith("stoploss_"):
            counter = isinstance(call.func, ast.Name) and call.func.id == "CounterMetricFamily"
            found.add(f"{first.value}_total" if counter else str(first.value))
    return found


def named(text: str) -> set[str]:
    """The metrics of ours in a query."""
    return set(re.findall(r"\bstoploss_\w+", text))


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Prometheus's own tool, in the folder of the rules."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    return subprocess.run(
        [program, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_metrics_that_are_there(rule: dict[str, Any]) -> None:
    """A rule over a metric that nobody gives would never fire; each says what is wrong and what to do."""
    assert named(rule["expr"]) <= metrics()
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    assert rule["labels"]["severity"] in ("info", "warning", "critical")


@pytest.mark.parametrize("query", QUERIES)
def test_a_panel_asks_for_metrics_that_are_there(query: str) -> None:
    """Each query of the dashboard names metrics of ours, all of which exist."""
    assert named(query)
    assert named(query) <= metrics()


def test_every_metric_is_shown() -> None:
    """The dashboard leaves no metric out."""
    assert metrics() - set().union(*map(named, QUERIES)) == set()


def test_the_dashboard_can_be_read() -> None:
    """Panels have titles and numbers of their own, lie on the grid, and do not overlap."""
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert panel["title"]
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells

    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


@pytest.mark.real
def test_prometheus_takes_the_rules() -> None:
    """Its tool finds nothing wrong with them."""
    done = promtool("check", "rules", "alerts.yaml")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
def test_rules_fire_where_they_should() -> None:
    """Their own tests pass: they are quiet while all is well, also about a standby."""
    done = promtool("test", "rules", "alerts_test.yaml")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
def test_prometheus_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    """Each query is one, told by the tool as if it were a rule."""
    asked = [text.replace("$instance", ".*") for text in QUERIES]
    rules = [{"record": f"q{number}", "expr": text} for number, text in enumerate(asked)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": rules}]}), "utf-8")

    done = promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
