"""Stops the container that a process runs in; it is not removed, so its files stay.

The container's id comes from the control group of the process, the rest from `docker` or `podman`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stoploss.actions.contract import Means, Refused
from stoploss.actions.targets import process_tree
from stoploss.actions.targets.processes import GRACE, named
from stoploss.engine.model import Found, Order, Outcome

RUNTIMES = ("docker", "podman")

LIMIT = 10.0
"""Seconds that a question to a runtime may take."""

STOP_LIMIT = 30.0
"""Seconds that stopping may take beyond its grace."""

_PASSED_ON = ("HOME", "PATH", "DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "XDG_RUNTIME_DIR")
_RESTARTING = ("always", "unless-stopped")


class _Unanswered(Exception):
    """A runtime gave no answer; the text says why."""


@dataclass(frozen=True, slots=True)
class _Container:
    """A container as its runtime tells it; `started` is what the runtime wrote, only ever compared."""

    id: str
    name: str
    running: bool
    started: str
    policy: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Stops the container of a process named `HOST/PID@START`."""

    means: Means

    def find(self, order: Order) -> Found:
        """The container as its runtime tells it.

        Raises:
            Refused: the process is gone, is on another machine or in no container; a pod or a restart
                policy would bring the container back; or no runtime here knows it.
        """
        pid, start = named(self.means, order)
        group = process_tree.group_of(pid)
        # Read before the start is compared: it is then the group of this process.
        seen = process_tree.see(pid)
        if seen is None or seen.start != start:
            raise Refused(f"process {pid} has ended", gone=True)
        if process_tree.is_pod(group):
            raise Refused(f"process {pid} runs in a Kubernetes pod, which its controller would bring back")
        number = process_tree.container_in(group)
        if number is None:
            raise Refused(f"process {pid} runs in no container that its control group tells")
        runtime, container = self._ask_all(number)
        if not container.running:
            raise Refused(f"container {number[:12]} is stopped", gone=True)
        if container.policy in _RESTARTING:
            raise Refused(f"container {number[:12]} has the restart policy {container.policy}")
        before = {"host": self.means.hostname, "runtime": runtime, "container": number}
        before |= {"started": container.started}
        return Found(f"would stop the container {number[:12]} by {runtime}; its files stay", before)

    def act(self, order: Order, found: Found) -> Outcome:
        """Stop it with a grace, and look whether it is stopped."""
        runtime, number = found.before["runtime"], found.before["container"]
        came = self.look(order, found)
        if came.state != "undone":
            return Outcome("skipped", came.words) if came.state == "done" else came
        grace = max(int(order.parameters.get("grace", GRACE)), 0)
        try:
            _run(self.means, [runtime, "stop", "-t", str(grace), number], grace + STOP_LIMIT)
        except _Unanswered as error:
            # It may have stopped all the same.
            after = self.look(order, found)
            return after if after.state == "done" else Outcome("failed", str(error), retry=True)
        after = self.look(order, found)
        if after.state == "undone":
            return Outcome("failed", f"container {number[:12]} still runs", retry=True)
        return after

    def look(self, order: Order, found: Found) -> Outcome:
        """Whether the container still runs, by its runtime."""
        runtime, number = found.before["runtime"], found.before["container"]
        if found.before["host"] != self.means.hostname:
            return Outcome("unknown", f"it was found on {found.before['host']}")
        try:
            container = _inspect(self.means, runtime, number)
        except _Unanswered as error:
            return Outcome("unknown", str(error), retry=True)
        if container is None:
            return Outcome("skipped", f"container {number[:12]} is not there any more")
        if not container.running:
            return Outcome("done", f"container {number[:12]} is stopped; its files stay")
        if container.started != found.before["started"]:
            return Outcome("skipped", f"container {number[:12]} was started anew since")
        return Outcome("undone", f"container {number[:12]} still runs", retry=True)

    def undo(self, order: Order, found: Found) -> Outcome:
        """It cannot be undone: what ran in it has ended."""
        return Outcome("failed", "what has ended cannot be brought back")

    def _ask_all(self, number: str) -> tuple[str, _Container]:
        reasons = []
        for runtime in RUNTIMES:
            try:
                container = _inspect(self.means, runtime, number)
            except _Unanswered as error:
                reasons.append(str(error))
                continue
            if container is not None:
                return runtime, container
            reasons.append(f"{runtime} does not know it")
        raise Refused(f"container {number[:12]} cannot be looked at: {'; '.join(reasons)}")


def _inspect(means: Means, runtime: str, number: str) -> _Container | None:
    """A container, or None where the runtime answers and does not know it.

    Raises:
        _Unanswered: the runtime is not there or does not answer.
    """
    done = _run(means, [runtime, "inspect", "--type", "container", number], LIMIT, may_fail=True)
    if done.returncode:
        if b"no such" in done.stderr.lower():
            return None
        raise _Unanswered(f"{runtime} failed with exit code {done.returncode}")
    try:
        [told] = json.loads(done.stdout)
        return _container(told)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _Unanswered(f"{runtime} answered something else than a container") from None


def _container(told: dict[str, Any]) -> _Container:
    state = told["State"]
    running = state["Running"] or state.get("Restarting") or state.get("Paused")
    policy = (told.get("HostConfig") or {}).get("RestartPolicy") or {}
    return _Container(
        str(told["Id"]),
        str(told.get("Name", "")),
        bool(running),
        str(state["StartedAt"]),
        str(policy.get("Name", "")),
    )


def _run(
    means: Means, arguments: Sequence[str], limit: float, *, may_fail: bool = False
) -> subprocess.CompletedProcess[bytes]:
    name = arguments[0]
    program = shutil.which(name, path=means.environ.get("PATH", os.defpath))
    if program is None:
        raise _Unanswered(f"{name} is not installed")
    environment = {key: means.environ[key] for key in _PASSED_ON if key in means.environ}
    try:
        done = subprocess.run(  # noqa: S603
            [program, *arguments[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise _Unanswered(f"{name} does not answer") from None
    except OSError:
        raise _Unanswered(f"{name} cannot be started") from None
    if done.returncode and not may_fail:
        raise _Unanswered(f"{name} failed with exit code {done.returncode}")
    return done
