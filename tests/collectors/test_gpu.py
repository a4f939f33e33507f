"""GPUs that come, go, are split or belong to jobs, seen through the real pynvml and a fake driver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.fake_driver import (
    LOST,
    MIB,
    MISMATCH,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN_ERROR,
    gpu,
    idle,
    look,
    looks,
    scenario,
    split,
)

from stoploss.engine.model import UNREADABLE, Bad
from stoploss.rules.catalogue import catalogue

SIGNALS = {signal.name for signal in catalogue().of_collector("gpu")}
HIDDEN = Bad("a process that cannot be seen holds memory")
ON_MIG = Bad("not supported on MIG")


def machine(folder: Path, processes: Mapping[int, str]) -> Path:
    """A root whose /proc holds these processes, each with its environment."""
    for pid, environment in processes.items():
        place = folder / f"proc/{pid}"
        place.mkdir(parents=True)
        (place / "environ").write_bytes(environment.replace(" ", "\0").encode() + b"\0")
        (place / "stat").write_text(f"{pid} (python) S 0 {pid} {pid} 0 -1 4194304" + " 0" * 43)
        (place / "cgroup").write_text("0::/user.slice\n")
    return folder


def on_the_bus(folder: Path, kind: str = "0x030200") -> Path:
    """A root in which the kernel sees an NVIDIA device of this class."""
    device = folder / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text(f"{kind}\n")
    return folder


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (scenario(init="!12"), "no GPU here: no driver library (libnvidia-ml.so.1)"),
        (scenario(init="!9"), "no GPU here: the driver is not loaded"),
        (scenario(), "no GPU here: the driver lists none"),
    ],
)
def test_a_machine_without_gpu_has_nothing_to_collect(text: str, reason: str, tmp_path: Path) -> None:
    """No library, no driver or no GPU is no failure; an NVIDIA audio device on the bus is no GPU."""
    assert look(text, on_the_bus(tmp_path, "0x040300")).error == ("NotHere", reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (scenario(init="!12"), "GPUs here but no driver library: no driver library (libnvidia-ml.so.1)"),
        (scenario(init="!9"), "GPUs here but no driver library: the driver is not loaded"),
        (scenario(), "GPUs here but the driver lists none"),
    ],
)
def test_G_16_gpus_without_a_driver_are_a_failure(text: str, reason: str, tmp_path: Path) -> None:
    """A machine whose bus carries GPUs that no driver tells of fails the look; nothing is idle there."""
    assert look(text, on_the_bus(tmp_path)).error == ("CollectorError", reason)


def test_G_16_the_kernel_module_knows_gpus_too(tmp_path: Path) -> None:
    """A container that sees the driver's /proc but not the bus has GPUs as well."""
    (tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0").mkdir(parents=True)

    seen = look(scenario(init="!12"), tmp_path)

    assert seen.error is not None
    assert seen.error[0] == "CollectorError"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (scenario(gpu(), init=MISMATCH), "NVML cannot be opened: driver/library version mismatch"),
        (scenario(gpu(), init=NO_PERMISSION), "NVML cannot be opened: no permission"),
        (scenario(gpu(), init=UNKNOWN_ERROR), "NVML cannot be opened: unknown error"),
        (scenario(gpu(), count=UNKNOWN_ERROR), "the driver cannot list its GPUs: unknown error"),
        (scenario(gpu(), count=MISMATCH), "NVML stopped answering: driver/library version mismatch"),
    ],
)
def test_G_22_a_driver_that_does_not_answer_fails_the_look(text: str, reason: str) -> None:
    """A driver that does not fit its library, or may not be opened, is a failure with its reason."""
    assert look(text).error == ("CollectorError", reason)


def test_a_driver_that_comes_back_is_opened_again() -> None:
    """After a look that failed the driver is opened anew, and GPUs keep their names and their past."""
    good = scenario(gpu(0, xid="94"), gpu(1))

    first, failed, later = looks(good, scenario(gpu(), count="!1"), scenario(gpu(0), gpu(1)))

    assert failed.error == ("CollectorError", "NVML stopped answering: uninitialized")
    assert later.names == first.names == ["gpu0", "gpu1"]
    assert later["gpu0", "xid"] == "94"
    assert later["gpu1", "sm_active"] == 0.8825


