"""What was seen, from look to slot to disk: raw looks while their slots are open, then slots.

A look is written down at once, and forgotten when every slot that it could change has been sealed. So a
restart finds the sealed slots in the store, and makes the open ones of the same looks again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from stoploss.daemon import late
from stoploss.daemon.places import place_of
from stoploss.engine.history import arrivals
from stoploss.engine.history.arrivals import Arrival
from stoploss.engine.history.frame import Frame, LabelChange, Presence, sealed_slot, slot_of
from stoploss.engine.history.looks import Kept, LookStore
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.history.store import SampleStore
from stoploss.engine.history.store_errors import StoreError
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
UNSAVED = 100_000
"""Looks that are kept to be written while the state cannot be."""
SLACK = 2 * 3600.0
"""Seconds that windows are held beyond what conditions ask for."""
LATEST = 3 * DAY
"""How old a node's look may be, in seconds; so long what is needed to make its slots again is held."""
FRESH = 600.0
"""How old a node's look may be to count as new where no slot was sealed yet, in seconds."""


@dataclass(frozen=True, slots=True)
class Needs:
    """How far a policy set looks back.

    Attributes:
        main: the resolution of the settings, in seconds.
        back: resolution -> seconds that must be held.
        ages: resolution -> seconds for which it must be known who was there.
    """

    main: float
    back: Mapping[float, float]
    ages: Mapping[float, float] = field(default_factory=dict)

    def slots(self, resolution: float) -> tuple[int, int]:
        """Slots of a resolution that must be held, and for which it must be known who was there."""
        return -int(-self.back[resolution] // resolution), -int(-self.ages.get(resolution, 0.0) // resolution)

    @classmethod
    def of(cls, policies: PolicySet) -> Needs:
        """Those of the longest windows at each resolution."""
        from stoploss.engine.evaluation.compile import longest_window

        back, ages = {policies.settings.resolution: SLACK}, dict[float, float]()
        for policy in policies.policies:
            longest = longest_window(policy.when) if policy.when else 0.0
            back[policy.resolution] = max(back.get(policy.resolution, SLACK), longest + SLACK)
            ages[policy.resolution] = max(ages.get(policy.resolution, 0.0), policy.min_age + SLACK)
        return cls(policies.settings.resolution, back, ages)


class History:
    """Looks and slots of one state. All methods may be called from any thread."""

    def __init__(
        self, url: str, needs: Needs, every: Mapping[str, float], sealed: Mapping[float, int] | None = None
    ) -> None:
        """Take up what was seen before.

        Args:
            url: of the state.
            needs: how far back is looked.
            every: collector -> seconds between two looks.
            sealed: resolution -> the newest slot that was sealed; None where nobody knows.

        Raises:
            StoreError: the state cannot be used.
        """
        self._lock = threading.RLock()
        self._url, self._every = url, dict(every)
        self._stores: dict[float, SampleStore] = {}
        self._windows: dict[float, Window] = {}
        self._sealed: dict[float, int] = {}
        self._gone: dict[float, dict[ResourceId, tuple[float, tuple[str, ...]]]] = {}
        self._waiting = 0
        self._unsaved: list[Kept] = []
        self._known_sealed = dict(sealed or {})
        self._main = needs.main
        for resolution in needs.back:
            self._open(resolution, needs)
        self._looks, self._received = LookStore(url), LookStore(url, durable=True)
        self._arrivals = arrivals.load(url)
        self._buffer = SampleBuffer(catalogue(), self._every)
        # Of a node more is held than open slots need: what is late is made of it, and may be days.
        for kept in self._looks.read(nodes_since=self._floor()):
            self._put(kept)

    def _open(self, resolution: float, needs: Needs) -> None:
        store = SampleStore(place_of(self._url, resolution, self._main), resolution)
        slots, ages = needs.slots(resolution)
        self._stores[resolution] = store
        self._windows[resolution] = Window(store, slots, round(DAY / resolution), ages)
        last = self._windows[resolution].last
        if last is not None:
            # One that was open when it was written is made again; what a sealed one gained since the look
            # before it may not be known any more.
            known = self._known_sealed.get(resolution)
            self._sealed[resolution] = last if known is not None and known >= last else last - 1

    def adjust(self, needs: Needs, every: Mapping[str, float]) -> None:
        """Take over what another policy set needs; what was seen stays.

        Raises:
            StoreError: the state holds slots of another resolution; nothing has changed then.
        """
        if needs.main != self._main:
            raise StoreError(
                f"settings.resolution was {self._main:g} s and cannot become {needs.main:g} s on this state; "
                "set it back, or point `state` elsewhere and start anew"
            )
        with self._lock:
            self._every.clear()
            self._every.update(every)
            self._buffer.every = dict(every)
            for resolution in self._windows.keys() - needs.back.keys():
                self._stores.pop(resolution).close()
                del self._windows[resolution]
                self._sealed.pop(resolution, None)
            for resolution in needs.back:
                if resolution in self._windows:
                    self._windows[resolution].hold(*needs.slots(resolution))
                else:
                    self._open(resolution, needs)

    def take(self, looks: Iterable[Kept]) -> None:
        """Keep looks, on disk first.

        Raises:
            StoreError: they cannot be written; they are kept in memory all the same.
        """
        looks = list(looks)
        with self._lock:
            for kept in looks:
                self._put(kept)
            # What could not be written is written with what comes next.
            self._unsaved = [*self._unsaved, *looks][-UNSAVED:]
            self._looks.append(self._unsaved)
            self._unsaved = []

    def receive(self, node: str, spool: str, looks: Sequence[tuple[int, Kept]], heard: float) -> int:
        """Keep looks of a node, each once; returns how many samples were new.

        Looks whose slots are sealed are kept for `fill`.

        Args:
            node: whose.
            spool: which of its spools numbers them.
            looks: number and look, in the order of the numbers.
            heard: the present instant, in seconds since the epoch.

        Raises:
            StoreError: they cannot be written; nothing of them was taken then.
        """
        with self._lock:
            before = self._arrivals.get((node, spool)) or Arrival(node, spool, 0, heard - LATEST, 0.0, heard)
            new = [kept for number, kept in looks if number > before.number]
            times = [kept.at for kept in new if self._is_late(kept.at, heard)]
            arrival = Arrival(
                node,
                spool,
                max([before.number, *(number for number, _ in looks)]),
                max([before.at, *(kept.at for kept in new)]),
                max([before.every, *(kept.every or 0.0 for kept in new)]),
                heard,
                min([*times, *([] if before.late is None else [before.late])], default=None),
            )
            self._received.append(new, lambda connection: arrivals.write(connection, arrival))
            self._arrivals[node, spool] = arrival
            floor = self._floor()
            for kept in new:
                if kept.at >= (heard - FRESH if floor is None else floor):
                    self._put(kept)
                    self._waiting += _samples(kept)
                else:
                    self._buffer.note_late(_samples(kept))
            return sum(map(_samples, new))

    def _is_late(self, at: float, heard: float) -> bool:
        if not self._sealed:
            return at < heard - FRESH
        return any(slot_of(at, resolution) <= slot for resolution, slot in self._sealed.items())

    @property
    def waiting(self) -> int:
        """Samples of nodes that were taken since slots were sealed last."""
        return self._waiting

    @property
    def nodes(self) -> Mapping[str, Arrival]:
        """Node -> how far its looks have come."""
        with self._lock:
            return arrivals.newest(self._arrivals)

    def fill(self, slots: Mapping[float, int]) -> None:
        """Put what came late into its slots, which were evaluated without it.

        To be called when nothing up to these slots will be evaluated again: what was found stays.

        Args:
            slots: resolution -> the newest slot that may change.

        Raises:
            StoreError: they cannot be written; they are filled at the next call.
        """
        with self._lock:
            most = {r: min(slots.get(r, slot), slot) for r, slot in self._sealed.items()}
            for node in sorted({item.node for item in self._arrivals.values() if item.late is not None}):
                mine = [item for item in self._arrivals.values() if item.node == node]
                begin = min(item.late for item in mine if item.late is not None)
                end = max(item.at for item in mine)
                spare = self._spare(max(item.every for item in mine))
                read = partial(self._of_node, node, spare)
                late.fill(read, node, (begin, end), self._windows, most)
                arrivals.settle(self._url, node)
                for item in mine:
                    self._arrivals[node, item.spool] = replace(item, late=None)

    def _of_node(self, node: str, spare: float, since: float, until: float) -> Iterable[Kept]:
        return self._looks.read(since - spare, until, node=node)

    def _put(self, kept: Kept) -> None:
        if kept.look is not None and kept.look.inventories:
            self._miss(kept, kept.look)
        late.put(self._buffer, kept)

    def _miss(self, kept: Kept, look: Look) -> None:
        """Note what a list does not hold any more, as the buffer may have forgotten what it saw of it."""
        seen = {sample.resource for sample in look.samples}
        for resolution, window in self._windows.items():
            gone = self._gone.setdefault(resolution, {})
            for resource in gone.keys() & seen:
                del gone[resource]
            for resource, presence in window.frame.resources.items() if window.frame is not None else ():
                mine = (presence.nodes or ("",)) == (kept.node,)
                missed = resource.kind in look.inventories and resource not in seen
                if missed and mine and _is_there(presence):
                    gone.setdefault(resource, (kept.at, presence.nodes))

    def seal(self, now: float) -> dict[float, int]:
        """Seal every slot that ended `SEAL` seconds before `now`; returns the newest one by resolution.

        Raises:
            StoreError: they cannot be written; they are sealed at the next call.
        """
        with self._lock:
            for resolution in self._windows:
                self._append(resolution, (now - SEAL) // resolution * resolution)
            self._forget()
            self._waiting = 0
            return dict(self._sealed)

    def _append(self, resolution: float, until: float, *, sealed: bool = True) -> None:
        window, frame = self._windows[resolution], self._buffer.frame(resolution, until if sealed else None)
        last = min(frame.last, sealed_slot(until, resolution)) if sealed else frame.last
        first = max(frame.first, self._sealed.get(resolution, frame.first - 1) + 1)
        if not frame.slots or first > last:
            return
        window.append(self._with_gone(frame.cut(first, last), window.frame))
        if sealed:
            self._sealed[resolution] = last

    def _with_gone(self, frame: Frame, held: Frame | None) -> Frame:
        """The frame with what a list showed to be gone of which the buffer holds nothing any more."""
        more: dict[ResourceId, Presence] = {}
        for resource, (time, nodes) in self._gone.get(frame.resolution, {}).items():
            slot = max(frame.first, -int(-time // frame.resolution))
            there = held is not None and resource in held.resources and _is_there(held.resources[resource])
            if slot <= frame.last and resource not in frame.resources and there:
                more[resource] = Presence(slot, (LabelChange(slot, {}),), ((slot, None),), nodes)
        return replace(frame, resources={**frame.resources, **more}) if more else frame

    def _forget(self) -> None:
        """Let go of looks that can change no slot any more."""
        floor = self._floor()
        if floor is None:
            return
        held: dict[str, float] = {}
        for item in self._arrivals.values():
            if item.at >= floor - LATEST:
                since = min(item.at, item.at if item.late is None else item.late) - self._spare(item.every)
                held[item.node] = min(held.get(item.node, since), since)
        self._looks.forget(floor, held)
        self._buffer.forget(floor)
        for resolution, gone in self._gone.items():
            self._gone[resolution] = {name: told for name, told in gone.items() if told[0] > floor}

    def _floor(self) -> float | None:
        """The instant before which no look can change a slot that is open; None where all can."""
        if len(self._sealed) < len(self._windows):
            return None
        return min(resolution * slot for resolution, slot in self._sealed.items()) - self._spare()

    def _spare(self, every: float = 0.0) -> float:
        return SPARE * max([every, *self._every.values(), *self._windows])

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

    def store(self, resolution: float) -> SampleStore:
        """Where the slots of a resolution lie on disk."""
        return self._stores[resolution]

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
            arrivals.forget(self._url, before)
            self._arrivals = {key: item for key, item in self._arrivals.items() if item.heard >= before}

    def close(self) -> None:
        """Let go of the state."""
        with self._lock:
            self._looks.close()
            self._received.close()
            for store in self._stores.values():
                store.close()


def _is_there(presence: Presence) -> bool:
    return not presence.absences or presence.absences[-1][1] is not None


def _samples(kept: Kept) -> int:
    return 0 if kept.look is None else len(kept.look.samples)


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
