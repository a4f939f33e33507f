"""Jobs that are owed a resume: `job.owed_resume`, derived from how jobs ended and from reclaim notices.

A job is owed a resume from its end on where its scheduler says that it was preempted or lost its node, or
where one of its instances was told within the ten minutes before that it will be taken back. A job that
completed, was cancelled, ran out of time or of memory is not; one that merely failed is only after a notice.
A job that vanishes together with an instance that had a notice is owed from its last sight on, and one that
is suspended after it ran from then on. It is owed until it is queued or runs again, or until another job of
its configuration (labels `experiment`, `recipe`, `trial` and `stage`) begins.

A job that was queued again and is held looks like any other that is queued, and is not told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stoploss.engine.evaluation.columns import World
from stoploss.engine.evaluation.implied import OPEN
from stoploss.engine.history.frame import BAD, FAILED, LOOKED, NONE, VALID, Floats, Frame, Plane
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.policy import PolicySet

SIGNAL = "job.owed_resume"
STATE, REASON, ATTEMPTS, SINCE_END = "job.state", "job.exit_reason", "job.attempts", "job.since_end"
NOTICES, LEFT = "instance.reclaim_notices", "instance.reclaim_in"

BEFORE_END = 600.0
"""Seconds before the end of a job in which a notice explains it."""

TAKEN = frozenset({"preempted", "node-failure"})
"""Ends that are a reclaim by themselves."""
ITS_OWN = frozenset({"completed", "cancelled", "timeout", "out-of-memory", "gpu-out-of-memory"})
"""Ends that no notice explains."""
CONFIGURATION = ("experiment", "recipe", "trial", "stage")

ON, OVER, STOPPED = 1, 2, 3
_STANDS = {"queued": ON, "running": ON, "ended": OVER, "failed": OVER, "suspended": STOPPED}

Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
Statuses = npt.NDArray[np.uint8]
Out = tuple[Floats, Statuses]
"""Values and status of one job, row by row."""
_NO_ROWS = np.zeros(0, np.intp)
Span = tuple[ResourceId, int, int]
"""An instance, and the slots [from, to) in which it was the job's."""


def with_resumes(
    policies: PolicySet, frames: Callable[[float], Frame], catalogue: Catalogue
) -> Callable[[float], Frame]:
    """Frames that carry `job.owed_resume`, where any condition of the set names it."""
    named = {signal.name for policy in policies.policies for c in policy.conditions for signal in c.signals}
    if SIGNAL not in named:
        return frames
    return lambda resolution: owed(frames(resolution), catalogue)


def owed(frame: Frame, catalogue: Catalogue) -> Frame:
    """The frame with `job.owed_resume`, where states are told and nobody recorded it.

    A value depends on what was known in its slot alone. It is unknown where the state is, and where the
    reason of an end could not be read.
    """
    plane = frame.planes.get(STATE)
    if plane is None or SIGNAL in frame.planes or not frame.slots:
        return frame
    scene = _Scene.of(frame, plane)
    values, status = np.where(plane.status == VALID, 0.0, np.nan), plane.status.copy()
    for at, job in enumerate(plane.series):
        _column(scene, job, at, (values[:, at], status[:, at]))
    derived = Plane(catalogue[SIGNAL], plane.series, values, status, plane.cadence)
    read = ((status > NONE) & (status < BAD)).any(axis=1)
    before = frame.looks.get("derived", np.zeros(frame.slots, np.uint8))
    looks = {**frame.looks, "derived": np.maximum(before, read.astype(np.uint8) * np.uint8(LOOKED))}
    return replace(frame, planes={**frame.planes, SIGNAL: derived}, looks=looks)