@pytest.mark.parametrize("utilization", [NOT_SUPPORTED, 0])
def test_P_A8_mig_makes_utilization_unknown_even_where_the_driver_says_0(utilization: object) -> None:
    """On a split GPU and its slices the classic counter is unknown, while the measured share is known."""
    seen = look(scenario(split(utilization=utilization, utilization_memory=utilization)))

    assert seen.names == ["gpu0", "gpu0/mig0", "gpu0/mig1"]
    for name in seen.names:
        assert seen[name, "utilization"] == seen[name, "memory.active"] == ON_MIG
    assert seen["gpu0/mig0", "engine_active"] == 0.8
    assert seen["gpu0/mig1", "sm_active"] == 0.79


def test_G_9_a_slice_knows_its_memory_and_the_device_its_power() -> None:
    """Memory is that of each slice; power is the device's and unknown of a slice; nothing becomes 0."""
    seen = look(scenario(split()))

    assert seen["gpu0", "power"] == 633.12
    assert seen["gpu0/mig0", "power"] == seen["gpu0/mig0", "temperature"] == ON_MIG
    assert seen["gpu0/mig0", "memory.used"] == 26.0 * MIB
    assert seen["gpu0/mig0", "memory.utilization"] == 26 / 40448
    assert seen["gpu0/mig0", "mig"] == seen["gpu0", "mig"] == "enabled"
    assert {signal for name, signal in seen.readings if name == "gpu0/mig1"} == SIGNALS


def test_a_slice_says_what_it_is_part_of() -> None:
    """A slice carries its own uuid, its profile and its parent; its model holds the profile for prices."""
    seen = look(scenario(split()))

    assert seen.labels["gpu0/mig0"] == {
        "host": "n1",
        "uuid": "MIG-0",
        "profile": "3g.40gb",
        "parent": "n1/gpu0",
        "job": None,
    }
    assert seen["gpu0/mig0", "model"] == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"


def test_a_split_gpu_belongs_to_the_jobs_on_its_slices(tmp_path: Path) -> None:
    """Processes are listed per slice; the device counts them all and takes the job of most memory."""
    root = machine(tmp_path, {7: "STOPLOSS_JOB=a", 8: "STOPLOSS_JOB=b"})

    keys = split(**{"mig0.processes": "7:1000", "mig1.processes": "8:2000", "processes": NO_PERMISSION})
    seen = look(scenario(keys), root)

    assert [seen.labels[name]["job"] for name in seen.names] == ["b", "a", "b"]
    assert [seen[name, "processes"] for name in seen.names] == [2.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ({"handle": LOST}, "GPU is lost"),
        ({"all": LOST}, "GPU is lost"),
        ({"power": LOST}, "GPU is lost"),
        ({"all": "!16"}, "GPU needs a reset"),
        ({"handle": UNKNOWN_ERROR}, "GPU cannot be reached: unknown error"),
    ],
)
def test_G_21_one_lost_gpu_leaves_no_gpu_of_its_host_idle(lost: dict[str, object], reason: str) -> None:
    """With GPU 3 of 8 lost all it has is unknown, and so is the activity of the other seven."""
    gpus = [idle(number) for number in range(8)]
    gpus[3] |= lost

    seen = look(scenario(*gpus))

    assert {reading for (name, _), reading in seen.readings.items() if name == "gpu3"} == {Bad(reason)}
    for number in (0, 1, 2, 4, 5, 6, 7):
        for signal in ("utilization", "power", "energy", "sm_active", "tensor_active"):
            assert seen[f"gpu{number}", signal] == Bad("another GPU of this host is lost: gpu3")
        assert seen[f"gpu{number}", "temperature"] == 59.0
    assert seen.notes == [f"n1/gpu3: {reason}"]
    assert seen.labels["gpu3"]["job"] is UNREADABLE


def test_a_lost_gpu_keeps_its_identity_and_comes_back() -> None:
    """A GPU that was seen before it was lost keeps name, uuid and slices, and is known after a reset."""
    good = scenario(idle(0), split(uuid="GPU-1"))

    _, lost, back = looks(good, scenario(idle(0), {"handle": LOST}), good)

    assert lost.labels["gpu1"] == {"host": "n1", "uuid": "GPU-1", "job": UNREADABLE}
    assert lost["gpu1/mig1", "memory.used"] == Bad("GPU is lost")
    assert lost.labels["gpu1/mig1"]["profile"] == "1g.10gb"
    assert back["gpu0", "utilization"] == 0.0
    assert back["gpu1/mig1", "memory.used"] == 26.0 * MIB


