"""A dry run touches nothing and sends nothing, and says what a real one then does."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packs.runner import PACKS, ROOT, START, Example, examples, policies, policy_names
from support.scenes import Scene
from support.toys import CHAIN, Fleet
from support.traps import trapped

from stoploss.actions.registry import action_options
from stoploss.engine.audit import audit
from stoploss.engine.ledger import Ledger
from stoploss.engine.model import UNREADABLE, Bad
from stoploss.engine.people import People
from stoploss.rules.catalogue import catalogue

POLICIES, KINDS = policies(), action_options()
FIRING = list(examples("firing"))
HEAD = """version: 1
settings: {{mode: enforce, state: "sqlite:///{folder}/state.db"}}
prices: {{gpu-hour: {{default: $2.00/GPU-hour}}}}
notify:
  owner: "http://127.0.0.1:9/hook"
"""


def acts(example: Example) -> bool:
    """Whether the policy of an example does more than tell."""
    return any(KINDS[step.action].kind != "notify" for step in POLICIES[example.policy].steps)


def signals(example: Example) -> list[str]:
    """The series of an example as recordings, one for all resources that have labels of the same names."""
    files: dict[tuple[str, ...], list[list[str]]] = {}
    for series in example._by_collector().values():
        for resource, signal_name, readings in series:
            said = example._said(resource)
            names = tuple(sorted(said))
            labels = ["?" if said[name] is UNREADABLE else str(said[name]) for name in names]
            for look, reading in enumerate(readings, 1):
                if reading is not None:
                    text = reading.reason if isinstance(reading, Bad) else str(reading)
                    time = str(START + look * example.interval)
                    row = [time, resource.id, resource.kind, signal_name, text, *labels]
                    files.setdefault(names, []).append(row)
    head = ["time", "resource", "kind", "signal", "value"]
    return [
        "\n".join(",".join(row) for row in [[*head, *(f"label.{name}" for name in names)], *rows]) + "\n"
        for names, rows in files.items()
    ]


def digest(folder: Path) -> dict[str, str]:
    """Every file below a folder, with what it holds and when it was changed."""
    return {
        str(path): f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def nothing_is_touched(scene: Scene, text: str, example: Example) -> dict[str, Any]:
    """The audit of an example, through the real command, which changed and sent nothing."""
    file = scene.write("policies.yaml", text)
    seen = [scene.write(f"{at}.csv", rows) for at, rows in enumerate(signals(example))]
    command = ["audit", file, *(word for name in seen for word in ("--signals", name))]
    ledger = Ledger(f"sqlite:///{scene.folder}/state.db", environ={})
    People(ledger).pause(who="ann", now=ledger_time(), reason="x")
    People(ledger).resume(who="ann", now=ledger_time())
    ledger.close()
    # Once before, so that all modules are loaded.
    scene.run(*command)
    before = digest(scene.folder)
    with trapped() as found:
        result = scene.json(*command)
    assert found == []
    assert digest(scene.folder) == before
    return result


def ledger_time() -> Any:
    """Some instant."""
    return Fleet(Path()).now()


@pytest.fixture
def scene_of(scene: Scene) -> Callable[[str], str]:
    """Makes the head of a policy file that enforces, with its state in the folder of the scene."""
    return lambda rest: HEAD.format(folder=scene.folder) + rest


def first_of_each_pack() -> Iterator[Any]:
    """One example of each pack that has a policy that acts."""
    for pack in PACKS:
        mine = [item for item in FIRING if item.policy in policy_names(pack) and acts(item)]
        if mine:
            yield pytest.param(pack, mine[0], id=f"{pack}: {mine[0].name}")


@pytest.mark.parametrize(("pack", "example"), list(first_of_each_pack()))
def test_a_pack_that_would_be_enforced_touches_nothing(
    scene: Scene, scene_of: Callable[[str], str], pack: str, example: Example
) -> None:
    """One policy of each pack fires, its steps are planned, and no call is made."""
    result = nothing_is_touched(scene, scene_of(f"include: [pack:{pack}]\n"), example)

    assert result["mode"] == "enforce"
    assert any(item["action"] != "alert" for item in result["decisions"])


@pytest.mark.slow
@pytest.mark.parametrize("example", FIRING, ids=lambda item: item.name)
def test_no_firing_policy_of_a_pack_touches_anything(
    scene: Scene, scene_of: Callable[[str], str], example: Example
) -> None:
    """Every firing example of every pack, all of them enforced."""
    packs = ", ".join(f"pack:{name}" for name in PACKS)
    result = nothing_is_touched(scene, scene_of(f"include: [{packs}]\n"), example)

    assert [item for item in result["findings"] if item["policy"] == example.policy] != []


@pytest.mark.parametrize("name", ["idle-gpu", "stale-checkpoint"])
def test_the_example_file_enforced_touches_nothing(scene: Scene, name: str) -> None:
    """The shipped file with its mode set to enforce, over what makes its policies fire."""
    text = (ROOT / "policies.example.yaml").read_text("utf-8").replace("mode: audit", "mode: enforce", 1)
    state = f'mode: enforce\n  state: "sqlite:///{scene.folder}/state.db"'
    [example] = [item for item in FIRING if item.name == name]
    text = text.replace("mode: enforce", state, 1).replace('env == "research" and ', "")
    result = nothing_is_touched(scene, text, example)

    assert result["mode"] == "enforce"
    assert any(item["policy"] == name for item in result["findings"])


@pytest.mark.parametrize(
    "work",
    [
        lambda path: path.write_text("x"),
        lambda path: path.mkdir(),
        lambda path: path.unlink(missing_ok=True),
        lambda path: os.open(path, os.O_CREAT | os.O_WRONLY),
        lambda path: os.kill(os.getpid(), 0),
        lambda path: signal.pidfd_send_signal(0, 0),
        lambda path: subprocess.run([sys.executable, "-c", ""], check=False),
        lambda path: socket.create_connection(("127.0.0.1", 9), 0.1),
        lambda path: sqlite3.connect(path).close(),
    ],
)
def test_the_traps_hear(tmp_path: Path, work: Callable[[Path], object]) -> None:
    """Each way to change something, or to send it, is noticed."""
    with trapped() as found:
        try:
            opened = work(tmp_path / "x")
        except OSError:
            opened = None
    if isinstance(opened, int) and not isinstance(opened, bool) and opened > 2:
        os.close(opened)

    assert found != []


# ---- the plan and what is done ---------------------------------------------------------------

TWO = (
    CHAIN
    + """  - name: small
    each: job
    for: 2m
    when: ['max(gpu.utilization, 5m) < 5%']
    then: [{alert: {to: boss}}, {snapshot: {after: 1m}}, {downscale: {after: 3m, gpus: 1}}]
