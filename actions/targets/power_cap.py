"""Lowers the power limit of GPUs of this machine through the NVIDIA driver, and puts it back.

A GPU is told by its UUID. The driver keeps a limit until it is set again, or is loaded anew. Setting one
needs root. A driver that does not answer is not waited for beyond a limit.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from stoploss.actions.contract import Found, Means, Order, Outcome, Refused
from stoploss.actions.files import words_of
from stoploss.actions.targets.process_signal import started

OPTION = "power-cap"
LIMIT = 30.0
"""Seconds that all calls to the driver for one order may take together."""
CLOSE = 1000
"""Milliwatts by which a limit may differ and count as the same: drivers round."""

_MIG = re.compile(r"MIG-|.*/mig\d+$")
_KEPT = (
    "STOPLOSS_JOB",
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "KUBERNETES_SERVICE_HOST",
    "HOSTNAME",
    "WANDB_RUN_ID",
)

T = TypeVar("T")


class _Driver(Exception):
    """The driver refuses; the text says why."""


class _Silent(Exception):
    """The driver does not answer."""


@dataclass(frozen=True, slots=True)
class _Limit:
    """A GPU's limit before and after; in milliwatts, as the driver has it.

    Attributes:
        uuid: of the GPU.
        was, cap: the limits.
        users: id and start of the job's processes on it; empty where the GPU itself is meant.
    """

    uuid: str
    was: int
    cap: int
    users: tuple[tuple[int, int], ...] = ()


class _Cap:
    """What both have in common."""

    def __init__(self, means: Means) -> None:
        """Take over what is needed; the driver is opened only when there is an order."""
        options: Mapping[str, Any] = means.collectors.get("gpu") or {}
        self._host = options.get("name") or means.hostname

    def find(self, order: Order) -> Found:
        """Look which GPUs are meant and what their limits are; changes nothing.

        Raises:
            Refused: they are not of this machine, are split or shared, or the limit would not be lower.
        """
        watts = order.parameters.get(OPTION)
        if not isinstance(watts, int | float) or watts <= 0:
            raise Refused(f"{OPTION} says no power")
        cap = round(watts * 1000)
        try:
            limits = _in_time(lambda _: self._find(order, cap))
        except (_Driver, _Silent) as error:
            raise Refused(str(error)) from None
        names = ", ".join(f"{limit.uuid} from {_watts(limit.was)}" for limit in limits)
        before = {
            "cap_w": cap / 1000,
            "gpus": [
                {"uuid": item.uuid, "limit_w": item.was / 1000, "users": [list(user) for user in item.users]}
                for item in limits
            ],
        }
        return Found(f"would cap {names} to {_watts(cap)}", before, undoable=True)

    def act(self, order: Order, found: Found) -> Outcome:
        """See the contract."""
        return _outcome(lambda over: _set(_limits_of(found), over))

    def look(self, order: Order, found: Found) -> Outcome:
        """See the contract."""
        return _outcome(lambda _: _seen(_limits_of(found)), unsure="unknown")

    def undo(self, order: Order, found: Found) -> Outcome:
        """See the contract."""
        return _outcome(lambda over: _put_back(_limits_of(found), over))

    def _find(self, order: Order, cap: int) -> Sequence[_Limit]:
        raise NotImplementedError


class CapGpu(_Cap):
    """Caps one GPU."""

    def _find(self, order: Order, cap: int) -> Sequence[_Limit]:
        uuid, host = order.labels.get("uuid", ""), order.labels.get("host", "")
        if host != self._host:
            raise Refused(f"{order.resource} is not a GPU of this machine, {self._host}")
        if _MIG.match(uuid) or _MIG.match(order.resource.id):
            raise Refused(f"{order.resource} is a MIG slice, which has no power limit of its own")
        if not uuid or uuid == "?":
            raise Refused(f"nothing says which GPU {order.resource} is: it has no readable label uuid")
        with _gpus() as gpus:
            if uuid not in gpus:
                raise Refused(f"the driver lists no GPU {uuid}", gone=True)
            return [_lower(uuid, gpus[uuid], cap)]


class CapJob(_Cap):
    """Caps all GPUs of this machine on which a job computes, where it computes alone."""

    def _find(self, order: Order, cap: int) -> Sequence[_Limit]:
        job = order.resource.id
        found = []
        with _gpus() as gpus:
            for uuid, handle in sorted(gpus.items()):
                users = {pid: _jobs_of(pid) for pid in _processes(handle)}
                others = [pid for pid, names in users.items() if job not in names]
                if len(others) == len(users):
                    continue
                if others:
                    raise Refused(
                        f"{uuid} is not the job's alone: process {others[0]} is of another, or hidden"
                    )
                limit = _lower(uuid, handle, cap)
                marks = tuple((pid, start) for pid in users if (start := _start(pid)) is not None)
                found.append(_Limit(limit.uuid, limit.was, limit.cap, marks))
        if not found:
            raise Refused(f"no process of {order.resource} is seen on a GPU of this machine, {self._host}")
        return found


def _lower(uuid: str, handle: Any, cap: int) -> _Limit:
    """Raises Refused where the cap would not be one."""
    import pynvml

    try:
        split = pynvml.nvmlDeviceGetMigMode(handle)[0]
    except pynvml.NVMLError:
        # GPUs that cannot be split say that they know no such mode.
        split = 0
    if split:
        raise Refused(f"{uuid} is split into MIG slices, whose users share its power")
    was = _ask(pynvml.nvmlDeviceGetPowerManagementLimit, handle)
    least, _ = _ask(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle)
    if cap < least:
        raise Refused(f"{uuid} cannot be capped to {_watts(cap)}: its least is {_watts(least)}")
    if cap > was - CLOSE:
        raise Refused(f"{uuid} is limited to {_watts(was)}; {_watts(cap)} is no less")
    return _Limit(uuid, was, cap)


def _limits_of(found: Found) -> list[_Limit]:
    cap = round(found.before["cap_w"] * 1000)
    return [
        _Limit(
            item["uuid"], round(item["limit_w"] * 1000), cap, tuple((pid, at) for pid, at in item["users"])
        )
        for item in found.before["gpus"]
    ]


def _set(limits: Sequence[_Limit], over: threading.Event) -> Outcome:
    """Cap what is not capped yet and still is as it was found."""
    import pynvml

    left = []
    with _gpus() as gpus:
        for limit in limits:
            handle = gpus.get(limit.uuid)
            now = None if handle is None else _ask(pynvml.nvmlDeviceGetPowerManagementLimit, handle)
            if now is None:
                left.append(f"the driver lists no GPU {limit.uuid}")
            elif _same(now, limit.cap):
                continue
            elif not _same(now, limit.was):
                left.append(f"{limit.uuid} is limited to {_watts(now)} by now; somebody else changed it")
            elif limit.users and not any(_start(pid) == start for pid, start in limit.users):
                left.append(f"the job has left {limit.uuid}")
            else:
                _give(handle, limit.cap, over)
    if len(left) == len(limits):
        return Outcome("skipped", "; ".join(left))
    after = _seen(limits)
    if after.state != "done" and left:
        return Outcome("failed", "; ".join(left), after.after)
    if after.state == "undone":
        return Outcome("failed", "the driver took the limit and did not keep it", after.after)
    return after


def _seen(limits: Sequence[_Limit]) -> Outcome:
    """How the limits are now."""
    now = _now(limits)
    after = {"limits_w": {uuid: limit / 1000 for uuid, limit in now.items()}}
    if not now:
        return Outcome("skipped", "the driver lists none of these GPUs any more")
    capped = [item for item in limits if item.uuid in now and _same(now[item.uuid], item.cap)]
    if len(capped) == len(limits):
        return Outcome("done", f"{_gpus_of(len(capped))} capped to {_watts(limits[0].cap)}", after)
    if all(item.uuid in now and _same(now[item.uuid], item.was) for item in limits):
        return Outcome("undone", f"{_gpus_of(len(limits))} limited as before", after)
    if not capped:
        return Outcome("skipped", "the limits were changed by somebody else", after)
    return Outcome("failed", f"{len(capped)} of {_gpus_of(len(limits))} capped", after, retry=True)


def _put_back(limits: Sequence[_Limit], over: threading.Event) -> Outcome:
    import pynvml

    left, back = [], []
    with _gpus() as gpus:
        for limit in limits:
            if limit.uuid not in gpus:
                left.append(f"the driver lists no GPU {limit.uuid}")
                continue
            now = _ask(pynvml.nvmlDeviceGetPowerManagementLimit, gpus[limit.uuid])
            if _same(now, limit.cap):
                _give(gpus[limit.uuid], limit.was, over)
            elif not _same(now, limit.was):
                left.append(f"{limit.uuid} is limited to {_watts(now)} by now; somebody else changed it")
                continue
            back.append(limit)
    now_all = _now(back)
    after = {"limits_w": {uuid: limit / 1000 for uuid, limit in now_all.items()}}
    if not back:
        return Outcome("skipped", "; ".join(left), after)
    if not all(item.uuid in now_all and _same(now_all[item.uuid], item.was) for item in back):
        return Outcome("failed", "the driver took the limit and did not keep it", after)
    words = [f"{_gpus_of(len(back))} limited as before", *left]
    return Outcome("done", "; ".join(words), after)


def _give(handle: Any, milliwatts: int, over: threading.Event) -> None:
    import pynvml

    # What was given up as unknown must not come true later.
    if not over.is_set():
        _ask(pynvml.nvmlDeviceSetPowerManagementLimit, handle, milliwatts)


def _now(limits: Sequence[_Limit]) -> dict[str, int]:
    import pynvml

    with _gpus() as gpus:
        return {
            item.uuid: _ask(pynvml.nvmlDeviceGetPowerManagementLimit, gpus[item.uuid])
            for item in limits
            if item.uuid in gpus
        }


@contextmanager
def _gpus() -> Iterator[dict[str, Any]]:
    """UUID -> handle of every GPU that can be reached, while the driver is open."""
    import pynvml

    _ask(pynvml.nvmlInit)
    try:
        found = {}
        for index in range(_ask(pynvml.nvmlDeviceGetCount)):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                found[str(pynvml.nvmlDeviceGetUUID(handle))] = handle
            except pynvml.NVMLError:
                continue
        yield found
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    import pynvml

    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
            raise _Driver("setting a power limit needs root") from None
        if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
            raise _Driver("this GPU has no power limit that can be set") from None
        raise _Driver(f"the driver refuses: {str(error).lower()}") from None


def _processes(handle: Any) -> list[int]:
    import pynvml

    found = {item.pid for item in _ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)}
    for function in (
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    ):
        try:
            found |= {item.pid for item in function(handle)}
        except pynvml.NVMLError:
            # Not every GPU has graphics or MPS.
            continue
    return sorted(found)


def _jobs_of(pid: int) -> frozenset[str]:
    """The names of the job that a process was told; none where it cannot be seen."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            entries = stream.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return frozenset()
    given = {name: value for name, _, value in (entry.partition("=") for entry in entries) if name in _KEPT}
    array, task = (given.get(name) for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"))
    slurm = f"{array}_{task}" if array and task else given.get("SLURM_JOB_ID")
    pod = given.get("HOSTNAME") if "KUBERNETES_SERVICE_HOST" in given else None
    names = (given.get("STOPLOSS_JOB"), slurm, pod, given.get("WANDB_RUN_ID"))
    return frozenset(name for name in names if name)


def _start(pid: int) -> int | None:
    try:
        return started(pid)
    except (OSError, ValueError, IndexError):
        return None


def _in_time(function: Callable[[threading.Event], T]) -> T:
    """What a function gives back or raises, within the limit; a call that hangs cannot be ended.

    The function is given an event that is set once it is not waited for any more.

    Raises:
        _Silent: it was not over in time.
    """
    results: list[T] = []
    errors: list[Exception] = []
    over = threading.Event()

    def run() -> None:
        try:
            results.append(function(over))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="power-cap", daemon=True)
    thread.start()
    thread.join(LIMIT)
    over.set()
    if errors:
        raise errors[0]
    if not results:
        raise _Silent(f"the driver did not answer within {LIMIT:g} s")
    return results[0]


def _outcome(function: Callable[[threading.Event], Outcome], *, unsure: str = "failed") -> Outcome:
    try:
        return _in_time(function)
    except _Silent as error:
        return Outcome("unknown", str(error))
    except (_Driver, OSError) as error:
        return Outcome("unknown" if unsure == "unknown" else "failed", words_of(error))


def _same(one: int, other: int) -> bool:
    return abs(one - other) < CLOSE


def _watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000:g} W"


def _gpus_of(number: int) -> str:
    return f"{number} GPU{' is' if number == 1 else 's are'}"
