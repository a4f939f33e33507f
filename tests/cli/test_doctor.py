"""`stoploss doctor`: what is here, what is missing, and what to do about it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.scenes import Scene

from stoploss.cli import doctor
from stoploss.collectors import registry

GOOD = """\
version: 1
settings: {{state: "sqlite:///{state}"}}
collectors: {{{collectors}}}
policies: [{{name: a, each: host, when: 'max(host.cpu.utilization, 30m) < 5%'}}]
"""
HANGS = """
import time
from stoploss.collectors.contract import CollectorError

class Waiting:
    def look(self, at):
        time.sleep(60)

def build(options, context):
    return Waiting()
"""
REFUSES = """
from stoploss.collectors.contract import CollectorError

def build(options, context):
    raise CollectorError("no permission to read /dev/nothing")
"""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def good(state: str = "x.db", collectors: str = "host: {every: 1m}") -> str:
    """A policy file whose state lies at a path."""
    return GOOD.format(state=state, collectors=collectors)


def checks(scene: Scene, *files: str) -> dict[str, dict[str, Any]]:
    """The checks of one run by name."""
    return {item["name"]: item for item in scene.json("doctor", *files)["checks"]}


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Adds a collector, given its source, to the table of this process."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(name: str, source: str) -> None:
        (tmp_path / f"{name}_collector.py").write_text(source, encoding="utf-8")
        entry = registry.Entry(f"{name}_collector", "stoploss.collectors.host_options:Options", name)
        monkeypatch.setattr(registry, "COLLECTORS", {"host": registry.COLLECTORS["host"], name: entry})

    return add


def test_a_good_place_has_nothing_to_mend(scene: Scene) -> None:
    """With a valid file every area is told, nothing failed, and the status is 0, within five seconds."""
    file = scene.write("p.yaml", good())
    begun = time.monotonic()
    found = checks(scene, file)

    assert time.monotonic() - begun < 5
    assert scene.status == 0
    assert found["host"]["state"] in ("ok", "check")
    assert found[file]["told"].startswith("1 policy, mode audit")
    assert found["state"]["state"] == "ok"
    assert found["time zones"]["state"] == "ok"
    assert "pydantic" in found["libraries"]["told"].lower()


def test_nothing_is_made_by_looking(scene: Scene) -> None:
    """The state is asked for, and not created."""
    checks(scene, scene.write("p.yaml", good()))

    assert [path.name for path in scene.folder.iterdir()] == ["p.yaml"]


def test_without_a_policy_file_it_offers_to_write_one(scene: Scene) -> None:
    """A folder without policies.yaml is no failure, and init is named."""
    found = checks(scene)

    assert scene.status == 0
    assert found["policies.yaml"]["state"] == "off"
    assert "stoploss init" in found["policies.yaml"]["fix"]


@pytest.mark.parametrize("text", ["version: 1\npolicies: [{nam: x}]\n", "", "version: ["])
def test_a_bad_policy_file_fails(scene: Scene, text: str) -> None:
    """A file with mistakes fails, with the command that tells them, and the rest is still checked."""
    found = checks(scene, scene.write("p.yaml", text))

    assert scene.status == 4
    [told] = [item for item in found.values() if item["area"] == "policies"]
    assert told["state"] == "failed"
    assert told["fix"].startswith("stoploss validate ")
    assert found["host"]["state"] in ("ok", "check")


def test_a_file_that_is_not_there_fails(scene: Scene) -> None:
    """A path that leads nowhere is a failed check and no crash."""
    found = checks(scene, "none.yaml")

    assert scene.status == 4
    assert found["none.yaml"]["state"] == "failed"


@pytest.mark.parametrize(("state", "word"), [("missing/x.db", "no folder"), ("", "cannot be written")])
def test_a_state_that_cannot_be_kept_fails(scene: Scene, state: str, word: str) -> None:
    """A missing folder, and a folder where the file should be, are told with what to do."""
    found = checks(scene, scene.write("p.yaml", good(state or ".")))

    assert scene.status == 4
    assert found["state"]["state"] == "failed"
    assert word in found["state"]["told"]
    assert found["state"]["fix"]


def test_a_collector_that_hangs_does_not_hang_the_doctor(
    scene: Scene, plug_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that does not end is failed after the time limit, beside the others that answered."""
    plug_in("hangs", HANGS)
    monkeypatch.setattr(doctor, "LOOK_LIMIT", 0.5)
    found = checks(scene, scene.write("p.yaml", good(collectors="hangs: {every: 1m}")))

    assert scene.status == 4
    assert "no answer within" in found["hangs"]["told"]
    assert found["host"]["state"] in ("ok", "check")


def test_a_collector_without_permission_says_so(scene: Scene, plug_in: Any) -> None:
    """A collector that cannot start fails with its own reason."""
    plug_in("refuses", REFUSES)
    found = checks(scene, scene.write("p.yaml", good(collectors="refuses: {every: 1m}")))

    assert scene.status == 4
    assert found["refuses"] == {
        "area": "collectors",
        "name": "refuses",
        "state": "failed",
        "told": "no permission to read /dev/nothing",
        "fix": None,
        "details": [],
    }


def test_the_table_fits_a_terminal(scene: Scene) -> None:
    """The table has at most 80 columns and ends with what failed."""
    text = scene.run("doctor", "none.yaml")

    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert text.endswith("1 failed: none.yaml\n")
