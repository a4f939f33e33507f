"""The service of systemd: what systemd says of it, and what it must not forget."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stoploss.cli.run import run
from stoploss.daemon.runner import STOP_LIMIT

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = (FOLDER / "stoploss.service").read_text("utf-8")


def settings(text: str) -> dict[str, list[str]]:
    """Name -> values, in their order."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^([A-Z]\w+)=(.*)$", text, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def seconds(text: str) -> float:
    """A span as it is written in the unit."""
    number, unit = re.fullmatch(r"(\d+)(s|min)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"s": 1, "min": 60}[unit]


def verified(text: str, folder: Path) -> str:
    """What systemd says of a unit, with a program that is here; empty where nothing is wrong."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    unit = folder / "stoploss.service"
    unit.write_text(text.replace("/opt/stoploss/bin/stoploss", sys.executable), "utf-8")
    done = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr + (f"exit {done.returncode}" if done.returncode else "")


def test_systemd_has_nothing_to_say(tmp_path: Path) -> None:
    """The unit as it is shipped is accepted without a word."""
    assert verified(UNIT, tmp_path) == ""


def test_systemd_accepts_every_right_that_is_taken_out(tmp_path: Path) -> None:
    """With all lines put in that are taken out, the unit is accepted too."""
    whole = re.sub(r"^#([A-Z]\w+=)", r"\1", UNIT, flags=re.MULTILINE)

    assert settings(whole)["AmbientCapabilities"]
    assert verified(whole, tmp_path) == ""


def test_it_is_known_to_run_to_reload_and_to_live() -> None:
    """The daemon tells systemd of itself, reloads by SIGHUP, and is started again when it fails."""
    found = settings(UNIT)

    assert found["Type"] == ["notify"]
    assert found["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert found["Restart"] == ["on-failure"]
    # A server of the state that does not answer yet ends it with the same status as a mistake.
    assert "RestartPreventExitStatus" not in found
    assert seconds(found["WatchdogSec"][0]) >= 60


def test_a_step_that_runs_is_waited_for() -> None:
    """systemd waits longer for the end than the daemon does."""
    assert seconds(settings(UNIT)["TimeoutStopSec"][0]) > STOP_LIMIT


def test_it_has_no_rights_but_those_that_are_given() -> None:
    """No capability, no new rights, and one folder to write to, as it is shipped."""
    found = settings(UNIT)

    assert found["CapabilityBoundingSet"] == [""]
    assert "AmbientCapabilities" not in found
    assert "ReadWritePaths" not in found
    assert found["NoNewPrivileges"] == ["yes"]
    assert found["ProtectSystem"] == ["strict"]
    assert found["StateDirectory"] == ["stoploss"]
    assert found["User"] != ["root"]


def test_every_capability_is_given_and_allowed() -> None:
    """A capability that is taken out is in both sets, else it would not arrive."""
    ambient = set(" ".join(re.findall(r"^#AmbientCapabilities=(.*)$", UNIT, re.MULTILINE)).split())
    bounding = set(" ".join(re.findall(r"^#CapabilityBoundingSet=(.*)$", UNIT, re.MULTILINE)).split())

    # Root has what it is not denied.
    assert bounding - {"CAP_SYS_ADMIN"} == ambient
    assert {"CAP_SYS_PTRACE", "CAP_KILL"} <= ambient


def test_its_command_is_one() -> None:
    """The command that is run has every option that it is given."""
    [command] = settings(UNIT)["ExecStart"]
    known = {option for parameter in run.params for option in parameter.opts}

    assert command.split()[1] == "run"
    assert {word for word in command.split() if word.startswith("--")} <= known


def test_its_user_is_made() -> None:
    """The user of the unit is the one that systemd-sysusers makes."""
    assert f"u {settings(UNIT)['User'][0]} " in (FOLDER / "stoploss.sysusers.conf").read_text("utf-8")
