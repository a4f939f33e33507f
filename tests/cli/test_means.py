"""What commands and what runs on give to actions: clocks, options, masks, and how checkpoints are judged."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.snapshots import checkpoint, contents

from stoploss.actions.contract import Checkpoints
from stoploss.actions.registry import ACTIONS, action_options
from stoploss.collectors.registry import option_models
from stoploss.means import actions_of, means_of
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load
from stoploss.rules.policy import PolicySet

POLICIES = """\
version: 1
collectors: {{{collectors}}}
policies: [{{name: a, each: host, when: 'max(host.cpu.utilization, 30m) < 5%'}}]
"""
FOUND = "checkpoints: {{paths: [{{path: {place}, failure-domain: rack}}, {place}/own], job: '{{job}}'}}"


def policies(folder: Path, collectors: str) -> PolicySet:
    """A policy set that names collectors."""
    file = folder / "policies.yaml"
    file.write_text(POLICIES.format(collectors=collectors), "utf-8")
    read = load(
        [file], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
    )
    assert read.policies is not None, read.diagnostics
    return read.policies


def known(folder: Path) -> Checkpoints:
    """How the checkpoints below `kept` are judged."""
    (folder / "kept" / "own").mkdir(parents=True, exist_ok=True)
    named = FOUND.format(place=folder / "kept")
    found = means_of(policies(folder, named), folder=str(folder), environ={}).checkpoints
    assert found is not None
    return found


def test_what_actions_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's name and clocks, an absolute folder, options that were checked, and no secret."""
    monkeypatch.chdir(tmp_path)
    environ = {"API_TOKEN": "hunter22"}
    made = means_of(policies(tmp_path, "host: {every: 90s}"), folder="kept", environ=environ)

    assert made.hostname == socket.gethostname()
    assert abs(made.now() - time.time()) < 5
    assert made.monotonic() <= made.monotonic()
    assert made.folder == str(tmp_path / "kept")
    assert made.collectors == {"host": {"every": "90s"}}
    assert made.mask("a hunter22 b") == "a *** b"
    assert made.masker is not None
    assert made.masker({"PASSWORD": "swordfish"}).text("hunter22 swordfish") == "*** ***"
    assert made.checkpoints is None
    assert "hunter22" not in repr(made)
    assert os.listdir(tmp_path) == ["policies.yaml"]


def test_checkpoints_of_a_job_in_any_state(tmp_path: Path) -> None:
    """Path and step of each that is there now, also of one that came since; of no other job."""
    judge = known(tmp_path)
    first = checkpoint(tmp_path / "kept" / "a", 9)
    checkpoint(tmp_path / "kept" / "b", 7)
    before = judge.of_job("a")
    partial = checkpoint(tmp_path / "kept" / "a", 10, marked=False)

    assert before == ((str(first), 9),)
    assert judge.of_job("a") == ((str(first), 9), (str(partial), 10))
    assert (judge.of_job("nobody"), judge.folder_of("nobody")) == ((), None)
    assert judge.folder_of("a") == str(tmp_path / "kept" / "a")


def test_what_a_checkpoint_lacks(tmp_path: Path) -> None:
    """It is told by the rules of the collector, without touching it; what is none is told so."""
    judge = known(tmp_path)
    whole, partial = (
        checkpoint(tmp_path / "kept" / "a", 9),
        checkpoint(tmp_path / "kept" / "a", 10, marked=False),
    )
    before = contents(tmp_path)

    assert judge.lacks(str(whole)) is None
    assert judge.lacks(str(partial)) is not None
    assert judge.lacks(str(tmp_path / "kept" / "a" / "step-11")) == "it is no checkpoint"
    assert judge.lacks("/nowhere/step-1") == "it cannot be looked at: no such file or directory"
    assert contents(tmp_path) == before


def test_what_a_path_would_be_lost_with(tmp_path: Path) -> None:
    """The options say it, of the folder that lies nearest; else a local file system is of its host."""
    judge = known(tmp_path)

    assert judge.domain(str(tmp_path / "kept" / "a" / "step-1")) == "rack"
    assert judge.domain(str(tmp_path / "kept")) == "rack"
    # A name that only begins alike, and a folder of which the options say nothing more.
    for other in ("kept-elsewhere", "kept/own/step-1"):
        assert judge.domain(str(tmp_path / other)) == judge.domain(str(tmp_path))
    assert judge.domain(str(tmp_path)) in ("host", None)
    assert judge.domain("/proc/1") is None


def test_every_action_is_made_when_it_is_needed(tmp_path: Path) -> None:
    """All but those that only tell; each is made from its own module."""
    made = means_of(policies(tmp_path, "host: {every: 1m}"), folder=str(tmp_path), environ={})
    table = actions_of(made)

    assert set(table) == set(ACTIONS) - {"alert"}
    for name, make in table.items():
        action = make()
        assert all(callable(getattr(action, step)) for step in ("find", "act", "look", "undo")), name


def test_naming_actions_loads_none() -> None:
    """A table of them costs no client library."""
    code = (
        "import sys, time\n"
        "from stoploss.means import actions_of\n"
        "from stoploss.actions.contract import Means\n"
        "actions_of(Means('n1', time.time, time.monotonic, time.sleep, {}))\n"
        "print([name for name in ('boto3', 'lightkube', 'pynvml') if name in sys.modules],"
        " [name for name in sys.modules if name.startswith('stoploss.actions.targets.')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "[] []\n"