@dataclass(frozen=True, slots=True)
class _Scene:
    """What all jobs of a frame are judged by.

    Attributes:
        frame, plane, world: of the frame; `plane` is that of the states.
        stands: word of the plane -> how the job stands.
        noticed: instance -> rows in which it had a notice.
        seen: instance -> rows in which it was asked for one and answered.
        instances: job -> the instances that it lay on.
        begun: configuration -> the first slots of its jobs, in order.
        at: signal -> job -> its column there.
    """

    frame: Frame
    plane: Plane
    world: World
    stands: npt.NDArray[np.uint8]
    noticed: Mapping[ResourceId, Rows]
    seen: Mapping[ResourceId, Flags]
    instances: Mapping[ResourceId, list[Span]]
    begun: Mapping[tuple[object, ...], Rows]
    at: Mapping[str, Mapping[ResourceId, int]]

    @classmethod
    def of(cls, frame: Frame, plane: Plane) -> _Scene:
        """Gather it."""
        world = World()
        world.update(frame)
        noticed, seen = _notices(frame)
        begun: dict[tuple[object, ...], list[int]] = {}
        for job in plane.series:
            if (group := _configuration(world, job, frame.last)) is not None:
                begun.setdefault(group, []).append(world.track(job, "id")[0][0])
        return cls(
            frame,
            plane,
            world,
            np.array([_STANDS.get(word, ON) for word in plane.words], np.uint8),
            noticed,
            seen,
            _instances(world) if noticed else {},
            {group: np.array(sorted(slots), np.intp) for group, slots in begun.items()},
            {
                name: {job: at for at, job in enumerate(frame.planes[name].series)}
                for name in (REASON, ATTEMPTS, SINCE_END)
                if name in frame.planes
            },
        )

    def time(self, row: int) -> float:
        """The end of a row, in seconds since the epoch."""
        return self.frame.time_of(self.frame.first + row)

    def read(self, signal: str, job: ResourceId, rows: Rows) -> tuple[Floats, Statuses]:
        """Readings of a job's signal in some rows, with their status."""
        at = self.at.get(signal, {}).get(job)
        if at is None:
            return np.full(len(rows), np.nan), np.full(len(rows), NONE, np.uint8)
        plane = self.frame.planes[signal]
        return plane.values[rows, at], plane.status[rows, at]

    def noticed_before(self, job: ResourceId, end: float, row: int) -> bool:
        """Whether an instance of a job had a notice within ten minutes before its `end`, up to a row."""
        for instance, start, stop in self.instances.get(job, ()):
            rows = self.noticed.get(instance, _NO_ROWS)
            slots = rows + self.frame.first
            times = slots * self.frame.resolution
            if ((slots >= start) & (slots < stop) & (times > end - BEFORE_END) & (rows <= row)).any():
                return True
        return False


def _column(scene: _Scene, job: ResourceId, at: int, out: Out) -> None:
    """Fill in what is not 0 of one job."""
    plane, values = scene.plane, out[0]
    rows = np.flatnonzero(plane.status[:, at] == VALID)
    if not len(rows):
        return
    stands = scene.stands[plane.values[rows, at].astype(np.intp)]
    if (stands == ON).all() and job not in scene.instances:
        return
    _vanished(scene, job, at, rows, out)
    again = _again(scene, job)[rows]
    cuts = np.flatnonzero(np.r_[True, (stands[1:] != stands[:-1]) | again[1:]])
    ends = [*cuts[1:], len(rows)]
    ran = False
    for cut, end in zip(cuts, ends, strict=True):
        part, stand = rows[cut:end], int(stands[cut])
        if stand == OVER:
            _over(scene, job, part, out)
        elif stand == STOPPED and ran:
            values[part] = (part - part[0]) * scene.frame.resolution
        ran = ran or stand == ON
    until = [*(int(rows[end]) for end in ends[:-1]), scene.frame.slots]
    starts = (int(rows[cut]) for cut in cuts)
    _continued(scene, job, zip(starts, until, strict=True), values)


def _over(scene: _Scene, job: ResourceId, part: Rows, out: Out) -> None:
    """Fill in the rows of one end of a job."""
    values, status = out
    exact, good = scene.read(SINCE_END, job, part)
    since = np.where(good == VALID, exact, (part - part[0]) * scene.frame.resolution)
    end = scene.time(int(part[0])) - float(since[0])
    noticed = scene.noticed_before(job, end, int(part[0]))
    words, read = _reasons(scene, job, part)
    is_owed = np.array([word in TAKEN or (noticed and word not in ITS_OWN) for word in words], bool)
    values[part] = np.where(is_owed, since, 0.0)
    unread = (read >= BAD) & ~is_owed
    values[part[unread]] = np.nan
    status[part[unread]] = read[unread]


def _vanished(scene: _Scene, job: ResourceId, at: int, rows: Rows, out: Out) -> None:
    """Fill in the rows in which a job that ran and an instance with a notice are not seen any more."""
    values, status = out
    cadence = int(scene.plane.cadence[at])
    mine = {instance for instance, _, _ in scene.instances.get(job, ()) if instance in scene.noticed}
    for number in np.flatnonzero(np.diff(np.r_[rows, scene.frame.slots]) > cadence) if mine else ():
        row = int(rows[number])
        ran = scene.stands[int(scene.plane.values[row, at])] == ON
        if not ran or not scene.noticed_before(job, scene.time(row), row + cadence - 1):
            continue
        silent = np.arange(row + cadence, rows[number + 1] if number + 1 < len(rows) else scene.frame.slots)
        there = np.any([scene.seen[instance][silent] for instance in mine], axis=0)
        lost = silent[(status[silent] == NONE) & ~there & _sure(scene.frame, row, silent)]
        values[lost] = (lost - row) * scene.frame.resolution
        status[lost] = VALID