def test_a_gpu_that_vanishes_is_told_under_its_last_name() -> None:
    """GPUs behind a vanished one keep their names; it stays unknown, and beside it nothing is idle."""
    gpus = [idle(number) for number in range(4)]

    *_, seen = looks(scenario(*gpus), scenario(*gpus[:1], *gpus[2:]), scenario(*gpus[:1], *gpus[2:]))

    assert {name: labels["uuid"] for name, labels in seen.labels.items()} == {
        f"gpu{number}": f"GPU-{number}" for number in range(4)
    }
    gone = {reading for (name, _), reading in seen.readings.items() if name == "gpu1"}
    assert gone == {Bad("GPU vanished")}
    assert seen["gpu3", "utilization"] == Bad("another GPU of this host is lost: gpu1")
    assert seen["gpu3", "memory.used"] == 0.0
    assert seen.notes == ["n1/gpu1: GPU vanished"]


def test_all_gpus_that_vanish_are_told() -> None:
    """A driver that lists no GPU any more is not a machine without GPUs."""
    _, seen = looks(scenario(idle(0), idle(1)), scenario())

    assert seen["gpu0", "power"] == seen["gpu1", "power"] == Bad("GPU vanished")


def test_a_new_gpu_takes_no_name_that_is_taken() -> None:
    """A GPU in the place of a vanished one gets a number of its own."""
    _, seen = looks(scenario(idle(0), idle(1)), scenario(idle(0), idle(7)))

    assert {name: labels["uuid"] for name, labels in seen.labels.items()} == {
        "gpu0": "GPU-0",
        "gpu1": "GPU-1",
        "gpu2": "GPU-7",
    }


def test_a_gpu_that_others_may_not_see_is_not_lost() -> None:
    """A GPU that a container was not given is unknown for that reason and spoils no other."""
    seen = look(scenario({"handle": NO_PERMISSION}, idle(1)))

    assert seen["gpu0", "utilization"] == Bad("no permission")
    assert seen["gpu1", "utilization"] == 0.0
    assert seen.labels["gpu0"]["uuid"] is UNREADABLE


def test_a_gpu_belongs_to_the_job_of_its_processes(tmp_path: Path) -> None:
    """Processes of all types count once; those without a job change nothing."""
    root = machine(tmp_path, {7: "STOPLOSS_JOB=vit", 8: "STOPLOSS_JOB=vit", 9: "TERM=xterm"})

    seen = look(
        scenario(gpu(processes="7:100 9:900", **{"processes.mps": "7:100", "processes.graphics": "8:1"})),
        root,
    )

    assert seen["gpu0", "processes"] == 3.0
    assert seen.labels["gpu0"]["job"] == "vit"
    assert seen.notes == []


def test_of_several_jobs_the_one_with_most_memory_has_the_gpu(tmp_path: Path) -> None:
    """A shared GPU counts for the job that holds most of its memory, and a note names them all."""
    root = machine(tmp_path, {7: "STOPLOSS_JOB=a", 8: "STOPLOSS_JOB=b", 9: "STOPLOSS_JOB=a"})

    seen = look(scenario(gpu(processes="7:400 8:500 9:200")), root)

    assert seen.labels["gpu0"]["job"] == "a"
    assert seen.notes == ["n1/gpu0: 2 jobs are on it (a, b); it counts for a, which holds most of its memory"]


@pytest.mark.parametrize(
    ("changes", "job", "count"),
    [
        ({"processes": "-", "memory.used": 80 * MIB}, None, 0.0),
        ({"processes": "-"}, UNREADABLE, HIDDEN),
        ({"processes": NO_PERMISSION}, UNREADABLE, Bad("no permission")),
        ({"processes": "7:100 404:100"}, UNREADABLE, 2.0),
        ({"processes": "7"}, "vit", 1.0),
    ],
)
def test_an_owner_that_cannot_be_seen_is_unreadable(
    changes: dict[str, object], job: object, count: object, tmp_path: Path
) -> None:
    """No process is no job; a list, a process or a holder of memory that is hidden is unreadable."""
    root = machine(tmp_path, {7: "STOPLOSS_JOB=vit"})

    seen = look(scenario({**gpu(), **changes}), root)

    assert seen.labels["gpu0"]["job"] == job
    assert seen["gpu0", "processes"] == count
