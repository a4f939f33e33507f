"""Whether actions can be carried out on this machine: processes, containers, Slurm, GPUs, files, programs.

Nothing is changed and nobody is told: rights are read, programs are asked for their version, and addresses
are only filled in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from stoploss.cli.doctor_side import Job, Scene, ask
from stoploss.reports.checks import Check

AREA = "actions"
RUNTIME_LIMIT = 1.5
"""Seconds that a container runtime may take to answer; there are two."""
KILL, PTRACE = 5, 19
"""Numbers of the capabilities to signal processes of others, and to read about them."""


def jobs(scene: Scene) -> Iterator[Job]:
    """A check for each system of this machine that actions act on, and for each receiver."""
    for name, look in (
        ("processes", processes),
        ("containers", containers),
        ("slurm", slurm),
        ("power cap", power_cap),
        ("files", files),
        ("programs", programs),
    ):
        yield Job(AREA, name, lambda look=look: look(scene))  # type: ignore[misc]
    yield Job("receivers", "receivers", lambda: receivers(scene))


def capabilities(status: str) -> int:
    """The effective capabilities that a /proc/PID/status tells, as bits; 0 where it tells none."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def processes(scene: Scene) -> Iterator[Check]:
    """terminate, release and snapshot of jobs that are processes of this machine."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            held = capabilities(file.read())
        # A handle keeps a signal from reaching another process of the same id.
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        why = "this system gives no handles of processes, without which none is ended"
        yield Check(AREA, "processes", "failed" if scene.uses("terminate") else "off", why)
        return
    lacking = [
        f"{name} to {what}"
        for bit, name, what in (
            (PTRACE, "CAP_SYS_PTRACE", "see whose job a process is"),
            (KILL, "CAP_KILL", "end or signal it"),
        )
        if not held >> bit & 1
    ]
    if not lacking:
        yield Check(AREA, "processes", "ok", "terminate, release, snapshot: processes of every user")
        return
    told = "terminate, release, snapshot: processes of this user alone"
    details = tuple(f"those of others need {item}" for item in lacking)
    yield Check(AREA, "processes", "check", told, details=details)


def containers(scene: Scene) -> Iterator[Check]:
    """release: {what: container}, through whichever runtime answers."""
    wanted = any(step.get("what") == "container" for step in scene.steps("release"))
    found, why = [], []
    for runtime in ("docker", "podman"):
        answer = ask([runtime, "ps", "--quiet"], scene.environ, RUNTIME_LIMIT)
        if isinstance(answer, str):
            why.append(answer)
        elif answer[0]:
            why.append(f"{runtime} does not let itself be asked (exit code {answer[0]})")
        else:
            found.append(runtime)
    if found:
        yield Check(AREA, "containers", "ok", f"release: {' and '.join(found)}")
    else:
        yield Check(AREA, "containers", "failed" if wanted else "off", f"release: {'; '.join(why)}")


def slurm(scene: Scene) -> Iterator[Check]:
    """terminate, downscale, release, resume and snapshot of jobs of Slurm."""
    named = scene.options("slurm") is not None
    bad = "failed" if named else "off"
    answer = ask(["scontrol", "ping"], scene.environ)
    if isinstance(answer, str):
        yield Check(AREA, "slurm", bad, answer)
        return
    if " is UP" not in answer[1]:
        fix = "check SLURM_CONF, slurmctld and munge"
        yield Check(AREA, "slurm", bad, "the controller does not answer", fix if named else None)
        return
    import shutil

    path = scene.environ.get("PATH", os.defpath)
    missing = [name for name in ("scancel", "squeue") if shutil.which(name, path=path) is None]
    if missing:
        yield Check(AREA, "slurm", bad, f"not installed: {', '.join(missing)}")
        return
    whose = "jobs of every user" if os.geteuid() == 0 else "jobs of this user, of all where it is an operator"
    yield Check(AREA, "slurm", "ok", f"terminate, downscale, release, resume, snapshot: {whose}")


def power_cap(scene: Scene) -> Iterator[Check]:
    """downscale: {power-cap: …}, by the driver of this machine's GPUs."""
    from stoploss.collectors.contract import CollectorError, NotHere
    from stoploss.collectors.nvml import close_driver, open_driver

    wanted = any(step.get("power-cap") is not None for step in scene.steps("downscale"))
    bad = "failed" if wanted else "off"
    try:
        open_driver()
    except NotHere as error:
        # Where others have GPUs the policies may be for them.
        yield Check(AREA, "power cap", "off", f"downscale: {error.reason}")
        return
    except CollectorError as error:
        yield Check(AREA, "power cap", bad, f"downscale: {error.reason}")
        return
    close_driver()
    if os.geteuid():
        why = "downscale: setting a power limit needs root"
        yield Check(AREA, "power cap", "failed" if wanted else "check", why)
        return
    yield Check(AREA, "power cap", "ok", "downscale: the driver is here, and this is root")


