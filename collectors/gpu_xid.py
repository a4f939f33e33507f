"""Xid errors: what the driver reports of a GPU's faults, collected between two looks."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import pynvml

from stoploss.collectors import nvml
from stoploss.engine.model import Bad, Reading

MOST = 1000
"""Events taken in one look; a storm leaves the rest to the next."""


@dataclass(slots=True)
class XidWatch:
    """Listens for Xid errors since it first saw a GPU; `newest` outlives the driver's sessions."""

    newest: dict[str, str] = field(default_factory=dict)
    _events: Any = None
    _registered: dict[int, Bad | None] = field(default_factory=dict)
    _counted: dict[int, list[int]] = field(default_factory=dict)
    _failed: Bad | None = None

    def listen(self, handle: Any) -> None:
        """Hear of errors of this GPU from now on."""
        key = _key(handle)
        if key in self._registered:
            return
        if self._events is None:
            self._events = nvml.ask(pynvml.nvmlEventSetCreate)
        if isinstance(self._events, Bad):
            self._registered[key] = self._events
            return
        wanted = pynvml.nvmlEventTypeXidCriticalError
        self._registered[key] = nvml.ask(pynvml.nvmlDeviceRegisterEvents, handle, wanted, self._events)

    def collect(self) -> None:
        """Take what happened since the last call, of all GPUs."""
        self._counted, self._failed = {}, None
        if self._events is None or isinstance(self._events, Bad):
            return
        for _ in range(MOST):
            event = nvml.ask(pynvml.nvmlEventSetWait_v2, self._events, 0)
            if isinstance(event, Bad):
                self._failed = None if event == Bad("timeout") else event
                return
            if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                self._counted.setdefault(_key(event.device), []).append(event.eventData)

    def readings(self, uuid: str | Bad, handle: Any) -> dict[str, Reading]:
        """The newest error of this GPU, and how many there were since the look before."""
        key = _key(handle)
        errors = self._counted.get(key, [])
        name = uuid if isinstance(uuid, str) else str(key)
        if errors:
            self.newest[name] = str(errors[-1])
        failed = self._registered.get(key) or (self._failed if not errors else None)
        if failed is not None:
            return {"gpu.xid": failed, "gpu.xid_errors": failed}
        return {"gpu.xid": self.newest.get(name, "none"), "gpu.xid_errors": float(len(errors))}

    def close(self) -> None:
        """Stop listening; what was the newest error is remembered."""
        if self._events is not None and not isinstance(self._events, Bad):
            nvml.let_go(pynvml.nvmlEventSetFree, self._events)
        self._events = None
        self._registered.clear()


def _key(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