def _sure(frame: Frame, row: int, silent: Rows) -> Flags:
    """Rows in which somebody looked, and nobody failed who had looked when the job was seen last."""
    looked = np.zeros(len(silent), bool)
    failed = np.zeros(len(silent), bool)
    for looks in frame.looks.values():
        looked |= looks[silent] == LOOKED
        if looks[row] == LOOKED:
            failed |= looks[silent] == FAILED
    return looked & ~failed


def _continued(scene: _Scene, job: ResourceId, ends: Iterator[tuple[int, int]], values: Floats) -> None:
    """Nothing is owed from when another job of the configuration begins; what is unknown stays so."""
    group = _configuration(scene.world, job, scene.frame.last)
    begun = scene.begun[group] - scene.frame.first if group is not None else np.zeros(0, np.intp)
    for start, end in ends:
        if len(later := begun[begun > start]):
            values[int(later[0]) : end] *= 0.0


def _again(scene: _Scene, job: ResourceId) -> Flags:
    """Rows in which another attempt of a job was seen to have begun."""
    at = scene.at.get(ATTEMPTS, {}).get(job)
    increase = scene.frame.planes[ATTEMPTS].increase if at is not None else None
    return np.zeros(scene.frame.slots, bool) if increase is None else np.asarray(increase[:, at] > 0)


def _reasons(scene: _Scene, job: ResourceId, part: Rows) -> tuple[list[str], Statuses]:
    """Why a job ended, as told in each row or last before it, and the status of the readings."""
    values, status = scene.read(REASON, job, part)
    words, last = [], "none"
    for value, state in zip(values, status, strict=True):
        last = scene.frame.planes[REASON].words[int(value)] if state == VALID else last
        words.append(last)
    return words, status


def _notices(frame: Frame) -> tuple[dict[ResourceId, Rows], dict[ResourceId, Flags]]:
    """Instance -> rows with a notice; and those that a look at it covers."""
    noticed: dict[ResourceId, Flags] = {}
    seen: dict[ResourceId, Flags] = {}
    for name in {NOTICES, LEFT} & frame.planes.keys():
        plane = frame.planes[name]
        for at, instance in enumerate(plane.series):
            read = plane.status[:, at] == VALID
            told = read & (plane.values[:, at] > 0) if name == NOTICES else read
            covered = read.copy()
            for row in np.flatnonzero(read):
                covered[row : row + int(plane.cadence[at])] = True
            noticed[instance] = noticed.get(instance, False) | told
            seen[instance] = seen.get(instance, False) | covered
    return {instance: np.flatnonzero(rows) for instance, rows in noticed.items() if rows.any()}, seen


def _instances(world: World) -> dict[ResourceId, list[Span]]:
    """Job -> instances that name it, or on which its hosts lie."""
    found: dict[ResourceId, list[Span]] = {}
    jobs = world.tables["job"].columns
    for lower in ("instance", "host"):
        columns, entries = world.tables[lower].columns, world.entries(lower, "job")
        for low, up, start, end in zip(entries.lower, entries.upper, entries.start, entries.end, strict=True):
            for span in _lies_on(world, columns[low].resource, int(start), int(end)):
                found.setdefault(jobs[up].resource, []).append(span)
    for column in jobs:
        for kind in ("instance", "host"):
            for start, end, name in _spans(world, column.resource, kind):
                found.setdefault(column.resource, []).extend(
                    _lies_on(world, ResourceId(kind, name), start, end)
                )
    return found


def _lies_on(world: World, place: ResourceId, start: int, end: int) -> Iterator[Span]:
    """The instances of an instance or host within slots."""
    if place.kind == "instance":
        yield place, start, end
        return
    for low, high, name in _spans(world, place, "instance"):
        if max(low, start) < min(high, end):
            yield ResourceId("instance", name), max(low, start), min(high, end)


def _spans(world: World, resource: ResourceId, label: str) -> Iterator[tuple[int, int, str]]:
    """The names that a label has held, each with its slots [from, to)."""
    track = world.track(resource, label)
    for number, (start, value) in enumerate(track):
        if isinstance(value, str) and value:
            yield start, track[number + 1][0] if number + 1 < len(track) else OPEN, value


def _configuration(world: World, job: ResourceId, slot: int) -> tuple[object, ...] | None:
    """What other attempts of a job share with it; None without an experiment."""
    said = tuple(world.label_at(job, name, slot) for name in CONFIGURATION)
    return said if isinstance(said[0], str) and said[0] else None
