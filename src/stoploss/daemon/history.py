"""What was seen, from look to slot to disk: raw looks while their slots are open, then slots.

A look is written down at once, and forgotten when every slot that it could change has been sealed. So a
restart finds the sealed slots in the store, and makes the open ones of the same looks again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stoploss.engine.history.frame import Frame, LabelChange, Presence, sealed_slot
from stoploss.engine.history.looks import Kept, LookStore
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.history.store import SampleStore
from stoploss.engine.history.store_errors import file_of, parsed
from stoploss.engine.history.window import Window
from stoploss.engine.model import Look, ResourceId
from stoploss.rules.catalogue import catalogue

if TYPE_CHECKING:
    from stoploss.rules.policy import PolicySet

DAY = 86400.0
SEAL = 10.0
"""Seconds after its end until a slot is sealed."""
SPARE = 3
"""How many intervals of a collector its looks are kept after their slots were sealed."""
SLACK = 2 * 3600.0
"""Seconds that windows are held beyond what conditions ask for."""


@dataclass(frozen=True, slots=True)
class Needs:
    """How far a policy set looks back.

    Attributes:
        main: the resolution of the settings, in seconds.
        back: resolution -> seconds that must be held.
    """

    main: float
    back: Mapping[float, float]

    @classmethod
    def of(cls, policies: PolicySet) -> Needs:
        """Those of the longest windows at each resolution."""
        from stoploss.engine.evaluation.compile import longest_window

        back = {policies.settings.resolution: SLACK}
        for policy in policies.policies:
            longest = longest_window(policy.when) if policy.when else 0.0
            back[policy.resolution] = max(back.get(policy.resolution, SLACK), longest + SLACK)
        return cls(policies.settings.resolution, back)


class History:
    """Looks and slots of one state. All methods may be called from any thread."""

    def __init__(self, url: str, needs: Needs, every: Mapping[str, float]) -> None:
        """Take up what was seen before.

        Args:
            url: of the state.
            needs: how far back is looked.
            every: collector -> seconds between two looks.

        Raises:
            StoreError: the state cannot be used.
        """
        self._lock = threading.RLock()
        self._url, self._every = url, dict(every)
        self._stores: dict[float, SampleStore] = {}
        self._windows: dict[float, Window] = {}
        self._sealed: dict[float, int] = {}
        self._gone: dict[ResourceId, float] = {}
        self._main = needs.main
        for resolution, back in needs.back.items():
            self._open(resolution, back)
        self._looks = LookStore(url)
        self._buffer = SampleBuffer(catalogue(), self._every)
        for kept in self._looks.read():
            self._put(kept)

    def _open(self, resolution: float, back: float) -> None:
        store = SampleStore(store_url(self._url, resolution, self._main), resolution)
        slots = -int(-back // resolution)
        self._stores[resolution] = store
        self._windows[resolution] = Window(store, slots, round(DAY / resolution))
        last = self._windows[resolution].last
        if last is not None:
            # The newest one may have been open when the last look was made: it is made again.
            self._sealed[resolution] = last - 1

    def adjust(self, needs: Needs, every: Mapping[str, float]) -> None:
        """Take over what another policy set needs; what was seen stays.

        Raises:
            StoreError: a state of another resolution cannot be used.
        """
        with self._lock:
            self._every.clear()
            self._every.update(every)
            self._buffer.every = dict(every)
            for resolution in self._windows.keys() - needs.back.keys():
                self._stores.pop(resolution).close()
                del self._windows[resolution]
                self._sealed.pop(resolution, None)
            for resolution, back in needs.back.items():
                if resolution in self._windows:
                    self._windows[resolution].hold(-int(-back // resolution))
                else:
                    self._open(resolution, back)

    def take(self, looks: Iterable[Kept]) -> None:
        """Keep looks, on disk first.

        Raises:
            StoreError: they cannot be written; they are kept in memory all the same.
        """
        looks = list(looks)
        with self._lock:
            for kept in looks:
                self._put(kept)
            self._looks.append(looks)

    def _put(self, kept: Kept) -> None:
        if kept.look is None:
            self._buffer.add_failure(kept.collector, kept.at, kept.failure or "failed")
            return
        known = set(self._buffer.resources)
        seen = {sample.resource for sample in kept.look.samples}
        for window in self._windows.values():
            if window.frame is None or not kept.look.inventories:
                continue
            for resource, presence in window.frame.resources.items():
                there = not presence.absences or presence.absences[-1][1] is not None
                if resource.kind in kept.look.inventories and there and resource not in known | seen:
                    # It went while nobody looked.
                    self._gone.setdefault(resource, kept.at)
        self._buffer.add(kept.collector, kept.look, slot_time=kept.at)

    def seal(self, now: float) -> dict[float, int]:
        """Seal every slot that ended `SEAL` seconds before `now`; returns the newest one by resolution.

        Raises:
            StoreError: they cannot be written; they are sealed at the next call.
        """
        with self._lock:
            for resolution in self._windows:
                self._append(resolution, (now - SEAL) // resolution * resolution)
            self._forget()
            return dict(self._sealed)

    def _append(self, resolution: float, until: float, *, sealed: bool = True) -> None:
        window, frame = self._windows[resolution], self._buffer.frame(resolution, until if sealed else None)
        last = min(frame.last, sealed_slot(until, resolution)) if sealed else frame.last
        first = max(frame.first, self._sealed.get(resolution, frame.first - 1) + 1)
        if not frame.slots or first > last:
            return
        window.append(self._with_gone(frame.cut(first, last)))
        if sealed:
            self._sealed[resolution] = last

    def _with_gone(self, frame: Frame) -> Frame:
        """The frame with what a list showed to be gone that this process has never seen."""
        more: dict[ResourceId, Presence] = {}
        for resource, time in self._gone.items():
            slot = max(frame.first, -int(-time // frame.resolution))
            if slot <= frame.last and resource not in frame.resources:
                more[resource] = Presence(slot, (LabelChange(slot, {}),), ((slot, None),))
        return replace(frame, resources={**frame.resources, **more}) if more else frame

    def _forget(self) -> None:
        """Let go of looks that can change no slot any more."""
        if len(self._sealed) < len(self._windows):
            return
        oldest = min(resolution * slot for resolution, slot in self._sealed.items())
        spare = SPARE * max([*self._every.values(), *self._windows])
        self._looks.forget(oldest - spare)
        self._buffer.forget(oldest - spare)
        self._gone = {resource: time for resource, time in self._gone.items() if time > oldest - spare}

    def look(self, looks: Iterable[Kept]) -> None:
        """Keep looks, and let the frames hold them at once, in a slot that is not sealed yet.

        Raises:
            StoreError: they cannot be written.
        """
        with self._lock:
            self.take(looks)
            for resolution in self._windows:
                self._append(resolution, 0.0, sealed=False)

    def last(self) -> float | None:
        """The end of the newest slot that is sealed, in seconds since the epoch; None before the first."""
        with self._lock:
            ends = [resolution * slot for resolution, slot in self._sealed.items()]
            return max(ends, default=None)

    def frame(self, resolution: float) -> Frame:
        """All slots that are held of a resolution."""
        with self._lock:
            held = self._windows[resolution].frame
            return held if held is not None else self._buffer.frame(resolution)

    def prune(self, before: float) -> None:
        """Forget slots that ended before an instant (seconds since the epoch), on disk.

        Raises:
            StoreError: the state cannot be written.
        """
        with self._lock:
            for resolution, window in self._windows.items():
                window.prune(sealed_slot(before, resolution))

    def close(self) -> None:
        """Let go of the state."""
        with self._lock:
            self._looks.close()
            for store in self._stores.values():
                store.close()


def store_url(url: str, resolution: float, main: float) -> str:
    """Where the slots of a resolution lie: the finest beside the state, others in a file of their own."""
    if resolution == main:
        return url
    name = f"{resolution:g}s".replace(".", "_")
    file = file_of(parsed(url))
    if file is None:
        mark = "&" if "?" in url else "?"
        return f"{url}{mark}options=-csearch_path%3Dstoploss_{name}"
    path = Path(file)
    return url.replace(str(path), str(path.with_name(f"{path.stem}-{name}{path.suffix}")))


def kept_of(runs: Iterable[object]) -> list[Kept]:
    """Looks of collectors as they are kept; what the runner itself tells is a look of its own."""
    from stoploss.collectors.runner import CollectorRun

    out: list[Kept] = []
    for run in runs:
        assert isinstance(run, CollectorRun), "that is what the runner gives"
        at = run.samples[0].time
        if run.look is not None:
            out.append(Kept(run.name, at, run.look))
        else:
            out.append(Kept("runner", at, Look(run.samples)))
        if not run.ok:
            out.append(Kept(run.name, at, None, run.reason or "failed"))
    return out
