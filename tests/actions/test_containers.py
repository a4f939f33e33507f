"""Stopping the container of a process.

No container runtime runs where these tests do, so `docker` is a stand-in: a program on PATH that keeps
the container in a file and answers `inspect` and `stop` as docker does. The control group is a text.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from stoploss.actions.contract import Means, Refused
from stoploss.actions.targets import process_tree
from stoploss.actions.targets.containers import Remove
from stoploss.engine.model import Found, Order, ResourceId

NUMBER = "c0ffee" + "0" * 58
DOCKER = """#!{python} -IS
import json, pathlib, sys
state, calls = pathlib.Path({state!r}), pathlib.Path({calls!r})
with calls.open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
told = json.loads(state.read_text()) if state.exists() else None
if told is None or told["Id"] != sys.argv[-1]:
    print("Error: No such container", file=sys.stderr)
    sys.exit(1)
if sys.argv[1] == "inspect":
    print(json.dumps([told]))
elif told.get("Stuck"):
    print("secret words of the runtime", file=sys.stderr)
    sys.exit(1)
else:
    told["State"]["Running"] = False
    state.write_text(json.dumps(told))
"""


class Docker:
    """The stand-in, its container and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.state, self.calls, self.folder = folder / "state.json", folder / "calls", folder
        self.calls.touch()
        program = folder / "docker"
        program.write_text(
            DOCKER.format(python=sys.executable, state=str(self.state), calls=str(self.calls)), "utf-8"
        )
        program.chmod(0o755)
        self.put()

    def put(self, policy: str = "no", started: str = "2026-01-01T00:00:00Z", **more: object) -> None:
        """A running container."""
        told = {
            "Id": NUMBER,
            "Name": "/train",
            "State": {"Running": True, "StartedAt": started},
            "HostConfig": {"RestartPolicy": {"Name": policy}},
            **more,
        }
        self.state.write_text(json.dumps(told), "utf-8")

    def stops(self) -> list[str]:
        """The changes it was asked for."""
        return [line for line in self.calls.read_text().splitlines() if not line.startswith("inspect")]

    def target(self) -> Remove:
        """What stops containers, by this runtime."""
        return Remove(Means("n1", time.time, time.monotonic, time.sleep, {"PATH": str(self.folder)}))


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    """A runtime with one container, in which this process seems to run."""
    monkeypatch.setattr(process_tree, "group_of", lambda pid: f"0::/system.slice/docker-{NUMBER}.scope\n")
    return Docker(tmp_path)


def order() -> Order:
    """Release the container of this process."""
    seen = process_tree.see(os.getpid())
    assert seen is not None
    name = ResourceId("process", f"n1/{seen.pid}@{seen.start}")
    return Order("o1", "release", name, {"what": "container", "grace": 7.0})


@pytest.mark.parametrize(
    ("group", "number", "pod"),
    [
        (f"0::/system.slice/docker-{NUMBER}.scope\n", NUMBER, False),
        (f"12:memory:/docker/{NUMBER}\n0::/docker/{NUMBER}\n", NUMBER, False),
        (f"0::/machine.slice/libpod-{NUMBER}.scope/container\n", NUMBER, False),
        (f"0::/kubepods/burstable/pod1/{NUMBER}\n", NUMBER, True),
        ("0::/user.slice/user-0.slice\n", None, False),
    ],
)
def test_control_groups_tell_containers(group: str, number: str | None, pod: bool) -> None:
    """The whole id is read from the groups that docker, containerd and podman make, and pods are told."""
    assert (process_tree.container_in(group), process_tree.is_pod(group)) == (number, pod)


def test_a_container_is_stopped_and_not_removed(docker: Docker) -> None:
    """It is stopped once with the grace of the step, looked at afterwards, and its files stay."""
    target = docker.target()
    found = target.find(order())
    outcome = target.act(order(), found)
    again = target.act(order(), found)

    assert found.words == f"would stop the container {NUMBER[:12]} by docker; its files stay"
    assert (outcome.state, again.state) == ("done", "skipped")
    assert docker.stops() == [f"stop -t 7 {NUMBER}"]
    assert target.look(order(), found).state == "done"


def test_finding_and_looking_change_nothing(docker: Docker) -> None:
    """`find` and `look` only inspect."""
    target = docker.target()
    found = target.find(order())

    assert target.look(order(), found).state == "undone"
    assert target.find(order()) == found
    assert docker.stops() == []


@pytest.mark.parametrize("policy", ["always", "unless-stopped"])
def test_one_that_would_come_back_is_refused(docker: Docker, policy: str) -> None:
    """A container that its runtime starts again is not stopped."""
    docker.put(policy)

    with pytest.raises(Refused, match=policy):
        docker.target().find(order())


def test_the_container_of_a_pod_is_refused(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's container is ended through its controller, and no runtime is asked."""
    monkeypatch.setattr(process_tree, "group_of", lambda pid: f"0::/kubepods/pod1/{NUMBER}\n")

    with pytest.raises(Refused, match="Kubernetes pod"):
        docker.target().find(order())
    assert docker.calls.read_text() == ""


def test_a_process_without_a_container_is_refused(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the control group names no container there is none to stop."""
    monkeypatch.setattr(process_tree, "group_of", lambda pid: "0::/user.slice\n")

    with pytest.raises(Refused, match="no container"):
        docker.target().find(order())


def test_a_container_that_no_runtime_knows_is_refused(docker: Docker) -> None:
    """Each runtime that was asked is named with its reason."""
    docker.state.unlink()

    with pytest.raises(Refused, match="docker does not know it; podman is not installed"):
        docker.target().find(order())


def test_one_that_was_started_anew_is_left_alone(docker: Docker) -> None:
    """A container that was started again after it was found is not stopped."""
    target = docker.target()
    found = target.find(order())
    docker.put(started="2026-01-02T00:00:00Z")

    assert target.act(order(), found).state == "skipped"
    assert docker.stops() == []


def test_a_runtime_that_fails_is_an_outcome(docker: Docker) -> None:
    """A stop that fails is told without the runtime's own words, and may be tried again."""
    target = docker.target()
    found = target.find(order())
    docker.put(Stuck=True)
    outcome = target.act(order(), found)

    assert (outcome.state, outcome.retry) == ("failed", True)
    assert outcome.words == "docker failed with exit code 1"


def test_a_runtime_that_is_gone_is_unknown(docker: Docker) -> None:
    """Without its runtime nothing is known of a container."""
    target = docker.target()
    found: Found = target.find(order())
    (docker.folder / "docker").unlink()

    assert target.look(order(), found).state == "unknown"
    assert target.act(order(), found).words == "docker is not installed"
