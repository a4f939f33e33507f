"""A driver that answers from a text: scenarios, and the gpu collector looking at them.

`nvml/fake_nvml.c` has NVML's functions and is compiled once a session. It is found through
LD_LIBRARY_PATH, so everything that shall see it runs in a child process.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stoploss.engine.model import UNREADABLE, Bad

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "nvml"
MIB = 2**20

NOT_SUPPORTED, NO_PERMISSION, LIBRARY_MISSING, NOT_LOADED = "!3", "!4", "!12", "!9"
LOST, MISMATCH, UNKNOWN_ERROR = "!15", "!18", "!999"

Keys = Mapping[str, object]


def gpu(number: int = 0, **changes: object) -> dict[str, object]:
    """The keys of a busy H100; of changes, `_` in a name stands for `.` and None takes a key away."""
    keys: dict[str, object] = {
        "uuid": f"GPU-{number}",
        "name": "NVIDIA H100 80GB HBM3",
        "memory.total": 81559 * MIB,
        "memory.used": 20000 * MIB,
        "utilization": 97,
        "utilization.memory": 11,
        "encoder": 0,
        "decoder": 0,
        "power": 633120 + number,
        "power_limit": 700000,
        "power.least": 200000,
        "power.most": 700000,
        "energy": 7200000,
        "temperature": 59,
        "clock.sm": 1980,
        "clock.memory": 2619,
        "pstate": 0,
        "throttle": 0,
        "pcie.received": 6346,
        "pcie.sent": 3092,
        "pcie.width": 16,
        "pcie.replays": 9,
        "ecc.corrected": 0,
        "ecc.uncorrected": 0,
        "remapped.corrected": 0,
        "remapped.uncorrected": 0,
        "mig": 0,
        "processes": f"100:{20000 * MIB}",
        "field.82": 55,
        "field.91": 18,
        "field.138": "1000+2048",
        "field.139": "1000+1024",
        **{f"field.{total}": 0 for total in (38, 45, 52, 59)},
        "gpm": 1,
        "gpm.1": 96.5,
        "gpm.2": 88.25,
        "gpm.3": 41.5,
        "gpm.5": 33.125,
    }
    return changed(keys, changes)


def idle(number: int = 0, **changes: object) -> dict[str, object]:
    """The keys of an H100 that does nothing."""
    keys = gpu(
        number, power=69850 + number, utilization=0, utilization_memory=0, memory_used=0, processes="-"
    )
    keys |= {f"gpm.{metric}": 0 for metric in (1, 2, 3, 5)}
    return changed(keys, changes)


def split(**changes: object) -> dict[str, object]:
    """A GPU in two MIG slices, whose utilization the driver refuses, or says is 0 where changed."""
    keys = gpu(mig=1, migs=7, memory_used=59 * MIB)
    keys |= {"utilization": NOT_SUPPORTED, "utilization.memory": NOT_SUPPORTED}
    for place, profile in enumerate(("3g.40gb", "1g.10gb")):
        keys |= {
            f"mig{place}.uuid": f"MIG-{place}",
            f"mig{place}.name": f"NVIDIA H100 80GB HBM3 MIG {profile}",
            f"mig{place}.instance": 2 + place,
            f"mig{place}.memory.total": 40448 * MIB,
            f"mig{place}.memory.used": 26 * MIB,
            f"mig{place}.processes": "-",
            **{f"mig{place}.gpm.{metric}": 80 - place for metric in (1, 2, 3, 5)},
        }
    return changed(keys, changes)


def changed(keys: Keys, changes: Keys) -> dict[str, object]:
    """Keys with changes, whose names have `_` for `.`, but for the one that has it itself."""
    names = {name: "power_limit" if name == "power_limit" else name.replace("_", ".") for name in changes}
    merged = {**keys, **{names[name]: value for name, value in changes.items()}}
    return {name: value for name, value in merged.items() if value is not None}


def scenario(*gpus: Keys, driver: str = "590.48.01", **top: object) -> str:
    """The text of a driver with these GPUs; `top` are keys that concern the whole driver."""
    lines = [f"driver {driver}", f"count {top.pop('count', len(gpus))}"]
    lines += [f"{name} {value}" for name, value in top.items()]
    lines += [f"gpu{place}.{name} {value}" for place, keys in enumerate(gpus) for name, value in keys.items()]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look saw.

    Attributes:
        readings: (resource, signal) -> reading; resources without the host's name: `gpu0`.
        labels: resource -> labels.
        notes: what it told people.
        error: the exception's type, where there was one, and its reason.
    """

    readings: Mapping[tuple[str, str], object]
    labels: Mapping[str, Mapping[str, object]]
    notes: Sequence[str] = ()
    error: tuple[str, str] | None = None

    def __getitem__(self, key: tuple[str, str]) -> Any:
        """The reading of a resource's signal, both in short: `["gpu0", "power"]`."""
        return self.readings[key[0], f"gpu.{key[1]}"]

    @property
    def names(self) -> list[str]:
        """The resources, in the order in which they were told."""
        return list(dict.fromkeys(name for name, _ in self.readings))


