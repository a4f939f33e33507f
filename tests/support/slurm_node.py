"""A real Slurm of one node with two GPUs that are empty files, on loopback, for as long as a test runs.

Needs Debian's `slurm-wlm` and `munge`, and root; munged, slurmctld and slurmd get ports, sockets and
folders of their own, and are ended by their ids.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")

START_LIMIT = 15.0
"""Seconds until the node must be idle."""

CONFIG = """
ClusterName=stoploss
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
FirstJobId={first}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
GresTypes=gpu
KillWait=2
NodeName=localhost NodeAddr=127.0.0.1 CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=500 \
Gres=gpu:2 State=UNKNOWN
PartitionName=train Nodes=localhost Default=YES MaxTime=1:00:00 State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A running node; `configuration` is what SLURM_CONF must name."""

    folder: Path
    configuration: Path

    def run(self, *arguments: str) -> str:
        """What a command of Slurm's prints; raises CalledProcessError where it fails."""
        environment = os.environ | {"SLURM_CONF": str(self.configuration)}
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
            env=environment,
            cwd=self.folder,
        )
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """Submit a shell script; returns the job's id."""
        return self.run("sbatch", "--parsable", *options, f"--wrap={script}").strip()


@contextmanager
def slurm_node() -> Iterator[Slurm]:
    """Start a node; skips with the reason where that is not possible."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    if missing := [name for name in PROGRAMS if shutil.which(name, path=path) is None]:
        pytest.skip(f"{', '.join(missing)} not installed (Debian: slurm-wlm, munge)")
    if os.geteuid() != 0:
        pytest.skip("a Slurm of its own needs root")
    try:
        munge = pwd.getpwnam("munge")
    except KeyError:
        pytest.skip("there is no user munge")
    folder = Path(tempfile.mkdtemp(prefix="stoploss-slurm-"))
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        _lay_out(folder, munge)
        slurm = Slurm(folder, folder / "slurm.conf")
        environment = os.environ | {"SLURM_CONF": str(slurm.configuration), "PATH": path}
        for arguments, user in (
            (_munged(folder), "munge"),
            (["slurmctld", "-D", "-c", "-f", str(slurm.configuration)], None),
            (["slurmd", "-D", "-f", str(slurm.configuration), "-N", "localhost"], None),
        ):
            with (folder / f"{arguments[0]}.out").open("wb") as out:
                daemons.append(
                    subprocess.Popen(
                        arguments,
                        user=user,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        env=environment,
                        cwd=folder,
                    )
                )
            if arguments[0] == "munged":
                _wait_for(lambda: (folder / "munge.socket").exists())
        if not _wait_for(lambda: _idle(slurm)):
            pytest.skip(f"Slurm did not start: {_last_words(folder)}")
        try:
            yield slurm
        finally:
            _clear(slurm)
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _lay_out(folder: Path, munge: pwd.struct_passwd) -> None:
    os.chown(folder, munge.pw_uid, munge.pw_gid)
    folder.chmod(0o755)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    devices = [folder / f"gpu{number}" for number in range(2)]
    for device in devices:
        device.touch()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    os.chown(key, munge.pw_uid, munge.pw_gid)
    ports = {"controller": _free_port(), "daemon": _free_port()}
    # Processes are told by the id of their job: two nodes of one machine must not give the same.
    first = 1000 + secrets.randbelow(60_000_000)
    (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, first=first, **ports))
    (folder / "gres.conf").write_text(f"NodeName=localhost Name=gpu File={folder}/gpu[0-1]\n")


def _munged(folder: Path) -> list[str]:
    files = {
        "socket": "munge.socket",
        "key-file": "munge.key",
        "pid-file": "munge.pid",
        "log-file": "munge.log",
        "seed-file": "munge.seed",
    }
    return ["munged", "-F", "--force", *(f"--{option}={folder}/{file}" for option, file in files.items())]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _idle(slurm: Slurm) -> bool:
    try:
        return slurm.run("sinfo", "-h", "-o", "%t").strip() == "idle"
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False


def _clear(slurm: Slurm) -> None:
    """End every job; what runs of one would outlive the daemons."""
    alive = ["squeue", "-h", "-r", "-t", "PENDING,RUNNING,SUSPENDED,COMPLETING", "-o", "%i"]
    # A controller that a test has stopped cannot end them.
    with suppress(subprocess.SubprocessError):
        if names := slurm.run(*alive).split():
            slurm.run("scancel", *names)
            _wait_for(lambda: not slurm.run(*alive).split())


def _wait_for(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.2)
    return False


def _last_words(folder: Path) -> str:
    lines = [
        line
        for name in ("munged", "slurmctld", "slurmd")
        if (file := folder / f"{name}.out").exists()
        for line in file.read_text("utf-8", "replace").splitlines()[-2:]
    ]
    return " | ".join(lines)[:500] or "no word from its daemons"