def files(scene: Scene) -> Iterator[Check]:
    """prune, tier, retain and release of what lies on file systems of this machine."""
    folders: dict[str, list[str]] = {}
    for name, actions in (("checkpoints", "prune, tier"), ("storage", "tier, release"), ("logs", "retain")):
        options = scene.options(name)
        for item in (options or {}).get("paths") or ():
            path = item.get("path") if isinstance(item, dict) else getattr(item, "path", item)
            folders.setdefault(str(path), []).append(actions)
    for step in scene.steps("tier"):
        if step.get("path"):
            folders.setdefault(str(step["path"]), []).append("tier to it")
    if not folders:
        told = "prune, tier, retain, release: no folder is named by checkpoints, storage or logs"
        yield Check(AREA, "files", "off", told)
        return
    used = scene.uses("prune", "tier", "retain", "release")
    wrong = [
        f"{path}: {why} ({', '.join(dict.fromkeys(actions))})"
        for path, actions in folders.items()
        if (why := _unusable(path)) is not None
    ]
    number = f"{len(folders)} folder{'' if len(folders) == 1 else 's'}"
    if not wrong:
        yield Check(AREA, "files", "ok", f"prune, tier, retain, release: {number}, all writable")
        return
    state = "failed" if used else "check"
    yield Check(AREA, "files", state, f"{len(wrong)} of {number} cannot be acted on", details=tuple(wrong))


def _unusable(path: str) -> str | None:
    if any(sign in path for sign in "*?["):
        return None
    if not os.path.exists(path):
        return "it is not there"
    if not os.access(path, os.W_OK | (os.X_OK if os.path.isdir(path) else 0)):
        return "it cannot be written"
    return None


def programs(scene: Scene) -> Iterator[Check]:
    """exec: the programs of the policies."""
    import shutil

    named = [str(command[0]) for step in scene.steps("exec") if (command := step.get("command"))]
    if not named:
        yield Check(AREA, "programs", "off", "exec: no policy runs a program")
        return
    path = scene.environ.get("PATH", os.defpath)
    missing = sorted({name for name in named if shutil.which(name, path=path) is None})
    if missing:
        told = f"exec: not there or not executable: {', '.join(missing)}"
        yield Check(AREA, "programs", "failed", told)
        return
    yield Check(AREA, "programs", "ok", f"exec: {', '.join(sorted(set(named)))}")


def receivers(scene: Scene) -> Iterator[Check]:
    """alert: whether each address is complete. Nothing is sent."""
    addresses = scene.policies.notify
    if not addresses:
        yield Check("receivers", "receivers", "off", "the policies name none under notify:")
    for name in addresses:
        why = _incomplete(name, scene)
        if why is None:
            fix = f"stoploss notify --test --to {name}"
            yield Check("receivers", name, "ok", f"its address is complete; to send a message: {fix}")
        else:
            yield Check("receivers", name, "failed", why)


def _incomplete(name: str, scene: Scene) -> str | None:
    """What an address lacks, in words that hold nothing of it; None where it lacks nothing."""
    import importlib.util
    import re
    from urllib.parse import urlsplit

    from stoploss.actions.alert import Receivers, address
    from stoploss.actions.contract import AddressError
    from stoploss.actions.targets import OTHERS, SLACK_HOST, TARGETS, smtp, target

    template = scene.policies.notify[name]
    # Any label will do: only a resource has the right one.
    labels = dict.fromkeys(re.findall(r"(?<!\$)\{([^{}]+)\}", template), "example")
    try:
        url = address(Receivers(scene.policies.notify, scene.environ), name, labels)
        target(url)
    except AddressError as error:
        return str(error)
    parts = urlsplit(url)
    if parts.scheme not in TARGETS and parts.hostname != SLACK_HOST:
        assert OTHERS, "what takes all other addresses"
        return None if importlib.util.find_spec("apprise") else "it needs: pip install 'stoploss[notify]'"
    if parts.scheme == "mailto":
        if not scene.environ.get(smtp.SETTING):
            return f"{smtp.SETTING} is not set; it names the mail server"
        try:
            smtp.addresses(url)
            smtp.read_server(scene.environ[smtp.SETTING])
        except ValueError as error:
            return str(error)
    elif parts.scheme != "log" and not parts.netloc:
        return "its address names no host"
    return None