def _decoded(value: object) -> object:
    if isinstance(value, dict):
        return Bad(value["bad"]) if "bad" in value else UNREADABLE
    return value


def _seen(told: Mapping[str, Any]) -> Seen:
    if "error" in told:
        return Seen({}, {}, error=(told["error"], told["reason"]))
    return Seen(
        {
            (name.removeprefix("n1/"), signal): _decoded(value)
            for _, _, name, signal, value in told["samples"]
        },
        {
            name.removeprefix("n1/"): {label: _decoded(value) for label, value in labels.items()}
            for name, labels in told["labels"].items()
        },
        told["notes"],
    )


class FakeDriver:
    """The compiled library, and a child process in which collectors find it."""

    def __init__(self) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("no C compiler for the fake driver")
        self.folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
        library = self.folder / "libnvidia-ml.so.1"
        subprocess.run(
            [compiler, "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", library, SOURCES / "fake_nvml.c"],
            check=True,
        )
        self.empty = self.folder / "root"
        self.empty.mkdir()
        self.writes = self.folder / "writes"
        self.children: dict[str, subprocess.Popen[str]] = {}
        atexit.register(self.close)

    def environment(self, text: str = "") -> dict[str, str]:
        """The environment of a child process that finds this driver, in the state that `text` says."""
        path = self.folder / f"scenario-{len(list(self.folder.iterdir()))}"
        path.write_text(text, "utf-8")
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.folder),
            "FAKE_NVML": str(path),
            "PYTHONPATH": str(ROOT / "src"),
        }

    def ask(self, scenarios: Sequence[str], root: Path | None = None) -> dict[str, Any]:
        """What looks of one collector at these scenarios told, as JSON."""
        return dict(self._talk("looker.py", {"scenarios": list(scenarios), "root": str(root or self.empty)}))

    def cap(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What calls of one power cap gave back, as JSON; the request is that of `nvml/capper.py`."""
        return list(self._talk("capper.py", request))

    def _talk(self, script: str, request: Mapping[str, Any]) -> Any:
        child = self.children.get(script)
        if child is None:
            child = self.children[script] = subprocess.Popen(
                [sys.executable, SOURCES / script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self.environment() | {"FAKE_NVML_WRITES": str(self.writes)},
                text=True,
            )
        assert child.stdin is not None
        assert child.stdout is not None
        print(json.dumps(request), file=child.stdin, flush=True)
        told = json.loads(child.stdout.readline() or "null")
        assert told is not None, "the child process ended"
        return told

    def close(self) -> None:
        """End the child processes and remove the library."""
        for child in self.children.values():
            child.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def driver() -> FakeDriver:
    """The one of this session; skips the test where there is no C compiler."""
    return FakeDriver()


def looks(*scenarios: str, root: Path | None = None) -> list[Seen]:
    """What one collector saw that looked once at each scenario, 60 s apart, on the host n1."""
    return [_seen(told) for told in driver().ask(scenarios, root)["looks"]]


def look(text: str, root: Path | None = None) -> Seen:
    """What the first look of a collector saw."""
    return looks(text, root=root)[0]
