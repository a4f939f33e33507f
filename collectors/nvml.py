"""The NVIDIA driver through NVML: its GPUs, their MIG slices and the processes on them.

What the driver refuses for one GPU is a `Bad` with the reason in words. What concerns the whole
driver raises: `NotHere` where there is none, `CollectorError` where there is one that does not work.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from stoploss.collectors.contract import CollectorError, NotHere
from stoploss.engine.model import Bad

LOST = "GPU is lost"
RESET = "GPU needs a reset"
NOT_FOUND = "not found"
NOT_SUPPORTED = "not supported"
NOT_SUPPORTED_ON_MIG = "not supported on MIG"
TOO_OLD = "not supported by this driver"
MISMATCH = "driver/library version mismatch"
UNKNOWN_ERROR = "unknown error"

UNUSABLE = frozenset({LOST, RESET})
"""Reasons that concern a whole GPU: whatever else it says is not to be trusted."""

_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission",
    pynvml.NVML_ERROR_NOT_FOUND: NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the driver is not loaded",
    pynvml.NVML_ERROR_TIMEOUT: "timeout",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no driver library (libnvidia-ml.so.1)",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: TOO_OLD,
    pynvml.NVML_ERROR_GPU_IS_LOST: LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: RESET,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: MISMATCH,
    pynvml.NVML_ERROR_UNKNOWN: UNKNOWN_ERROR,
}
_NO_DRIVER = {pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED}
_WHOLE_DRIVER = {
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of the driver's list.

    Attributes:
        index: its place in the list, from 0.
        handle: what NVML knows it by, or why it cannot be reached.
        uuid: its name for life.
    """

    index: int
    handle: Any
    uuid: str | Bad


@dataclass(frozen=True, slots=True)
class Slice:
    """One MIG instance of a GPU.

    Attributes:
        index: its place among the instances of its GPU, from 0.
        handle: what NVML knows it by, or why it cannot be reached.
        uuid: its name while it exists.
        name: the name of the GPU and the profile, such as `NVIDIA H100 80GB HBM3 MIG 3g.40gb`.
        instance: the number of its GPU instance.
    """

    index: int
    handle: Any
    uuid: str | Bad
    name: str | Bad
    instance: int | Bad


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a GPU; `memory` is what it holds there in bytes, None where the driver does not tell."""

    pid: int
    memory: int | None


def open_driver(root: Path = Path("/")) -> None:
    """Open NVML; every opening needs one `close_driver`.

    Args:
        root: where /proc and /sys lie, which tell a missing driver from a missing GPU.

    Raises:
        NotHere: this machine has neither driver nor GPU.
        CollectorError: it has, and NVML cannot be opened.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        why = reason(error)
        if error.value not in _NO_DRIVER:
            raise CollectorError(f"NVML cannot be opened: {why}") from error
        if gpus_on_the_bus(root):
            raise CollectorError(f"GPUs here but no driver library: {why}") from error
        raise NotHere(f"no GPU here: {why}") from error


def close_driver() -> None:
    """Undo one opening."""
    let_go(pynvml.nvmlShutdown)


def let_go(function: Callable[..., object], *arguments: Any) -> None:
    """Give something back to the driver; one that went away took it along."""
    with suppress(pynvml.NVMLError):
        function(*arguments)


def gpus_on_the_bus(root: Path = Path("/")) -> int:
    """How many NVIDIA GPUs the kernel sees, with or without a driver."""
    named = sum(1 for _ in root.glob("proc/driver/nvidia/gpus/*"))
    # Class 03 is a display or 3D controller; audio parts and switches carry the same vendor.
    vendors = root.glob("sys/bus/pci/devices/*/vendor")
    found = sum(
        _text(path) == "0x10de" and _text(path.with_name("class")).startswith("0x03") for path in vendors
    )
    return max(named, found)


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def reason(error: pynvml.NVMLError) -> str:
    """What an NVML error means, in words that stay the same."""
    return _REASONS.get(error.value) or str(error).lower()


def ask(function: Callable[..., T], *arguments: Any) -> T | Bad:
    """What NVML answers, or why it does not.

    Raises:
        CollectorError: the driver as a whole went away.
    """
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _WHOLE_DRIVER:
            raise CollectorError(f"NVML stopped answering: {reason(error)}") from error
        return Bad(reason(error))
    except UnicodeDecodeError:
        return Bad("not a text")


def devices() -> tuple[Device, ...]:
    """Every GPU that the driver lists, also those that cannot be reached.

    Raises:
        CollectorError: the list cannot be read.
    """
    count = ask(pynvml.nvmlDeviceGetCount)
    if isinstance(count, Bad):
        raise CollectorError(f"the driver cannot list its GPUs: {count.reason}")
    return tuple(_device(index) for index in range(count))


def _device(index: int) -> Device:
    handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    return Device(index, handle, _of(pynvml.nvmlDeviceGetUUID, handle))


def slices(handle: Any) -> tuple[Slice, ...] | Bad:
    """The MIG instances of a GPU that is split into them."""
    limit = ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)
    if isinstance(limit, Bad):
        return limit
    found = []
    for index in range(limit):
        part = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if part != Bad(NOT_FOUND):
            uuid, name = _of(pynvml.nvmlDeviceGetUUID, part), _of(pynvml.nvmlDeviceGetName, part)
            found.append(Slice(index, part, uuid, name, _of(pynvml.nvmlDeviceGetGpuInstanceId, part)))
    return tuple(found)


def _of(function: Callable[[Any], Any], handle: Any) -> Any:
    return handle if isinstance(handle, Bad) else ask(function, handle)


def processes(handle: Any) -> tuple[Process, ...] | Bad:
    """The processes on a GPU or MIG instance, in the order of their numbers."""
    found: dict[int, int | None] = {}
    lists = (
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    )
    for function in lists:
        listed = ask(function, handle)
        if not isinstance(listed, Bad):
            for item in listed:
                known = found.get(item.pid)
                found[item.pid] = item.usedGpuMemory if known is None else max(known, item.usedGpuMemory or 0)
        # Not every GPU has graphics or MPS, but every list of compute processes can be read.
        elif function is lists[0] or listed.reason not in (NOT_SUPPORTED, TOO_OLD):
            return listed
    return tuple(Process(pid, memory) for pid, memory in sorted(found.items()))