"""
)
ASKS = CHAIN.replace("terminate: {after: 4m}", "terminate: {after: 4m, approve: required, grace: 2m}")
FEW = CHAIN.replace("actions-per-run: 100", "actions-per-run: 2")
ANSWERED = CHAIN.replace(
    "      - alert: {to: owner}\n",
    "      - alert: {to: owner, require-ack: {within: 30m, then: [{snapshot: {}}, {terminate: {}}]}}\n",
).replace("      - snapshot: {after: 2m}\n      - terminate: {after: 4m}\n", "")
PROTECTED = CHAIN.replace("policies:", "protect: ['job == \"b\"']\npolicies:")

Key = tuple[str, int, str, str, tuple[tuple[str, Any], ...]]


TEXTS = {"chain": CHAIN, "two": TWO, "asks": ASKS, "few": FEW, "ack": ANSWERED, "protect": PROTECTED}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_is_planned_dry_is_what_is_done(tmp_path: Path, text: str) -> None:
    """Of a dry run in mode audit: every step that is not refused, by resource, target and parameters."""
    fleet = Fleet(tmp_path)
    fleet.start("a", "b", "c")
    dry = fleet.cycle(text.replace("mode: enforce", "mode: audit"))
    fleet.run(fleet.cycle(text), 7)
    frames, now = fleet.buffer.frame, fleet.now()
    planned = audit(dry.policies, lambda resolution: frames(resolution), catalogue(), now=now)
    ledger = Ledger(fleet.url, environ={})
    cycle = fleet.cycle(text)
    for _ in range(60):
        fleet.run(cycle, 1)
        for request in People(ledger).requests():
            if request.state(fleet.now()) == "waiting":
                People(ledger).approve(request.id, who="ann", now=fleet.now())

    acting = [item for item in planned.decisions if item.action != "alert"]
    stopped = {
        (item.finding, later) for item in acting if item.verdict == "blocked" for later in range(item.step, 9)
    }
    let = [item for item in acting if (item.finding, item.step) not in stopped]
    assert done(ledger) == {key(item) for item in let if item.verdict in ("would", "held")}


def key(item: Any) -> Key:
    """What a decision says is done, and to what."""
    parameters = tuple(sorted((name, str(value)) for name, value in item.parameters.items()))
    return str(item.resource), item.step, item.action, item.target, parameters


def done(ledger: Ledger) -> set[Key]:
    """What the ledger says was done."""
    intents = {entry.seq: entry for entry in ledger.entries(kinds=("intent",)) if entry.action != "alert"}
    results = [entry for entry in ledger.entries(kinds=("result",)) if entry.verdict == "done"]
    found = set()
    for entry in (intents[item.intent] for item in results if item.intent in intents):
        parameters = tuple(sorted((name, str(value)) for name, value in entry.parameters.items()))
        step = int((entry.evidence or {})["step"])
        found.add((str(entry.resource), step, str(entry.action), str(entry.target), parameters))
    return found
